"""The same detector in PyOD's dialect: labels 0 and 1, a share of outliers, high = outlier."""

from typing import Any, Literal, Self, final

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from altbi import detectors
from altbi.errors import need
from altbi.models import Backbone

__all__ = ["ALTBI", "NOT_SHARED"]

# What each of the two detectors has for itself: PyOD sets thresholds of its own, and gives away the
# scores of training rows.
_PRIVACY = ("epsilon", "delta", "bounds", "clip", "noise", "truncation")
NOT_SHARED = frozenset({"contamination", "threshold", *_PRIVACY})

BaseDetector: Any = need("pyod.models.base", extra="pyod").BaseDetector


@final
class ALTBI(BaseDetector):
    """`altbi.ALTBI` as a PyOD detector.

    Scores are those of `altbi.ALTBI`, to the bit. Threshold, labels, probabilities, confidence and
    rejection are PyOD's own. All other arguments are those of `altbi.ALTBI`, with the same meaning
    and the same defaults, but for those of a privacy budget: PyOD keeps the scores of the training
    rows, which no budget covers.

    Parameters
    ----------
    contamination : float in (0, 0.5] or PyThresh object, default=0.1
        Share of outliers in the training table, which sets the threshold.

    Attributes
    ----------
    detector_ : altbi.ALTBI
        The detector that does the work; ``detector_.explain(X)`` says why a row stands out.
    decision_scores_ : ndarray of shape (n_rows,)
        Scores of the training rows; high means outlier.
    threshold_ : float
        Rows with a score above it are outliers.
    labels_ : ndarray of shape (n_rows,)
        Labels of the training rows: 1 for outliers, 0 for the others.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> X[17] = 9.0
    >>> detector = ALTBI(contamination=0.005).fit(X)
    >>> np.flatnonzero(detector.labels_)
    array([17])
    """

    def __init__(  # noqa: PLR0915 - a statement for each parameter
        self,
        contamination: Any = 0.1,  # noqa: ANN401 - PyThresh objects have no common type
        *,
        backbone: Literal["iwae", "glow"] | Backbone = "iwae",
        n0: int = 128,
        gamma: float = 1.03,
        rho: float = 0.92,
        T0: int = 10,
        T1: int = 61,
        T2: int = 80,
        updates: int | Literal["auto"] = "auto",
        first_truncated: int = 2,
        max_batch: int | None = None,
        draws: int = 2,
        hidden: tuple[int, ...] | Literal["auto"] = "auto",
        latent: int | Literal["auto"] = "auto",
        flow_steps: int | Literal["auto"] = "auto",
        network: Literal["reference", "paper"] = "reference",
        average: Literal["scaled", "plain"] = "scaled",
        learning_rate: float | Literal["auto"] = "auto",
        weight_decay: float = 5e-7,
        score_by: Literal["distance", "loss"] = "distance",
        keep: float = 0.8,
        n_remembered: int = 1000,
        n_lots: int = 5,
        whiten: bool | Literal["auto"] = "auto",
        push: float = 1.0,
        trust: float = 0.75,
        max_rows: int = 200_000,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        super().__init__(contamination=contamination)
        self.backbone = backbone
        self.n0 = n0
        self.gamma = gamma
        self.rho = rho
        self.T0 = T0
        self.T1 = T1
        self.T2 = T2
        self.updates = updates
        self.first_truncated = first_truncated
        self.max_batch = max_batch
        self.draws = draws
        self.hidden = hidden
        self.latent = latent
        self.flow_steps = flow_steps
        self.network = network
        self.average = average
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.score_by = score_by
        self.keep = keep
        self.n_remembered = n_remembered
        self.n_lots = n_lots
        self.whiten = whiten
        self.push = push
        self.trust = trust
        self.max_rows = max_rows
        self.device = device
        self.random_state = random_state

    @classmethod
    def paper(cls, contamination: Any = 0.1, **changes: Any) -> Self:  # noqa: ANN401
        """Follow Algorithm 1 as the paper prints it; see `altbi.ALTBI.paper`."""
        return cls(contamination, **_shared(detectors.ALTBI.paper(**changes)))

    @classmethod
    def reference(cls, contamination: Any = 0.1, **changes: Any) -> Self:  # noqa: ANN401
        """Do what the authors' code does; see `altbi.ALTBI.reference`."""
        return cls(contamination, **_shared(detectors.ALTBI.reference(**changes)))

    def fit(self, X: Any, y: object = None) -> Self:  # noqa: ANN401 - any table
        """Learn from a table; `y` is not used."""
        self._set_n_classes(y)
        self.detector_ = detectors.ALTBI(**_shared(self)).fit(X)
        self.decision_scores_ = self.detector_.anomaly_score(X)
        self._process_decision_scores()
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:  # noqa: ANN401
        """Score rows; high means outlier."""
        check_is_fitted(self, ["decision_scores_", "threshold_", "labels_"])
        return self.detector_.anomaly_score(X)


def _shared(detector: Any) -> dict[str, Any]:  # noqa: ANN401 - either of the two
    """Give the arguments that both detectors have."""
    parameters = detector.get_params(deep=False)
    return {name: value for name, value in parameters.items() if name not in NOT_SHARED}
