"""Open a table, whatever its format and compression."""

import os
from collections.abc import Callable
from pathlib import Path

from altbi._terminal import printable
from altbi.errors import ParameterError, TableError
from altbi.io._arrow import open_arrow
from altbi.io._compressed import CompressedFile
from altbi.io._csv import open_csv
from altbi.io._encodings import detect_encoding
from altbi.io._folders import open_csv_folder, table_files
from altbi.io._formats import FORMATS, detect_compression, detect_format
from altbi.io._json_lines import open_json_lines
from altbi.io._npz import open_npy, open_npz
from altbi.io._parquet import open_parquet, open_parquet_folder
from altbi.io._source import Source

__all__ = ["open_table"]

_HEAD = 1 << 20
_START = 16


def open_table(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    name: str | None = None,
) -> Source:
    """Open a table in a file.

    Format, compression, encoding and dialect are told by the content. Only CSV and JSON lines are
    looked through at once, in bounded memory; all others say themselves what they hold.

    Parameters
    ----------
    path : str or path
        A file: CSV, JSON lines, Arrow or npy, as it is or compressed (gzip, bz2, zstd, lz4, xz,
        zip); Parquet or npz; or a folder of Parquet files, or of CSV files with the same columns.
    format : str, optional
        "csv", "jsonl", "parquet", "arrow", "npz" or "npy", when it is known better.
    encoding : str, optional
        The encoding of a text file.
    delimiter : str, optional
        What separates the cells of a CSV file.
    header : bool, optional
        Whether the first line of a CSV file holds the names of the columns.
    name : str, optional
        What messages call the file; by default its path.

    Returns
    -------
    Source
        The table.

    Raises
    ------
    TableError
        The file is no table, or a broken one.
    OSError
        The file is not there, or may not be read.
    """
    if format not in (None, *FORMATS):
        raise ParameterError(f"format={format!r}, but expected one of {', '.join(FORMATS)}.")
    place, shown = os.fspath(path), name or os.fspath(path)
    if Path(place).is_dir() and format in (None, "csv", "parquet"):
        found, paths = table_files(place, shown, format)
        _only_for(found, shown, encoding, delimiter, header)
        if found == "parquet":
            return open_parquet_folder(place, shown, paths)
        return open_csv_folder(
            place, shown, paths, encoding=encoding, delimiter=delimiter, header=header
        )
    packed, head, found = _look(place, shown, format)
    _only_for(found, shown, encoding, delimiter, header)
    if found in _BY_ITSELF:
        return _BY_ITSELF[found](packed, head)
    settled, notes = detect_encoding(packed, head, encoding)
    if found == "jsonl":
        return open_json_lines(packed, settled, notes)
    return open_csv(packed, settled, notes, delimiter=delimiter, header=header)


def _look(path: str, name: str, format: str | None) -> tuple[CompressedFile, bytes, str]:
    """Give the file, its unpacked head, and its format."""
    with Path(path).open("rb") as file:
        if not file.seekable():
            raise TableError(
                f"{printable(name)}: it cannot be read twice, since it is no regular file. "
                "Write it to a file first, or pass it on standard input."
            )
        start = file.read(_START)
    path = str(Path(path).absolute())  # it may be read from elsewhere
    packed, found = (
        (CompressedFile(path, name), "npz")
        if format == "npz"
        else detect_compression(path, name, start)
    )
    if found == "npz" and format in (None, "npz"):
        return packed, start, "npz"
    head = next(packed.pieces(_HEAD), b"")
    return packed, head, format or detect_format(packed, head)


def _only_for(format: str, name: str, encoding: object, delimiter: object, header: object) -> None:
    """Refuse options that would change nothing."""
    texts = {"encoding": encoding} if format not in ("csv", "jsonl") else {}
    lines = {"delimiter": delimiter, "header": header} if format != "csv" else {}
    for option, value in (texts | lines).items():
        if value is not None:
            raise ParameterError(
                f"{option}={value!r}, but {printable(name)} is of the format {format}, which "
                "has no such thing. Leave it out."
            )


def _parquet(packed: CompressedFile, _: bytes) -> Source:
    if packed.compression:
        raise TableError(
            f"{packed.where}: it is a Parquet file within {packed.compression}, which cannot be "
            "read in pieces. Unpack it; Parquet compresses by itself."
        )
    return open_parquet(packed.path, packed.name)


_BY_ITSELF: dict[str, Callable[[CompressedFile, bytes], Source]] = {
    "parquet": _parquet,
    "arrow": open_arrow,
    "npy": lambda packed, _: open_npy(packed),
    "npz": lambda packed, _: open_npz(packed),
}
