"""Folders whose files are one table: which files those are, and CSV files below one another."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import final

import pyarrow as pa

from altbi._terminal import printable
from altbi.errors import TableError
from altbi.io._compressed import CompressedFile
from altbi.io._csv import CsvSource, NoRowsError, open_csv, open_csv_like
from altbi.io._encodings import detect_encoding
from altbi.io._formats import detect_compression
from altbi.io._source import Source

__all__ = ["UNFINISHED_MARKER", "CsvFolder", "is_table_file", "open_csv_folder", "table_files"]

# A file of this name says that the files beside it are not all there yet.
UNFINISHED_MARKER = "_unfinished"
_PACKED = ("", ".gz", ".bz2", ".zst", ".lz4", ".xz", ".zip")
_ENDINGS = {
    "parquet": (".parquet",),
    "csv": tuple(text + packed for text in (".csv", ".tsv") for packed in _PACKED),
}
_START, _HEAD = 16, 1 << 20


@final
class CsvFolder(Source):
    """CSV files with the same columns, one below the other.

    Parameters
    ----------
    name : str
        What messages call it.
    files : sequence of CsvSource
        The files, in the order of their rows.
    notes : list of str
        What was assumed.
    """

    format = "csv"
    loose = True

    def __init__(self, name: str, files: Sequence[CsvSource], notes: list[str]) -> None:
        self.name = name
        self.paths = tuple(path for file in files for path in file.paths)
        self.schema = files[0].schema
        self.notes = notes
        self._files = files
        for file in files:
            file.name = name

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns, file by file."""
        for file in self._files:
            yield from file.batches(columns)

    def partitions(self, most_rows: int) -> Sequence[Source]:
        """Give the files."""
        return self._files


def table_files(folder: str, name: str, format: str | None) -> tuple[str, list[str]]:
    """Find the files of a table, and their format; a folder that is being written is refused."""
    where, paths = printable(name), list(_walked(Path(folder).resolve()))
    unfinished = [path for path in paths if Path(path).name == UNFINISHED_MARKER]
    if unfinished:
        raise TableError(
            f"{where}: {printable(unfinished[0])} says that the folder is not finished. Run the "
            "command again that writes it: it goes on from what is there."
        )
    found = {
        kind: sorted(path for path in paths if path.lower().endswith(endings))
        for kind, endings in _ENDINGS.items()
        if format in (None, kind)
    }
    kinds = [kind for kind, files in found.items() if files]
    if not kinds:
        ends = " or ".join(_ENDINGS[kind][0] for kind in found)
        raise TableError(
            f"{where}: the folder holds no file that ends with {ends}. "
            "Give a file, or a folder of Parquet or CSV files."
        )
    if len(kinds) > 1:
        raise TableError(
            f"{where}: the folder holds Parquet and CSV files, which are not one table. "
            "Say which: --input-format parquet or csv."
        )
    return kinds[0], found[kinds[0]]


def open_csv_folder(
    folder: str,
    name: str,
    paths: Sequence[str],
    *,
    encoding: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
) -> CsvFolder:
    """Tell encoding, dialect and columns by the first file with rows; the others must have them."""
    base = Path(folder).resolve()
    files = [_packed(path, str(Path(name, Path(path).relative_to(base)))) for path in paths]
    for packed in files:
        with packed.opened() as stream:
            head = stream.read(_HEAD)
        settled, notes = detect_encoding(packed, head, encoding)
        try:
            first = open_csv(packed, settled, notes, delimiter=delimiter, header=header)
        except NoRowsError:
            continue
        sources = [first if file == packed else open_csv_like(first, file) for file in files]
        return CsvFolder(name, sources, first.notes)
    raise TableError(f"{printable(name)}: none of its {len(files)} CSV files holds a row.")


def _packed(path: str, name: str) -> CompressedFile:
    with Path(path).open("rb") as file:
        start = file.read(_START)
    packed, _ = detect_compression(path, name, start)
    return packed


def is_table_file(path: Path) -> bool:
    """Tell whether a file in this place below a folder would be read with it.

    >>> is_table_file(Path("year/a.csv.gz")), is_table_file(Path("_old/a.csv"))
    (True, False)
    """
    endings = tuple(ending for each in _ENDINGS.values() for ending in each)
    hidden = any(part.startswith((".", "_")) for part in path.parts)
    return not hidden and path.name.lower().endswith(endings)


def _walked(folder: Path) -> Iterator[str]:
    """Find all files; names with a dot or an underscore in front are not data."""
    for above, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        for name in names:
            if name == UNFINISHED_MARKER or not name.startswith((".", "_")):
                yield str(Path(above, name))


def _raise(error: OSError) -> None:
    raise error
