"""Rows that count as normal, and how far others are from the nearest of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from altbi.ensemble import in_threads

__all__ = ["Memory", "Nearest", "remember"]

Rows = NDArray[np.float32]
Scores = NDArray[np.float64]
Mask = NDArray[np.bool_]
Numbers = NDArray[np.intp]

# Rows that one thread takes at a time, and of these the rows of one product of matrices, whose
# result should stay in the processor's cache; at most 256, so that their places are small numbers.
_BLOCK_ROWS = 4096
_STRIP_ROWS = 256
_STRIP_CELLS = 1 << 18
# Cells that are compared with one another at a time.
_CELLS_AT_ONCE = 1 << 16
# Groups for each neighbour: more make the bound sharper, and dearer.
_GROUPS = 3
_ROUNDING = 2.0**-24
# Where fewer of the remembered rows differ, it pays to measure equal rows once.
_OFTEN = 0.9


@dataclass(frozen=True, slots=True)
class Nearest:
    """The remembered rows nearest to some rows.

    Attributes
    ----------
    numbers : ndarray of shape (n_rows, n_neighbors)
        Their numbers in the memory, nearest first.
    squares : ndarray of shape (n_rows, n_units)
        The squared differences from them in each unit, averaged over them.
    """

    numbers: Numbers
    squares: NDArray[np.float64]


@final
@dataclass(frozen=True, slots=True)
class Memory:
    """Remembered rows; a row's score is its mean squared distance to the nearest of them.

    One remembered row that is equal to the scored one is left out: it may be that row itself, which
    must not be its own neighbour, and nothing but its values tells whether it is.

    Parameters
    ----------
    rows : ndarray of shape (n_remembered, n_units)
        The remembered rows, as `TableEncoder.standardize` gives them, gaps as 0; at least two.
    n_neighbors : int
        How many of them count as the nearest.

    Examples
    --------
    >>> memory = Memory(np.array([[0, 0], [1, 0], [0, 1]], dtype=np.float32), n_neighbors=2)
    >>> memory.score(np.array([[3, 0], [0, 0]], dtype=np.float32))
    array([6.5, 1. ])
    """

    rows: Rows
    n_neighbors: int

    @property
    def counted(self) -> int:
        """Neighbours that count: a remembered row has one less to choose from."""
        return min(self.n_neighbors, len(self.rows) - 1)

    def score(self, rows: Rows) -> Scores:
        """Score rows; high means outlier. Gaps (NaN) are passed over, and the rest counts more."""
        search, scores = _Search(self.rows, self.counted), np.empty(len(rows))

        repeats = search.repeats

        def block(first: int) -> None:
            some = slice(first, first + _BLOCK_ROWS)
            distinct, places = _distinct(rows[some]) if repeats else (rows[some], slice(None))
            scores[some] = _block_scores(search, distinct)[places]

        for _ in in_threads(block, range(0, len(rows), _BLOCK_ROWS)):
            pass
        return scores

    def nearest(self, rows: Rows, weights: Rows | None = None) -> Nearest:
        """Name the nearest remembered rows, and say how far they are in each unit.

        With weights, one for each unit of each row, squared differences count so many times for
        who is nearest.
        """
        search, count = _Search(self.rows, self.counted), self.counted
        filled, factors = _weighed(rows)
        chosen = factors if weights is None else factors * weights
        numbers = np.empty((len(rows), count), dtype=np.intp)
        squares = np.empty(rows.shape)
        for first, near in search.strips(filled, chosen):
            order = np.lexsort((near.numbers, near.squares, near.rows))
            found = near.numbers[order[_starts(np.bincount(near.rows))[:, None] + np.arange(count)]]
            strip = slice(first, first + len(found))
            numbers[strip] = found
            apart = self.rows[found].astype(np.float64) - filled[strip, None]
            squares[strip] = (apart**2).mean(axis=1) * factors[strip]
        return Nearest(numbers, squares)


class _Near(NamedTuple):
    """Pairs of a row and a remembered row that may be one of its nearest, row after row."""

    rows: Numbers
    numbers: Numbers
    squares: Scores


@final
class _Search:
    """Finds the remembered rows that may be the nearest ones, and measures these closely.

    One product of matrices gives all distances, up to rounding. The remembered rows are dealt into
    groups: the nearest of each group are candidates already, so that no neighbour is further than
    the last one needed of them. What lies within that bound, with room for the rounding, is then
    measured cell by cell: what comes out depends on neither the shape of the product nor the
    machine's way to take it.
    """

    def __init__(self, remembered: Rows, counted: int) -> None:
        self.counted = counted
        self.groups = min(_GROUPS * (counted + 1), len(remembered))
        idle = np.zeros((-len(remembered) % self.groups, remembered.shape[1]), dtype=np.float32)
        self.remembered = np.vstack([remembered, idle])
        self.n_remembered = len(remembered)
        squares = self.remembered**2
        sizes = squares.sum(axis=1, keepdims=True)
        self.longest = float(np.sqrt(sizes.max()))
        doubled = self.remembered * np.float32(-2)
        self.for_whole = torch.from_numpy(np.hstack([doubled, sizes]))
        self.for_weighed = torch.from_numpy(np.hstack([doubled, squares]))

    @property
    def repeats(self) -> bool:
        """Whether remembered rows are often equal: then the rows of the table are, too."""
        distinct = {row.tobytes() for row in self.remembered[: self.n_remembered]}
        return len(distinct) < _OFTEN * self.n_remembered

    def strips(self, rows: Rows, weights: Rows | None) -> Iterator[tuple[int, _Near]]:
        """Give the pairs of a few rows at a time, with the number of the first row."""
        # The same memory again and again stays in the processor's cache.
        size = min(max(_STRIP_CELLS // len(self.remembered), 1), _STRIP_ROWS)
        room = torch.empty(len(self.remembered) * size, dtype=torch.float32)
        for first in range(0, len(rows), size):
            strip = rows[first : first + size]
            heavy = None if weights is None else weights[first : first + size]
            yield first, self._measured(strip, heavy, *self._candidates(strip, heavy, room))

    def _candidates(
        self, rows: Rows, weights: Rows | None, room: Tensor
    ) -> tuple[Numbers, Numbers]:
        """Name pairs of rows and remembered rows; all nearest ones are among them."""
        if weights is None:
            columns, factors = np.vstack([rows.T, np.ones((1, len(rows)), "f4")]), self.for_whole
        else:
            columns, factors = np.vstack([(rows * weights).T, weights.T]), self.for_weighed
        place = room[: len(factors) * len(rows)].view(len(factors), len(rows))
        distances = torch.mm(factors, torch.from_numpy(columns), out=place).numpy()
        distances[self.n_remembered :] = np.inf
        lows = distances.reshape(-1, self.groups, len(rows)).min(axis=0).T.copy()
        lows.partition(self.counted, axis=1)
        bounds = lows[:, self.counted] + self._rounding(columns)
        flat = np.flatnonzero(distances <= bounds)
        numbers = flat // len(rows)
        places = flat - numbers * len(rows)
        order = np.argsort(places.astype(np.uint8), kind="stable")
        return places[order], numbers[order]

    def _rounding(self, columns: Rows) -> Rows:
        """Say how far apart two distances may be found that are equal, for each row.

        A sum of n products is off by at most n roundings of their sizes' sum.
        """
        sizes = np.sqrt((columns * columns).sum(axis=0)) + columns.max(axis=0) * self.longest
        return sizes * np.float32(4 * (len(columns) + 4) * _ROUNDING * self.longest)

    def _measured(
        self, rows: Rows, weights: Rows | None, places: Numbers, numbers: Numbers
    ) -> _Near:
        """Measure pairs by their differences; one pair of equal rows is put out of reach."""
        squares, equal = np.empty(len(places)), np.empty(len(places), dtype=bool)
        step = max(_CELLS_AT_ONCE // rows.shape[1], 1)
        for first in range(0, len(places), step):
            some = slice(first, first + step)
            apart = self.remembered.take(numbers[some], axis=0)
            apart -= rows.take(places[some], axis=0)
            found = np.einsum("ij,ij->i", apart, apart)
            equal[some] = found == 0
            if weights is not None:
                heavy = weights.take(places[some], axis=0)
                found = np.einsum("ij,ij,ij->i", apart, apart, heavy)
            squares[some] = found
        if equal.any():
            twins = np.flatnonzero(equal)
            squares[twins[np.unique(places[twins], return_index=True)[1]]] = np.inf
        return _Near(places, numbers, squares)


def _block_scores(search: _Search, rows: Rows) -> Scores:
    """Score some rows, those with gaps apart from the others."""
    gaps = np.isnan(rows.sum(axis=1))
    if not gaps.any():
        return _whole_scores(search, rows, None)
    scores = np.empty(len(rows))
    scores[~gaps] = _whole_scores(search, rows[~gaps], None)
    scores[gaps] = _whole_scores(search, *_weighed(rows[gaps]))
    return scores


def _whole_scores(search: _Search, rows: Rows, weights: Rows | None) -> Scores:
    scores = np.empty(len(rows))
    for first, near in search.strips(rows, weights):
        counts = np.bincount(near.rows)
        table = np.full((len(counts), counts.max()), np.inf)
        table[near.rows, np.arange(len(near.rows)) - _starts(counts)[near.rows]] = near.squares
        table.sort(axis=1)
        # Added up one after the other: the order of NumPy's own sum depends on the shape.
        total = np.cumsum(table[:, : search.counted], axis=1)[:, -1]
        scores[first : first + len(counts)] = total / search.counted
    return scores


def _starts(counts: Numbers) -> Numbers:
    """Give the place where the pairs of each row begin."""
    return np.cumsum(counts) - counts


def _weighed(rows: Rows) -> tuple[Rows, Rows]:
    """Give rows and weights: none for gaps, so much more for the others that the sum stays."""
    present = ~np.isnan(rows)
    shares = rows.shape[1] / np.maximum(present.sum(axis=1, keepdims=True), 1)
    filled = np.where(present, rows, np.float32(0))
    return filled, (present * shares).astype(np.float32)


def _distinct(rows: Rows) -> tuple[Rows, Numbers]:
    """Give each row that occurs, once, and the place of every row among them.

    Tables of categories and whole numbers hold few different rows, and equal rows score alike.
    """
    # A sum of cells, as whole numbers, times odd factors tells rows apart, but for rare accidents.
    factors = np.random.default_rng(0).integers(2**63, size=rows.shape[1], dtype=np.uint64) * 2 + 1
    bits = np.ascontiguousarray(rows).view(np.uint32)
    _, firsts, places = np.unique(bits @ factors, return_index=True, return_inverse=True)
    if not np.array_equal(bits[firsts][places], bits):
        return rows, np.arange(len(rows))
    return rows[firsts], places


def remember(
    rows: Rows,
    oddness: Scores,
    *,
    keep: float,
    n_remembered: int,
    n_neighbors: int,
    seed: int,
    certain: Mask,
) -> Memory:
    """Choose what to remember: rows that are not odd, by what is given and by their distances.

    Of the rows the share `keep` that is least odd is kept, and the memory is drawn from it. A row
    far from that memory is odd, too: in a second round these distances say which rows are kept.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_units)
        What may be remembered.
    oddness : ndarray of shape (n_rows,)
        What is known of these rows so far; high means outlier.
    keep : float in (0, 1]
        Share of the rows that is kept.
    n_remembered, n_neighbors : int
        Size of the memory, and the neighbours that count in it.
    seed : int
        Seed of the draws.
    certain : ndarray of bool
        Rows that are kept however odd they look, and drawn first.
    """
    generator = np.random.default_rng(seed)
    count = max(round(keep * len(rows)), n_neighbors + 1, int(certain.sum()))
    for _ in range(2):
        oddness = np.where(certain, -np.inf, oddness)
        # Shuffled first: among rows that are equally odd the order of the table must not decide.
        shuffled = generator.permutation(len(rows))
        ranked = shuffled[np.argsort(oddness[shuffled], kind="stable")]
        kept = generator.permutation(ranked[:count])
        drawn = np.sort(kept[np.argsort(~certain[kept], kind="stable")][:n_remembered])
        memory = Memory(np.nan_to_num(rows[drawn]), n_neighbors)
        oddness = memory.score(rows)
    return memory
