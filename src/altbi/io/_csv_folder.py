"""Folders of CSV files with the same columns, which form one table."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import final

import pyarrow as pa

from altbi.errors import TableError, escape_text, list_names
from altbi.io._csv import CsvSource, NoRowsError, open_csv
from altbi.io._files import CompressedFile, detect_compression
from altbi.io._source import Source
from altbi.io._text_file import TextOptions, open_text_file

_START_BYTES = 16


@final
class CsvFolder(Source):
    """The rows of several CSV files with the same columns, read one file after the other.

    The `name` of each file is set to that of the folder, because it is a partition of this source.
    """

    format = "csv"
    is_untyped = True

    def __init__(self, name: str, files: Sequence[CsvSource]) -> None:
        self.name = name
        self.paths = tuple(path for file in files for path in file.paths)
        self.schema = files[0].schema
        self.notes = [note for file in files for note in file.notes]
        self._files = files
        for file in files:
            file.name = name
            file.notes = self.notes  # one list, because reading a file may add notes

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield these columns as text, file by file."""
        for file in self._files:
            yield from file.batches(columns)

    def partitions(self, max_rows: int) -> Sequence[Source]:
        """Return one source per file; files are not divided, so `max_rows` is ignored.

        The encoding of all files is checked.
        """
        return [each for file in self._files for each in file.partitions(max_rows)]


def _open_like(first: CsvSource, packed: CompressedFile, options: TextOptions) -> CsvSource:
    """Open another file of a folder with the delimiter and header of the first one.

    Other columns raise a `TableError`. A file without rows is accepted.
    """
    layout, names = first.layout, first.schema.names
    file, notes = open_text_file(packed, options.encoding)
    same = replace(options, delimiter=layout.dialect.delimiter, header=layout.has_header)
    try:
        source = open_csv(file, notes, same)
    except NoRowsError as error:
        source = CsvSource(file, layout, names)
        found = error.names or names
    else:
        found = source.schema.names
    if found != names:
        raise TableError(
            f"{packed.where}: its columns are {list_names(found)}, but expected "
            f"{list_names(names)} as in {first.file.packed.where}. Write the same header into "
            "all files of the folder."
        )
    return source


def open_csv_folder(
    folder: str, name: str, paths: Sequence[str], options: TextOptions
) -> CsvFolder:
    """Open CSV files with the encoding, delimiter and columns of the first file with rows.

    `name` is the folder in messages. Options that are None are detected. Files with other columns,
    and a folder without rows, raise a `TableError`.
    """
    base = Path(folder).resolve()
    files = []
    for path in paths:
        with Path(path).open("rb") as file:
            start = file.read(_START_BYTES)
        in_messages = str(Path(name, Path(path).relative_to(base)))
        files.append(detect_compression(path, in_messages, start)[0])
    for packed in files:
        text, notes = open_text_file(packed, options.encoding)
        try:
            first = open_csv(text, notes, options)
        except NoRowsError:
            continue
        sources = [
            first if other == packed else _open_like(first, other, options) for other in files
        ]
        return CsvFolder(name, sources)
    raise TableError(f"{escape_text(name)}: none of its {len(files)} CSV files holds a row.")
