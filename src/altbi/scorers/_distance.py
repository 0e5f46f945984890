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

from altbi.encoding import TableEncoder
from altbi.networks import map_in_threads
from altbi.networks._torch_modes import default_modes, single_thread
from altbi.table import Table

Rows = NDArray[np.float32]
Scores = NDArray[np.float64]
Mask = NDArray[np.bool_]
Indices = NDArray[np.intp]

# Cells that one thread takes at a time, and the rows of one product of matrices: few enough that
# its result stays near the processor, and enough that threads seldom wait for each other between
# two of them. The product has always the same shape, and its width is a multiple of those that
# kernels work on (12 and 16 here; columns left over go through another one, which rounds
# otherwise): so sums are taken in one way for every row, whatever stands beside it.
_BLOCK_CELLS = 1 << 18
_TILE_ROWS = 384
# Multiply-adds of a block for which a thread is started; minima cost as much as so many columns.
_LEAST_WORK = 1 << 26
_COLUMNS_OF_MINIMA = 20
# Distances of so little, as a share of the row's own size, are what rounding leaves of none.
_NOTHING = 1e-12
# Above this share of the row's own size four digits of a squared distance, mostly five or six, are
# sure in single precision, which takes half the time. Nearer rows are measured again in double.
_SURE = 0.01
# Where fewer of the reference rows differ, it pays to measure equal rows once.
_OFTEN = 0.9
# Weight of the identity in the shrunk covariance.
_SHRINKAGE = 0.1


@final
@dataclass(frozen=True)
class DistanceScorer:
    """Scorer by the mean squared distance of a row to the nearest row of each reference group.

    One reference row that equals the scored row in all values that are not missing is excluded. The
    scored row may be this reference row, and a row must not be its own neighbour.

    Parameters
    ----------
    rows : ndarray of shape (n_reference, n_features_encoded)
        The reference rows in robust z-scores, with 0 for missing values. There are at least two.
    n_groups : int
        Number of groups. Reference row i belongs to group ``i % n_groups``.
    whitening : ndarray of shape (n_features_encoded, n_features_encoded) or None
        Matrix that rows are multiplied by before distances are computed. Missing values then
        count as 0. None computes distances without whitening.

    Examples
    --------
    >>> rows = np.array([[0, 0], [4, 0], [1, 0], [0, 1]], dtype=np.float32)
    >>> scorer = DistanceScorer(rows, n_groups=2)  # rows 0 and 2, rows 1 and 3
    >>> scorer.score(np.array([[3, 0], [0, 0]], dtype=np.float32))
    array([2.5, 1. ])
    """

    kind: ClassVar[Literal["distance"]] = "distance"

    rows: Rows
    n_groups: int
    whitening: Rows | None = None

    def encode(self, table: Table, encoder: TableEncoder) -> Rows:
        """Return the rows of a table in robust z-scores."""
        return encoder.standardize(table)

    @property
    def n_groups_used(self) -> int:
        """Number of groups used: `n_groups`, or less if a group would have fewer than two rows."""
        return max(min(self.n_groups, len(self.rows) // 2), 1)

    @cached_property
    def _groups(self) -> "_Groups":
        with single_thread(), default_modes():
            return _Groups(self.rows, self.n_groups_used, self.whitening)

    @cached_property
    def _unwhitened_groups(self) -> "_Groups":
        if self.whitening is None:
            return self._groups
        with single_thread(), default_modes():
            return _Groups(self.rows, self.n_groups_used, None)

    def __reduce__(self) -> tuple[type[Self], tuple[Rows, int, Rows | None]]:
        return type(self), (self.rows, self.n_groups, self.whitening)  # without cached values

    def score(self, rows: Rows) -> Scores:
        """Return the scores of encoded rows; high means outlier.

        Missing values (NaN) are ignored, and the other values are weighted up for them. With a
        whitening they count as 0.
        """
        groups, scores = self._groups, np.empty(len(rows))
        size = _block_rows(len(rows), rows.shape[1], len(groups.positions))

        def score_block(start: int) -> None:
            block = rows[start : start + size]
            distinct, indices = _distinct(block) if groups.repeat else (block, slice(None))
            scores[start : start + size] = _block_scores(groups, distinct)[indices]

        for _ in map_in_threads(score_block, range(0, len(rows), size)):
            pass
        return scores

    def contributions(self, rows: Rows) -> NDArray[np.float64]:
        """Return contributions ``(n_rows, n_features_encoded)`` that add up to the scores.

        With a whitening W, the contributions of a difference d are ``d * (d @ W @ W.T)``, which may
        be negative.
        """
        filled, weights = _weighed(rows)
        contributions = np.empty(rows.shape)
        n_groups = self.n_groups_used
        for tile, distances, _ in self._groups.tiles(filled, weights, weights > 0):
            nearest = self._groups.by_group(distances).argmin(axis=0)
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

        Parameters
        ----------
        rows : ndarray of shape (n_rows, n_features_encoded)
            Encoded rows.
        weights : ndarray of shape (n_rows, n_features_encoded)
            Weights of the squared differences. Distances are never whitened here.
        count : int
            Number of reference rows; there may be fewer in the scorer.

        Returns
        -------
        ndarray of int
            Indices of reference rows, the nearest first.
        """
        filled, factors = _weighed(rows)
        count = min(count, len(self.rows) - 1)
        indices = np.empty((len(rows), count), dtype=np.intp)
        groups = self._unwhitened_groups
        for tile, distances, _ in groups.tiles(filled, factors * weights, factors > 0):
            indices[tile] = distances.argsort(axis=0, kind="stable")[:count].T
        return indices


@final
class _Buffers(threading.local):
    """The scratch buffers of a thread, by precision."""

    def __init__(self) -> None:
        self.of: dict[torch.dtype, Tensor] = {}


@final
class _Groups:
    """Squared distances from rows to all reference ones, by one product of matrices."""

    def __init__(self, reference: Rows, count: int, whitening: Rows | None) -> None:
        self.reference = reference
        self.count = count
        self.whitening = None if whitening is None else _precisions(torch.from_numpy(whitening.T))
        # Empty positions make the groups equally large.
        self.positions = np.zeros((-(-len(reference) // count) * count, reference.shape[1]))
        self.positions[: len(reference)] = self._whitened(reference)
        self.buffers = _Buffers()

    def _whitened(self, rows: Rows) -> NDArray[np.float64]:
        columns, cells = _columns(rows, rows.shape[1], torch.float64)
        self._whiten(columns)
        return np.hstack(list(cells))[:, : len(rows)].T

    def _whiten(self, columns: Tensor) -> None:
        """Change rows that stand side by side, a tile at a time."""
        if self.whitening is not None:
            for tile in columns:
                tile.copy_(self.whitening[columns.dtype] @ tile)

    @cached_property
    def for_complete(self) -> dict[torch.dtype, Tensor]:
        """What a row, and a 1 after it, is multiplied by to give its distances, by precision."""
        sizes = (self.positions**2).sum(axis=1, keepdims=True)
        sizes[len(self.reference) :] = np.inf
        return _precisions(torch.from_numpy(np.hstack([-2 * self.positions, sizes])))

    @cached_property
    def for_weighed(self) -> Tensor:
        """What a row times its weights, and these after it, is multiplied by."""
        return torch.from_numpy(np.hstack([-2 * self.positions, self.positions**2]))

    @cached_property
    def repeat(self) -> bool:
        """Whether reference rows are often equal: then the rows of the table are, too."""
        distinct = {row.tobytes() for row in self.reference}
        return len(distinct) < _OFTEN * len(self.reference)

    @cached_property
    def is_single_precision_safe(self) -> bool:
        """Whether rows like the reference ones are mostly sure in single precision."""
        few = self.reference[:_TILE_ROWS]
        ((_, distances, sizes),) = self.tiles(few, np.ones_like(few), np.ones_like(few, bool))
        return bool((distances.min(axis=0) + sizes > _SURE * (1 + sizes)).mean() > 0.5)

    def group_minima(self, rows: Rows, precision: torch.dtype) -> tuple[NDArray[Any], Scores]:
        """Return the smallest distances ``(groups, n_rows)`` without the rows' norms, and these.

        An equal reference row is not excluded here. Rows with missing values give NaN. Only called
        by tasks of `map_in_threads`, because buffers need its modes.
        """
        columns, cells = _columns(rows, len(rows.T) + 1, precision)
        self._whiten(columns[:, :-1])
        cells[:, -1] = 1
        sizes = np.square(cells[:, :-1], dtype=np.float64).sum(axis=1).ravel()
        # The least of a tile lie side by side: minima over short lines are slow.
        group_minima = np.empty((len(columns), self.count, _TILE_ROWS), dtype=cells.dtype)
        factors, distances = self.for_complete[precision], self._buffer(precision)
        by_group = self.by_group(distances.numpy())
        for tile, position in zip(columns, group_minima, strict=True):
            torch.mm(factors, tile, out=distances)
            np.minimum.reduce(by_group, axis=0, out=position)
        return np.hstack(list(group_minima))[:, : len(rows)], sizes[: len(rows)]

    def _buffer(self, precision: torch.dtype) -> Tensor:
        """Return this thread's scratch buffer, which is reused so that it stays in cache."""
        buffers = self.buffers.of
        if precision not in buffers:
            buffers[precision] = torch.empty(len(self.positions), _TILE_ROWS, dtype=precision)
        return buffers[precision]

    def tiles(
        self, rows: Rows, weights: Rows, present: Mask
    ) -> Iterator[tuple[slice, NDArray[np.float64], NDArray[np.float64]]]:
        """Return all distances of a few rows at a time, less the rows' own sizes, and these sizes.

        Which rows, then ``(n_reference, n_rows)`` distances and ``(n_rows,)`` norms. One row
        that is equal to the row, in all cells that it has, is out of its reach.
        """
        for first in range(0, len(rows), _TILE_ROWS):
            tile = slice(first, min(first + _TILE_ROWS, len(rows)))
            with single_thread(), default_modes():
                distances, sizes = self._weighed(rows[tile], weights[tile])
            self._leave_itself_out(rows[tile], present[tile], distances, sizes)
            yield tile, distances, sizes

    def _weighed(
        self, rows: Rows, weights: Rows
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the distances of one tile, less the rows' own sizes, and these sizes."""
        columns, (cells,) = _columns(rows, 2 * rows.shape[1], torch.float64)
        self._whiten(columns[:, : rows.shape[1]])
        cells, beside = np.split(cells, 2)
        beside[:, : len(rows)] = weights.T if self.whitening is None else 1
        sizes = (cells**2 * beside).sum(axis=0)[: len(rows)]
        cells *= beside
        distances = torch.mm(self.for_weighed, columns[0]).numpy()[:, : len(rows)]
        distances[len(self.reference) :] = np.inf
        return distances, sizes

    def _leave_itself_out(
        self,
        rows: Rows,
        present: Mask,
        distances: NDArray[np.float64],
        sizes: NDArray[np.float64],
    ) -> None:
        limits = _NOTHING * (1 + sizes) - sizes
        if self.whitening is not None:
            # A row that has lost a cell is away from where it was.
            limits[~present.all(axis=1)] = np.finfo(np.float64).max
        positions = np.flatnonzero(distances.min(axis=0) <= limits)
        if not len(positions):
            return
        near = distances[:, positions] <= limits[positions]
        firsts = near.argmax(axis=0)
        same = (self.reference[firsts] == rows[positions]) | ~present[positions]
        is_same = same.all(axis=1)
        distances[firsts[is_same], positions[is_same]] = np.inf
        # The nearest few of the others may have an equal among them, too.
        for position, candidates in zip(positions[~is_same], near[:, ~is_same].T, strict=True):
            others = np.flatnonzero(candidates)[1:]
            equal = ((self.reference[others] == rows[position]) | ~present[position]).all(axis=1)
            distances[others[equal][:1], position] = np.inf

    def by_group(self, distances: NDArray[Any]) -> NDArray[Any]:
        """Return distances of shape ``(rows of a group, groups, n_rows)``."""
        return distances.reshape(-1, self.count, distances.shape[1])


def _precisions(matrix: Tensor) -> dict[torch.dtype, Tensor]:
    return {torch.float64: matrix.double(), torch.float32: matrix.float()}


def _columns(rows: Rows, height: int, precision: torch.dtype) -> tuple[Tensor, NDArray[Any]]:
    """Return rows as columns of tiles, matrices of one width; the last one is padded."""
    n_full, rest = divmod(len(rows), _TILE_ROWS)
    columns = torch.zeros(n_full + (rest > 0), height, _TILE_ROWS, dtype=precision)
    cells = columns.numpy()
    n_features = rows.shape[1]
    tiles = rows[: n_full * _TILE_ROWS].reshape(n_full, _TILE_ROWS, n_features)
    cells[:n_full, :n_features] = tiles.transpose(0, 2, 1)
    if rest:
        cells[n_full, :n_features, :rest] = rows[-rest:].T
    return columns, cells


def _block_rows(n_rows: int, n_features: int, n_positions: int) -> int:
    """Return the rows of a block, a multiple of the tile: at most a thread's share.

    A thread is started for a block that is worth it.
    """
    most = _BLOCK_CELLS // n_features // _TILE_ROWS
    even = -(-n_rows // (torch.get_num_threads() * _TILE_ROWS))
    worth = _LEAST_WORK // ((n_features + _COLUMNS_OF_MINIMA) * n_positions * _TILE_ROWS)
    return max(min(most, max(even, worth)), 1) * _TILE_ROWS


def _block_scores(groups: _Groups, rows: Rows) -> Scores:
    """Score some rows; those near a reference one, and those with gaps, take the exact way.

    Which way a row takes is up to that row and the scorer alone.
    """
    if not groups.is_single_precision_safe:
        return _exact_scores(groups, rows)
    group_minima, sizes = groups.group_minima(rows, torch.float32)
    scores = _mean(group_minima) + sizes
    sure = (group_minima.min(axis=0) + sizes > _SURE * (1 + sizes)) & np.isfinite(scores)
    if not sure.all():
        scores[~sure] = _exact_scores(groups, rows[~sure])
    return scores


def _exact_scores(groups: _Groups, rows: Rows) -> Scores:
    """Score some rows; those with gaps, or equal to a reference one, take the long way."""
    group_minima, sizes = groups.group_minima(rows, torch.float64)
    scores = _mean(group_minima + sizes)
    special = ~(group_minima.min(axis=0) > _NOTHING * (1 + sizes) - sizes)
    if special.any():
        scores[special] = _long_way(groups, *_weighed(rows[special]))
    return scores


def _long_way(groups: _Groups, rows: Rows, weights: Rows) -> Scores:
    scores = np.empty(len(rows))
    for tile, distances, sizes in groups.tiles(rows, weights, weights > 0):
        mean = _mean(groups.by_group(distances).min(axis=0) + sizes)
        # Of a row with an equal in each group nothing but rounding is left.
        scores[tile] = np.where(mean <= _NOTHING * (1 + sizes), 0, mean)
    return scores


def _mean(squares: NDArray[Any]) -> Scores:
    """Average over groups, in this order, whatever the shape."""
    total = np.zeros(squares.shape[1])
    for group in squares:
        total += group
    return total / len(squares)


def _weighed(rows: Rows) -> tuple[Rows, Rows]:
    """Return rows and weights: none for gaps, so much more for the others that the sum stays."""
    present = ~np.isnan(rows)
    shares = rows.shape[1] / np.maximum(present.sum(axis=1, keepdims=True), 1)
    filled = np.where(present, rows, np.float32(0))
    return filled, (present * shares).astype(np.float32)


def _distinct(rows: Rows) -> tuple[Rows, Indices]:
    """Return each row that occurs, once, and the position of every row among them.

    Tables of categories and n_full numbers hold few different rows, and equal rows score alike.
    """
    # Equal rows have equal sums of their bits times fixed factors; collisions are checked below.
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

    The share `keep` of rows with the smallest losses is kept, and reference rows are sampled from
    it. In a second round, distances to these reference rows replace the losses.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features_encoded)
        Candidates, in robust z-scores.
    losses : ndarray of shape (n_rows,)
        Losses of the candidates; high means outlier.
    keep : float in (0, 1]
        Share of the rows that is kept.
    n_reference, n_groups : int
        Number of reference rows, and of the groups they are divided into.
    whiten : bool
        Whether distances are whitened by the covariance of the rows kept in the first round.
    seed : int
        Seed of the sampling.
    is_inlier : ndarray of bool
        Labelled inliers. They are always kept, and sampled first.

    Returns
    -------
    DistanceScorer
        The scorer.
    """
    generator = np.random.default_rng(seed)
    n_kept = max(round(keep * len(rows)), 2 * n_groups, int(is_inlier.sum()))
    whitening = None
    for _ in range(2):
        losses = np.where(is_inlier, -np.inf, losses)
        # Ties are broken at random: the order of the table must not decide.
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
    """Compute the matrix after which encoded features are nearly uncorrelated, with variance 1.

    The covariance is shrunk towards a multiple of the identity, so that it can be inverted if there
    are fewer rows than features.
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
