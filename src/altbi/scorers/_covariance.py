"""Score rows by their squared Mahalanobis distance from the mean of the reference rows."""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from altbi._threads import single_blas_thread
from altbi._tiles import join_tiles, split_into_tiles

Rows = NDArray[np.float32]
Scores = NDArray[np.float64]

# Smallest share by which correlations are lowered.
_LEAST_RIDGE = 1e-4
# Variances count as at least this share of the median one.
_LEAST_VARIANCE = 1e-3
_FILLING_ROUNDS = 3


@final
@dataclass(frozen=True)
class CovarianceScorer:
    """Scorer by squared distance from a center, after removing the correlations of features.

    It is large for rows whose values contradict each other, although each of them is usual. Missing
    values count as those that the others lead to expect.

    >>> scorer = CovarianceScorer(np.zeros(2), np.eye(2))
    >>> scorer.score(np.array([[3, 4], [0, np.nan]], dtype=np.float32))
    array([25.,  0.])
    """

    center: NDArray[np.float64]
    # Features of ``whitening @ (row - center)`` are uncorrelated. Each of them is as near as
    # possible to the feature of the same position. Others would mix contributions of columns.
    whitening: NDArray[np.float64]

    def score(self, rows: Rows) -> Scores:
        """Return the scores ``(n_rows,)`` of encoded rows; high means outlier."""
        return _add_in_order(self._square(rows))

    def contributions(self, rows: Rows) -> NDArray[np.float64]:
        """Return contributions ``(n_rows, n_features_encoded)`` that add up to the scores."""
        return self._square(rows).T

    def _square(self, rows: Rows) -> NDArray[np.float64]:
        """Return the squares ``(n_features_encoded, n_rows)`` of uncorrelated features."""
        filled = fill_by_others(rows, self.center, self.whitening)
        tiles = split_into_tiles(filled, rows.shape[1], np.float64)
        tiles -= self.center[:, None]
        with single_blas_thread():
            for tile in tiles:
                np.square(self.whitening @ tile, out=tile)
        return join_tiles(tiles, len(rows))


def fill_by_others(rows: Rows, center: NDArray[np.float64], whitening: NDArray[np.float64]) -> Rows:
    """Return rows in which missing values are those with the smallest score of the row.

    Rows with the same missing values are filled together. Without missing values, the same array is
    returned.
    """
    missing = np.isnan(rows)
    positions = np.flatnonzero(missing.any(axis=1))
    if not len(positions):
        return rows
    filled = rows.copy()
    patterns, members = np.unique(missing[positions], axis=0, return_inverse=True)
    order = np.argsort(members, kind="stable")
    starts = np.searchsorted(members[order], np.arange(1, len(patterns)))
    for pattern, group in zip(patterns, np.split(positions[order], starts), strict=True):
        # With W the whitening, |W_m d_m + W_o d_o| is smallest for this d_m.
        with single_blas_thread():
            solution = -np.linalg.pinv(whitening[:, pattern]) @ whitening[:, ~pattern]
            known = split_into_tiles(rows[group][:, ~pattern], int((~pattern).sum()), np.float64)
            known -= center[~pattern, None]
            found = join_tiles(np.matmul(solution, known), len(group))
        filled[np.ix_(group, pattern)] = (found + center[pattern, None]).T
    return filled


def _add_in_order(values: NDArray[np.float64]) -> Scores:
    """Return the sum over the first axis, added up in order, so that rows do not affect others."""
    total = np.zeros(values.shape[1])
    for each in values:
        total += each
    return total


def fit_covariance_scorer(reference: Rows, is_number: NDArray[np.bool_]) -> CovarianceScorer:
    """Return a scorer with the mean and covariance of reference rows.

    Only the features in the mask `is_number` count. Those of a category determine each other, so
    that a new category would contradict all rows. Missing values are 0 first, and then repeatedly
    those that the others lead to expect.
    """
    scorer = _fit_complete(np.nan_to_num(reference), is_number)
    for _ in range(_FILLING_ROUNDS if np.isnan(reference).any() else 0):
        filled = fill_by_others(reference, scorer.center, scorer.whitening)
        scorer = _fit_complete(filled, is_number)
    return scorer


def _fit_complete(reference: Rows, is_number: NDArray[np.bool_]) -> CovarianceScorer:
    """Return a scorer, as `fit_covariance_scorer`, for reference rows without missing values.

    Correlations are lowered by a small share, which grows with the number of features for each row,
    so that their matrix can be inverted.
    """
    rows = reference.astype(np.float64)
    center = rows.mean(axis=0)
    with single_blas_thread():
        covariance = (rows - center).T @ (rows - center) / (len(rows) - 1)
        variances = covariance.diagonal()
        positive = variances[variances > 0]
        least = _LEAST_VARIANCE * float(np.median(positive)) if len(positive) else 1.0
        spread = np.sqrt(np.maximum(variances, least))
        correlation = covariance / np.outer(spread, spread)
        ridge = max(_LEAST_RIDGE, (rows.shape[1] / len(rows)) ** 3)
        np.fill_diagonal(correlation, 1 + ridge)
        correlation[~is_number] = correlation[:, ~is_number] = 0
        values, vectors = np.linalg.eigh(correlation)
        roots = np.where(values > ridge / 2, values, np.inf) ** -0.5
        whitening = (vectors * roots) @ vectors.T / spread
    return CovarianceScorer(center, whitening)
