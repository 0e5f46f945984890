"""Open tables: find the format of a file or the files of a folder, and call its reader."""

from __future__ import annotations

import codecs
import itertools
import json
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from altbi.errors import ParameterError, TableError, escape_text, list_names, quote
from altbi.io._files import COMPRESSION_MAGIC, CompressedFile, detect_compression, guess_encoding
from altbi.io._source import Source
from altbi.io._text_file import TextOptions, open_text_file

# A file of this name marks a folder whose files are not complete yet.
UNFINISHED_MARKER = "_unfinished"

_FORMATS = ("csv", "jsonl", "parquet", "arrow", "npz", "npy", "excel")
_START_BYTES = 16
_HEAD_BYTES = 1 << 20
_MAX_OBJECT_BYTES = 1 << 24
_FORMAT_MAGIC = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow",
    b"\x93NUMPY": "npy",
}
_UNSUPPORTED_MAGIC = {
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
# Endings of files in a folder that may be tables, though they are not read with it.
_TEXT_ENDINGS = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson", ".arrow", ".feather", ".npy")
_TABLE_ENDINGS = (
    *(text + packed for text in _TEXT_ENDINGS for packed in _COMPRESSED_ENDINGS),
    *(".parquet", ".npz", ".xlsx", ".xlsm", ".xlsb", ".xls", ".ods", ".zip"),
)


def open_table(
    path: str | os.PathLike[str],
    *,
    format: Literal["csv", "jsonl", "parquet", "arrow", "npz", "npy", "excel"] | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    skip: int | None = None,
    name: str | None = None,
) -> Source:
    r"""Open a table in a file or folder.

    Format, compression, encoding and CSV dialect are detected from the first megabyte. JSON lines
    files are converted to a temporary Parquet file. Text files that are compressed, or not in
    UTF-8, are copied to a temporary file when they are first read. In a folder, files and folders
    whose names start with a dot or an underscore are ignored.

    Parameters
    ----------
    path : str or path
        A CSV, JSON lines, Arrow or npy file, plain or compressed (gzip, bz2, zstd, lz4, xz, zip); a
        Parquet or npz file; a workbook of Excel; or a folder of Parquet files or of CSV files with
        the same columns.
    format : {"csv", "jsonl", "parquet", "arrow", "npz", "npy", "excel"}, optional
        Format of the file. None detects it.
    encoding : str, optional
        Encoding of a text file. None detects it.
    delimiter : str, optional
        Delimiter of a CSV file. None detects it.
    header : bool, optional
        Whether the first line of a CSV file holds the column names. None detects it.
    skip : int, optional
        Number of lines above the table in a CSV file. None finds and skips title lines.
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
        raise ParameterError(f"format={quote(format)}, but expected one of {', '.join(_FORMATS)}.")
    path = os.fspath(path)
    name = name or path
    _check_exists(path, name)
    options = TextOptions(encoding, delimiter, header, skip)
    if Path(path).is_dir() and format in (None, "csv", "parquet"):
        found, paths, others = _list_table_files(path, name, format)
        _check_options(found, name, options)
        source = _open_folder(found, path, name, paths, options)
        source.notes += _describe_others(name, found, others)
        return source
    packed, head, found = _detect_file(path, name, format)
    _check_options(found, name, options)
    return _open_file(found, packed, head, options)


def _check_exists(path: str, name: str) -> None:
    """Raise a `TableError` for a missing file whose name is a web address or a pattern.

    Other missing files raise an error of their own when they are opened.
    """
    if os.path.lexists(path):
        return
    if "://" in path:
        raise TableError(
            f"{escape_text(name)}: it is a web address, but expected a file. Download it first."
        )
    if any(letter in path for letter in "*?["):
        raise TableError(
            f"{escape_text(name)}: no file has this name, and patterns are not expanded. Pass the "
            "folder of the files, or use open_sql (--sql \"select * from 'folder/*.parquet'\")."
        )


# The readers are imported where they are used, so that a run only imports one of them.


def _open_file(format: str, packed: CompressedFile, head: bytes, options: TextOptions) -> Source:
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
    if format == "excel":
        from altbi.io._excel import open_excel

        return open_excel(packed, header=options.header)
    file, notes = open_text_file(packed, options.encoding)
    if format == "jsonl":
        from altbi.io._json_lines import open_json_lines

        return open_json_lines(file, notes)
    from altbi.io._csv import open_csv

    return open_csv(file, notes, options)


def _open_folder(
    format: str, path: str, name: str, paths: list[str], options: TextOptions
) -> Source:
    """Open the Parquet or CSV files `paths` of a folder as one table, called `name` in messages."""
    if format == "parquet":
        from altbi.io._parquet import open_parquet_folder

        return open_parquet_folder(path, name, paths)
    from altbi.io._csv_folder import open_csv_folder

    return open_csv_folder(path, name, paths, options)


def _detect_file(path: str, name: str, format: str | None) -> tuple[CompressedFile, bytes, str]:
    """Return the file with its compression, its first decompressed bytes, and its format.

    A format that the user states is not verified. The bytes of npz archives and workbooks are not
    decompressed.
    A file that cannot be read twice, such as a pipe, raises a `TableError`.
    """
    mode = Path(path).stat().st_mode
    # Opening a pipe would wait until somebody writes to it.
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise TableError(
            f"{escape_text(name)}: it cannot be read twice, because it is not a regular "
            "file. Write it to a file first, or pass it on standard input."
        )
    with Path(path).open("rb") as file:
        start = file.read(_START_BYTES)
    path = str(Path(path).absolute())  # a worker may have another working directory
    if format in ("npz", "excel"):
        return CompressedFile(path, name), start, format
    packed, archive = detect_compression(path, name, start)
    if archive and format is None:
        return packed, start, archive
    head = next(packed.pieces(_HEAD_BYTES), b"")
    return packed, head, format or _detect_format(packed, head)


def _detect_format(packed: CompressedFile, head: bytes) -> str:
    """Return the format that the first decompressed bytes show; other text is "csv".

    Formats that are not supported, binary data and doubly compressed files raise a `TableError`.
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
        _check_not_wrapped(packed, encoding, text)
    is_array = text.startswith("[") and text[1:].lstrip().startswith("{")
    return "jsonl" if text.startswith("{") or is_array else "csv"


def _check_not_wrapped(packed: CompressedFile, encoding: str, head: str) -> None:
    """Raise a `TableError` for JSON that is one object, of which one key has the rows.

    This key has a list of several objects, and no other key has a list of objects. Files of more
    than 16 MiB are not checked. `head` is the start of the file.
    """
    line, _, below = head.partition("\n")
    if line.rstrip().endswith("}") and below.strip():  # more than one object
        return
    data = b"".join(itertools.islice(packed.pieces(_HEAD_BYTES), _MAX_OBJECT_BYTES // _HEAD_BYTES))
    try:
        found = json.loads(data.decode(encoding, "replace").removeprefix("\ufeff"))
    except (ValueError, RecursionError):  # several lines, or not JSON: its reader finds out
        return
    lists = {
        key: value
        for key, value in found.items()
        if isinstance(value, list) and value and all(isinstance(row, dict) for row in value)
    }
    if len(lists) == 1 and len(next(iter(lists.values()))) > 1:
        raise TableError(
            f"{packed.where}: it is one JSON object, whose key {quote(next(iter(lists)))} has the "
            "rows. Write this array into a file of its own, or one object in each line."
        )


def _check_options(format: str, name: str, stated: TextOptions) -> None:
    """Raise a `ParameterError` if an option was passed that does not apply to the format."""
    options: dict[str, object] = {}
    if format != "csv":
        options |= {"delimiter": stated.delimiter, "skip": stated.skip}
    if format not in ("csv", "excel"):
        options |= {"header": stated.header}
    if format not in ("csv", "jsonl"):
        options |= {"encoding": stated.encoding}
    if stated.skip is not None and stated.skip < 0:
        raise ParameterError(f"skip={stated.skip}, but expected a number of lines of at least 0.")
    for option, value in options.items():
        if value is not None:
            raise ParameterError(
                f"{option}={quote(value)}, but {escape_text(name)} has the format {format}, to "
                "which it does not apply. Leave it out."
            )


def _list_table_files(
    folder: str, name: str, format: str | None
) -> tuple[str, list[str], list[str]]:
    """Return the format and the sorted paths of the table files in a folder and its subfolders.

    The third value has the other files that may be tables, relative to the folder. `format`
    restricts the search to one format. An unfinished folder, a folder without table files,
    and a folder with both Parquet and CSV files raise a `TableError`.
    """
    where, root = escape_text(name), Path(folder).resolve()
    paths = sorted(_walk_files(root))
    unfinished = [path for path in paths if Path(path).name == UNFINISHED_MARKER]
    if unfinished:
        raise TableError(
            f"{where}: the file {escape_text(unfinished[0])} marks the folder as not "
            "finished. Run the command that writes it again: it continues where it stopped."
        )
    files = {
        each: [path for path in paths if path.lower().endswith(endings)]
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
    chosen = files[found[0]]
    tables = {path for path in paths if path.lower().endswith(_TABLE_ENDINGS)}
    others = [str(Path(path).relative_to(root)) for path in sorted(tables - set(chosen))]
    return found[0], chosen, others


def _describe_others(name: str, format: str, others: Sequence[str]) -> Iterator[str]:
    """Yield a note on the files in a folder that may be tables, and were not read, if any."""
    if others:
        kind = {"csv": "CSV", "parquet": "Parquet"}[format]
        yield (
            f"Only the {kind} files of the folder {escape_text(name)} were read, but not "
            f"{list_names(others)}. To read them too, save them as {kind}."
        )


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
