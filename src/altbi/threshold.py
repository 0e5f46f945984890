"""From scores to labels: where the outliers begin."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from altbi.parameters import is_number

__all__ = ["Contamination", "estimated_share", "is_contamination", "outlier_threshold"]

Contamination = float | Literal["auto"]
Scores = NDArray[np.float64]

# Scores further above the median than so many times the distance to the third quartile count as
# just that far: one enormous score must not flatten all others.
_FARTHEST = 20


def is_contamination(value: object) -> bool:
    """Tell whether a value is a share in (0, 0.5] or "auto"."""
    if isinstance(value, str):
        return value == "auto"
    return is_number(value, 0, 0.5) and value != 0


def outlier_threshold(scores: Scores, contamination: Contamination) -> float:
    """Give the score above which a row counts as an outlier.

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
    """Estimate the share of outliers from the scores alone; at least one row, at most half.

    Sorted from the highest to the median, scores first fall steeply and then flatten. The outliers
    end at the elbow: where the curve, in a unit square, lies closest to the corner between its two
    ends.
    """
    median, quartile = np.quantile(scores, [0.5, 0.75])
    # Where most scores are alike there is no such distance, and nothing is held.
    farthest = median + _FARTHEST * (quartile - median) if quartile > median else np.inf
    held = np.minimum(scores, farthest)
    upper = np.sort(held)[::-1][: max(len(scores) // 2, 1)]
    height = np.ptp(upper)
    if height == 0:
        return 1 / len(scores)
    ranks = np.linspace(0, 1, len(upper))
    elbow = int(np.argmin(ranks + (upper - upper[-1]) / height))
    return min(max(elbow, 1) / len(scores), 0.5)
