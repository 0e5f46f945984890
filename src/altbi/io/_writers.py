"""Write tables in chunks as CSV, Parquet, Arrow IPC or JSON lines, and write files atomically.

A file is written under a temporary name and renamed when it is complete.
"""

import abc
import errno
import io
import json
import math
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, final

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from altbi.errors import ParameterError, TableError

_UMASK_LOCK = threading.Lock()
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
            f"the output format does not support a column ({cause}). Write another format, such as "
            "Parquet, or leave the column out."
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
        text = "".join(f"{_format_json(row)}\n" for row in table.to_pylist())
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


def _create_writer(file: IO[bytes], format_: str, schema: pa.Schema) -> TableWriter:
    """Create a writer, and write its header; an unsupported column may raise a `TableError`."""
    return _JsonLinesWriter(file) if format_ == "jsonl" else _ArrowWriter(file, format_, schema)


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
        with path.open("wb") as file, open_stream_writer(file, format_, schema) as writer:
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
    writer = _create_writer(file, format_, schema)
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


@contextmanager
def atomic_files(folder: str | os.PathLike[str]) -> Iterator[Callable[[str], Path]]:
    """Yield a function that returns the temporary path for the name of a file in the folder.

    Files are flushed to disk and renamed when the block ends without an error. Existing files are
    replaced only then, one by one: if a rename fails, earlier files stay replaced. After an error
    all temporary files are removed, and the folder if it was created here.
    """
    folder = Path(folder)
    created = _create_folder(folder)
    temporary: dict[Path, Path] = {}

    def temporary_path(name: str) -> Path:
        """Create an empty file next to `name`, and return its path; a folder raises `OSError`."""
        path = _resolve_replaceable(folder / name)
        with report_errors_as(path):
            descriptor, created_path = tempfile.mkstemp(
                dir=path.parent, prefix=f".{path.name}.", suffix=".part"
            )
        os.close(descriptor)
        temporary[path] = Path(created_path)
        return temporary[path]

    try:
        yield temporary_path
        for path, file in temporary.items():
            with report_errors_as(path):
                _finish_file(file)
        for path, file in temporary.items():
            with report_errors_as(path):
                file.replace(path)
    except BaseException:
        for file in temporary.values():
            file.unlink(missing_ok=True)
        for empty in created:
            if empty.is_dir() and not any(empty.iterdir()):
                empty.rmdir()
        raise


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path that replaces the file when the block ends without an error.

    A folder that does not exist raises a `FileNotFoundError`.
    """
    path = Path(path)
    if not path.parent.exists():
        raise FileNotFoundError(errno.ENOENT, "The folder does not exist", str(path.parent))
    with atomic_files(path.parent) as temporary_path:
        yield temporary_path(path.name)


@contextmanager
def report_errors_as(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise disk errors in the block with this path instead of the path of a temporary file.

    An `OSError` without an error number is raised unchanged.
    """
    try:
        yield
    except OSError as error:
        if not error.errno:
            raise
        raise OSError(error.errno, os.strerror(error.errno), os.fspath(path)) from error


def _resolve_replaceable(path: Path) -> Path:
    """Return the path with links resolved; the file need not exist.

    A folder, a device, a pipe or a socket raises an `OSError`, because a rename would replace it.
    """
    path = path.resolve()
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "The path is a folder, not a file", str(path))
    if path.exists() and not path.is_file():
        problem = "The path is a device, a pipe or a socket. Pass a file, or - for standard output"
        raise FileExistsError(errno.EEXIST, problem, str(path))
    return path


def _create_folder(folder: Path) -> list[Path]:
    """Create a folder and its parents; return the folders that are new, innermost first.

    A path that is a file raises a `NotADirectoryError`.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def _finish_file(path: Path) -> None:
    """Flush a file to disk, and replace its private permissions by those of a normal file."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    with _UMASK_LOCK:  # the umask can only be read by setting it
        mask = os.umask(0)
        os.umask(mask)
    path.chmod(0o666 & ~mask)
