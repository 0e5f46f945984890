"""Rows that count as normal, and how far others are from the nearest of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from altbi.ensemble import over_blocks

__all__ = ["Memory", "Nearest", "remember"]

Rows = NDArray[np.float32]
Scores = NDArray[np.float64]
Mask = NDArray[np.bool_]

_BLOCK_ROWS = 512
_STRIP_ROWS = 64
_NOTHING = 1e-12


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

    numbers: NDArray[np.intp]
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
        whole = ~np.isnan(rows).any(axis=1)
        scores = np.empty(len(rows))
        for some, prepare in ((whole, _as_it_is), (~whole, _with_weights)):
            if some.any():
                distinct, places = _distinct(prepare(rows[some]))
                scores[some] = self._score(distinct)[places]
        return scores

    def _score(self, rows: Rows) -> Scores:
        """Score rows, with weights beside them or without."""
        distances, count, width = _Distances(self.rows), self.counted, self.rows.shape[1]

        def block(columns: Tensor) -> Tensor:
            rows = columns[:width].T.contiguous().numpy()
            weights = columns[width:].T.contiguous().numpy() if len(columns) > width else None
            scores, itself = np.empty((1, len(rows))), distances.are_remembered(rows)
            for strip, squares in distances.strips(rows, weights):
                squares.partition(count, axis=1)
                nearest = np.sort(squares[:, : count + 1], axis=1)
                others = np.where(itself[strip, None], nearest[:, 1:], nearest[:, :-1])
                scores[0, strip] = others.mean(axis=1)
            squares = rows.astype(np.float64) ** 2
            own = (squares if weights is None else squares * weights).sum(axis=1)
            scores += own
            # Of a row with enough equals nothing but rounding is left.
            scores[scores <= _NOTHING * (1 + own)] = 0
            return torch.from_numpy(scores)

        return over_blocks(block, rows, _BLOCK_ROWS)[0]

    def nearest(self, rows: Rows, weights: Rows | None = None) -> Nearest:
        """Name the nearest remembered rows, and say how far they are in each unit.

        With weights, one for each unit of each row, squared differences count so many times for
        who is nearest.
        """
        distances, count = _Distances(self.rows), self.counted
        prepared = _with_weights(rows)
        factors = np.hsplit(prepared, 2)[1]
        chosen = factors if weights is None else factors * weights

        def block(columns: Tensor) -> Tensor:
            rows, weights, factors = (part.T.contiguous().numpy() for part in columns.chunk(3))
            found = np.empty((len(rows), count + rows.shape[1]))
            itself = distances.are_remembered(rows)
            for strip, squares in distances.strips(rows, weights):
                numbers = np.argsort(squares, axis=1, kind="stable")[:, : count + 1]
                apart = self.rows[numbers].astype(np.float64) - rows[strip, None]
                # Of a remembered row its first equal leaves, of any other the furthest neighbour.
                equal = (apart == 0).all(axis=2).argmax(axis=1)
                stay = np.arange(count + 1) != np.where(itself[strip], equal, count)[:, None]
                found[strip, :count] = numbers[stay].reshape(-1, count)
                mean = (apart**2 * stay[:, :, None]).sum(axis=1) / count
                found[strip, count:] = mean * factors[strip]
            return torch.from_numpy(found.T.copy())

        parts = np.hstack([np.hsplit(prepared, 2)[0], chosen, factors])
        found = over_blocks(block, parts, _STRIP_ROWS)
        return Nearest(found[:count].T.astype(np.intp), found[count:].T.copy())


@final
class _Distances:
    """Squared distances from rows to all remembered ones, by one product of matrices."""

    def __init__(self, remembered: Rows) -> None:
        memory = torch.from_numpy(remembered).double()
        self.sizes = (memory**2).sum(1)
        self.turned = memory.T.contiguous()
        self.turned_squares = self.turned**2
        self.texts = {row.tobytes() for row in remembered + np.float32(0)}  # -0.0 becomes 0.0

    def are_remembered(self, rows: Rows) -> NDArray[np.bool_]:
        """Tell which rows are equal to a remembered one."""
        return np.array([row.tobytes() in self.texts for row in rows + np.float32(0)])

    def strips(
        self, rows: Rows, weights: Rows | None = None
    ) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Give distances a few rows at a time, less the rows' own squares, the same for all.

        The strip is the same memory again and again, which stays in the processor's cache.
        """
        wide = torch.from_numpy(rows).double()
        heavy = None if weights is None else torch.from_numpy(weights).double()
        squares = torch.empty(_STRIP_ROWS, len(self.sizes), dtype=torch.float64)
        for first in range(0, len(rows), _STRIP_ROWS):
            strip = slice(first, first + _STRIP_ROWS)
            if heavy is None:
                torch.addmm(self.sizes, wide[strip], self.turned, alpha=-2, out=squares)
            else:
                sizes = heavy[strip] @ self.turned_squares
                weighed = wide[strip] * heavy[strip]
                torch.addmm(sizes, weighed, self.turned, alpha=-2, out=squares)
            yield strip, squares.numpy()


def _as_it_is(rows: Rows) -> Rows:
    return rows


def _with_weights(rows: Rows) -> Rows:
    """Put weights beside rows: none for gaps, so much more for the others that the sum stays."""
    present = ~np.isnan(rows)
    shares = rows.shape[1] / np.maximum(present.sum(axis=1, keepdims=True), 1)
    return np.hstack([np.where(present, rows, 0), present * shares]).astype(np.float32)


def _distinct(rows: Rows) -> tuple[Rows, NDArray[np.intp]]:
    """Give each row that occurs, once, and the place of every row among them.

    Tables of categories and whole numbers hold few different rows, and equal rows score alike.
    """
    # A sum of cells, as whole numbers, times odd factors tells rows apart, but for rare accidents.
    generator = np.random.default_rng(0)
    bits = np.ascontiguousarray(rows).view(np.uint32)
    keys = np.zeros(len(rows), dtype=np.uint64)
    for column in range(rows.shape[1]):
        keys += bits[:, column] * (generator.integers(2**63, dtype=np.uint64) * 2 + 1)
    _, firsts, places = np.unique(keys, return_index=True, return_inverse=True)
    distinct = rows[firsts]
    if not np.array_equal(distinct[places], rows):
        return rows, np.arange(len(rows))
    return distinct, places


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
