"""The recommended detector."""

from collections.abc import Mapping
from typing import Literal, final

from altbi.detectors._base import Detector
from altbi.encoding import StatedRole
from altbi.model._settings import RandomState
from altbi.model._threshold import Contamination
from altbi.networks import Backbone, Schedule


@final
class OutlierDetector(Detector):
    """Detect outliers by comparing rows with normal rows; the recommended detector.

    A small network is trained briefly by ALTBI's method, with growing batches and truncated losses.
    It learns the common rows of a table before the unusual ones. Rows with small losses are
    candidates for the reference set. The score of a row adds up its distance to the nearest
    reference rows, its distance from their mean after removing correlations, and the rarity of its
    values. With 100 encoded features or more, it is the distance alone.

    Tables may hold numbers, booleans, text categories, dates and missing values.

    Parameters
    ----------
    n_reference : int, default=1000
        Number of reference rows. The model and its file hold these rows of the training table.
    n_groups : int, default=20
        Number of groups into which the reference rows are divided. The nearest row of each group
        counts, so that one reference row matters little. There are fewer groups if they would have
        fewer than five rows.
    keep : float in (0, 1], default=0.8
        Share of the rows, those with the smallest losses, from which reference rows are drawn. Then
        the same share is kept again by distance. Set it to 1 if the table holds normal rows only.
    whiten : bool or "auto", default='auto'
        Whether distances are measured after whitening by the covariance of the normal rows. "auto"
        whitens tables of 100 to 4,096 encoded features, such as embeddings.
    column_roles : dict or None, default=None
        Roles of columns by name, which overrule the inferred ones: "number", "category" (only the
        rarity of values counts, for numbers too), "text" (free text, which is not compared), or
        "identifier" (only repeated values count).
    schedule : Schedule or None, default=None
        Batch sizes, truncation and number of steps of the training. None is ``Schedule()``.
    backbone : IWAE, Glow, CustomBackbone, class or nn.Module, default=None
        The network. None is ``IWAE()``.
    outlier_weight : float, default=1.0
        Weight of the losses of labelled outliers, which training makes large. 0 only leaves these
        rows out of the training.
    label_trust : float in (0, 1], default=0.75
        Share of the outlier labels that training trusts. The labelled outliers that look most
        normal are left out.
    contamination : float in (0, 0.5] or "auto", default='auto'
        Share of outliers that sets the threshold. "auto" estimates it from the scores.
    threshold : float or None, default=None
        Score above which a row is an outlier. `contamination` is then not used.
    max_rows : int, default=200000
        Largest number of rows in the training sample, which is drawn uniformly from larger tables.
    random_state : int, RandomState or None, default=0
        Seed of the fit. None draws a new one for each fit. NumPy's and torch's global random states
        are neither used nor changed.

    Attributes
    ----------
    model_ : FittedModel
        The fitted model.
    offset_ : float
        Threshold for `score_samples`: rows below it are outliers.
    encoder_ : TableEncoder
        Converts columns to numbers.
    history_ : tuple of TrainingStep
        Batch size, kept share and loss of each training step.
    n_features_in_ : int
        Number of columns of the training table.
    feature_names_in_ : ndarray of str
        Names of these columns, if the table had names.

    See Also
    --------
    ALTBI : The paper's method, scored by loss.

    Examples
    --------
    >>> import numpy as np
    >>> from altbi import OutlierDetector
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> X[17] = 9.0
    >>> detector = OutlierDetector().fit(X)
    >>> int(detector.outlier_score(X).argmax())
    17
    >>> detector.predict(X)[17]
    np.int64(-1)

    Whether numbers are codes is clear to you, but not always from the values:

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"size": X[:, 0], "area": [10, 20, 30, 40] * 50})
    >>> detector = OutlierDetector(column_roles={"area": "category"}).fit(frame)
    >>> [column.role.role for column in detector.encoder_.columns]
    ['number', 'category']
    """

    def __init__(
        self,
        *,
        n_reference: int = 1000,
        n_groups: int = 20,
        keep: float = 0.8,
        whiten: bool | Literal["auto"] = "auto",
        column_roles: Mapping[str, StatedRole] | None = None,
        schedule: Schedule | None = None,
        backbone: Backbone | None = None,
        outlier_weight: float = 1.0,
        label_trust: float = 0.75,
        contamination: Contamination = "auto",
        threshold: float | None = None,
        max_rows: int = 200_000,
        random_state: RandomState = 0,
    ) -> None:
        self.n_reference = n_reference
        self.n_groups = n_groups
        self.keep = keep
        self.whiten = whiten
        self.column_roles = column_roles
        self.schedule = schedule
        self.backbone = backbone
        self.outlier_weight = outlier_weight
        self.label_trust = label_trust
        self.contamination = contamination
        self.threshold = threshold
        self.max_rows = max_rows
        self.random_state = random_state
