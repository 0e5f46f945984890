"""The recommended detector with PyOD's interface: labels 0 and 1, high scores are outliers."""

from typing import Any, Literal, Self, final

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from altbi.detectors import OutlierDetector
from altbi.errors import import_extra
from altbi.model._settings import RandomState
from altbi.networks import Backbone, Schedule

__all__ = ["PyODDetector"]

BaseDetector: Any = import_extra("pyod.models.base", extra="pyod").BaseDetector


@final
class PyODDetector(BaseDetector):
    """`altbi.OutlierDetector` as a PyOD detector.

    Scores are those of `altbi.OutlierDetector`, to the bit. Threshold, labels, probabilities,
    confidence and rejection are PyOD's own.

    Parameters
    ----------
    contamination : float in (0, 0.5] or PyThresh object, default=0.1
        Share of outliers in the training table, which sets the threshold.
    n_reference : int, default=1000
        Number of reference rows.
    n_groups : int, default=20
        Number of groups of reference rows.
    keep : float in (0, 1], default=0.8
        Share of the rows from which reference rows are drawn.
    whiten : bool or "auto", default='auto'
        Whether distances are whitened.
    schedule : Schedule or None, default=None
        Schedule of the training.
    backbone : IWAE, Glow, CustomBackbone, class or nn.Module, default=None
        The network.
    max_rows : int, default=200000
        Largest number of rows in the training sample.
    random_state : int, RandomState or None, default=0
        Seed of the fit.

    Attributes
    ----------
    detector_ : OutlierDetector
        The fitted detector; ``detector_.explain(X)`` explains rows.
    decision_scores_ : ndarray of shape (n_rows,)
        Scores of the training rows; high means outlier.
    threshold_ : float
        Rows with a score above it are outliers.
    labels_ : ndarray of shape (n_rows,)
        Labels of the training rows: 1 for outliers, 0 for inliers.

    Examples
    --------
    >>> import numpy as np
    >>> from altbi.integrations.pyod import PyODDetector
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> X[17] = 9.0
    >>> detector = PyODDetector(contamination=0.005).fit(X)
    >>> np.flatnonzero(detector.labels_)
    array([17])
    """

    def __init__(
        self,
        contamination: Any = 0.1,  # noqa: ANN401 - PyThresh objects have no common type
        *,
        n_reference: int = 1000,
        n_groups: int = 20,
        keep: float = 0.8,
        whiten: bool | Literal["auto"] = "auto",
        schedule: Schedule | None = None,
        backbone: Backbone | None = None,
        max_rows: int = 200_000,
        random_state: RandomState = 0,
    ) -> None:
        super().__init__(contamination=contamination)
        self.n_reference = n_reference
        self.n_groups = n_groups
        self.keep = keep
        self.whiten = whiten
        self.schedule = schedule
        self.backbone = backbone
        self.max_rows = max_rows
        self.random_state = random_state

    def fit(self, X: Any, y: object = None) -> Self:  # noqa: ANN401 - any table
        """Fit the detector on a table, and compute scores, threshold and labels of its rows.

        Parameters
        ----------
        X : array or data frame
            The table.
        y : object
            Not used for training. PyOD warns if it is passed, and stores its number of classes.

        Returns
        -------
        object
            The fitted detector.
        """
        self._set_n_classes(y)
        parameters = self.get_params(deep=False)
        del parameters["contamination"]
        self.detector_ = OutlierDetector(**parameters).fit(X)
        self.decision_scores_ = self.detector_.outlier_score(X)
        self._process_decision_scores()
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:  # noqa: ANN401
        """Return the outlier scores of rows.

        Parameters
        ----------
        X : array or data frame
            Rows with the columns of the fit.

        Returns
        -------
        ndarray of shape (n_rows,)
            High means outlier.
        """
        check_is_fitted(self, ["decision_scores_", "threshold_", "labels_"])
        return self.detector_.outlier_score(X)
