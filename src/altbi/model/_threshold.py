"""From scores to labels: where the outliers begin."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from altbi._parameters import is_number

__all__ = [
    "Contamination",
    "estimated_share",
    "is_contamination",
    "outlier_threshold",
    "share_above_elbow",
    "upper_group",
]

Contamination = float | Literal["auto"]
Scores = NDArray[np.float64]

# So much of the variance of evenly spread numbers is between their two halves; of numbers that
# gather around one value less is.
_EXPLAINED_OF_NO_GROUPS = 0.75
# One score in so many, and at least one, counts as just as high as the next: a few enormous scores
# are no group, and must not hide one.
_HELD_OF = 1000
# For the elbow, scores further above the median than so many times the distance to the third
# quartile count as just that far: one enormous score must not flatten all others.
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

    The outliers are the upper of two groups, if the scores fall into two: if these explain more of
    the variance than the halves of evenly spread numbers do. Else the outliers end at the elbow.
    """
    ordered = np.sort(scores)[::-1]
    share, explained = upper_group(ordered)
    return share if explained > _EXPLAINED_OF_NO_GROUPS else share_above_elbow(ordered)


def upper_group(ordered: Scores) -> tuple[float, float]:
    """Share of the upper of the two tightest groups, and how much of the variance they explain.

    Groups are made of square roots of the heights above the lowest score: of distances, where
    scores are squared ones.
    """
    n_rows = len(ordered)
    highest = ordered[: max(n_rows // _HELD_OF, 1) + 1][-1]
    roots = np.sqrt(np.minimum(ordered, highest) - ordered[-1])
    off_mean = roots - roots.mean()
    total = float(np.sum(off_mean**2))
    if total == 0:
        return 1 / n_rows, 0.0
    sizes = np.arange(1, n_rows // 2 + 1)
    between = np.cumsum(off_mean)[: len(sizes)] ** 2 * n_rows / (sizes * (n_rows - sizes))
    best = int(np.argmax(between))
    return int(sizes[best]) / n_rows, float(between[best]) / total


def share_above_elbow(ordered: Scores) -> float:
    """Share of the scores above the elbow.

    Sorted from the highest to the median, scores first fall steeply and then flatten. The elbow is
    where the curve, in a unit square, lies closest to the corner between its two ends.
    """
    median, quartile = np.quantile(ordered, [0.5, 0.75])
    # Where most scores are alike there is no such distance, and nothing is held.
    farthest = median + _FARTHEST * (quartile - median) if quartile > median else np.inf
    upper = np.minimum(ordered, farthest)[: max(len(ordered) // 2, 1)]
    height = np.ptp(upper)
    if height == 0:
        return 1 / len(ordered)
    ranks = np.linspace(0, 1, len(upper))
    elbow = int(np.argmin(ranks + (upper - upper[-1]) / height))
    return min(max(elbow, 1) / len(ordered), 0.5)
