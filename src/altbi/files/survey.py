"""The first pass over a file: settles the columns' types and draws the training sample."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.errors import TableError, infinity
from altbi.files.readings import MISSING_WORDS, Reading
from altbi.files.settle import Settler, first_infinite, present_texts, read_texts
from altbi.files.source import Source
from altbi.table import Kind, Table, as_table, row_keys

__all__ = ["Columns", "RowSample", "Survey", "survey"]


@final
class RowSample:
    """A uniform, seeded, bounded sample of rows that come in chunks.

    It holds the rows with the smallest `altbi.table.row_keys`: those that `sample_rows` picks from
    the whole table.

    Examples
    --------
    >>> sample = RowSample(limit=2, seed=0)
    >>> for first in range(0, 9, 3):
    ...     sample.add(pa.record_batch({"x": [first, first + 1, first + 2]}))
    >>> table, rows = sample.drawn()
    >>> table["x"].to_pylist() == rows.tolist(), len(rows), sample.seen
    (True, 2, 9)
    """

    def __init__(self, limit: int, seed: int) -> None:
        self.limit = limit
        self.seed = seed
        self.seen = 0
        self._keys = np.empty(0, dtype=np.uint64)
        self._rows = np.empty(0, dtype=np.int64)
        self._parts: list[pa.RecordBatch] = []
        self._largest = np.uint64(2**64 - 1)

    def add(self, batch: pa.RecordBatch) -> None:
        """Let the next rows take part."""
        keys = row_keys(self.seen, self.seen + len(batch), self.seed)
        chosen = np.flatnonzero(keys <= self._largest)
        # A copy of the few rows, so that the batch they come from can be let go.
        self._parts.append(batch.take(pa.array(chosen)))
        self._keys = np.append(self._keys, keys[chosen])
        self._rows = np.append(self._rows, self.seen + chosen)
        self.seen += len(batch)
        if len(self._keys) > 2 * self.limit:
            self._shrink()

    def drawn(self) -> tuple[pa.Table, NDArray[np.int64]]:
        """Give the sample and the numbers of its rows, in the order of the rows."""
        if len(self._keys) > self.limit:
            self._shrink()
        return pa.Table.from_batches(self._parts), self._rows

    def _shrink(self) -> None:
        self._largest = np.partition(self._keys, self.limit - 1)[self.limit - 1]
        kept = np.flatnonzero(self._keys <= self._largest)
        table = pa.Table.from_batches(self._parts).take(pa.array(kept))
        self._parts = table.combine_chunks().to_batches()
        self._keys, self._rows = self._keys[kept], self._rows[kept]


@final
class Columns:
    """How the columns of a source become those of a table.

    Parameters
    ----------
    names : sequence of str
        The columns, in the source's names.
    readings : mapping of str to Reading
        For the columns whose texts stand for something.
    missing : sequence of str
        Texts that stand for a missing cell.
    """

    def __init__(
        self, names: Sequence[str], readings: Mapping[str, Reading], missing: Sequence[str]
    ) -> None:
        self.names = tuple(names)
        self.readings = readings
        self.missing = pa.array(missing, pa.string())

    def table(
        self, batch: pa.RecordBatch | pa.Table, first_row: int, names: Sequence[str] | None = None
    ) -> Table:
        """Give the columns of a chunk, read as they were settled, under other names if need be."""
        arrays = [self._read(name, batch.column(name)) for name in self.names]
        table = as_table(pa.table(arrays, names=list(names or self.names)))
        table.first_row = first_row
        return table

    def _read(self, name: str, cells: pa.Array | pa.ChunkedArray) -> pa.Array:
        reading = self.readings.get(name)
        if reading is None:
            return cells
        if isinstance(cells, pa.ChunkedArray):
            cells = cells.combine_chunks()
        return read_texts(reading, present_texts(cells, self.missing))


@dataclass(frozen=True, slots=True)
class Survey:
    """What the first pass found.

    Attributes
    ----------
    n_rows : int
        Rows of the source.
    columns : Columns
        How its columns are read.
    sample : Table
        The training sample.
    sample_rows : ndarray of int
        The numbers of its rows.
    notes : tuple of str
        What a reader should know about the columns' types.
    """

    n_rows: int
    columns: Columns
    sample: Table
    sample_rows: NDArray[np.int64]
    notes: tuple[str, ...]


def survey(
    source: Source,
    names: Sequence[str],
    batches: Iterable[pa.RecordBatch],
    *,
    limit: int,
    seed: int,
    missing: Sequence[str] = (),
    kinds: Mapping[str, Kind] | None = None,
) -> Survey:
    """Read a source once.

    Parameters
    ----------
    source : Source
        The table.
    names : sequence of str
        The columns to look at.
    batches : iterable of RecordBatch
        What ``source.batches(names)`` gives.
    limit, seed : int
        Size and choice of the sample, as in `altbi.table.sample_rows`.
    missing : sequence of str
        Further texts that stand for a missing cell.
    kinds : mapping of str to kind, default=None
        What a model expects of some columns; a cell that is nothing of the kind is an error.
    """
    words = (*MISSING_WORDS, *missing) if source.format == "csv" else tuple(missing)
    absent = pa.array(words, pa.string())
    settlers = {
        name: Settler(name, (kinds or {}).get(name)) for name in names if _is_loose(source, name)
    }
    sample = RowSample(limit, seed)
    for batch in batches:
        for name in names:
            if name in settlers:
                settlers[name].add(present_texts(batch.column(name), absent), sample.seen)
            else:
                _refuse_infinity(name, batch.column(name), sample.seen)
        sample.add(batch)
    if not sample.seen:
        raise TableError("holds no rows, but expected at least one. Check how it was made.")
    readings = {name: settler.settled() for name, settler in settlers.items()}
    columns = Columns(names, readings, words)
    drawn, rows = sample.drawn()
    table = columns.table(drawn, first_row=0)
    table.drawn_from = sample.seen
    notes = [
        note
        for name, settler in settlers.items()
        for note in settler.notes(present_texts(drawn[name].combine_chunks(), absent))
    ]
    return Survey(sample.seen, columns, table, rows, tuple(notes))


def _is_loose(source: Source, name: str) -> bool:
    return source.loose and source.schema.field(name).type == pa.string()


def _refuse_infinity(name: str, cells: pa.Array, first_row: int) -> None:
    row = first_infinite(cells, first_row)
    if row is not None:
        raise infinity(name, row)
