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
# Variances count as at least this share of the median one, and never as less than the second
# number: features are robust z-scores, so smaller variances are rounding errors.
_LEAST_VARIANCE_SHARE = 1e-3
_LEAST_VARIANCE = 1e-12
_FILLING_ROUNDS = 3
# Most steps of the search for missing values. It ends earlier if the remaining error is below the
# share, or if the search direction changes the score too little to tell it from rounding errors.
_MAX_FILLING_STEPS = 60
_FILLING_TOLERANCE = 1e-16
_LEAST_CURVATURE = 1e-9


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
    # Features of ``whitening @ (row - center)`` are uncorrelated. Of all matrices with this
    # property, it is the one whose results are nearest to the features themselves. So the square of
    # a result is mostly due to its own feature, whose contribution it is.
    whitening: NDArray[np.float64]

    def score(self, rows: Rows) -> Scores:
        """Return the scores ``(n_rows,)`` of encoded rows; high means outlier."""
        return _add_in_order(self._square(rows))

    def contributions(self, rows: Rows) -> NDArray[np.float64]:
        """Return contributions ``(n_rows, n_features_encoded)`` that add up to the scores."""
        return self._square(rows).T

    def _square(self, rows: Rows) -> NDArray[np.float64]:
        """Return the squares ``(n_features_encoded, n_rows)`` of uncorrelated features."""
        tiles = split_into_tiles(rows, rows.shape[1], np.float64)
        tiles -= self.center[:, None]
        with single_blas_thread():
            if np.isnan(rows).any():
                self._fill(tiles)
            for tile in tiles:
                np.square(self.whitening @ tile, out=tile)
        return join_tiles(tiles, len(rows))

    def fill(self, rows: Rows) -> NDArray[np.float64]:
        """Return rows in which missing values are those that give the row its smallest score."""
        tiles = split_into_tiles(rows, rows.shape[1], np.float64)
        tiles -= self.center[:, None]
        with single_blas_thread():
            self._fill(tiles)
        return (join_tiles(tiles, len(rows)) + self.center[:, None]).T

    def _fill(self, tiles: NDArray[np.float64]) -> None:
        """Replace NaN in centered tiles ``(n_tiles, n_features, n_columns)``, in place.

        The conjugate gradient method solves ``P_mm d_m = -P_mo d_o``, where P is the inverse
        covariance, d the tile, and m and o are the missing and the other features of a row. Each
        column has its own step sizes and stops on its own, so that rows do not affect each other.
        """
        precision = self.whitening.T @ self.whitening
        scale = precision.diagonal()[:, None]
        is_filled = np.isnan(tiles) & (scale > 0)
        np.nan_to_num(tiles, copy=False)
        inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
        residual = np.where(is_filled, -_multiply(precision, tiles), 0)
        direction = inverse * residual
        error = _add_features(residual * direction)
        limit = _FILLING_TOLERANCE * error
        for _ in range(_MAX_FILLING_STEPS):
            change = np.where(is_filled, _multiply(precision, direction), 0)
            curvature = _add_features(direction * change)
            size = _add_features(scale * direction**2)
            is_active = (error > limit) & (curvature > _LEAST_CURVATURE * size)
            if not is_active.any():
                break
            step = np.divide(error, curvature, out=np.zeros_like(error), where=is_active)
            tiles += step * direction
            residual -= step * change
            before, error = error, _add_features(inverse * residual**2)
            ratio = np.divide(error, before, out=np.zeros_like(error), where=is_active)
            direction = np.where(is_active, inverse * residual + ratio * direction, direction)


def _multiply(matrix: NDArray[np.float64], tiles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the products of a matrix and each tile."""
    return np.stack([matrix @ tile for tile in tiles])


def _add_features(tiles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums ``(n_tiles, 1, n_columns)`` over features, added up in order."""
    return np.stack([_add_in_order(tile)[None] for tile in tiles])


def _add_in_order(values: NDArray[np.float64]) -> Scores:
    """Return the sum over the first axis, added up in order, so that rows do not affect others."""
    total = np.zeros(values.shape[1])
    for each in values:
        total += each
    return total


def fit_covariance_scorer(reference: Rows) -> CovarianceScorer:
    """Return a scorer with the mean and covariance of reference rows.

    Missing values are 0 first, and then repeatedly those that the others lead to expect.
    """
    scorer = _fit_complete(np.nan_to_num(reference))
    for _ in range(_FILLING_ROUNDS if np.isnan(reference).any() else 0):
        scorer = _fit_complete(scorer.fill(reference))
    return scorer


def _fit_complete(reference: NDArray[np.floating]) -> CovarianceScorer:
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
        median = float(np.median(positive)) if len(positive) else 1.0
        least = max(_LEAST_VARIANCE_SHARE * median, _LEAST_VARIANCE)
        spread = np.sqrt(np.maximum(variances, least))
        correlation = covariance / np.outer(spread, spread)
        ridge = max(_LEAST_RIDGE, (rows.shape[1] / len(rows)) ** 3)
        np.fill_diagonal(correlation, 1 + ridge)
        values, vectors = np.linalg.eigh(correlation)
        roots = np.where(values > ridge / 2, values, np.inf) ** -0.5
        whitening = (vectors * roots) @ vectors.T / spread
    return CovarianceScorer(center, whitening)
