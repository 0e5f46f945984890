"""Rows of CSV files by Python's csv module, which is slow, for files that DuckDB refuses.

DuckDB's threads start in the middle of a file, and some of them may take a quoted value for rows.
With one thread, DuckDB drops rows after a quote that is never closed. Errors found here have the
line in which a record starts.
"""

import csv
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

import pyarrow as pa

from altbi.errors import TableError
from altbi.io._csv_dialect import Dialect, Layout, Record
from altbi.io._files import LINE_BYTES, describe_cause
from altbi.io._source import BATCH_BYTES, BATCH_ROWS
from altbi.io._text_file import TextFile


def read_by_python(
    file: TextFile, layout: Layout, width: int, indices: Sequence[int], notes: list[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the columns with these indices, at least one, as text in record batches.

    All newlines end a line, whatever their kind; a note is added if there are several. Records that
    have another number of values than `width`, open quotes and lines of more than `LINE_BYTES`
    letters raise a `TableError`.
    """
    names = [f"c{index}" for index in indices]
    with Path(file.path).open(encoding="utf-8", newline="") as text:
        rows = _read_rows(file.packed.where, text, layout, width)
        while chunk := list(_take_chunk(rows)):
            columns = [pa.array([row[index] for row in chunk], pa.string()) for index in indices]
            yield pa.RecordBatch.from_arrays(columns, names=names)
        note = f"{file.packed.where} has newlines of several kinds; all of them end a line."
        if isinstance(text.newlines, tuple) and note not in notes:
            notes.append(note)


def _take_chunk(rows: Iterator[Record]) -> Iterator[Record]:
    """Yield the next rows, at most `BATCH_ROWS` and about `BATCH_BYTES` letters."""
    size = 0
    for row in itertools.islice(rows, BATCH_ROWS):
        yield row
        size += sum(map(len, row))
        if size > BATCH_BYTES:
            return


def _read_rows(where: str, text: TextIO, layout: Layout, width: int) -> Iterator[Record]:
    """Yield the values of each row; blank lines are no rows.

    `where` is the name of the file in messages. Errors are those of `read_by_python`.
    """
    n_lines = layout.n_lines
    lines = itertools.islice(_read_lines(where, text), n_lines, None)
    reader = layout.dialect.read(lines, strict=True)
    line = n_lines + 1
    try:
        for number, row in enumerate(reader):
            if row and number >= layout.n_records:
                # An empty value after a last delimiter is accepted, as by DuckDB.
                if len(row) < width or row[width:] not in ([], [""]):
                    raise _build_width_error(where, line, len(row), width, layout.dialect)
                yield [_remove_spaced_quotes(value, layout.dialect.quote) for value in row]
            line = n_lines + reader.line_num + 1
    except csv.Error as cause:
        raise TableError(
            f"{where}: line {line} has a quote that is not closed properly, or a value of more "
            f"than 131,072 letters ({describe_cause(cause)}). Close or double the quote, or "
            "shorten the value."
        ) from cause
    except UnicodeDecodeError as cause:
        raise TableError(
            f"{where}: line {line} or later cannot be read as utf-8. Pass the right --encoding."
        ) from cause


def _remove_spaced_quotes(value: str, quote: str) -> str:
    """Return a value without the quotes around it if a space precedes them, as DuckDB reads it."""
    if not value.startswith(" ") or quote not in value:
        return value
    bare = value.strip(" ")
    is_quoted = len(bare) > 1 and bare[0] == bare[-1] == quote
    return bare[1:-1].replace(quote * 2, quote) if is_quoted else value


def _read_lines(where: str, text: TextIO) -> Iterator[str]:
    """Yield the lines of a text; one of more than `LINE_BYTES` letters raises a `TableError`."""
    number = 1
    while line := text.readline(LINE_BYTES):
        if len(line) == LINE_BYTES and not line.endswith(("\n", "\r")):
            raise build_length_error(f"{where}: line {number}")
        yield line
        number += 1


def _build_width_error(
    where: str, line: int, found: int, expected: int, dialect: Dialect
) -> TableError:
    """Return the error for a record with another number of values than the first one."""
    return TableError(
        f"{where}: line {line} has {found} cells, but expected {expected} as in the first line. "
        f"Put quotes around the cells that hold the delimiter {dialect.delimiter!r}, or pass the "
        "right --delimiter. If the table starts below it, pass --skip."
    )


def build_length_error(where: str) -> TableError:
    """Return the error for a line that is too long; `where` names the file and the line."""
    return TableError(
        f"{where} is longer than {LINE_BYTES >> 20} MiB, or a quote that opens there is never "
        "closed. Shorten its values, or close the quote."
    )
