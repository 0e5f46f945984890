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
    """Writes tables of one schema to a file."""

    @abc.abstractmethod
    def write(self, table: pa.Table) -> None:
        """Write the next rows."""

    @abc.abstractmethod
    def close(self) -> None:
        """Write the end of the format. The file itself stays open."""


@final
class _ArrowWriter(TableWriter):
    """A writer of pyarrow."""

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
        """Write the next rows."""
        with _report_unsupported():
            self.writer.write_table(table.cast(self.schema))

    def close(self) -> None:
        """Write the end of the format."""
        self.writer.close()


@contextmanager
def _report_unsupported() -> Iterator[None]:
    """Convert errors about types that a format does not support to a `TableError`."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as cause:
        raise TableError(
            f"the output format does not support a column ({cause}). Write another format, such as "
            "Parquet, or leave the column out."
        ) from None


@final
class _JsonLinesWriter(TableWriter):
    """Writes one JSON object per row; dates as ISO 8601, NaN and infinity as null."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def write(self, table: pa.Table) -> None:
        """Write the next rows."""
        text = "".join(f"{_to_json(row)}\n" for row in table.to_pylist())
        self.file.write(text.encode("utf-8", "backslashreplace"))

    def close(self) -> None:
        """Do nothing: the format has no end."""


def _to_json(row: dict[str, Any]) -> str:
    try:
        return json.dumps(row, default=str, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_replace_nonfinite(row), default=str, ensure_ascii=False)


def _replace_nonfinite(value: object) -> object:
    """Return the value with NaN and infinity replaced by None."""
    if isinstance(value, dict):
        return {name: _replace_nonfinite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_replace_nonfinite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _create_parquet_writer(file: IO[bytes], schema: pa.Schema) -> TableWriter:
    return _ArrowWriter(pyarrow.parquet.ParquetWriter, file, schema, compression="zstd")


def _create_csv_writer(file: IO[bytes], schema: pa.Schema) -> TableWriter:
    return _ArrowWriter(pyarrow.csv.CSVWriter, file, schema)


def _create_arrow_writer(file: IO[bytes], schema: pa.Schema) -> TableWriter:
    # The file format allows one dictionary per column, but each chunk has its own.
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
    """Return the output format that the ending of a path asks for."""
    ending = path.rpartition(".")[2].lower()
    for format_, endings in _FORMAT_ENDINGS.items():
        if ending in endings:
            return format_
    raise ParameterError(
        f"{path}: the name has no known ending. Expected an ending like .csv, .parquet, .arrow or "
        ".jsonl."
    )


def check_writable(schema: pa.Schema, format_: str) -> None:
    """Raise an error for a column type that a format does not support."""
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
    """Open a file for writing; disk errors name the file that it will be renamed to."""
    try:
        with path.open("wb") as file, _close_on_success(_WRITERS[format_](file, schema)) as writer:
            yield writer
    except OSError as error:
        if error.filename is not None or not error.errno:  # an error of the input
            raise
        raise OSError(error.errno, os.strerror(error.errno), name) from error


@contextmanager
def open_stream_writer(file: IO[bytes], format_: str, schema: pa.Schema) -> Iterator[TableWriter]:
    """Write tables to an open stream, which stays open."""
    with _close_on_success(_WRITERS[format_](file, schema)) as writer:
        yield writer
    file.flush()


@contextmanager
def _close_on_success(writer: TableWriter) -> Iterator[TableWriter]:
    """Close a writer, unless the block raises."""
    yield writer
    writer.close()


@contextmanager
def write_in_background(writer: TableWriter) -> Iterator[TableWriter]:
    """Write each table in a thread while the caller computes the next one.

    At most one table is waiting. The writer itself stays open.
    """
    with ThreadPoolExecutor(1) as pool:
        background = _BackgroundWriter(writer, pool)
        yield background
        background.close()


@final
class _BackgroundWriter(TableWriter):
    def __init__(self, writer: TableWriter, pool: ThreadPoolExecutor) -> None:
        self.writer = writer
        self.pool = pool
        self.last: Future[None] | None = None

    def write(self, table: pa.Table) -> None:
        """Start writing the next rows; errors of the rows before are raised here."""
        self.close()
        self.last = self.pool.submit(self.writer.write, table)

    def close(self) -> None:
        """Wait for the last table."""
        if self.last is not None:
            self.last.result()
