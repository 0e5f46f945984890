"""Tables as sources of record batches: the base class, and tables in memory."""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, final

import pyarrow as pa

from altbi.errors import TableError, list_names, quote, shorten
from altbi.table import as_arrow_table

Item = TypeVar("Item")

# Limits of a record batch, so that memory does not grow with the table.
BATCH_ROWS = 1 << 16
BATCH_BYTES = 1 << 24
# Most columns of a table, which are refused before the rows are read.
MAX_COLUMNS = 1 << 18

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
        """Yield these columns in slices of at most `BATCH_ROWS` rows, without a copy.

        A column of a type from which Arrow cannot take rows raises a `TableError`.
        """
        check_types(self.schema, columns, self.name)
        selected = self._table.select(list(columns))
        yield from selected.to_batches(max_chunksize=BATCH_ROWS)


def open_in_memory(table: Any) -> MemorySource:  # noqa: ANN401 - any table
    """Return a data frame or 2-D array in memory as a source.

    Columns of an array are called x0, x1, ... Input that is not a table, a table without rows or
    columns, and duplicate names raise a `TableError`.
    """
    source = MemorySource(as_arrow_table(table))
    check_names(source.schema.names, source.name)
    if not source.n_rows:
        raise TableError(f"{source.name}: it holds no rows. Expected at least one.")
    return source


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
    """Return a schema with large strings in place of string views, and the same for bytes.

    Views inside of lists, records and dictionaries are replaced, too. Arrow can neither take rows
    from views nor write them to CSV files.
    """
    fields = [field.with_type(_replace_views(field.type)) for field in schema]
    return pa.schema(fields, metadata=schema.metadata)


def _replace_views(type_: pa.DataType) -> pa.DataType:
    """Return the type with large strings and large binaries in place of views."""
    is_a = pa.types
    if is_a.is_string_view(type_) or is_a.is_binary_view(type_):
        return pa.large_string() if is_a.is_string_view(type_) else pa.large_binary()
    if is_a.is_dictionary(type_):
        values = _replace_views(type_.value_type)
        return pa.dictionary(type_.index_type, values, type_.ordered)
    if is_a.is_list(type_) or is_a.is_large_list(type_):
        build = pa.list_ if is_a.is_list(type_) else pa.large_list
        return build(type_.value_field.with_type(_replace_views(type_.value_type)))
    if is_a.is_struct(type_):
        return pa.struct([field.with_type(_replace_views(field.type)) for field in type_])
    return type_


def check_types(schema: pa.Schema, columns: Sequence[str], where: str) -> None:
    """Raise a `TableError` if a column has a type from which Arrow cannot take rows.

    These are unions and run-end encoded values. `where` is the name of the table in the message.
    """
    for name in columns:
        type_ = schema.field(name).type
        if pa.types.is_union(type_) or pa.types.is_run_end_encoded(type_):
            raise TableError(
                f"{where}: column {quote(name)} has the type "
                f"{shorten(str(type_), 60)}, which cannot be read. Leave it out, or convert it to "
                "numbers or text."
            )


def split_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield slices of a batch with at most `BATCH_ROWS` rows and about `BATCH_BYTES` bytes each.

    Slices have at least one row and are not copied. A batch without rows yields nothing.
    """
    n_slices = max(-(-batch.nbytes // BATCH_BYTES), -(-batch.num_rows // BATCH_ROWS), 1)
    step = max(-(-batch.num_rows // n_slices), 1)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def check_names(names: Sequence[str], where: str) -> None:
    """Raise a `TableError` for duplicate column names, for no names and for too many names.

    `where` is the name of the table in the message.
    """
    if not names:
        raise TableError(f"{where}: it holds no columns. Expected at least one.")
    if len(names) > MAX_COLUMNS:
        raise TableError(
            f"{where}: it holds {len(names)} columns, but at most {MAX_COLUMNS} are supported. "
            "Leave out columns."
        )
    duplicates = [name for name, count in Counter(names).items() if count > 1]
    if duplicates:
        raise TableError(
            f"{where}: several columns have the same name: {list_names(duplicates, 5)}. "
            "Give each column a unique name."
        )
