"""The threshold between inliers and outliers."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from altbi._parameters import is_number

Contamination = float | Literal["auto"]
Scores = NDArray[np.float64]

# Share of the variance of uniformly distributed numbers that lies between their two halves.
# It is smaller for numbers with a single mode.
MIN_EXPLAINED_VARIANCE = 0.75
# One in this many scores, and at least one, is clipped to the next lower score: a few extreme
# scores must not hide a group of outliers.
CLIPPED_ONE_IN = 1000
# Scores are clipped at the median plus this multiple of the distance to the third quartile before
# the elbow is found: one extreme score must not flatten all others.
MAX_QUARTILE_DISTANCES = 20


def is_contamination(value: object) -> bool:
    """Return whether a value is a share in (0, 0.5] or "auto"."""
    if isinstance(value, str):
        return value == "auto"
    return is_number(value, 0, 0.5) and value != 0


def compute_threshold(scores: Scores, contamination: Contamination) -> float:
    """Return the score that the share `contamination` of the training scores exceeds.

    "auto" estimates this share from the scores. The result is interpolated between two scores.
    """
    share = estimate_contamination(scores) if contamination == "auto" else float(contamination)
    return float(np.percentile(scores, 100 * (1 - share)))


def estimate_contamination(scores: Scores) -> float:
    """Estimate the share of outliers from the scores: at least one row, at most half.

    If a split into two groups explains more than 75 % of the variance, the outliers are the upper
    group. Otherwise they are the scores above the elbow of the sorted scores.
    """
    ordered = np.sort(scores)[::-1]
    share, explained = find_upper_group(ordered)
    return share if explained > MIN_EXPLAINED_VARIANCE else find_elbow(ordered)


def find_upper_group(ordered: Scores) -> tuple[float, float]:
    """Split scores into two groups; return the share of the upper one and the explained variance.

    Scores are in descending order. The upper group has at most half of them. The split maximizes
    the variance between the groups of square roots, so that extreme scores count less. The
    second result is this variance divided by the total variance. Equal scores return
    ``(1 / n_rows, 0)``. The highest 0.1 % of the scores, at least one, are clipped first.
    """
    n_rows = len(ordered)
    highest = ordered[: max(n_rows // CLIPPED_ONE_IN, 1) + 1][-1]
    roots = np.sqrt(np.minimum(ordered, highest) - ordered[-1])
    centred = roots - roots.mean()
    total = float(np.sum(centred**2))
    if total == 0:
        return 1 / n_rows, 0.0
    sizes = np.arange(1, n_rows // 2 + 1)
    between = np.cumsum(centred)[: len(sizes)] ** 2 * n_rows / (sizes * (n_rows - sizes))
    best = int(np.argmax(between))
    return int(sizes[best]) / n_rows, float(between[best]) / total


def find_elbow(ordered: Scores) -> float:
    """Return the share of scores, in descending order, above the elbow of their curve.

    The curve of the scores above the median is scaled to the unit square. The elbow is its point
    with the smallest sum of coordinates. Extreme scores are clipped first. The share is at least
    one row, also for equal scores, and at most 0.5.
    """
    median, quartile = np.quantile(ordered, [0.5, 0.75])
    # If median and third quartile are equal, nothing is clipped.
    distance = MAX_QUARTILE_DISTANCES * (quartile - median) if quartile > median else np.inf
    upper = np.minimum(ordered, median + distance)[: max(len(ordered) // 2, 1)]
    height = np.ptp(upper)
    if height == 0:
        return 1 / len(ordered)
    ranks = np.linspace(0, 1, len(upper))
    elbow = int(np.argmin(ranks + (upper - upper[-1]) / height))
    return min(max(elbow, 1) / len(ordered), 0.5)
