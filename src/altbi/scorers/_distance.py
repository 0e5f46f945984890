"""Score rows by their squared distance to the nearest reference rows."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, Self, final

import numpy as np
from numpy.typing import NDArray

from altbi._threads import count_threads, map_in_threads, single_blas_thread
from altbi._tiles import TILE_ROWS, join_tiles, split_into_tiles
from altbi.encoding import TableEncoder
from altbi.scorers._reference_groups import (
    MIN_FLOAT32_DISTANCE,
    ZERO_TOLERANCE,
    ReferenceGroups,
)
from altbi.table import Table

Rows = NDArray[np.float32]
Scores = NDArray[np.float64]
Mask = NDArray[np.bool_]
Indices = NDArray[np.intp]

# Largest number of values in a block, the work of one thread at a time.
_MAX_BLOCK_VALUES = 1 << 18
# Smallest number of multiply-adds for which a thread is worth starting. Computing the minima of
# groups costs as much as `_MINIMA_COST` more columns.
_MIN_BLOCK_WORK = 1 << 26
_MINIMA_COST = 20
# Fewest reference rows of a group, unless there is only one group. The nearest of two or three rows
# is often an unusual one.
_MIN_GROUP_ROWS = 5
# Weight of the identity in the shrunk covariance.
_SHRINKAGE = 0.1
# Smaller variances count as 1.
_LEAST_VARIANCE = 1e-12


@final
@dataclass(frozen=True)
class DistanceScorer:
    """Scorer by the mean squared distance of a row to the nearest row of each reference group.

    One reference row that equals the scored row in all values that are not missing is excluded. The
    scored row may be this reference row, and a row must not be its own neighbour.

    >>> rows = np.array([[0, 0], [4, 0], [1, 0], [0, 1]], dtype=np.float32)
    >>> scorer = DistanceScorer(rows, n_groups=2)  # rows 0 and 2, rows 1 and 3
    >>> scorer.score(np.array([[3, 0], [0, 0]], dtype=np.float32))
    array([2.5, 1. ])
    """

    kind: ClassVar[Literal["distance"]] = "distance"

    rows: Rows  # at least two reference rows in robust z-scores, with 0 for missing values
    n_groups: int  # reference row i belongs to group ``i % n_groups``
    # Matrix that rows are multiplied by before distances are computed, so that features become
    # nearly uncorrelated. Missing values then count as 0. None computes distances without it.
    whitening: Rows | None = None

    def encode(self, table: Table, encoder: TableEncoder) -> Rows:
        """Return the rows of a table in robust z-scores, with NaN for missing values."""
        return encoder.standardize(table)

    @property
    def n_groups_used(self) -> int:
        """Number of groups used: `n_groups`, or less if a group would have fewer than two rows."""
        return max(min(self.n_groups, len(self.rows) // 2), 1)

    @cached_property
    def _groups(self) -> ReferenceGroups:
        """Reference rows prepared for `score`, whitened if there is a whitening; computed once."""
        with single_blas_thread():
            return ReferenceGroups(self.rows, self.n_groups_used, self.whitening)

    @cached_property
    def _unwhitened_groups(self) -> ReferenceGroups:
        """Reference rows prepared for `most_similar`, without whitening; computed once."""
        if self.whitening is None:
            return self._groups
        with single_blas_thread():
            return ReferenceGroups(self.rows, self.n_groups_used, None)

    def __reduce__(self) -> tuple[type[Self], tuple[Rows, int, Rows | None]]:
        """Return the constructor and its arguments for pickle; cached values are left out."""
        return type(self), (self.rows, self.n_groups, self.whitening)

    def score(self, rows: Rows) -> Scores:
        """Return the scores ``(n_rows,)`` of encoded rows; high means outlier.

        Missing values (NaN) are ignored, and the weights of the other values are raised to
        compensate. With a whitening, missing values count as 0. Blocks of rows are scored in
        parallel threads.
        """
        groups, scores = self._groups, np.empty(len(rows))
        is_accurate = np.zeros(len(rows), dtype=bool)
        size = _choose_block_rows(len(rows), rows.shape[1], len(groups.padded_reference))

        def score_quickly(start: int) -> None:
            """Store the scores of the block that begins at row `start`, where they are accurate."""
            block = slice(start, start + size)
            distinct, indices = _find_distinct(groups, rows[block])
            found, is_found = _score_in_single_precision(groups, distinct)
            scores[block], is_accurate[block] = found[indices], is_found[indices]

        for _ in map_in_threads(score_quickly, range(0, len(rows), size)):
            pass
        # Few rows are left in each block, so they are put together.
        rest = np.flatnonzero(~is_accurate)

        def score_exactly(start: int) -> None:
            """Store the scores of the block of remaining rows that begins at `start`."""
            positions = rest[start : start + size]
            distinct, indices = _find_distinct(groups, rows[positions])
            scores[positions] = _score_exactly(groups, distinct)[indices]

        for _ in map_in_threads(score_exactly, range(0, len(rest), size)):
            pass
        return scores

    def contributions(self, rows: Rows) -> NDArray[np.float64]:
        """Return contributions ``(n_rows, n_features_encoded)`` that add up to the scores.

        A contribution is a squared difference from the nearest reference row, weighted for missing
        values and averaged over the groups. With a whitening W, a difference d contributes ``d * (d
        @ W @ W.T)``, which may be negative.
        """
        filled, weights = _weight_present_values(rows)
        contributions = np.empty(rows.shape)
        n_groups = self.n_groups_used
        for tile, distances, _ in self._groups.iter_distances(filled, weights, weights > 0):
            nearest = self._groups.reshape_by_group(distances).argmin(axis=0)
            indices = (nearest * n_groups + np.arange(n_groups)[:, None]).T
            difference = self.rows[indices].astype(np.float64) - filled[tile, None]
            if self.whitening is None:
                contributions[tile] = (difference**2).mean(axis=1) * weights[tile]
            else:
                products = difference * self._apply_metric(difference)
                contributions[tile] = products.mean(axis=1)
        return contributions

    def _apply_metric(self, differences: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the product ``(n_rows, n_groups, n_features)`` of differences and ``W @ W.T``."""
        assert self.whitening is not None
        flat = differences.reshape(-1, differences.shape[-1])
        tiles = split_into_tiles(flat, flat.shape[1], np.float64)
        with single_blas_thread():
            whitening = self.whitening.astype(np.float64)
            metric = whitening @ whitening.T
            for tile in tiles:
                np.copyto(tile, metric @ tile)
        return join_tiles(tiles, len(flat)).T.reshape(differences.shape)

    def most_similar(self, rows: Rows, weights: Rows, count: int) -> Indices:
        """Return the indices ``(n_rows, count)`` of the most similar reference rows.

        The nearest comes first. Squared differences are multiplied by `weights`, which has the
        shape of `rows`, and never whitened. One reference row that equals the row is left out, so
        `count` is at most ``n_reference - 1``.
        """
        filled, factors = _weight_present_values(rows)
        count = min(count, len(self.rows) - 1)
        indices = np.empty((len(rows), count), dtype=np.intp)
        groups = self._unwhitened_groups
        for tile, distances, _ in groups.iter_distances(filled, factors * weights, factors > 0):
            indices[tile] = distances.argsort(axis=0, kind="stable")[:count].T
        return indices


def _choose_block_rows(n_rows: int, n_features: int, n_reference_padded: int) -> int:
    """Return the number of rows of a block, a multiple of `TILE_ROWS`.

    It is an even share of the rows for each thread, but enough work to be worth a thread. It has at
    most `_MAX_BLOCK_VALUES` values and at least one tile. `n_reference_padded` is the number of
    reference rows, including padding.
    """
    max_tiles = _MAX_BLOCK_VALUES // n_features // TILE_ROWS
    tiles_per_thread = -(-n_rows // (count_threads() * TILE_ROWS))
    min_tiles = _MIN_BLOCK_WORK // ((n_features + _MINIMA_COST) * n_reference_padded * TILE_ROWS)
    return max(min(max_tiles, max(tiles_per_thread, min_tiles)), 1) * TILE_ROWS


def _find_distinct(groups: ReferenceGroups, block: Rows) -> tuple[Rows, Indices | slice]:
    """Return the rows of a block to score, and the index among them of each row of the block.

    Missing values are filled where this is possible. Duplicates are left out if there are many.
    """
    filled = groups.fill_missing_values(block)
    return _find_distinct_rows(filled) if groups.has_many_duplicates else (filled, slice(None))


@np.errstate(all="ignore")
def _score_in_single_precision(groups: ReferenceGroups, rows: Rows) -> tuple[Scores, Mask]:
    """Return the scores of rows, and whether they are accurate in single precision.

    They are not for rows near a reference row, with missing values, or with an overflow. This
    depends on the row and the scorer only, not on other rows.
    """
    is_complete = _find_complete_rows(rows)
    if not (groups.is_single_precision_safe and is_complete.any()):
        return np.zeros(len(rows)), np.zeros(len(rows), dtype=bool)
    if not is_complete.all():
        scores, is_accurate = np.zeros(len(rows)), is_complete
        scores[is_complete], is_accurate[is_complete] = _score_in_single_precision(
            groups, rows[is_complete]
        )
        return scores, is_accurate
    group_minima, squared_norms = groups.compute_group_minima(rows, np.float32)
    scores = _average_groups(group_minima)
    is_far = group_minima.min(axis=0) > MIN_FLOAT32_DISTANCE * (1 + squared_norms)
    return scores, is_far & np.isfinite(scores)


@np.errstate(all="ignore")
def _score_exactly(groups: ReferenceGroups, rows: Rows) -> Scores:
    """Return the scores of rows in double precision.

    Rows with missing values, or with a distance of 0 up to rounding, are scored by
    `_score_with_all_distances`.
    """
    scores, is_far = np.zeros(len(rows)), _find_complete_rows(rows)
    if is_far.any():
        group_minima, squared_norms = groups.compute_group_minima(rows[is_far], np.float64)
        scores[is_far] = _average_groups(group_minima)
        is_far[is_far] = group_minima.min(axis=0) > ZERO_TOLERANCE * (1 + squared_norms)
    if not is_far.all():
        scores[~is_far] = _score_with_all_distances(groups, *_weight_present_values(rows[~is_far]))
    return scores


def _find_complete_rows(rows: Rows) -> Mask:
    """Return a mask of the rows without missing values."""
    if not np.isnan(rows.min(initial=0)):  # faster than the mask
        return np.ones(len(rows), dtype=bool)
    return np.logical_not(np.isnan(rows).any(axis=1))


def _score_with_all_distances(groups: ReferenceGroups, rows: Rows, weights: Rows) -> Scores:
    """Return the scores of rows from their weighted distances to all reference rows.

    It is slower, but handles missing values (weight 0) and excludes one equal reference row. Scores
    that may be rounding errors become 0.
    """
    scores = np.empty(len(rows))
    for tile, distances, squared_norms in groups.iter_distances(rows, weights, weights > 0):
        mean = _average_groups(groups.reshape_by_group(distances).min(axis=0))
        # A row with an equal reference row in each group has the score 0, up to rounding.
        scores[tile] = np.where(mean <= ZERO_TOLERANCE * (1 + squared_norms), 0, mean)
    return scores


def _average_groups(squares: Scores) -> Scores:
    """Return the mean over groups, added up in order so that the shape does not affect rounding."""
    total = np.zeros(squares.shape[1])
    for group in squares:
        total += group
    return total / len(squares)


def _weight_present_values(rows: Rows) -> tuple[Rows, Rows]:
    """Return rows with 0 for missing values, and the weights of all values.

    A missing value has the weight 0. The other weights are equal, and the weights of a row add up
    to the number of features. All weights of a row without values are 0.
    """
    present = ~np.isnan(rows)
    shares = rows.shape[1] / np.maximum(present.sum(axis=1, keepdims=True), 1)
    filled = np.where(present, rows, np.float32(0))
    return filled, (present * shares).astype(np.float32)


def _find_distinct_rows(rows: Rows) -> tuple[Rows, Indices]:
    """Return the distinct rows, and the index among them of each given row.

    Tables of categories and integers have few distinct rows, and equal rows have equal scores. If a
    hash collision occurs, all rows are returned.
    """
    # Hash of a row: the sum of its values' bits times random factors. The check below finds
    # different rows with equal hashes.
    factors = np.random.default_rng(0).integers(2**63, size=rows.shape[1], dtype=np.uint64) * 2 + 1
    bits = np.ascontiguousarray(rows).view(np.uint32)
    _, firsts, positions = np.unique(bits @ factors, return_index=True, return_inverse=True)
    if not np.array_equal(bits[firsts][positions], bits):
        return rows, np.arange(len(rows))
    return rows[firsts], positions


def fit_distance_scorer(
    rows: Rows,
    losses: Scores,
    *,
    keep: float,
    n_reference: int,
    n_groups: int,
    whiten: bool = False,
    seed: int,
    is_inlier: Mask,
) -> tuple[DistanceScorer, Rows]:
    """Select reference rows among normal rows; return a scorer with them, and the rows.

    The share `keep` of rows with the smallest losses is kept, and at most `n_reference` reference
    rows are sampled from it, labelled inliers first. In a second round, distances to these rows
    replace the losses. At least two rows and all labelled inliers are kept. `whiten` adds a
    whitening, computed from the rows kept first. Missing values of reference rows are 0 in the
    scorer.
    """
    generator = np.random.default_rng(seed)
    n_kept = max(round(keep * len(rows)), 2, int(is_inlier.sum()))
    whitening = None
    for _ in range(2):
        losses = np.where(is_inlier, -np.inf, losses)
        # Ties are broken at random, so that the order of the table does not matter.
        shuffled = generator.permutation(len(rows))
        ranked = shuffled[np.argsort(losses[shuffled], kind="stable")]
        if whiten and whitening is None:
            whitening = compute_whitening(rows[ranked[:n_kept]])
        kept = generator.permutation(ranked[:n_kept])
        sampled = np.sort(kept[np.argsort(~is_inlier[kept], kind="stable")][:n_reference])
        used = limit_groups(n_groups, len(sampled))
        scorer = DistanceScorer(np.nan_to_num(rows[sampled]), used, whitening)
        losses = scorer.score(rows)
    return scorer, rows[sampled]


def limit_groups(n_groups: int, n_reference: int) -> int:
    """Return the number of groups, or less if groups would have fewer than five reference rows."""
    return max(min(n_groups, n_reference // _MIN_GROUP_ROWS), 1)


def compute_whitening(rows: Rows) -> Rows:
    """Compute the matrix W for which the features of ``rows @ W`` are nearly uncorrelated.

    Their variances are nearly 1. Missing values (NaN) count as 0. The covariance is shrunk towards
    a multiple of the identity, so that it can be inverted if there are fewer rows than features.
    """
    with single_blas_thread():
        centred = np.nan_to_num(rows).astype(np.float64)
        centred -= centred.mean(axis=0)
        covariance = centred.T @ centred / max(len(centred) - 1, 1)
        variance = float(covariance.diagonal().mean())
        if variance < _LEAST_VARIANCE:  # a rounding error, because rows are robust z-scores
            variance = 1.0
        identity = np.eye(len(covariance))
        shrunk = (1 - _SHRINKAGE) * covariance + _SHRINKAGE * variance * identity
        inverse = np.linalg.inv(np.linalg.cholesky(shrunk))
        return np.ascontiguousarray(inverse.T, dtype=np.float32)
