"""ALTBI, the paper's method: training with growing batches and truncated losses."""

from typing import Literal, Self, final

from altbi.detectors._base import Detector
from altbi.model._settings import Privacy, RandomState
from altbi.model._threshold import Contamination
from altbi.networks import IWAE, Backbone, Schedule


@final
class ALTBI(Detector):
    """Adaptive Loss Truncation with Batch Increment, the paper's method.

    A generative network learns the common rows of a table before the unusual ones. ALTBI makes this
    effect stronger: after a short warm-up the batch grows from step to step, and the largest losses
    of each batch are left out. The score of a row is its loss, averaged over snapshots of the
    network from the last steps.

    The default parameters are those of the authors' code. `ALTBI.paper` follows the paper's text.
    For tables of normal rows only, the paper trains ten steps longer:
    ``ALTBI(schedule=Schedule(T2=90))``. The flow of the authors' code is
    ``ALTBI(backbone=Glow(flow_steps=16, hidden=(256, 256)))``.

    Parameters
    ----------
    schedule : Schedule or None, default=None
        Batch sizes, truncation and snapshots. None is ``Schedule()``.
    backbone : IWAE, Glow, CustomBackbone, class or nn.Module, default=None
        The network. None is ``IWAE()``. A class or function of your own is called with the number
        of encoded features and returns an ``nn.Module`` that maps rows to losses.
    privacy : PrivacyBudget or None, default=None
        A budget of differential privacy. None fits without one.
    average : {"scaled", "plain"}, default='scaled'
        "scaled": each snapshot's losses are scaled to their range on the training sample before
        they are averaged. "plain": the mean of the losses; always so under a privacy budget.
    outlier_weight : float, default=1.0
        Weight of the losses of labelled outliers, which training makes large. 0 only leaves these
        rows out of the training.
    label_trust : float in (0, 1], default=0.75
        Share of the outlier labels that training trusts. The labelled outliers that look most
        normal are left out.
    contamination : float in (0, 0.5] or "auto", default='auto'
        Share of outliers that sets the threshold. "auto" estimates it from the scores, and is 0.1
        under a privacy budget.
    threshold : float or None, default=None
        Score above which a row is an outlier. `contamination` is then not used.
    max_rows : int, default=200000
        Largest number of rows in the training sample, which is drawn uniformly from larger tables.
        A fit under a privacy budget uses all rows, and refuses more.
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
    OutlierDetector : The recommended detector.

    References
    ----------
    Cho, Hwang, Bae, Kim: ALTBI: Constructing Improved Outlier Detection Models via Optimization
    of Inlier-Memorization Effect.

    Examples
    --------
    >>> import numpy as np
    >>> from altbi import ALTBI
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> X[17] = 9.0
    >>> int(ALTBI().fit(X).outlier_score(X).argmax())
    17
    """

    def __init__(
        self,
        *,
        schedule: Schedule | None = None,
        backbone: Backbone | None = None,
        privacy: Privacy | None = None,
        average: Literal["scaled", "plain"] = "scaled",
        outlier_weight: float = 1.0,
        label_trust: float = 0.75,
        contamination: Contamination = "auto",
        threshold: float | None = None,
        max_rows: int = 200_000,
        random_state: RandomState = 0,
    ) -> None:
        self.schedule = schedule
        self.backbone = backbone
        self.privacy = privacy
        self.average = average
        self.outlier_weight = outlier_weight
        self.label_trust = label_trust
        self.contamination = contamination
        self.threshold = threshold
        self.max_rows = max_rows
        self.random_state = random_state

    @classmethod
    def paper(
        cls,
        *,
        contamination: Contamination = "auto",
        threshold: float | None = None,
        max_rows: int = 200_000,
        random_state: RandomState = 0,
    ) -> Self:
        """Return an unfitted detector with the parameters of the paper.

        The schedule is (n0, gamma, rho, T0, T1, T2) = (128, 1.03, 0.92, 10, 60, 80). Each step has
        one update, and truncation starts at step 1. The network has no BatchNorm, a Gaussian
        decoder with learned log-variance, two Monte Carlo samples and no weight decay. The score is
        the plain mean of the losses of 20 snapshots.

        The paper gives hidden widths of "50 to 100" and no latent size: (100, 50) and 10 are
        choices of ours. There is no preset for the paper's flow, because the paper does not
        describe it in enough detail.

        Parameters
        ----------
        contamination : float in (0, 0.5] or "auto", default='auto'
            Share of outliers that sets the threshold.
        threshold : float or None, default=None
            Score above which a row is an outlier.
        max_rows : int, default=200000
            Largest number of rows in the training sample.
        random_state : int, RandomState or None, default=0
            Seed of the fit.

        Returns
        -------
        ALTBI
            The detector, not fitted.
        """
        return cls(
            schedule=Schedule(T1=60, updates=1, first_truncated=1),
            backbone=IWAE(hidden=(100, 50), latent=10, network="paper", weight_decay=0.0),
            average="plain",
            contamination=contamination,
            threshold=threshold,
            max_rows=max_rows,
            random_state=random_state,
        )
