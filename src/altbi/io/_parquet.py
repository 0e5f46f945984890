"""Parquet files, and folders of Parquet files that form one table."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from altbi.errors import TableError, describe_cause, escape_text, quote
from altbi.io._files import CompressedFile, report_damage
from altbi.io._source import (
    BATCH_BYTES,
    BATCH_ROWS,
    Source,
    check_names,
    replace_views,
    split_batch,
)

# Without a pre-buffer, pages are read one by one, so that memory never holds a full row group.
_READER_OPTIONS = {"pre_buffer": False, "buffer_size": 1 << 20, "page_checksum_verification": True}


@dataclass(frozen=True, slots=True)
class _Fragment:
    """One Parquet file or some of its row groups, and the values of its partition columns.

    `where` is the name of the file in messages. `row_groups=None` means all row groups. Partition
    columns come from folder names such as ``year=2024``; the file itself does not hold them.
    """

    path: str
    where: str
    partition_values: Mapping[str, Any] = field(default_factory=dict)
    row_groups: tuple[int, ...] | None = None

    def open(self) -> pq.ParquetFile:
        """Open the file and read its metadata; a damaged file raises a `TableError`."""
        with report_damage(self.where, "the Parquet file"):
            return pq.ParquetFile(self.path, **_READER_OPTIONS)


@final
class ParquetSource(Source):
    """The rows of one or more Parquet files, read one file after the other."""

    format = "parquet"

    def __init__(
        self, name: str, fragments: Sequence[_Fragment], schema: pa.Schema, n_rows: int
    ) -> None:
        self.name = name
        self.paths = tuple(dict.fromkeys(fragment.path for fragment in fragments))
        self.schema = schema
        self.n_rows = n_rows
        self.notes = []
        self._fragments = fragments

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield record batches with these columns, in the types of the table's schema.

        Files are read one after the other. Columns that a file does not hold are null. A damaged
        file raises a `TableError`.
        """
        schema = pa.schema([self.schema.field(name) for name in columns])
        for fragment in self._fragments:
            for batch in _read_batches(fragment, columns):
                yield from split_batch(_convert_batch(batch, fragment, schema))

    def partitions(self, max_rows: int) -> list[Source]:
        """Return one source per file; files above `max_rows` rows are divided by row groups.

        A row group is never divided, so a partition may have more than `max_rows` rows. Files
        without rows are left out. The metadata of each file is read.
        """
        return [
            ParquetSource(self.name, [replace(fragment, row_groups=groups)], self.schema, n_rows)
            for fragment in self._fragments
            for groups, n_rows in _combine_row_groups(fragment, max_rows)
        ]


def open_parquet(packed: CompressedFile) -> ParquetSource:
    """Open a Parquet file; only its metadata is read.

    A compressed or damaged file, invalid column names and a file without rows raise a `TableError`.
    """
    if packed.compression:
        raise TableError(
            f"{packed.where}: it is a Parquet file inside {packed.compression}, which cannot be "
            "read in chunks. Unpack it; Parquet is compressed itself."
        )
    fragment = _Fragment(packed.path, packed.where)
    with fragment.open() as file:
        schema, n_rows = replace_views(file.schema_arrow.remove_metadata()), file.metadata.num_rows
    source = ParquetSource(packed.name, [fragment], schema, n_rows)
    _check_source(source)
    return source


def open_parquet_folder(path: str, name: str, paths: Sequence[str]) -> ParquetSource:
    """Open Parquet files in a folder as one table; only their metadata is read.

    `name` is the folder in messages. The table has the columns of all files, and those in names of
    subfolders such as ``year=2024``. A damaged file, files with incompatible types, and a table
    without rows or with duplicate names raise a `TableError`.
    """
    import pyarrow.dataset as ds

    base = Path(path).resolve()
    try:
        options = ds.FileSystemFactoryOptions(str(base), ds.HivePartitioning.discover())
        factory = ds.FileSystemDatasetFactory(
            LocalFileSystem(), list(paths), ds.ParquetFileFormat(), options
        )
        dataset = factory.finish(factory.inspect(promote_options="permissive"))
        fragments = [
            _Fragment(
                each.path,
                escape_text(_format_file_name(name, base, each.path)),
                ds.get_partition_keys(each.partition_expression),
            )
            for each in dataset.get_fragments()
        ]
        schema, n_rows = replace_views(dataset.schema.remove_metadata()), dataset.count_rows()
    except (pa.ArrowException, OSError, UnicodeError) as cause:
        if isinstance(cause, OSError) and cause.errno is not None:
            raise
        for each in paths:  # if one file is damaged, this raises an error that names it
            open_parquet(CompressedFile(each, _format_file_name(name, base, each)))
        raise TableError(
            f"{escape_text(name)}: the Parquet files in the folder are not one table "
            f"({describe_cause(cause)}). Write the same columns into all files, or pass one file."
        ) from cause
    source = ParquetSource(name, fragments, schema, n_rows)
    _check_source(source)
    return source


def _format_file_name(folder: str, base: Path, path: str) -> str:
    """Return the name in messages of a file: its path below `base`, joined to the folder's name."""
    return str(Path(folder, Path(path).relative_to(base)))


def _check_source(source: ParquetSource) -> None:
    """Raise a `TableError` for invalid column names or a table without rows."""
    where = escape_text(source.name)
    with report_damage(where, "the list of columns"):
        check_names(source.schema.names, where)
    if not source.n_rows:
        raise TableError(f"{where}: it holds no rows. Expected at least one.")


def _combine_row_groups(
    fragment: _Fragment, max_rows: int
) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield tuples of consecutive row groups, each with the number of rows that they hold.

    A tuple holds at most `max_rows` rows, unless a single row group is larger. A file without rows
    yields nothing.
    """
    with fragment.open() as file:
        metadata = file.metadata
        sizes = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
    groups: tuple[int, ...] = ()
    n_rows = 0
    for index, size in enumerate(sizes):
        if groups and n_rows + size > max_rows:
            yield groups, n_rows
            groups, n_rows = (), 0
        groups, n_rows = (*groups, index), n_rows + size
    if n_rows:
        yield groups, n_rows


def _read_batches(fragment: _Fragment, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield batches of the requested columns that the file itself holds, in the order of the file.

    Partition columns and columns that the file does not have are left out. Damaged data raises a
    `TableError`.
    """
    with fragment.open() as file, report_damage(fragment.where, "the Parquet file"):
        wanted = set(columns) - set(fragment.partition_values)
        names = [name for name in file.schema_arrow.names if name in wanted]
        n_rows = _compute_batch_rows(file, names)
        for batch in file.iter_batches(n_rows, row_groups=fragment.row_groups, columns=names):
            batch.validate(full=True)  # the reader does not check that texts are UTF-8
            yield batch


def _compute_batch_rows(file: pq.ParquetFile, columns: Sequence[str]) -> int:
    """Return how many rows a batch of these columns of about `BATCH_BYTES` bytes has.

    The result is between 1 and `BATCH_ROWS`. If a column has values of variable size, the size of a
    row is the largest average over the row groups, with all columns of the file.
    """
    schema = file.schema_arrow  # a property that builds the schema at each call
    row_bytes = sum(_compute_value_bytes(schema.field(name).type) for name in columns)
    if row_bytes == math.inf:
        # The metadata of row groups is read instead of the metadata of columns: Arrow aborts the
        # process if the metadata of a column is damaged.
        groups = [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]
        sizes = (group.total_byte_size / max(group.num_rows, 1) for group in groups)
        row_bytes = max(sizes, default=1)  # a file without rows may have no row group
    return int(max(min(BATCH_ROWS, BATCH_BYTES / max(row_bytes, 1)), 1))


def _compute_value_bytes(type_: pa.DataType) -> float:
    """Return the size in bytes of one value of a type; infinity for types of variable size."""
    try:
        return type_.bit_width / 8
    except ValueError:
        return math.inf


def _convert_batch(batch: pa.RecordBatch, fragment: _Fragment, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the columns, order and types of `schema`.

    Partition columns are filled with their value, and absent columns with null. Casts do not check
    for overflow or lost digits; other values that cannot be cast raise a `TableError`. An empty
    schema returns the rows without columns.
    """
    if not len(schema):
        return batch.select([])
    arrays, present = [], set(batch.schema.names)
    for column in schema:
        if column.name in fragment.partition_values:
            value = pa.scalar(fragment.partition_values[column.name], column.type)
            arrays.append(pa.repeat(value, batch.num_rows))
        elif column.name in present:
            with report_damage(fragment.where, f"column {quote(column.name)}"):
                arrays.append(batch.column(column.name).cast(column.type, safe=False))
        else:
            arrays.append(pa.nulls(batch.num_rows, column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
