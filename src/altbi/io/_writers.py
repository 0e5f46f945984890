"""Write tables in chunks as CSV, Parquet, Arrow IPC or JSON lines."""

import abc
import io
import json
import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, final

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from altbi.errors import ParameterError, TableError


class TableWriter(abc.ABC):
    """Base class of writers that append tables of one schema to a file."""

    @abc.abstractmethod
    def write(self, table: pa.Table) -> None:
        """Write the rows of a table after the rows that were written before."""

    @abc.abstractmethod
    def close(self) -> None:
        """Write the end of the format, such as Parquet's footer. The file itself stays open."""


@final
class _ArrowWriter(TableWriter):
    """Writes tables with a writer class of pyarrow, such as `pyarrow.parquet.ParquetWriter`.

    The header is written at once. A column type that the format does not support raises a
    `TableError`.
    """

    def __init__(
        self,
        writer: Callable[..., Any],
        file: IO[bytes],
        schema: pa.Schema,
        **options: Any,  # noqa: ANN401 - the options of the writer
    ) -> None:
        self.schema = schema
        with _report_unsupported():
            self.writer = writer(file, schema, **options)

    def write(self, table: pa.Table) -> None:
        """Convert a table to the schema of the file, and write its rows.

        Raises a `TableError` if a column cannot be converted or written.
        """
        with _report_unsupported():
            self.writer.write_table(table.cast(self.schema))

    def close(self) -> None:
        """Write the end of the format. The file itself stays open."""
        self.writer.close()


@contextmanager
def _report_unsupported() -> Iterator[None]:
    """Convert Arrow's errors about unsupported types in the ``with`` block to a `TableError`."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as cause:
        raise TableError(
            f"the output format does not support a column ({cause}). Write another format, such as "
            "Parquet, or leave the column out."
        ) from None


@final
class _JsonLinesWriter(TableWriter):
    """Writes one JSON object per row, in UTF-8.

    NaN and infinity become null. Values without a JSON type, such as dates and decimals, become
    ``str(value)``.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def write(self, table: pa.Table) -> None:
        """Write the rows of a table; lone surrogates are written as backslash escapes."""
        text = "".join(f"{_format_json(row)}\n" for row in table.to_pylist())
        self.file.write(text.encode("utf-8", "backslashreplace"))

    def close(self) -> None:
        """Do nothing, because the format has no footer."""


def _format_json(row: dict[str, Any]) -> str:
    """Return a row as a JSON object on one line.

    NaN and infinity become null. Values without a JSON type become ``str(value)``.
    """
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


def _create_parquet_writer(file: IO[bytes], schema: pa.Schema) -> TableWriter:
    """Create a writer of Parquet, compressed with zstd."""
    return _ArrowWriter(pyarrow.parquet.ParquetWriter, file, schema, compression="zstd")


def _create_csv_writer(file: IO[bytes], schema: pa.Schema) -> TableWriter:
    """Create a writer of CSV, which writes the header at once."""
    return _ArrowWriter(pyarrow.csv.CSVWriter, file, schema)


def _create_arrow_writer(file: IO[bytes], schema: pa.Schema) -> TableWriter:
    """Create a writer of Arrow IPC files; dictionary columns are written as plain values."""
    # An Arrow file holds one dictionary per column, but each chunk of a table may have another one.
    fields = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in schema
    ]
    return _ArrowWriter(pa.ipc.new_file, file, pa.schema(fields))


_WRITERS: dict[str, Callable[[IO[bytes], pa.Schema], TableWriter]] = {
    "csv": _create_csv_writer,
    "parquet": _create_parquet_writer,
    "arrow": _create_arrow_writer,
    "jsonl": lambda file, _: _JsonLinesWriter(file),
}
_FORMAT_ENDINGS = {
    "csv": ("csv",),
    "parquet": ("parquet", "pq"),
    "arrow": ("arrow", "feather", "ipc"),
    "jsonl": ("jsonl", "ndjson", "json"),
}


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
    """Raise a `TableError` for the first column whose type an output format does not support."""
    for field in schema:
        try:
            _WRITERS[format_](io.BytesIO(), pa.schema([field]))
        except TableError:
            raise TableError(
                f"column {field.name!r} has the type {field.type}, which {format_} files do not "
                "support. Write another format, such as Parquet, or leave the column out."
            ) from None


@contextmanager
def open_writer(path: Path, name: str, format_: str, schema: pa.Schema) -> Iterator[TableWriter]:
    """Create a file, and yield a writer of tables with this schema.

    The path is usually temporary; disk errors name `name`, the final file, instead. If the block
    raises, the file is closed without the end of its format.
    """
    try:
        with path.open("wb") as file, _close_on_success(_WRITERS[format_](file, schema)) as writer:
            yield writer
    except OSError as error:
        if error.filename is not None or not error.errno:  # the error comes from reading the input
            raise
        raise OSError(error.errno, os.strerror(error.errno), name) from error


@contextmanager
def open_stream_writer(file: IO[bytes], format_: str, schema: pa.Schema) -> Iterator[TableWriter]:
    """Yield a writer to an open stream, which is flushed at the end and stays open.

    If the block raises, the end of the format is not written.
    """
    with _close_on_success(_WRITERS[format_](file, schema)) as writer:
        yield writer
    file.flush()


@contextmanager
def _close_on_success(writer: TableWriter) -> Iterator[TableWriter]:
    """Yield the writer, and close it at the end unless the ``with`` block raises."""
    yield writer
    writer.close()


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
