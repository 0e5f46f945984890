"""Score rows by their squared distance to the nearest reference rows."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from altbi._threads import map_in_threads
from altbi.encoding import TableEncoder
from altbi.table import Table
from altbi.torch._modes import default_modes, single_thread

Rows = NDArray[np.float32]
Scores = NDArray[np.float64]
Mask = NDArray[np.bool_]
Indices = NDArray[np.intp]

# A block is the work of one thread at a time, and a tile holds the rows of one matrix product. The
# distances of a tile fit into the processor's cache. All tiles have the same shape, so that the
# score of a row does not depend on other rows. The number of rows is a multiple of 12 and 16, the
# widths of the matrix kernels: leftover columns would be rounded differently by another kernel.
_MAX_BLOCK_VALUES = 1 << 18
_TILE_ROWS = 384
# Smallest number of multiply-adds for which a thread is worth starting. Computing the minima of
# groups costs as much as `_MINIMA_COST` more columns.
_MIN_BLOCK_WORK = 1 << 26
_MINIMA_COST = 20
# A squared distance up to this share of 1 + the row's squared norm counts as 0, because rounding
# may cause it.
_ZERO_TOLERANCE = 1e-12
# Squared distances above this share of 1 + the row's squared norm have at least four correct digits
# in single precision, which takes half the time. Smaller ones are computed in double precision.
_MIN_FLOAT32_DISTANCE = 0.01
# If a smaller share of the reference rows is distinct, equal rows are scored only once.
_MAX_DISTINCT_SHARE = 0.9
# Weight of the identity in the shrunk covariance.
_SHRINKAGE = 0.1


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
    def _groups(self) -> "_Groups":
        """Reference rows prepared for `score`, whitened if there is a whitening; computed once."""
        with single_thread(), default_modes():
            return _Groups(self.rows, self.n_groups_used, self.whitening)

    @cached_property
    def _unwhitened_groups(self) -> "_Groups":
        """Reference rows prepared for `most_similar`, without whitening; computed once."""
        if self.whitening is None:
            return self._groups
        with single_thread(), default_modes():
            return _Groups(self.rows, self.n_groups_used, None)

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
        size = _choose_block_rows(len(rows), rows.shape[1], len(groups.padded_reference))

        def score_block(start: int) -> None:
            """Store the scores of the block that begins at row `start`."""
            block = rows[start : start + size]
            distinct, indices = (
                _find_distinct_rows(block) if groups.has_many_duplicates else (block, slice(None))
            )
            scores[start : start + size] = _score_block(groups, distinct)[indices]

        for _ in map_in_threads(score_block, range(0, len(rows), size)):
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
        for tile, distances, _ in self._groups.iter_tiles(filled, weights, weights > 0):
            nearest = self._groups.reshape_by_group(distances).argmin(axis=0)
            indices = (nearest * n_groups + np.arange(n_groups)[:, None]).T
            difference = self.rows[indices].astype(np.float64) - filled[tile, None]
            if self.whitening is None:
                contributions[tile] = (difference**2).mean(axis=1) * weights[tile]
            else:
                whitening = self.whitening.astype(np.float64)
                products = difference * (difference @ whitening @ whitening.T)
                contributions[tile] = products.mean(axis=1)
        return contributions

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
        for tile, distances, _ in groups.iter_tiles(filled, factors * weights, factors > 0):
            indices[tile] = distances.argsort(axis=0, kind="stable")[:count].T
        return indices


@final
class _Buffers(threading.local):
    """Scratch buffers of the current thread, by precision."""

    def __init__(self) -> None:
        self.by_precision: dict[torch.dtype, Tensor] = {}


@final
class _Groups:
    """Computes squared distances from rows x to all reference rows r by matrix products.

    Distances are computed without the squared norm of x: ``|x - r|**2 - |x|**2 = |r|**2 - 2 r.x``.
    This is the same shift for all reference rows, so it does not change which one is nearest.
    Methods return the squared norms separately.

    Reference row i belongs to group ``i % count``. If there is a whitening, all rows are multiplied
    by it first.
    """

    def __init__(self, reference: Rows, count: int, whitening: Rows | None) -> None:
        self.reference = reference
        self.count = count
        self.whitening = (
            None if whitening is None else _convert_precisions(torch.from_numpy(whitening.T))
        )
        # Rows of zeros are appended so that all groups have the same number of rows.
        self.padded_reference = np.zeros((-(-len(reference) // count) * count, reference.shape[1]))
        self.padded_reference[: len(reference)] = self._whiten_reference(reference)
        self.buffers = _Buffers()

    def _whiten_reference(self, rows: Rows) -> NDArray[np.float64]:
        """Return rows in double precision, whitened if there is a whitening."""
        columns, values = _transpose_tiles(rows, rows.shape[1], torch.float64)
        self._apply_whitening(columns)
        return np.hstack(list(values))[:, : len(rows)].T

    def _apply_whitening(self, columns: Tensor) -> None:
        """Multiply the columns of all tiles by the whitening, in place.

        Without a whitening, nothing changes.
        """
        if self.whitening is not None:
            for tile in columns:
                tile.copy_(self.whitening[columns.dtype] @ tile)

    @cached_property
    def complete_factors(self) -> dict[torch.dtype, Tensor]:
        """Matrix ``[-2R, |R|**2]`` by precision, for rows without missing values.

        Its product with ``[x, 1]`` is the vector of distances without the squared norm of x. Rows
        that only pad a group have an infinite distance.
        """
        squared_norms = (self.padded_reference**2).sum(axis=1, keepdims=True)
        squared_norms[len(self.reference) :] = np.inf
        return _convert_precisions(
            torch.from_numpy(np.hstack([-2 * self.padded_reference, squared_norms]))
        )

    @cached_property
    def weighted_factors(self) -> Tensor:
        """Matrix ``[-2R, R**2]``, for rows with weights.

        Its product with ``[w * x, w]`` is the vector of weighted distances without the squared norm
        of x.
        """
        return torch.from_numpy(np.hstack([-2 * self.padded_reference, self.padded_reference**2]))

    @cached_property
    def has_many_duplicates(self) -> bool:
        """Whether fewer than 90% of the reference rows are distinct.

        The scored rows probably have many duplicates as well.
        """
        distinct = {row.tobytes() for row in self.reference}
        return len(distinct) < _MAX_DISTINCT_SHARE * len(self.reference)

    @cached_property
    def is_single_precision_safe(self) -> bool:
        """Whether single precision is accurate for most rows.

        It is checked for the first reference rows, at most one tile. More than half of them must be
        far enough from the other reference rows.
        """
        sample = self.reference[:_TILE_ROWS]
        ((_, distances, squared_norms),) = self.iter_tiles(
            sample, np.ones_like(sample), np.ones_like(sample, bool)
        )
        return bool(
            (
                distances.min(axis=0) + squared_norms > _MIN_FLOAT32_DISTANCE * (1 + squared_norms)
            ).mean()
            > 0.5
        )

    def compute_group_minima(
        self, rows: Rows, precision: torch.dtype
    ) -> tuple[NDArray[Any], Scores]:
        """Return the smallest distances ``(n_groups, n_rows)`` and the squared norms ``(n_rows,)``.

        The squared norms are not included in the distances. An equal reference row is not excluded
        here. Rows with missing values have NaN. Call this only in tasks of `map_in_threads`,
        because reused buffers need its torch modes.
        """
        columns, values = _transpose_tiles(rows, len(rows.T) + 1, precision)
        self._apply_whitening(columns[:, :-1])
        values[:, -1] = 1
        squared_norms = np.square(values[:, :-1], dtype=np.float64).sum(axis=1).ravel()
        # Rows of a tile are the last axis, because minima over a short last axis are slow.
        group_minima = np.empty((len(columns), self.count, _TILE_ROWS), dtype=values.dtype)
        factors, distances = self.complete_factors[precision], self._get_buffer(precision)
        by_group = self.reshape_by_group(distances.numpy())
        for tile, minima in zip(columns, group_minima, strict=True):
            torch.mm(factors, tile, out=distances)
            np.minimum.reduce(by_group, axis=0, out=minima)
        return np.hstack(list(group_minima))[:, : len(rows)], squared_norms[: len(rows)]

    def _get_buffer(self, precision: torch.dtype) -> Tensor:
        """Return this thread's scratch buffer, which is reused so that it stays in cache."""
        buffers = self.buffers.by_precision
        if precision not in buffers:
            buffers[precision] = torch.empty(
                len(self.padded_reference), _TILE_ROWS, dtype=precision
            )
        return buffers[precision]

    def iter_tiles(
        self, rows: Rows, weights: Rows, present: Mask
    ) -> Iterator[tuple[slice, NDArray[np.float64], NDArray[np.float64]]]:
        """Yield a slice of rows, their distances to all reference rows, and their squared norms.

        A slice has at most `_TILE_ROWS` rows. Distances have the shape ``(n_reference, n_rows)``,
        with infinite rows appended up to equal group sizes, and do not include the squared norms
        ``(n_rows,)``. For each row, one reference row that equals it in all `present` values has an
        infinite distance.
        """
        for first in range(0, len(rows), _TILE_ROWS):
            tile = slice(first, min(first + _TILE_ROWS, len(rows)))
            with single_thread(), default_modes():
                distances, squared_norms = self._compute_weighted_distances(
                    rows[tile], weights[tile]
                )
            self._exclude_equal_row(rows[tile], present[tile], distances, squared_norms)
            yield tile, distances, squared_norms

    def _compute_weighted_distances(
        self, rows: Rows, weights: Rows
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return weighted distances without the squared norms, and the weighted squared norms.

        `rows` has at most `_TILE_ROWS` rows. With a whitening, `weights` is ignored and all weights
        are 1. Rows that only pad a group have an infinite distance.
        """
        columns, (values,) = _transpose_tiles(rows, 2 * rows.shape[1], torch.float64)
        self._apply_whitening(columns[:, : rows.shape[1]])
        values, value_weights = np.split(values, 2)
        value_weights[:, : len(rows)] = weights.T if self.whitening is None else 1
        squared_norms = (values**2 * value_weights).sum(axis=0)[: len(rows)]
        values *= value_weights
        distances = torch.mm(self.weighted_factors, columns[0]).numpy()[:, : len(rows)]
        distances[len(self.reference) :] = np.inf
        return distances, squared_norms

    def _exclude_equal_row(
        self,
        rows: Rows,
        present: Mask,
        distances: NDArray[np.float64],
        squared_norms: NDArray[np.float64],
    ) -> None:
        """Set the distance from each row to one equal reference row to infinity, in place.

        Only the first reference row that equals the row in all `present` values is excluded.
        Reference rows with a distance above the rounding error are not compared.
        """
        limits = _ZERO_TOLERANCE * (1 + squared_norms) - squared_norms
        if self.whitening is not None:
            # Missing values count as 0 here, so an equal reference row may be at any distance.
            limits[~present.all(axis=1)] = np.finfo(np.float64).max
        positions = np.flatnonzero(distances.min(axis=0) <= limits)
        if not len(positions):
            return
        is_near = distances[:, positions] <= limits[positions]
        firsts = is_near.argmax(axis=0)
        same = (self.reference[firsts] == rows[positions]) | ~present[positions]
        is_same = same.all(axis=1)
        distances[firsts[is_same], positions[is_same]] = np.inf
        # The first candidate of these rows is not equal to them, but a later one may be.
        for position, candidates in zip(positions[~is_same], is_near[:, ~is_same].T, strict=True):
            others = np.flatnonzero(candidates)[1:]
            equal = ((self.reference[others] == rows[position]) | ~present[position]).all(axis=1)
            distances[others[equal][:1], position] = np.inf

    def reshape_by_group(self, distances: NDArray[Any]) -> NDArray[Any]:
        """Return distances in the shape ``(group_size, n_groups, n_rows)``."""
        return distances.reshape(-1, self.count, distances.shape[1])


def _convert_precisions(matrix: Tensor) -> dict[torch.dtype, Tensor]:
    """Return a matrix in double and in single precision, by data type."""
    return {torch.float64: matrix.double(), torch.float32: matrix.float()}


def _transpose_tiles(
    rows: Rows, height: int, precision: torch.dtype
) -> tuple[Tensor, NDArray[Any]]:
    """Return rows as tiles ``(n_tiles, height, _TILE_ROWS)``, as a tensor and as an array.

    Both share their memory. Each row is a column of a tile. Values below the features and columns
    after the last row are 0.
    """
    n_full, rest = divmod(len(rows), _TILE_ROWS)
    columns = torch.zeros(n_full + (rest > 0), height, _TILE_ROWS, dtype=precision)
    values = columns.numpy()
    n_features = rows.shape[1]
    tiles = rows[: n_full * _TILE_ROWS].reshape(n_full, _TILE_ROWS, n_features)
    values[:n_full, :n_features] = tiles.transpose(0, 2, 1)
    if rest:
        values[n_full, :n_features, :rest] = rows[-rest:].T
    return columns, values


def _choose_block_rows(n_rows: int, n_features: int, n_reference_padded: int) -> int:
    """Return the number of rows of a block, a multiple of `_TILE_ROWS`.

    It is an even share of the rows for each thread, but enough work to be worth a thread. It has at
    most `_MAX_BLOCK_VALUES` values and at least one tile. `n_reference_padded` is the number of
    reference rows, including padding.
    """
    max_tiles = _MAX_BLOCK_VALUES // n_features // _TILE_ROWS
    tiles_per_thread = -(-n_rows // (torch.get_num_threads() * _TILE_ROWS))
    min_tiles = _MIN_BLOCK_WORK // ((n_features + _MINIMA_COST) * n_reference_padded * _TILE_ROWS)
    return max(min(max_tiles, max(tiles_per_thread, min_tiles)), 1) * _TILE_ROWS


def _score_block(groups: _Groups, rows: Rows) -> Scores:
    """Return the scores of rows, in single precision where it is accurate.

    Rows near a reference row, with missing values, or with an overflow are scored by
    `_score_block_exactly`. The precision depends on the row and the scorer only, not on other rows.
    """
    if not groups.is_single_precision_safe:
        return _score_block_exactly(groups, rows)
    group_minima, squared_norms = groups.compute_group_minima(rows, torch.float32)
    scores = _average_groups(group_minima) + squared_norms
    is_accurate = (
        group_minima.min(axis=0) + squared_norms > _MIN_FLOAT32_DISTANCE * (1 + squared_norms)
    ) & np.isfinite(scores)
    if not is_accurate.all():
        scores[~is_accurate] = _score_block_exactly(groups, rows[~is_accurate])
    return scores


def _score_block_exactly(groups: _Groups, rows: Rows) -> Scores:
    """Return the scores of rows in double precision.

    Rows with missing values, or with a distance of 0 up to rounding, are scored by
    `_score_with_all_distances`.
    """
    group_minima, squared_norms = groups.compute_group_minima(rows, torch.float64)
    scores = _average_groups(group_minima + squared_norms)
    needs_all = ~(group_minima.min(axis=0) > _ZERO_TOLERANCE * (1 + squared_norms) - squared_norms)
    if needs_all.any():
        scores[needs_all] = _score_with_all_distances(
            groups, *_weight_present_values(rows[needs_all])
        )
    return scores


def _score_with_all_distances(groups: _Groups, rows: Rows, weights: Rows) -> Scores:
    """Return the scores of rows from their weighted distances to all reference rows.

    It is slower, but handles missing values (weight 0) and excludes one equal reference row. Scores
    that may be rounding errors become 0.
    """
    scores = np.empty(len(rows))
    for tile, distances, squared_norms in groups.iter_tiles(rows, weights, weights > 0):
        mean = _average_groups(groups.reshape_by_group(distances).min(axis=0) + squared_norms)
        # A row with an equal reference row in each group has the score 0, up to rounding.
        scores[tile] = np.where(mean <= _ZERO_TOLERANCE * (1 + squared_norms), 0, mean)
    return scores


def _average_groups(squares: NDArray[Any]) -> Scores:
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
) -> DistanceScorer:
    """Select reference rows among normal rows, and return a scorer with them.

    The share `keep` of rows with the smallest losses is kept, and at most `n_reference` reference
    rows are sampled from it, labelled inliers first. In a second round, distances to these rows
    replace the losses. At least ``2 * n_groups`` rows and all labelled inliers are kept. `whiten`
    adds a whitening, computed from the rows kept first. Missing values of reference rows become 0.
    """
    generator = np.random.default_rng(seed)
    n_kept = max(round(keep * len(rows)), 2 * n_groups, int(is_inlier.sum()))
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
        scorer = DistanceScorer(np.nan_to_num(rows[sampled]), n_groups, whitening)
        losses = scorer.score(rows)
    return scorer


def compute_whitening(rows: Rows) -> Rows:
    """Compute the matrix W for which the features of ``rows @ W`` are nearly uncorrelated.

    Their variances are nearly 1. Missing values (NaN) count as 0. The covariance is shrunk towards
    a multiple of the identity, so that it can be inverted if there are fewer rows than features.
    """
    with single_thread(), default_modes():
        centred = torch.from_numpy(np.nan_to_num(rows)).double()
        centred -= centred.mean(0)
        covariance = centred.T @ centred / max(len(centred) - 1, 1)
        variance = float(covariance.diagonal().mean()) or 1.0
        covariance.mul_(1 - _SHRINKAGE).diagonal().add_(_SHRINKAGE * variance)
        factor = torch.linalg.cholesky(covariance)
        identity = torch.eye(len(factor)).double()
        inverse = torch.linalg.solve_triangular(factor, identity, upper=False)
        return inverse.T.float().contiguous().numpy()
