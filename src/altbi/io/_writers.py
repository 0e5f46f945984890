"""Where rows go, chunk by chunk: CSV, Parquet, Arrow IPC or JSON lines."""

import abc
import io
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, final

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from altbi.errors import ParameterError, TableError

__all__ = [
    "SINKS",
    "TableWriter",
    "check_writable",
    "format_of",
    "open_stream_writer",
    "open_writer",
]


class TableWriter(abc.ABC):
    """Takes tables of one schema, one after the other."""

    @abc.abstractmethod
    def write(self, table: pa.Table) -> None:
        """Write the next rows."""

    @abc.abstractmethod
    def close(self) -> None:
        """Write what the format wants at its end; the file itself stays open."""


@final
class ArrowWriter(TableWriter):
    """What pyarrow writes itself."""

    def __init__(
        self,
        writer: Callable[..., Any],
        file: IO[bytes],
        schema: pa.Schema,
        **more: Any,  # noqa: ANN401 - the writer's arguments
    ) -> None:
        self.schema = schema
        with _told():
            self.writer = writer(file, schema, **more)

    def write(self, table: pa.Table) -> None:
        """Write the next rows."""
        with _told():
            self.writer.write_table(table.cast(self.schema))

    def close(self) -> None:
        """Write the end."""
        self.writer.close()


@contextmanager
def _told() -> Iterator[None]:
    """Say what a format cannot hold; errors of the disk are no matter of the format."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as cause:
        raise TableError(
            f"the output cannot hold a column in this format ({cause}). Write another one, such as "
            "Parquet, or leave the column out."
        ) from None


@final
class JsonLinesWriter(TableWriter):
    """One JSON object a line; dates as ISO 8601, numbers that are not finite as null."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def write(self, table: pa.Table) -> None:
        """Write the next rows."""
        lines = map(_json, table.to_pylist())
        self.file.write("".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"))

    def close(self) -> None:
        """Do nothing: lines have no end."""


def _json(row: dict[str, Any]) -> str:
    try:
        return json.dumps(row, default=str, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(row), default=str, ensure_ascii=False)


def _finite(value: object) -> object:
    """Give a value in which no number is infinite or none."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _parquet(file: IO[bytes], schema: pa.Schema) -> TableWriter:
    return ArrowWriter(pyarrow.parquet.ParquetWriter, file, schema, compression="zstd")


def _csv(file: IO[bytes], schema: pa.Schema) -> TableWriter:
    return ArrowWriter(pyarrow.csv.CSVWriter, file, schema)


def _arrow(file: IO[bytes], schema: pa.Schema) -> TableWriter:
    # A file of this format has one dictionary for all of its chunks, and they have each their own.
    plain = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in schema
    ]
    return ArrowWriter(pa.ipc.new_file, file, pa.schema(plain))


SINKS: dict[str, Callable[[IO[bytes], pa.Schema], TableWriter]] = {
    "csv": _csv,
    "parquet": _parquet,
    "arrow": _arrow,
    "jsonl": lambda file, _: JsonLinesWriter(file),
}

_ENDINGS = {"csv": "csv", "parquet": "parquet", "pq": "parquet", "arrow": "arrow"} | {
    "feather": "arrow", "ipc": "arrow", "jsonl": "jsonl", "ndjson": "jsonl", "json": "jsonl"
}  # fmt: skip


def format_of(path: str) -> str:
    """Tell the format that a file's name asks for."""
    ending = path.rpartition(".")[2].lower()
    if ending not in _ENDINGS:
        raise ParameterError(
            f"{path}: the name does not say how to write it. Expected an ending like "
            ".csv, .parquet, .arrow or .jsonl."
        )
    return _ENDINGS[ending]


def check_writable(schema: pa.Schema, format_: str) -> None:
    """Refuse a column of a type that a format does not have, before anything is computed."""
    for field in schema:
        try:
            SINKS[format_](io.BytesIO(), pa.schema([field]))
        except TableError:
            raise TableError(
                f"column {field.name!r} is of the type {field.type}, which {format_} files cannot "
                "hold. Write another format, such as Parquet, or leave the column out."
            ) from None


@contextmanager
def open_writer(path: Path, name: str, format_: str, schema: pa.Schema) -> Iterator[TableWriter]:
    """Write tables to a file; errors of the disk are told with the name that the file will have."""
    try:
        with path.open("wb") as file, _closed(SINKS[format_](file, schema)) as sink:
            yield sink
    except OSError as error:
        if error.filename is not None or not error.errno:  # of what is read meanwhile
            raise
        raise OSError(error.errno, os.strerror(error.errno), name) from error


@contextmanager
def open_stream_writer(file: IO[bytes], format_: str, schema: pa.Schema) -> Iterator[TableWriter]:
    """Write tables to an open stream, which stays open."""
    with _closed(SINKS[format_](file, schema)) as sink:
        yield sink
    file.flush()


@contextmanager
def _closed(sink: TableWriter) -> Iterator[TableWriter]:
    """Let a sink write its end, unless something went wrong before."""
    yield sink
    sink.close()
