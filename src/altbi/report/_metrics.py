"""Comparison of scores with known labels: AUC and average precision.

They are written here because the core does not import scikit-learn, which takes 2 s. Ties are
handled as in scikit-learn.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from altbi.errors import ParameterError


def compute_auc(labels: ArrayLike, scores: ArrayLike) -> float:
    """Return the area under the ROC curve; labels ``(n_rows,)`` are True for outliers.

    It is the probability that an outlier has a higher score than an inlier, where equal scores
    count half. Labels of a single class raise a `ParameterError`.

    >>> compute_auc([False, False, True, True], [1.0, 2.0, 2.0, 3.0])
    0.875
    """
    outliers, inliers = _count_labels(labels, scores)
    # Inliers below each distinct score, and half of those that have it.
    inliers_below = np.cumsum(inliers) - inliers / 2
    return float(outliers @ inliers_below / (outliers.sum() * inliers.sum()))


def compute_average_precision(labels: ArrayLike, scores: ArrayLike) -> float:
    r"""Return the average precision :math:`\sum_i (R_i - R_{i-1}) P_i`.

    :math:`P_i` and :math:`R_i` are precision and recall of the rows that have at least the i-th
    highest distinct score. Labels of a single class raise a `ParameterError`.

    >>> compute_average_precision([False, True, True], [1.0, 2.0, 3.0])
    1.0
    """
    outliers, inliers = (counts[::-1] for counts in _count_labels(labels, scores))
    n_outliers = np.cumsum(outliers)
    precision = n_outliers / (n_outliers + np.cumsum(inliers))
    return float(outliers @ precision / n_outliers[-1])


def _count_labels(
    labels: ArrayLike, scores: ArrayLike
) -> tuple[NDArray[np.int_], NDArray[np.int_]]:
    """Return the numbers of outliers and inliers with each distinct score, in ascending order.

    Labels of a single class raise a `ParameterError`.
    """
    is_outlier = np.asarray(labels, dtype=np.bool_)
    if not 0 < is_outlier.sum() < len(is_outlier):
        raise ParameterError("All labels are the same, but both classes are needed.")
    distinct, indices = np.unique(np.asarray(scores), return_inverse=True)
    n_distinct = len(distinct)
    outliers = np.bincount(indices[is_outlier], minlength=n_distinct)
    return outliers, np.bincount(indices[~is_outlier], minlength=n_distinct)
