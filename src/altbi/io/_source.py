"""Tables as sources of record batches: the base class, and tables in memory."""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, final

import numpy as np
import pyarrow as pa

from altbi.errors import TableError, list_names
from altbi.table import as_arrow_table, is_frame

Item = TypeVar("Item")

# Limits of a record batch, so that memory does not grow with the table.
BATCH_ROWS = 1 << 16
BATCH_BYTES = 1 << 24

# Returns the items and reports progress while they are consumed. The arguments are the name of the
# activity, the items, the total size (None if unknown), and a function that returns an item's size.
ProgressCallback = Callable[[str, Iterable[Any], int | None, Callable[[Any], int]], Iterable[Any]]


class Source(abc.ABC):
    """A table that is read in record batches, any number of times.

    Attributes
    ----------
    name : str
        Name of the table in messages: the path, or "standard input".
    paths : tuple of str
        The files that hold the rows, in order.
    format : str
        "csv", "parquet", "arrow", "jsonl", "npz", "npy" or "excel".
    schema : pyarrow.Schema
        All columns; the `extra_columns` come last.
    is_untyped : bool
        Whether texts may stand for numbers, booleans or dates, because the format has no types for
        them (CSV, JSON lines). Missing values may then be texts as well.
    extra_columns : tuple of str
        Columns that are only read if they are named, such as the labels `y` of an array `X`.
    n_rows : int or None
        Number of rows, if the file states it.
    notes : list of str
        Assumptions that were made to read the file, one sentence each.
    """

    name: str
    paths: tuple[str, ...]
    format: str
    schema: pa.Schema
    is_untyped: bool = False
    extra_columns: tuple[str, ...] = ()
    n_rows: int | None = None
    notes: list[str]

    @abc.abstractmethod
    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield these columns in record batches, in the order of the rows.

        A batch has at least one and at most `BATCH_ROWS` rows, and not many more bytes than
        `BATCH_BYTES`. An invalid file raises a `TableError`.
        """

    def partitions(self, max_rows: int) -> Sequence[Source]:
        """Return sources of at most `max_rows` consecutive rows that workers can read.

        Each can be pickled and has the `name` of this source. A format that is only readable from
        the start returns this source as the only partition, of any size.
        """
        return [self]


@final
class MemorySource(Source):
    """A pyarrow table in memory as a source."""

    format = "arrow"

    def __init__(self, table: pa.Table) -> None:
        self.name = "the table"
        self.paths = ()
        self.schema = replace_views(table.schema)
        self.n_rows = len(table)
        self.notes = []
        self._table = table if self.schema.equals(table.schema) else table.cast(self.schema)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield these columns in slices of at most `BATCH_ROWS` rows, without a copy."""
        selected = self._table.select(list(columns))
        yield from selected.to_batches(max_chunksize=BATCH_ROWS)


def open_in_memory(table: Any) -> MemorySource:  # noqa: ANN401 - any table
    """Return a data frame or 2-D array in memory as a source.

    Columns of an array are called x0, x1, ... An array with another number of dimensions raises a
    `TableError`.
    """
    if is_frame(table):
        return MemorySource(as_arrow_table(table))
    array = np.asarray(table)
    if array.ndim != 2:
        raise TableError(
            f"Expected a path, a data frame or a 2D array, got a {type(table).__name__} with "
            f"{array.ndim} dimension(s)."
        )
    columns = {f"x{number}": column for number, column in enumerate(array.T)}
    return MemorySource(pa.table(columns))


def no_progress(
    activity: str, items: Iterable[Item], total: int | None, size: Callable[[Item], int]
) -> Iterable[Item]:
    """Return the items unchanged; a `ProgressCallback` that reports nothing."""
    return items


def prefetch(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items; a thread computes the next one while the caller uses the current one.

    An error is raised when its item is due.
    """
    iterator = iter(items)
    end: Any = object()
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, iterator, end)
        while (item := coming.result()) is not end:
            coming = pool.submit(next, iterator, end)
            yield item


def replace_views(schema: pa.Schema) -> pa.Schema:
    """Return a schema with large strings in place of string views, also as values of dictionaries.

    Arrow can neither take rows from string views nor write them to CSV files.
    """

    def replace(type_: pa.DataType) -> pa.DataType:
        """Return the type that replaces a type; all but string views stay as they are."""
        if pa.types.is_dictionary(type_):
            return pa.dictionary(type_.index_type, replace(type_.value_type), type_.ordered)
        return pa.large_string() if pa.types.is_string_view(type_) else type_

    fields = [field.with_type(replace(field.type)) for field in schema]
    return pa.schema(fields, metadata=schema.metadata)


def split_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield slices of a batch with at most `BATCH_ROWS` rows and about `BATCH_BYTES` bytes each.

    Slices have at least one row and are not copied. A batch without rows yields nothing.
    """
    n_slices = max(-(-batch.nbytes // BATCH_BYTES), -(-batch.num_rows // BATCH_ROWS), 1)
    step = max(-(-batch.num_rows // n_slices), 1)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def check_names(names: Sequence[str], where: str) -> None:
    """Raise a `TableError` for duplicate column names or an empty list of names.

    `where` is the name of the table in the message.
    """
    if not names:
        raise TableError(f"{where}: it holds no columns. Expected at least one.")
    duplicates = [name for name, count in Counter(names).items() if count > 1]
    if duplicates:
        raise TableError(
            f"{where}: several columns have the same name: {list_names(duplicates, 5)}. "
            "Give each column a unique name."
        )
