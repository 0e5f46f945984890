"""The only place that opens DuckDB: in memory, without extensions, with access to named files.

DuckDB is imported inside functions, because other formats do not need it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import pyarrow as pa

from altbi._threads import count_threads
from altbi.io._private_folder import PrivateFolder
from altbi.io._source import BATCH_BYTES, BATCH_ROWS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_MAX_BYTES = 4 << 30
_SHARE = 2  # DuckDB may use at most one half of the machine's memory
# DuckDB fills vectors of this many rows, so batches of fewer rows save nothing.
_VECTOR_ROWS = 2048
# An interrupt is repeated, because it has no effect on a query that has not started.
_INTERRUPT_SECONDS = 0.01
# DuckDB would expand these letters in a path to the names of other files, or drop them.
_SPECIAL_LETTERS = frozenset("*?[\\")
_SETTINGS = {
    # Nothing is installed, loaded or looked up by itself.
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "allow_persistent_secrets": "false",
    # A name in a query must not find a variable of the calling Python code.
    "python_enable_replacements": "false",
    "python_scan_all_frames": "false",
    "preserve_insertion_order": "true",
    "arrow_large_buffer_size": "false",
    "produce_arrow_string_view": "false",
}


class DuckDBError(Exception):
    """DuckDB has refused a query or a file; the message is DuckDB's."""


@final
class Database:
    """A DuckDB database in memory that a ``with`` block of `open_duckdb` has opened."""

    def __init__(self, connection: DuckDBPyConnection, folder: Path) -> None:
        self._connection = connection
        self._folder = folder
        self._thread = ThreadPoolExecutor(1)
        self._lock = threading.Lock()  # held while the thread is in a function of DuckDB
        self._n_links = 0

    def quote_path(self, path: str) -> str:
        """Return a path as an SQL text that means this file alone.

        A path with letters that DuckDB would treat as a pattern is replaced by a link to it.
        """
        if _SPECIAL_LETTERS & set(path):
            link = self._folder / f"file-{self._n_links}"
            self._n_links += 1
            link.symlink_to(path)
            path = str(link)
        return quote_sql(path)

    def lock(self, paths: Iterable[str]) -> None:
        """Forbid all access to files except for quoted `paths`, and lock the configuration."""
        listed = ", ".join(paths)
        self._connection.execute(f"SET allowed_paths = [{listed}]")
        self._connection.execute("SET enable_external_access = false")
        self.lock_configuration()

    def lock_configuration(self) -> None:
        """Forbid to change any setting, so that a query cannot widen what it may read."""
        self._connection.execute("SET lock_configuration = true")

    def batches(self, query: str, row_bytes: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield the result of a query in record batches, in its order, without empty ones.

        A batch has about `BATCH_BYTES` bytes if rows have `row_bytes` bytes, but at least 2,048
        rows, unless the result is shorter. Errors in the query or a file raise a `DuckDBError`, and
        too little memory a `MemoryError`. Signals such as Ctrl-C stop the query, and their
        exceptions are raised.
        """
        n_rows = max(min(BATCH_ROWS, BATCH_BYTES // max(row_bytes, 1)), _VECTOR_ROWS)
        with _convert_errors():
            reader = self._call(self._connection.sql(query).to_arrow_reader, n_rows)
            while (batch := self._call(next, reader, None)) is not None:
                if len(batch):
                    yield batch

    def _call(self, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
        """Return the result of a function of DuckDB.

        Another thread runs the function: DuckDB would block the main thread, where Python handles
        signals. If a signal raises an error, the function runs until the database is closed.
        """

        def run() -> Any:  # noqa: ANN401
            """Run the function; `close` waits for its end."""
            with self._lock:
                return function(*arguments)

        return self._thread.submit(run).result()

    def close(self) -> None:
        """Stop a query that still runs or was not read to its end, and close the database."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        while not self._lock.acquire(timeout=_INTERRUPT_SECONDS):
            self._connection.interrupt()
        try:
            self._connection.interrupt()
            self._connection.close()
        finally:
            self._lock.release()

    def count_statements(self, query: str) -> tuple[int, bool]:
        """Return how many statements a text has, and whether all of them are SELECT statements.

        Nothing is run. Invalid SQL raises a `DuckDBError`.
        """
        import duckdb

        with _convert_errors():
            statements = self._connection.extract_statements(query)
        select = duckdb.StatementType.SELECT
        return len(statements), all(each.type == select for each in statements)


@contextmanager
def open_duckdb() -> Iterator[Database]:
    """Yield a database in memory with all unsafe settings off.

    It may use half of the machine's memory, at most 4 GiB, and then a private temporary folder. The
    caller locks it before the first query: with `Database.lock` to named files, or with
    `Database.lock_configuration`.
    """
    import duckdb

    folder = PrivateFolder()
    n_bytes = min(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _SHARE, _MAX_BYTES)
    settings: dict[str, Any] = {
        **_SETTINGS,
        "memory_limit": f"{n_bytes >> 20}MiB",
        "temp_directory": str(folder.path / "spilled"),
        "threads": str(count_threads()),
    }
    database = Database(duckdb.connect(":memory:", config=settings), folder.path)
    try:
        yield database
    finally:
        database.close()
        folder.close()


def quote_sql(text: str) -> str:
    """Return a text as an SQL literal.

    >>> quote_sql("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def format_list(texts: Sequence[str]) -> str:
    """Return texts as an SQL list of literals."""
    return "[" + ", ".join(map(quote_sql, texts)) + "]"


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Raise errors of DuckDB as `DuckDBError`, and too little memory as `MemoryError`.

    While Arrow reads a result, DuckDB's errors arrive as `OSError` without a number. Other errors
    are raised unchanged.
    """
    import duckdb

    try:
        yield
    except (duckdb.Error, OSError, pa.ArrowException) as cause:
        text = str(cause)
        if isinstance(cause, OSError) and cause.errno is not None:
            raise
        if isinstance(cause, duckdb.OutOfMemoryException) or "Out of Memory Error" in text[:200]:
            raise MemoryError(text.splitlines()[0]) from cause
        raise DuckDBError(text) from cause
