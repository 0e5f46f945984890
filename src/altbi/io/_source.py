"""Tables as sources of record batches: the base class, tables in memory, and `open_table`."""

from __future__ import annotations

import abc
import codecs
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, TypeVar, final

import pyarrow as pa

from altbi.errors import ParameterError, TableError, escape_text, shorten
from altbi.io._files import (
    COMPRESSION_MAGIC,
    CompressedFile,
    detect_compression,
    detect_encoding,
    guess_encoding,
)
from altbi.table import as_arrow_table

Item = TypeVar("Item")

# Limits of a record batch, so that memory does not grow with the table.
BATCH_ROWS = 1 << 16
BATCH_BYTES = 1 << 24
# Most columns of a table, which are refused before the rows are read.
MAX_COLUMNS = 1 << 18

# A file of this name marks a folder whose files are not complete yet.
UNFINISHED_MARKER = "_unfinished"

_FORMATS = ("csv", "jsonl", "parquet", "arrow", "npz", "npy")
_START_BYTES = 16
_HEAD_BYTES = 1 << 20
_FORMAT_MAGIC = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow",
    b"\x93NUMPY": "npy",
}
_UNSUPPORTED_MAGIC = {
    b"\xd0\xcf\x11\xe0": "an old Excel workbook",
    b"SQLite format 3\x00": "an SQLite database",
    b"\x89HDF": "an HDF5 file",
    b"%PDF-": "a PDF document",
    b"\x80\x04": "a Python pickle, which is never read because it can run code",
    b"\x80\x05": "a Python pickle, which is never read because it can run code",
}
_COMPRESSED_ENDINGS = ("", ".gz", ".bz2", ".zst", ".lz4", ".xz", ".zip")
_FOLDER_ENDINGS = {
    "parquet": (".parquet",),
    "csv": tuple(text + packed for text in (".csv", ".tsv") for packed in _COMPRESSED_ENDINGS),
}

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
        "csv", "parquet", "arrow", "jsonl", "npz" or "npy".
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
                f"{where}: column {shorten(repr(name), 60)} has the type "
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
            f"{where}: several columns have the same name: {format_names(duplicates, 5)}. "
            "Give each column a unique name."
        )


def format_names(names: Sequence[str], limit: int = 10) -> str:
    """Return quoted names, separated by commas; a long list is cut after ``limit`` names.

    >>> format_names(["a", "b", "c"], limit=2)
    "'a', 'b', … (3 in all)"
    """
    shown = ", ".join(repr(name) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown}, … ({len(names)} in all)"


def open_table(
    path: str | os.PathLike[str],
    *,
    format: Literal["csv", "jsonl", "parquet", "arrow", "npz", "npy"] | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    name: str | None = None,
) -> Source:
    r"""Open a table in a file or folder.

    Format, compression, encoding and CSV dialect are detected from the content. CSV and JSON lines
    files are read once for this, in bounded memory. All other formats have the information in their
    metadata. In a folder, files and folders whose names start with a dot or an underscore are
    ignored.

    Parameters
    ----------
    path : str or path
        A CSV, JSON lines, Arrow or npy file, plain or compressed (gzip, bz2, zstd, lz4, xz, zip); a
        Parquet or npz file; or a folder of Parquet files or of CSV files with the same columns.
    format : {"csv", "jsonl", "parquet", "arrow", "npz", "npy"}, optional
        Format of the file. None detects it.
    encoding : str, optional
        Encoding of a text file. None detects it.
    delimiter : str, optional
        Delimiter of a CSV file. None detects it.
    header : bool, optional
        Whether the first line of a CSV file holds the column names. None detects it.
    name : str, optional
        Name of the table in messages. None is the path.

    Returns
    -------
    Source
        The table, ready to be read in record batches.

    Raises
    ------
    TableError
        If the file is not a table, or damaged.
    ParameterError
        If an option has an invalid value or does not apply to the format.
    OSError
        If the file does not exist or cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "sizes.csv")
    ...     _ = path.write_text("name;size\nfirst;1,5\nsecond;2,5\n")
    ...     table = open_table(path)
    ...     print(table.format, table.schema.names)
    ...     next(table.batches(["size"])).to_pydict()
    csv ['name', 'size']
    {'size': ['1,5', '2,5']}
    """
    if format not in (None, *_FORMATS):
        raise ParameterError(f"format={format!r}, but expected one of {', '.join(_FORMATS)}.")
    path = os.fspath(path)
    name = name or path
    if Path(path).is_dir() and format in (None, "csv", "parquet"):
        found, paths = _list_table_files(path, name, format)
        _check_options(found, name, encoding, delimiter, header)
        return _open_folder(found, path, name, paths, (encoding, delimiter, header))
    packed, head, found = _detect_file(path, name, format)
    _check_options(found, name, encoding, delimiter, header)
    return _open_file(found, packed, head, (encoding, delimiter, header))


# The encoding, delimiter and header of a text file; options that are None are detected.
_TextOptions = tuple[str | None, str | None, bool | None]

# The readers are imported where they are used, so that a run only imports one of them.


def _open_file(format: str, packed: CompressedFile, head: bytes, options: _TextOptions) -> Source:
    """Open a file with the reader of its format; `head` holds its first decompressed bytes."""
    if format == "parquet":
        from altbi.io._parquet import open_parquet

        return open_parquet(packed)
    if format == "arrow":
        from altbi.io._arrow import open_arrow

        return open_arrow(packed, head)
    if format in ("npz", "npy"):
        from altbi.io._numpy import open_npy, open_npz

        return open_npz(packed) if format == "npz" else open_npy(packed)
    encoding, delimiter, header = options
    detected, notes = detect_encoding(packed, head, encoding)
    if format == "jsonl":
        from altbi.io._json_lines import open_json_lines

        return open_json_lines(packed, detected, notes)
    from altbi.io._csv import open_csv

    return open_csv(packed, detected, notes, delimiter=delimiter, header=header)


def _open_folder(
    format: str, path: str, name: str, paths: list[str], options: _TextOptions
) -> Source:
    """Open the Parquet or CSV files `paths` of a folder as one table, called `name` in messages."""
    if format == "parquet":
        from altbi.io._parquet import open_parquet_folder

        return open_parquet_folder(path, name, paths)
    from altbi.io._csv import open_csv_folder

    encoding, delimiter, header = options
    return open_csv_folder(path, name, paths, encoding=encoding, delimiter=delimiter, header=header)


def _detect_file(path: str, name: str, format: str | None) -> tuple[CompressedFile, bytes, str]:
    """Return the file with its compression, its first decompressed bytes, and its format.

    A format that the user states is not verified. For npz archives, the bytes are not decompressed.
    A file that cannot be read twice, such as a pipe, raises a `TableError`.
    """
    with Path(path).open("rb") as file:
        if not file.seekable():
            raise TableError(
                f"{escape_text(name)}: it cannot be read twice, because it is not a regular "
                "file. Write it to a file first, or pass it on standard input."
            )
        start = file.read(_START_BYTES)
    path = str(Path(path).absolute())  # a worker may have another working directory
    if format == "npz":
        return CompressedFile(path, name), start, "npz"
    packed, is_npz = detect_compression(path, name, start)
    if is_npz and format is None:
        return packed, start, "npz"
    head = next(packed.pieces(_HEAD_BYTES), b"")
    return packed, head, format or _detect_format(packed, head)


def _detect_format(packed: CompressedFile, head: bytes) -> str:
    """Return the format that the first decompressed bytes show; other text is "csv".

    Known formats that are not supported, binary data, doubly compressed files and JSON lists raise
    a `TableError`.
    """
    for magic, format in _FORMAT_MAGIC.items():
        if head.startswith(magic):
            return format
    for magic, kind in _UNSUPPORTED_MAGIC.items():
        if head.startswith(magic):
            raise TableError(f"{packed.where}: it is {kind}. Save the table as CSV or Parquet.")
    if head.startswith(tuple(COMPRESSION_MAGIC)):
        raise TableError(f"{packed.where}: it is compressed twice. Unpack it once.")
    encoding = guess_encoding(packed, head)
    text = codecs.getincrementaldecoder(encoding)("replace").decode(head)
    text = text.removeprefix("\ufeff").lstrip()
    if text.startswith("{"):
        return "jsonl"
    if text.startswith("[") and text[1:].lstrip().startswith("{"):
        raise TableError(
            f"{packed.where}: it is one JSON list, which cannot be read in chunks. "
            "Write one object per line: jq -c '.[]' FILE > FILE.jsonl"
        )
    return "csv"


def _check_options(
    format: str, name: str, encoding: object, delimiter: object, header: object
) -> None:
    """Raise a `ParameterError` if an option is not None and does not apply to the format."""
    options: dict[str, object] = {}
    if format != "csv":
        options |= {"delimiter": delimiter, "header": header}
    if format not in ("csv", "jsonl"):
        options |= {"encoding": encoding}
    for option, value in options.items():
        if value is not None:
            raise ParameterError(
                f"{option}={value!r}, but {escape_text(name)} has the format {format}, to "
                "which it does not apply. Leave it out."
            )


def _list_table_files(folder: str, name: str, format: str | None) -> tuple[str, list[str]]:
    """Return the format and the sorted paths of the table files in a folder and its subfolders.

    `format` restricts the search to one format. An unfinished folder, a folder without table files,
    and a folder with both Parquet and CSV files raise a `TableError`.
    """
    where, paths = escape_text(name), list(_walk_files(Path(folder).resolve()))
    unfinished = [path for path in paths if Path(path).name == UNFINISHED_MARKER]
    if unfinished:
        raise TableError(
            f"{where}: the file {escape_text(unfinished[0])} marks the folder as not "
            "finished. Run the command that writes it again: it continues where it stopped."
        )
    files = {
        each: sorted(path for path in paths if path.lower().endswith(endings))
        for each, endings in _FOLDER_ENDINGS.items()
        if format in (None, each)
    }
    found = [each for each, matching in files.items() if matching]
    if not found:
        endings = " or ".join(_FOLDER_ENDINGS[each][0] for each in files)
        raise TableError(
            f"{where}: the folder holds no file that ends with {endings}. "
            "Pass a file, or a folder of Parquet or CSV files."
        )
    if len(found) > 1:
        raise TableError(
            f"{where}: the folder holds Parquet and CSV files, which are not one table. "
            "Pass --input-format parquet or csv."
        )
    return found[0], files[found[0]]


def is_table_file(path: Path) -> bool:
    """Return whether a file with this relative path in a folder would be read with the folder.

    It must end like a Parquet or CSV file. No part of the path may start with a dot or an
    underscore.

    >>> is_table_file(Path("year/a.csv.gz")), is_table_file(Path("_old/a.csv"))
    (True, False)
    """
    endings = tuple(ending for each in _FOLDER_ENDINGS.values() for ending in each)
    is_hidden = any(folder.startswith((".", "_")) for folder in path.parts)
    return not is_hidden and path.name.lower().endswith(endings)


def _walk_files(folder: Path) -> Iterator[str]:
    """Yield the paths of all files in a folder and its subfolders.

    Names that start with a dot or an underscore are skipped, except for `UNFINISHED_MARKER`. A
    folder that cannot be read raises an `OSError`.
    """
    for above, folders, names in os.walk(folder, onerror=_raise_error):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        for name in names:
            if name == UNFINISHED_MARKER or not name.startswith((".", "_")):
                yield str(Path(above, name))


def _raise_error(error: OSError) -> None:
    """Raise the error; passed to `os.walk`, which ignores errors otherwise."""
    raise error
