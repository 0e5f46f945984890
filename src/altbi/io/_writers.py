"""Write tables in chunks as CSV, Parquet, Arrow IPC or JSON lines."""

import abc
import io
import json
import math
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, final

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from altbi.errors import ParameterError, TableError, quote, shorten
from altbi.io._formulas import quote_formulas, quote_schema
from altbi.table import list_values

_FORMAT_ENDINGS = {
    "csv": ("csv",),
    "parquet": ("parquet", "pq"),
    "arrow": ("arrow", "feather", "ipc"),
    "jsonl": ("jsonl", "ndjson", "json"),
}


class TableWriter(abc.ABC):
    """Base class of writers that append tables of one schema to a file."""

    @abc.abstractmethod
    def write(self, table: pa.Table) -> None:
        """Append the rows of a table with the writer's schema to the file."""

    @abc.abstractmethod
    def close(self) -> None:
        """Write the end of the format, such as Parquet's footer. The file itself stays open."""

    def abandon(self) -> None:  # noqa: B027 - most writers have nothing to do
        """Keep the end of the format from being written on deletion; by default, do nothing."""


@final
class _ArrowWriter(TableWriter):
    """Writes CSV, Parquet or Arrow IPC with a writer of pyarrow; the header is written at once.

    A column that the format does not support raises a `TableError`, here or in `write`. Parquet is
    compressed with zstd. In Arrow IPC files, dictionary columns are written as plain values.
    """

    def __init__(self, file: IO[bytes], format_: str, schema: pa.Schema) -> None:
        self.schema = _decode_dictionaries(schema) if format_ == "arrow" else schema
        with _report_unsupported():
            if format_ == "parquet":
                self.writer = pyarrow.parquet.ParquetWriter(file, self.schema, compression="zstd")
            else:
                create = pyarrow.csv.CSVWriter if format_ == "csv" else pa.ipc.new_file
                self.writer = create(file, self.schema)

    def write(self, table: pa.Table) -> None:
        """Cast a table to the schema of the file, and append its rows.

        Values that the format does not support raise a `TableError`.
        """
        with _report_unsupported():
            self.writer.write_table(table.cast(self.schema))

    def close(self) -> None:
        """Write the end of the format, such as Parquet's footer. The file itself stays open."""
        self.writer.close()

    def abandon(self) -> None:
        """Keep Parquet's writer from writing its footer when it is deleted."""
        if isinstance(self.writer, pyarrow.parquet.ParquetWriter):
            self.writer.is_open = False


@final
class _FormulaQuotingWriter(TableWriter):
    """Writes CSV in which texts and column names that are formulas begin with an apostrophe."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self.schema = schema
        self.writer = _ArrowWriter(file, "csv", quote_schema(schema))

    def write(self, table: pa.Table) -> None:
        """Append the rows of a table; values that CSV does not support raise a `TableError`."""
        with _report_unsupported():
            quoted = quote_formulas(table.cast(self.schema))
        self.writer.write(quoted)

    def close(self) -> None:
        """Write the end of the format. The file itself stays open."""
        self.writer.close()


def _decode_dictionaries(schema: pa.Schema) -> pa.Schema:
    """Return the schema with the type of their values for dictionary columns.

    An Arrow file holds one dictionary per column, but each chunk of a table may have another one.
    """
    return pa.schema(
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in schema
    )


@contextmanager
def _report_unsupported() -> Iterator[None]:
    """Convert Arrow's errors about unsupported types in the ``with`` block to a `TableError`."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as cause:
        raise TableError(
            f"the output format does not support a column ({shorten(str(cause), 200)}). Write "
            "another format, such as Parquet, or leave the column out."
        ) from None


@final
class _JsonLinesWriter(TableWriter):
    """Writes one JSON object per row, in UTF-8.

    Values without a JSON type, such as dates and decimals, become ``str(value)``. NaN and infinity
    become null.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def write(self, table: pa.Table) -> None:
        """Append a line of JSON for each row; lone surrogates become backslash escapes."""
        rows = zip(*(list_values(column) for column in table.columns), strict=True)
        records = (dict(zip(table.column_names, row, strict=True)) for row in rows)
        text = "".join(f"{_format_json(record)}\n" for record in records)
        self.file.write(text.encode("utf-8", "backslashreplace"))

    def close(self) -> None:
        """Do nothing, because the format has no footer."""


def _format_json(row: dict[str, Any]) -> str:
    """Return a row as one line of JSON; NaN and infinity become null, other types `str(value)`."""
    try:
        return json.dumps(row, default=str, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_replace_nonfinite(row), default=str, ensure_ascii=False)


def _replace_nonfinite(value: object) -> object:
    """Return a copy of a JSON value with NaN and infinity, also nested ones, replaced by None."""
    if isinstance(value, dict):
        return {name: _replace_nonfinite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_replace_nonfinite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _create_writer(file: IO[bytes], format_: str, schema: pa.Schema, raw: bool) -> TableWriter:
    """Create a writer, and write its header; an unsupported column may raise a `TableError`."""
    if format_ == "jsonl":
        return _JsonLinesWriter(file)
    if format_ == "csv" and not raw:
        return _FormulaQuotingWriter(file, schema)
    return _ArrowWriter(file, format_, schema)


def infer_format(path: str) -> str:
    """Return the output format for the ending of a path, in upper or lower case.

    An unknown ending raises a `ParameterError`.
    """
    ending = path.rpartition(".")[2].lower()
    for format_, endings in _FORMAT_ENDINGS.items():
        if ending in endings:
            return format_
    raise ParameterError(
        f"{path}: the name has no known ending. Expected an ending like .csv, .parquet, .arrow or "
        ".jsonl."
    )


def check_writable(schema: pa.Schema, format_: str) -> None:
    """Raise a `TableError` for the first column of a type that a format does not support."""
    for field in schema:
        missing = pa.Table.from_arrays([pa.nulls(1, field.type)], [field.name])
        try:
            # Some types, such as intervals in CSV, are only refused when a row is written.
            with open_stream_writer(io.BytesIO(), format_, missing.schema) as writer:
                writer.write(missing)
        except TableError:
            raise TableError(
                f"column {quote(field.name)} has the type {shorten(str(field.type), 100)}, which "
                f"{format_} files do not support. Write another format, such as Parquet, or leave "
                "the column out."
            ) from None


@contextmanager
def open_writer(
    path: Path, name: str, format_: str, schema: pa.Schema, *, raw: bool = False
) -> Iterator[TableWriter]:
    """Create a file, and yield a writer of tables with this schema.

    The path is usually temporary; disk errors name `name`, the final file, instead. If the block
    raises, the file is closed without the end of its format. `raw` is as in `open_stream_writer`.
    """
    try:
        with (
            path.open("wb") as file,
            open_stream_writer(file, format_, schema, raw=raw) as writer,
        ):
            yield writer
    except OSError as error:
        if error.filename is not None or not error.errno:  # the error comes from reading the input
            raise
        raise OSError(error.errno, os.strerror(error.errno), name) from error


@contextmanager
def open_stream_writer(
    file: IO[bytes], format_: str, schema: pa.Schema, *, raw: bool = False
) -> Iterator[TableWriter]:
    """Yield a writer to an open stream, which is flushed at the end and stays open.

    CSV has an apostrophe before texts and column names that a spreadsheet would run as a formula,
    unless `raw`. If the block raises, the end of the format is not written.
    """
    writer = _create_writer(file, format_, schema, raw)
    try:
        yield writer
    except BaseException:
        writer.abandon()
        raise
    writer.close()
    file.flush()


@contextmanager
def write_in_background(writer: TableWriter) -> Iterator[TableWriter]:
    """Yield a writer that writes in a thread, while the caller computes the next table.

    At most one table is waiting: a call of `write` waits for the table before. An error is raised
    by the next call, or at the end of the ``with`` block. The given writer is not closed.
    """
    with ThreadPoolExecutor(1) as pool:
        background = _BackgroundWriter(writer, pool)
        yield background
        background.close()


@final
class _BackgroundWriter(TableWriter):
    """Writes tables with another writer in a thread, one table at a time."""

    def __init__(self, writer: TableWriter, pool: ThreadPoolExecutor) -> None:
        self.writer = writer
        self.pool = pool
        self.last: Future[None] | None = None

    def write(self, table: pa.Table) -> None:
        """Start writing a table, after waiting for the previous one and raising its error."""
        self.close()
        self.last = self.pool.submit(self.writer.write, table)

    def close(self) -> None:
        """Wait for the last table, and raise its error. The other writer stays open."""
        if self.last is not None:
            self.last.result()
