"""Rows that count as normal, and how far others are from the nearest of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from altbi.ensemble import in_threads

__all__ = ["Memory", "remember"]

Rows = NDArray[np.float32]
Scores = NDArray[np.float64]
Mask = NDArray[np.bool_]
Numbers = NDArray[np.intp]

# Rows that one thread takes at a time, and of these the rows of one product of matrices, whose
# result should stay in the processor's cache. The product has always the same shape: its sums are
# then taken in the same order for every row, whatever stands beside it.
_BLOCK_ROWS = 4096
_STRIP_ROWS = 128
# Distances of so little, as a share of the row's own size, are what rounding leaves of none.
_NOTHING = 1e-12
# Where fewer of the remembered rows differ, it pays to measure equal rows once.
_OFTEN = 0.9


@final
@dataclass(frozen=True)
class Memory:
    """Remembered rows in a few lots; a row's score is its mean squared distance to them.

    The distance to a lot is that to the nearest row in it. One remembered row that is equal to the
    scored one is left out: it may be that row itself, which must not be its own neighbour, and
    nothing but its values tells whether it is.

    Parameters
    ----------
    rows : ndarray of shape (n_remembered, n_units)
        The remembered rows, as `TableEncoder.standardize` gives them, gaps as 0; at least two.
    n_lots : int
        Lots that the rows are dealt into, one by one; each has at least two.

    Examples
    --------
    >>> rows = np.array([[0, 0], [4, 0], [1, 0], [0, 1]], dtype=np.float32)
    >>> memory = Memory(rows, n_lots=2)  # the first and third row, the second and fourth
    >>> memory.score(np.array([[3, 0], [0, 0]], dtype=np.float32))
    array([2.5, 1. ])
    """

    rows: Rows
    n_lots: int

    @property
    def counted(self) -> int:
        """Lots that count: no more than leave two rows for each."""
        return max(min(self.n_lots, len(self.rows) // 2), 1)

    @cached_property
    def _lots(self) -> "_Lots":
        return _Lots(self.rows, self.counted)

    def __reduce__(self) -> tuple[type[Self], tuple[Rows, int]]:
        return type(self), (self.rows, self.n_lots)  # not what can be computed again

    def score(self, rows: Rows) -> Scores:
        """Score rows; high means outlier. Gaps (NaN) are passed over, and the rest counts more."""
        lots, scores = self._lots, np.empty(len(rows))

        def block(first: int) -> None:
            some = rows[first : first + _BLOCK_ROWS]
            distinct, places = _distinct(some) if lots.repeat else (some, slice(None))
            scores[first : first + _BLOCK_ROWS] = _block_scores(lots, distinct)[places]

        for _ in in_threads(block, range(0, len(rows), _BLOCK_ROWS)):
            pass
        return scores

    def parts(self, rows: Rows) -> NDArray[np.float64]:
        """Take scores apart: ``(n_rows, n_units)``, which add up to the scores."""
        filled, weights = _weighed(rows)
        parts = np.empty(rows.shape)
        for strip, distances, own in self._lots.strips(filled, weights):
            self._lots.lows(filled[strip], distances, own)
            places = self._lots.dealt(distances).argmin(axis=0)
            numbers = (places * self.counted + np.arange(self.counted)[:, None]).T
            apart = self.rows[numbers].astype(np.float64) - filled[strip, None]
            parts[strip] = (apart**2).mean(axis=1) * weights[strip]
        return parts

    def alike(self, rows: Rows, weights: Rows, count: int) -> Numbers:
        """Name the remembered rows most like some rows, ``(n_rows, count)``, nearest first.

        Of each unit of each row the weight says how many times its squared differences count. There
        may be fewer than `count`.
        """
        filled, factors = _weighed(rows)
        count = min(count, len(self.rows) - 1)
        numbers = np.empty((len(rows), count), dtype=np.intp)
        for strip, distances, own in self._lots.strips(filled, factors * weights):
            self._lots.lows(filled[strip], distances, own)
            numbers[strip] = distances.argsort(axis=0, kind="stable")[:count].T
        return numbers


@final
class _Lots:
    """Squared distances from rows to all remembered ones, by one product of matrices."""

    def __init__(self, remembered: Rows, count: int) -> None:
        self.remembered = remembered
        self.count = count
        # Empty places make the lots equally large.
        self.places = np.zeros((-(-len(remembered) // count) * count, remembered.shape[1]))
        self.places[: len(remembered)] = remembered

    @cached_property
    def for_whole(self) -> Tensor:
        """What a row, and a 1 after it, is multiplied by to give its distances."""
        sizes = (self.places**2).sum(axis=1, keepdims=True)
        return torch.from_numpy(np.hstack([-2 * self.places, sizes]))

    @cached_property
    def for_weighed(self) -> Tensor:
        """What a row times its weights, and these after it, is multiplied by."""
        return torch.from_numpy(np.hstack([-2 * self.places, self.places**2]))

    @cached_property
    def repeat(self) -> bool:
        """Whether remembered rows are often equal: then the rows of the table are, too."""
        distinct = {row.tobytes() for row in self.remembered}
        return len(distinct) < _OFTEN * len(self.remembered)

    def strips(
        self, rows: Rows, weights: Rows | None
    ) -> Iterator[tuple[slice, NDArray[np.float64], NDArray[np.float64]]]:
        """Give the distances of a few rows at a time, less the rows' own sizes, and these sizes.

        Which rows, then ``(places, n_rows)`` distances and ``(n_rows,)`` sizes. The distances are
        the same memory again and again, which stays in the processor's cache.
        """
        factors = self.for_whole if weights is None else self.for_weighed
        columns = torch.ones(factors.shape[1], _STRIP_ROWS, dtype=torch.float64)
        distances = torch.empty(len(factors), _STRIP_ROWS, dtype=torch.float64)
        cells, beside = np.split(columns.numpy(), [rows.shape[1]])
        for first in range(0, len(rows), _STRIP_ROWS):
            strip = slice(first, min(first + _STRIP_ROWS, len(rows)))
            count = strip.stop - first
            cells[:, :count] = rows[strip].T
            own = cells**2
            if weights is not None:
                beside[:, :count] = weights[strip].T
                own *= beside
                cells *= beside
            own = own.sum(axis=0)[:count]  # of all columns: the order of the sum is the shape's
            torch.mm(factors, columns, out=distances)
            found = distances.numpy()[:, :count]
            found[len(self.remembered) :] = np.inf
            yield strip, found, own

    def lows(
        self, rows: Rows, distances: NDArray[np.float64], own: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Give the least distance to each lot; a row itself is put out of its own reach."""
        lows = self.dealt(distances).min(axis=0)
        limits = _NOTHING * (1 + own) - own
        hits = np.flatnonzero(lows.min(axis=0) <= limits)
        for place in hits:
            near = np.flatnonzero(distances[:, place] <= limits[place])
            equal = near[(self.remembered[near] == rows[place]).all(axis=1)]
            distances[equal[:1], place] = np.inf
        if len(hits):
            lows[:, hits] = self.dealt(distances[:, hits]).min(axis=0)
        return lows

    def dealt(self, distances: NDArray[np.float64]) -> NDArray[np.float64]:
        """Give ``(places of a lot, lots, n_rows)`` distances."""
        return distances.reshape(-1, self.count, distances.shape[1])


def _block_scores(lots: _Lots, rows: Rows) -> Scores:
    """Score some rows, those with gaps apart from the others."""
    gaps = np.isnan(rows.sum(axis=1))
    if not gaps.any():
        return _whole_scores(lots, rows, None)
    scores = np.empty(len(rows))
    scores[~gaps] = _whole_scores(lots, rows[~gaps], None)
    scores[gaps] = _whole_scores(lots, *_weighed(rows[gaps]))
    return scores


def _whole_scores(lots: _Lots, rows: Rows, weights: Rows | None) -> Scores:
    scores = np.empty(len(rows))
    for strip, distances, own in lots.strips(rows, weights):
        total = np.zeros(len(own))
        for low in lots.lows(rows[strip], distances, own):  # in this order, whatever the shape
            total += low + own
        # Of a row with an equal in each lot nothing but rounding is left.
        scores[strip] = np.where(total <= _NOTHING * (1 + own), 0, total / lots.count)
    return scores


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
    n_lots: int,
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
    n_remembered, n_lots : int
        Size of the memory, and the lots that it is dealt into.
    seed : int
        Seed of the draws.
    certain : ndarray of bool
        Rows that are kept however odd they look, and drawn first.
    """
    generator = np.random.default_rng(seed)
    count = max(round(keep * len(rows)), 2 * n_lots, int(certain.sum()))
    for _ in range(2):
        oddness = np.where(certain, -np.inf, oddness)
        # Shuffled first: among rows that are equally odd the order of the table must not decide.
        shuffled = generator.permutation(len(rows))
        ranked = shuffled[np.argsort(oddness[shuffled], kind="stable")]
        kept = generator.permutation(ranked[:count])
        drawn = np.sort(kept[np.argsort(~certain[kept], kind="stable")][:n_remembered])
        memory = Memory(np.nan_to_num(rows[drawn]), n_lots)
        oddness = memory.score(rows)
    return memory
