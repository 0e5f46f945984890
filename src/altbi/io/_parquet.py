"""Parquet: a file, or a folder of files that are one table."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from altbi._terminal import printable
from altbi.errors import TableError
from altbi.io._compressed import first_line, limited, report_damage
from altbi.io._csv_header import check_names
from altbi.io._source import BATCH_BYTES, BATCH_ROWS, Source

__all__ = ["ParquetSource", "open_parquet", "open_parquet_folder"]

# Pages are read one after the other, so that memory does not hold whole groups of rows.
_READING = {"pre_buffer": False, "buffer_size": 1 << 20, "page_checksum_verification": True}


@dataclass(frozen=True, slots=True)
class Part:
    """One file or some groups of its rows, and the columns that its folder's name gives."""

    path: str
    where: str
    values: Mapping[str, Any]
    groups: tuple[int, ...] | None = None


@final
class ParquetSource(Source):
    """One or more Parquet files.

    Parameters
    ----------
    name : str
        What messages call it.
    parts : sequence of Part
        The files, in the order of their rows.
    schema : pyarrow.Schema
        All columns.
    n_rows : int
        How many rows there are.
    """

    format = "parquet"

    def __init__(self, name: str, parts: Sequence[Part], schema: pa.Schema, n_rows: int) -> None:
        self.name = name
        self.paths = tuple(dict.fromkeys(part.path for part in parts))
        self.schema = schema
        self.n_rows = n_rows
        self.notes = []
        self._parts = parts

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns, file by file."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        for part in self._parts:
            for batch in _read(part, columns):
                fitted = _fit(batch, part, schema)
                yield from limited(fitted)

    def partitions(self, most_rows: int) -> list[Source]:
        """Give the files apart, and large ones by groups of rows, which are never split."""
        return [
            ParquetSource(self.name, [replace(part, groups=groups)], self.schema, n_rows)
            for part in self._parts
            for groups, n_rows in _bundles(part, most_rows)
        ]


def open_parquet(path: str, name: str) -> ParquetSource:
    """Read what a Parquet file says about itself."""
    part = Part(path, printable(name), {})
    with _opened(part) as file:
        schema, n_rows = file.schema_arrow.remove_metadata(), file.metadata.num_rows
    return _checked(ParquetSource(name, [part], schema, n_rows))


def open_parquet_folder(path: str, name: str, paths: Sequence[str]) -> ParquetSource:
    """Read what the Parquet files of a folder say about themselves."""
    import pyarrow.dataset as ds

    where, base = printable(name), Path(path).resolve()
    try:
        options = ds.FileSystemFactoryOptions(str(base), ds.HivePartitioning.discover())
        factory = ds.FileSystemDatasetFactory(
            LocalFileSystem(), list(paths), ds.ParquetFileFormat(), options
        )
        dataset = factory.finish(factory.inspect(promote_options="permissive"))
        parts = [_part(piece, base, name) for piece in dataset.get_fragments()]
        schema, n_rows = dataset.schema.remove_metadata(), dataset.count_rows()
    except (pa.ArrowException, OSError, UnicodeError) as cause:
        if isinstance(cause, OSError) and cause.errno is not None:
            raise
        for each in paths:  # one that is damaged says so itself
            open_parquet(each, str(Path(name, Path(each).relative_to(base))))
        raise TableError(
            f"{where}: the Parquet files in the folder are not one table ({first_line(cause)}). "
            "Give the files that belong together the same columns, or give one file."
        ) from cause
    return _checked(ParquetSource(name, parts, schema, n_rows))


def _checked(source: ParquetSource) -> ParquetSource:
    where = printable(source.name)
    with report_damage(where, "the list of columns"):
        check_names(source.schema.names, where)
    if not source.n_rows:
        raise TableError(f"{where}: it holds no rows. Expected at least one.")
    return source


def _part(piece: Any, base: Path, name: str) -> Part:  # noqa: ANN401 - pyarrow has no types
    import pyarrow.dataset as ds

    shown = Path(name, Path(piece.path).relative_to(base))
    return Part(
        piece.path, printable(str(shown)), ds.get_partition_keys(piece.partition_expression)
    )


def _opened(part: Part) -> pq.ParquetFile:
    with report_damage(part.where, "the Parquet file"):
        return pq.ParquetFile(part.path, **_READING)


def _bundles(part: Part, most_rows: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """Give the groups of rows of a file, as many together as have not too many rows."""
    with _opened(part) as file:
        whole = file.metadata
        sizes = [whole.row_group(place).num_rows for place in range(whole.num_row_groups)]
    groups: tuple[int, ...] = ()
    rows = 0
    for place, size in enumerate(sizes):
        if groups and rows + size > most_rows:
            yield groups, rows
            groups, rows = (), 0
        groups, rows = (*groups, place), rows + size
    if rows:
        yield groups, rows


def _read(part: Part, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with _opened(part) as file, report_damage(part.where, "the Parquet file"):
        wanted = set(columns) - set(part.values)
        own = [name for name in file.schema_arrow.names if name in wanted]
        size = _batch_rows(file, own)
        for batch in file.iter_batches(batch_size=size, columns=own, row_groups=part.groups):
            batch.validate(full=True)  # the reader does not look whether texts are UTF-8
            yield batch


def _batch_rows(file: pq.ParquetFile, columns: Sequence[str]) -> int:
    """Give the number of rows that fill a batch, by what the file says about itself."""
    schema = file.schema_arrow  # made anew at each call
    width = sum(_width(schema.field(name).type) for name in columns)
    if width == math.inf:
        # Not by columns: for a damaged one, asking for its size would end the process.
        groups = [file.metadata.row_group(place) for place in range(file.metadata.num_row_groups)]
        width = max(group.total_byte_size / max(group.num_rows, 1) for group in groups)
    return int(max(min(BATCH_ROWS, BATCH_BYTES / max(width, 1)), 1))


def _width(type_: pa.DataType) -> float:
    """Give the bytes of one cell; those of a text may be any number."""
    try:
        return type_.bit_width / 8
    except ValueError:
        return math.inf


def _fit(batch: pa.RecordBatch, part: Part, schema: pa.Schema) -> pa.RecordBatch:
    """Give a file's batch the columns and types of the whole table."""
    if not len(schema):
        return batch.select([])
    arrays, there = [], set(batch.schema.names)
    for field in schema:
        if field.name in part.values:
            value = pa.scalar(part.values[field.name], field.type)
            arrays.append(pa.repeat(value, batch.num_rows))
        elif field.name in there:
            arrays.append(_cast(batch.column(field.name), field, part))
        else:
            arrays.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(array: pa.Array, field: pa.Field, part: Part) -> pa.Array:
    with report_damage(part.where, f"column {field.name!r}"):
        return array if array.type == field.type else array.cast(field.type, safe=False)
