"""What is kept of the scores of any number of rows: how many lie where, and the highest."""

from typing import final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["ScoreCounts", "TopRows"]

Scores = NDArray[np.float64]
Keys = NDArray[np.int64]

# Of a float64's bits the sign, the exponent and 16 of the mantissa tell in which bin it is.
_DROPPED = 36


@final
class ScoreCounts:
    """Counts scores in bins that are the same for all tables, each 1/65536 of its value wide.

    The counts are exact, whatever the number of rows; where the bins begin needs no look at the
    scores beforehand.

    Examples
    --------
    >>> counts = ScoreCounts()
    >>> counts.add(np.array([1.0, 2.0, 2.0, 0.5]))
    >>> counts.edges, counts.counts
    (array([0.5, 1. , 2. ]), array([1, 1, 2]))
    """

    def __init__(self) -> None:
        self.keys: Keys = np.empty(0, dtype=np.int64)
        self.counts: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def add(self, scores: Scores) -> None:
        """Count these scores."""
        self.add_bins(*np.unique(_key_of(scores), return_counts=True))

    def add_bins(self, keys: Keys, counts: NDArray[np.int64]) -> None:
        """Count scores that were counted elsewhere, by the `keys` of their bins, which rise."""
        places = np.searchsorted(self.keys, keys)
        is_known = places < len(self.keys)
        is_known[is_known] = self.keys[places[is_known]] == keys[is_known]
        self.counts[places[is_known]] += counts[is_known]
        where, is_new = places[~is_known], ~is_known
        self.keys = np.insert(self.keys, where, keys[is_new])
        self.counts = np.insert(self.counts, where, counts[is_new])

    @property
    def edges(self) -> Scores:
        """Where the bins with at least one score begin, in rising order."""
        return _score_of(self.keys)

    def least(self) -> NDArray[np.int64]:
        """How many scores are at least as high as each edge."""
        return np.cumsum(self.counts[::-1])[::-1]


@final
class TopRows:
    """Keeps the rows with the highest scores; of equal ones those that come first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._parts: list[pa.RecordBatch] = []
        self._scores = np.empty(0)
        self._rows = np.empty(0, dtype=np.int64)
        self._bar = -np.inf

    def add(self, batch: pa.RecordBatch, scores: Scores, first_row: int) -> None:
        """Let the next rows compete."""
        chosen = np.flatnonzero(scores > self._bar)
        if len(chosen) > self.limit:
            chosen = np.sort(chosen[np.argsort(-scores[chosen], kind="stable")[: self.limit]])
        self._keep(batch.take(pa.array(chosen)), scores[chosen], first_row + chosen)

    def append(self, table: pa.Table, scores: Scores, rows: NDArray[np.int64]) -> None:
        """Let rows compete that were `held` of a part of the table that comes next."""
        chosen = np.flatnonzero(scores > self._bar)
        for batch in table.take(pa.array(chosen)).combine_chunks().to_batches():
            self._keep(batch, scores[chosen], rows[chosen])

    def in_order(self) -> tuple[pa.Table, Scores, NDArray[np.int64]]:
        """Give the rows, their scores and their numbers, in the order of the table."""
        self._shrink()
        return pa.Table.from_batches(self._parts), self._scores, self._rows

    def _keep(self, batch: pa.RecordBatch, scores: Scores, rows: NDArray[np.int64]) -> None:
        self._parts.append(batch)
        self._scores = np.append(self._scores, scores)
        self._rows = np.append(self._rows, rows)
        if len(self._scores) > 4 * self.limit:
            self._shrink()

    def best(self) -> tuple[pa.Table, Scores, NDArray[np.int64]]:
        """Give the rows, their scores and their numbers, highest first."""
        self._shrink()
        order = np.argsort(-self._scores, kind="stable")
        table = pa.Table.from_batches(self._parts).take(pa.array(order))
        return table, self._scores[order], self._rows[order]

    def _shrink(self) -> None:
        if len(self._scores) > self.limit:
            kept = np.sort(np.argsort(-self._scores, kind="stable")[: self.limit])
            table = pa.Table.from_batches(self._parts).take(pa.array(kept))
            self._parts = table.combine_chunks().to_batches()
            self._scores, self._rows = self._scores[kept], self._rows[kept]
            self._bar = self._scores.min()


def _key_of(scores: Scores) -> Keys:
    """Give whole numbers in the order of the scores: a float's bits, turned for negative ones."""
    bits = np.ascontiguousarray(scores + 0.0).view(np.int64)  # + 0.0 makes -0.0 the plain zero
    return (bits ^ ((bits >> 63) & np.int64(2**63 - 1))) >> _DROPPED


def _score_of(keys: Keys) -> Scores:
    """Give the smallest score of each key."""
    ordered = keys << _DROPPED
    return (ordered ^ ((ordered >> 63) & np.int64(2**63 - 1))).view(np.float64)
