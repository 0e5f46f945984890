"""Where rows go, chunk by chunk: CSV, Parquet, Arrow IPC or JSON lines."""

import abc
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, final

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from altbi.errors import ParameterError

__all__ = ["SINKS", "Sink", "format_of", "open_sink", "stream_sink"]


class Sink(abc.ABC):
    """Takes tables of one schema, one after the other."""

    @abc.abstractmethod
    def write(self, table: pa.Table) -> None:
        """Write the next rows."""

    @abc.abstractmethod
    def close(self) -> None:
        """Write what the format wants at its end; the file itself stays open."""


@final
class ArrowSink(Sink):
    """What pyarrow writes itself."""

    def __init__(self, writer: Any) -> None:  # noqa: ANN401 - one of three kinds
        self.writer = writer

    def write(self, table: pa.Table) -> None:
        """Write the next rows."""
        self.writer.write_table(table)

    def close(self) -> None:
        """Write the end."""
        self.writer.close()


@final
class JsonLinesSink(Sink):
    """One JSON object a line; dates as ISO 8601."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def write(self, table: pa.Table) -> None:
        """Write the next rows."""
        lines = (json.dumps(row, default=str, ensure_ascii=False) for row in table.to_pylist())
        self.file.write("".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"))

    def close(self) -> None:
        """Do nothing: lines have no end."""


def _parquet(file: IO[bytes], schema: pa.Schema) -> Sink:
    return ArrowSink(pyarrow.parquet.ParquetWriter(file, schema, compression="zstd"))


def _csv(file: IO[bytes], schema: pa.Schema) -> Sink:
    return ArrowSink(pyarrow.csv.CSVWriter(file, schema))


def _arrow(file: IO[bytes], schema: pa.Schema) -> Sink:
    return ArrowSink(pa.ipc.new_file(file, schema))


SINKS: dict[str, Callable[[IO[bytes], pa.Schema], Sink]] = {
    "csv": _csv,
    "parquet": _parquet,
    "arrow": _arrow,
    "jsonl": lambda file, _: JsonLinesSink(file),
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


@contextmanager
def open_sink(path: Path, name: str, format_: str, schema: pa.Schema) -> Iterator[Sink]:
    """Write tables to a file; errors of the disk are told with the name that the file will have."""
    try:
        with path.open("wb") as file, _closed(SINKS[format_](file, schema)) as sink:
            yield sink
    except OSError as error:
        if error.filename is not None or not error.errno:  # of what is read meanwhile
            raise
        raise OSError(error.errno, os.strerror(error.errno), name) from error


@contextmanager
def stream_sink(file: IO[bytes], format_: str, schema: pa.Schema) -> Iterator[Sink]:
    """Write tables to an open stream, which stays open."""
    with _closed(SINKS[format_](file, schema)) as sink:
        yield sink
    file.flush()


@contextmanager
def _closed(sink: Sink) -> Iterator[Sink]:
    """Let a sink write its end, unless something went wrong before."""
    yield sink
    sink.close()
