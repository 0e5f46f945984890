"""From scores to labels: where the outliers begin."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from altbi.parameters import is_number

__all__ = ["Contamination", "estimated_share", "is_contamination", "outlier_threshold"]

Contamination = float | Literal["auto"]
Scores = NDArray[np.float64]

_SPREADS = 3.5


def is_contamination(value: object) -> bool:
    """Tell whether a value is a share in (0, 0.5] or "auto"."""
    return value == "auto" if isinstance(value, str) else is_number(value, 1e-12, 0.5)


def outlier_threshold(scores: Scores, contamination: Contamination) -> float:
    """Give the score from which on a row counts as an outlier.

    Parameters
    ----------
    scores : ndarray of shape (n_rows,)
        Scores of the training rows; high means outlier.
    contamination : float in (0, 0.5] or "auto"
        The share of outliers among them, or "auto" to estimate it from the scores.
    """
    share = estimated_share(scores) if contamination == "auto" else float(contamination)
    # The same rule as scikit-learn's own detectors: a percentile, interpolated.
    return float(np.percentile(scores, 100 * (1 - share)))


def estimated_share(scores: Scores) -> float:
    """Estimate the share of outliers from the scores alone; at least one row.

    The lower half of the scores belongs to normal rows, and shows how far a normal score lies from
    the median; what lies much further above it counts as an outlier.
    """
    median = np.median(scores)
    below = median - scores[scores <= median]
    spread = 1.4826 * np.median(below)
    outliers = int(np.sum(scores > median + _SPREADS * spread))
    return min(max(outliers, 1) / len(scores), 0.5)
