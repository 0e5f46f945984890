"""The first pass over a table: infer the types of its columns and draw the training sample."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.errors import TableError, infinity_error
from altbi.io._source import Source
from altbi.io._type_inference import (
    TEXT,
    TEXT_FORMATS,
    ExpectedType,
    InferenceState,
    TextFormat,
    TypeInference,
    first_infinite,
    mask_missing,
    missing_value_texts,
    parse_texts,
    present_texts,
)
from altbi.table import RowSampler, Table, TextConventions, as_table


@final
class ColumnParser:
    """Converts columns of a source to typed columns of a `Table`, with known text formats.

    Columns without a text format keep their type; only texts that mean a missing value become null.

    Parameters
    ----------
    names : sequence of str
        Names of the columns in the source.
    text_formats : mapping of str to TextFormat
        Formats of the text columns.
    missing : sequence of str
        Texts that mean a missing value.
    """

    def __init__(
        self, names: Sequence[str], text_formats: Mapping[str, TextFormat], missing: Sequence[str]
    ) -> None:
        self.names = tuple(names)
        self.text_formats = text_formats
        self.missing = pa.array(missing, pa.string())

    @property
    def state(self) -> dict[str, Any]:
        """The parser as plain values, for `from_state` of the same version of altbi.

        A text format becomes its index in `TEXT_FORMATS`.
        """
        formats = {name: TEXT_FORMATS.index(each) for name, each in self.text_formats.items()}
        return {"names": self.names, "text_formats": formats, "missing": self.missing.to_pylist()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Create a parser from its `state`."""
        formats = {name: TEXT_FORMATS[index] for name, index in state["text_formats"].items()}
        return cls(state["names"], formats, state["missing"])

    def parse(
        self, batch: pa.RecordBatch | pa.Table, first_row: int, names: Sequence[str] | None = None
    ) -> Table:
        """Return the columns `self.names` of a chunk as a typed table.

        A text that does not have the format of its column raises `pyarrow.ArrowInvalid`. A chunk
        without rows raises a `TableError`.

        Parameters
        ----------
        batch : RecordBatch or pyarrow.Table
            Rows of the source.
        first_row : int
            Number of the first row, for messages.
        names : sequence of str, default=None
            Names of the columns in the result. None are those of the source.
        """
        arrays = [self._parse_column(name, batch.column(name)) for name in self.names]
        table = as_table(pa.table(arrays, names=list(names or self.names)))
        table.first_row = first_row
        return table

    def _parse_column(self, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Parse a column by its text format; without one, only replace missing texts by null."""
        text_format = self.text_formats.get(name)
        if text_format is None:
            return mask_missing(values, self.missing)
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        return parse_texts(text_format, present_texts(values, self.missing))


@dataclass(frozen=True, slots=True)
class ScanResult:
    """The result of the first pass over a table.

    Attributes
    ----------
    n_rows : int
        Number of rows of the table.
    parser : ColumnParser
        Parses the columns with the inferred text formats.
    sample : Table
        The training sample, parsed.
    sample_rows : ndarray of int
        Row numbers of the sample in the table.
    notes : tuple of str
        Sentences about the inferred types, for the user.
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
    """Read a source once: infer the types of its columns and sample the training rows.

    A source without rows, an infinite number and a text that a model does not accept raise a
    `TableError`.

    Parameters
    ----------
    source : Source
        The table.
    names : sequence of str
        The columns to read.
    batches : iterable of RecordBatch
        The result of ``source.batches(names)``.
    limit, seed : int
        Largest size and seed of the sample, as in `altbi.table.sample_rows`.
    missing : sequence of str
        Additional texts that mean a missing value.
    expected : mapping of str to ExpectedType, default=None
        The types that a model expects. A value of another type raises a `TableError`.
    """
    scan = TableScan(source, names, missing=missing, expected=expected)
    sampler = RowSampler(limit, seed)
    for batch in batches:
        scan.add(batch)
        sampler.add(batch)
    if not scan.n_rows:
        raise TableError("holds no rows, but expected at least one. Check how it was made.")
    return scan.result(*sampler.result())


@final
class TableScan:
    """Infers the types of the columns of a source, batch by batch or partition by partition.

    Types are inferred for text columns of untyped sources, such as CSV. Other columns are only
    checked for infinite numbers.

    Parameters
    ----------
    source : Source
        The table.
    names : sequence of str
        The columns to read.
    missing : sequence of str, default=()
        Additional texts that mean a missing value.
    expected : mapping of str to ExpectedType, default=None
        The types that a model expects.
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
        self.n_rows = 0
        self._declared_missing = tuple(missing)
        self._missing_texts = missing_value_texts(source.format, missing)
        self._missing = pa.array(self._missing_texts, pa.string())
        self._inferences = {
            name: TypeInference(name, (expected or {}).get(name))
            for name in names
            if source.is_untyped and source.schema.field(name).type == pa.string()
        }

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next rows.

        An infinite number in a typed column, or a text that a model does not accept, raises a
        `TableError`. Infinite numbers in text columns raise in `result`.
        """
        for name in self.names:
            if name in self._inferences:
                texts = present_texts(batch.column(name), self._missing)
                self._inferences[name].add(texts, self.n_rows)
            elif (row := first_infinite(batch.column(name), self.n_rows)) is not None:
                raise infinity_error(name, row)
        self.n_rows += len(batch)

    @property
    def state(self) -> dict[str, InferenceState]:
        """The state of the type inference of each text column, by column name."""
        return {name: inference.state for name, inference in self._inferences.items()}

    def merge(self, state: Mapping[str, InferenceState], n_rows: int) -> bool:
        """Add the state of the next partition, which has `n_rows` rows.

        Returns False if no text format parses all texts of a column. The rows are then not counted,
        but other columns may be merged already.
        """
        fits = [self._inferences[name].merge(each, self.n_rows) for name, each in state.items()]
        if all(fits):
            self.n_rows += n_rows
        return all(fits)

    def result(self, sample: pa.Table, rows: NDArray[np.int64]) -> ScanResult:
        """Infer the types, and return them with the parsed sample and notes for the user.

        `sample` and `rows` are the result of a `RowSampler`. Infinite numbers, and ambiguous texts
        where a model expects a type, raise a `TableError`.
        """
        formats = {name: inference.infer() for name, inference in self._inferences.items()}
        parser = ColumnParser(self.names, formats, self._missing_texts)
        table = parser.parse(sample, first_row=0)
        table.n_source_rows = self.n_rows
        parsed = {name: each.description for name, each in formats.items() if each is not TEXT}
        table.conventions = TextConventions(parsed, self._declared_missing)
        notes = [
            note
            for name, inference in self._inferences.items()
            for note in inference.notes(present_texts(sample[name].combine_chunks(), self._missing))
        ]
        return ScanResult(self.n_rows, parser, table, rows, tuple(notes))
