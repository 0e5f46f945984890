"""The first pass over a file: settles the columns' types and draws the training sample."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.errors import TableError, infinity_error
from altbi.io._source import Source
from altbi.io._text_formats import TEXT, TEXT_FORMATS, TextFormat
from altbi.io._type_inference import (
    ExpectedType,
    InferenceState,
    TypeInference,
    first_infinite,
    mask_missing,
    missing_value_words,
    parse_texts,
    present_texts,
)
from altbi.table import Table, TextConventions, as_table, row_keys

__all__ = [
    "ColumnParser",
    "RowSampler",
    "ScanResult",
    "TableScan",
    "largest_sample_key",
    "scan_table",
]

_LARGEST_KEY = 2**64 - 1
_KEYS = 1 << 20


@final
class RowSampler:
    """A uniform, seeded, bounded sample of rows that come in chunks.

    It holds the rows with the smallest `altbi.table.row_keys`: those that `sample_rows` picks from
    the whole table. A part of a table begins with its own row, and leaves out keys above a bar.

    Examples
    --------
    >>> sample = RowSampler(limit=2, seed=0)
    >>> for first in range(0, 9, 3):
    ...     sample.add(pa.record_batch({"x": [first, first + 1, first + 2]}))
    >>> table, rows = sample.drawn()
    >>> table["x"].to_pylist() == rows.tolist(), len(rows), sample.seen
    (True, 2, 9)
    """

    def __init__(
        self, limit: int, seed: int, *, first_row: int = 0, bar: int = _LARGEST_KEY
    ) -> None:
        self.limit = limit
        self.seed = seed
        self.seen = first_row
        self._keys = np.empty(0, dtype=np.uint64)
        self._rows = np.empty(0, dtype=np.int64)
        self._parts: list[pa.RecordBatch] = []
        self._largest = np.uint64(bar)

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


def largest_sample_key(n_rows: int, limit: int, seed: int) -> int:
    """Give the largest key in the sample of a table, for parts that are read apart.

    >>> from altbi.table import sample_rows
    >>> bool(row_keys(0, 99, seed=3)[sample_rows(99, 7, seed=3)].max() == largest_sample_key(99, 7, seed=3))
    True
    """
    if n_rows <= limit:
        return _LARGEST_KEY
    bar, held = np.uint64(_LARGEST_KEY), np.empty(0, dtype=np.uint64)
    for first in range(0, n_rows, _KEYS):
        keys = row_keys(first, min(first + _KEYS, n_rows), seed)
        held = np.append(held, keys[keys <= bar])
        if len(held) > limit:
            held = np.partition(held, limit - 1)[:limit]
            bar = held.max()
    return int(held.max())


@final
class ColumnParser:
    """How the columns of a source become those of a table.

    Parameters
    ----------
    names : sequence of str
        The columns, in the source's names.
    readings : mapping of str to TextFormat
        For the columns whose texts stand for something.
    missing : sequence of str
        Texts that stand for a missing cell.
    """

    def __init__(
        self, names: Sequence[str], readings: Mapping[str, TextFormat], missing: Sequence[str]
    ) -> None:
        self.names = tuple(names)
        self.readings = readings
        self.missing = pa.array(missing, pa.string())

    @property
    def state(self) -> dict[str, Any]:
        """The same in plain values, for `from_state` of the same version."""
        readings = {name: TEXT_FORMATS.index(reading) for name, reading in self.readings.items()}
        return {"names": self.names, "readings": readings, "missing": self.missing.to_pylist()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Give the columns of a state."""
        readings = {name: TEXT_FORMATS[place] for name, place in state["readings"].items()}
        return cls(state["names"], readings, state["missing"])

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
            return mask_missing(cells, self.missing)
        if isinstance(cells, pa.ChunkedArray):
            cells = cells.combine_chunks()
        return parse_texts(reading, present_texts(cells, self.missing))


@dataclass(frozen=True, slots=True)
class ScanResult:
    """What the first pass found.

    Attributes
    ----------
    n_rows : int
        Rows of the source.
    parser : ColumnParser
        How its columns are read.
    sample : Table
        The training sample.
    sample_rows : ndarray of int
        The numbers of its rows.
    notes : tuple of str
        What a reader should know about the columns' types.
    """

    n_rows: int
    parser: ColumnParser
    sample: Table
    sample_rows: NDArray[np.int64]
    notes: tuple[str, ...]


def scan_table(
    source: Source,
    names: Sequence[str],
    batches: Iterable[pa.RecordBatch],
    *,
    limit: int,
    seed: int,
    missing: Sequence[str] = (),
    expected: Mapping[str, ExpectedType] | None = None,
) -> ScanResult:
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
    expected : mapping of str to ExpectedType, default=None
        What a model expects of some columns; a cell that is nothing of the kind is an error.
    """
    look, sample = (
        TableScan(source, names, missing=missing, expected=expected),
        RowSampler(limit, seed),
    )
    for batch in batches:
        look.add(batch)
        sample.add(batch)
    drawn, rows = sample.drawn() if look.seen else (pa.table({}), np.empty(0, dtype=np.int64))
    return look.scan_table(drawn, rows)


@final
class TableScan:
    """What the rows of a source say of its columns, gathered batch by batch or part by part.

    Parameters
    ----------
    source : Source
        The table.
    names : sequence of str
        The columns to look at.
    missing : sequence of str, default=()
        Further texts that stand for a missing cell.
    expected : mapping of str to ExpectedType, default=None
        What a model expects of some columns.
    """

    def __init__(
        self,
        source: Source,
        names: Sequence[str],
        *,
        missing: Sequence[str] = (),
        expected: Mapping[str, ExpectedType] | None = None,
    ) -> None:
        self.names = names
        self.seen = 0
        self._further = tuple(missing)
        self._words = missing_value_words(source.format, missing)
        self._absent = pa.array(self._words, pa.string())
        self._settlers = {
            name: TypeInference(name, (expected or {}).get(name))
            for name in names
            if _is_loose(source, name)
        }

    def add(self, batch: pa.RecordBatch) -> None:
        """TableScan at the next rows."""
        for name in self.names:
            if name in self._settlers:
                texts = present_texts(batch.column(name), self._absent)
                self._settlers[name].add(texts, self.seen)
            else:
                _refuse_infinity(name, batch.column(name), self.seen)
        self.seen += len(batch)

    @property
    def state(self) -> dict[str, InferenceState]:
        """What was found of the columns of texts."""
        return {name: settler.state for name, settler in self._settlers.items()}

    def follow(self, state: Mapping[str, InferenceState], n_rows: int) -> bool:
        """Take over what another look found in the next rows; False if both do not go together."""
        fits = [self._settlers[name].follow(found, self.seen) for name, found in state.items()]
        if all(fits):
            self.seen += n_rows
        return all(fits)

    def scan_table(self, drawn: pa.Table, rows: NDArray[np.int64]) -> ScanResult:
        """Settle how the columns are read, and read the sample so."""
        if not self.seen:
            raise TableError("holds no rows, but expected at least one. Check how it was made.")
        readings = {name: settler.settled() for name, settler in self._settlers.items()}
        parser = ColumnParser(self.names, readings, self._words)
        table = parser.table(drawn, first_row=0)
        table.drawn_from = self.seen
        read = {name: each.said for name, each in readings.items() if each is not TEXT}
        table.conventions = TextConventions(read, self._further)
        notes = [
            note
            for name, settler in self._settlers.items()
            for note in settler.notes(present_texts(drawn[name].combine_chunks(), self._absent))
        ]
        return ScanResult(self.seen, parser, table, rows, tuple(notes))


def _is_loose(source: Source, name: str) -> bool:
    return source.loose and source.schema.field(name).type == pa.string()


def _refuse_infinity(name: str, cells: pa.Array, first_row: int) -> None:
    row = first_infinite(cells, first_row)
    if row is not None:
        raise infinity_error(name, row)
