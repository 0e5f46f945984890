"""Statistics of the scores of any number of rows, in bounded memory."""

from typing import final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Scores = NDArray[np.float64]
Keys = NDArray[np.int64]
Rows = NDArray[np.int64]

# A bin is given by the sign, the exponent and the first 16 of 52 bits of the mantissa.
DROPPED_BITS = 36


@final
class ScoreCounts:
    """A histogram of scores with fixed bins, whose width is 1/65536 of the score.

    Counts are exact and do not depend on the order or the partition of the rows.

    Attributes
    ----------
    keys : ndarray of int64
        Keys of the bins with at least one score, in ascending order.
    counts : ndarray of int64
        Number of scores in each bin.

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
        """Count scores in their bins."""
        self.add_bins(*np.unique(_compute_keys(scores), return_counts=True))

    def add_bins(self, keys: Keys, counts: NDArray[np.int64]) -> None:
        """Add the counts of another histogram, given by its bins' keys and counts."""
        merged, positions = np.unique(np.concatenate([self.keys, keys]), return_inverse=True)
        total = np.zeros(len(merged), dtype=np.int64)
        np.add.at(total, positions, np.concatenate([self.counts, counts]))
        self.keys, self.counts = merged, total

    @property
    def edges(self) -> Scores:
        """Lower edges of the bins with at least one score, in ascending order."""
        ordered = self.keys << DROPPED_BITS
        return (ordered ^ ((ordered >> 63) & np.int64(2**63 - 1))).view(np.float64)

    def count_at_least(self) -> NDArray[np.int64]:
        """Return for each edge the number of scores in its bin and all higher bins."""
        return np.cumsum(self.counts[::-1])[::-1]


def _compute_keys(scores: Scores) -> Keys:
    """Return the bins of scores as integers in the order of the scores.

    A key holds the first bits of the floating-point number. -0.0 counts as 0.0.
    """
    bits = np.ascontiguousarray(scores + 0.0).view(np.int64)  # -0.0 + 0.0 is 0.0
    return (bits ^ ((bits >> 63) & np.int64(2**63 - 1))) >> DROPPED_BITS


@final
class TopRows:
    """The `limit` rows with the highest scores of a table that is added batch by batch.

    Batches must come in the order of the table. Of equal scores, the first rows are kept.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._batches: list[pa.RecordBatch] = []
        self._scores = np.empty(0)
        self._rows = np.empty(0, dtype=np.int64)
        self._lowest = -np.inf

    def add(self, batch: pa.RecordBatch, scores: Scores, first_row: int) -> None:
        """Add the next batch of the table; `first_row` is the number of its first row.

        Only rows that can be among the top rows are kept.
        """
        chosen = np.flatnonzero(scores > self._lowest)
        if len(chosen) > self.limit:
            chosen = np.sort(chosen[np.argsort(-scores[chosen], kind="stable")[: self.limit]])
        self._append(batch.take(pa.array(chosen)), scores[chosen], first_row + chosen)

    def append(self, table: pa.Table, scores: Scores, rows: Rows) -> None:
        """Add the top rows of the next partition, as its `sort_by_row` returns them."""
        chosen = np.flatnonzero(scores > self._lowest)
        for batch in table.take(pa.array(chosen)).combine_chunks().to_batches():
            self._append(batch, scores[chosen], rows[chosen])

    def _append(self, batch: pa.RecordBatch, scores: Scores, rows: Rows) -> None:
        """Store rows, and drop all but the top rows once more than 4 * `limit` are stored."""
        self._batches.append(batch)
        self._scores = np.append(self._scores, scores)
        self._rows = np.append(self._rows, rows)
        if len(self._scores) > 4 * self.limit:
            self._shrink()

    def _shrink(self) -> None:
        """Drop all rows but the top rows; nothing happens if at most `limit` are stored.

        Later rows are stored only if they exceed the lowest score that is left.
        """
        if len(self._scores) > self.limit:
            kept = np.sort(np.argsort(-self._scores, kind="stable")[: self.limit])
            table = pa.Table.from_batches(self._batches).take(pa.array(kept))
            self._batches = table.combine_chunks().to_batches()
            self._scores, self._rows = self._scores[kept], self._rows[kept]
            self._lowest = self._scores.min()

    def sort_by_row(self) -> tuple[pa.Table, Scores, Rows]:
        """Return the top rows, their scores and their row numbers, in the order of the table.

        At least one batch, which may be empty, must have been added.
        """
        self._shrink()
        return pa.Table.from_batches(self._batches), self._scores, self._rows

    def sort_by_score(self) -> tuple[pa.Table, Scores, Rows]:
        """Return the top rows, their scores and their row numbers, highest scores first.

        At least one batch, which may be empty, must have been added.
        """
        table, scores, rows = self.sort_by_row()
        order = np.argsort(-scores, kind="stable")
        return table.take(pa.array(order)), scores[order], rows[order]
