"""Rows of CSV files by Python's csv module, which is slow, for files that Arrow may misread.

Arrow cuts a file into blocks at newlines, so newlines in quotes need care. It ends a quoted value
at any quote, and takes spaces before a quote for a part of the value. Errors found here have the
line in which a record starts.
"""

import csv
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TextIO, final

import numpy as np
import pyarrow as pa

from altbi.errors import TableError, describe_cause
from altbi.io._csv_dialect import Dialect, Layout, Record
from altbi.io._files import LINE_BYTES
from altbi.io._source import BATCH_BYTES, BATCH_ROWS
from altbi.io._text_file import TextFile

_BLOCK_BYTES = 1 << 20


class EncodingError(TableError):
    """The error for a file that is not UTF-8."""


def needs_python(path: str, dialect: Dialect) -> bool:
    """Return whether Arrow might find other rows in a file than Python.

    It finds the same if all newlines are of one kind and stand outside of quotes, and quotes are
    around values only. Arrow removes backslashes outside of quotes as well.
    """
    newlines: set[str] = set()
    for block in () if dialect.escape else _read_lines_in_blocks(path):
        newlines |= _find_newlines(block)
        if len(newlines) > 1 or _has_unsafe_quotes(block, dialect):
            return True
    return dialect.escape


def _read_lines_in_blocks(path: str) -> Iterator[bytes]:
    """Yield the bytes of a file in blocks that end with a line, or that are one part of a line."""
    rest = b""
    with Path(path).open("rb") as file:
        while piece := file.read(_BLOCK_BYTES):
            block = rest + piece
            # A last "\r" may be the first half of a newline.
            end = max(block.rfind(b"\n"), block.rfind(b"\r", 0, -1)) + 1
            if end == 0 and len(block) > LINE_BYTES:
                end = len(block)
            yield block[:end]
            rest = block[end:]
    yield rest


def _find_newlines(block: bytes) -> set[str]:
    """Return the kinds of newlines in a block."""
    n_both = block.count(b"\r\n")
    counts = {"\r\n": n_both, "\r": block.count(b"\r") - n_both, "\n": block.count(b"\n") - n_both}
    return {kind for kind, count in counts.items() if count}


def _has_unsafe_quotes(block: bytes, dialect: Dialect) -> bool:
    """Return whether quotes in whole lines hold a newline, or are not around a value."""
    if dialect.quote.encode() not in block:
        return False
    letters = np.frombuffer(block, np.uint8)
    quotes = np.flatnonzero(letters == ord(dialect.quote))
    newlines = np.flatnonzero((letters == ord("\n")) | (letters == ord("\r")))
    # An odd number of quotes precedes what is inside of quotes.
    if len(quotes) % 2 or (np.searchsorted(quotes, newlines) % 2).any():
        return True
    # Beside a quote around a value is an end of the value. Two quotes inside stand for one.
    is_end = np.zeros(256, dtype=bool)
    is_end[[ord(letter) for letter in ("\n", "\r", dialect.delimiter, dialect.quote)]] = True
    opening, closing = quotes[::2], quotes[1::2]
    before = letters[opening[opening > 0] - 1]
    after = letters[closing[closing < len(letters) - 1] + 1]
    return not (is_end[before].all() and is_end[after].all())


def read_by_python(
    file: TextFile, layout: Layout, width: int, indices: Sequence[int], notes: list[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the columns with these indices, at least one, as text in record batches.

    All newlines end a line, whatever their kind; a note is added if there are several. Records that
    have another number of values than `width`, open quotes and lines of more than `LINE_BYTES`
    letters raise a `TableError`.
    """
    names = [f"c{index}" for index in indices]
    newlines: set[str] = set()
    with Path(file.path).open(encoding="utf-8-sig", newline="") as text:
        lines = _Lines(file.packed.where, text, layout.dialect, layout.n_lines)
        rows = _read_rows(lines, layout, width, newlines)
        while chunk := list(_take_chunk(rows)):
            columns = [pa.array([row[index] for row in chunk], pa.string()) for index in indices]
            yield pa.RecordBatch.from_arrays(columns, names=names)
    note = f"{file.packed.where} has newlines of several kinds; all of them end a line."
    if len(newlines) > 1 and note not in notes:
        notes.append(note)


def normalize(where: str, text: str, dialect: Dialect) -> str:
    """Return a text as `read_by_python` splits it: without backslashes before quotes, for example.

    `where` is the name of the file in messages.
    """
    return "".join(_Lines(where, io.StringIO(text, newline=""), dialect, 0))


def _take_chunk(rows: Iterator[Record]) -> Iterator[Record]:
    """Yield the next rows, at most `BATCH_ROWS` and about `BATCH_BYTES` letters."""
    size = 0
    for row in itertools.islice(rows, BATCH_ROWS):
        yield row
        size += sum(map(len, row))
        if size > BATCH_BYTES:
            return


def _read_rows(lines: "_Lines", layout: Layout, width: int, newlines: set[str]) -> Iterator[Record]:
    """Yield the values of each row; blank lines are no rows.

    The newlines that end a row are added to `newlines`. Errors are those of `read_by_python`.
    """
    where, n_lines = lines.where, layout.n_lines
    # The lines have doubled quotes instead of backslashes.
    reader = replace(layout.dialect, escape=False).read(lines, strict=True)
    line = n_lines + 1
    try:
        for number, row in enumerate(reader):
            newlines.add(lines.newline)
            if row and number >= layout.n_records:
                # Empty values after the last one are accepted.
                if len(row) < width or any(row[width:]):
                    raise _build_width_error(where, line, len(row), width, layout.dialect)
                yield row
            line = n_lines + reader.line_num + 1
    except csv.Error as cause:
        raise TableError(
            f"{where}: line {line} has a quote that is not closed properly, or a value of more "
            f"than 131,072 letters ({describe_cause(cause)}). Close or double the quote, or "
            "shorten the value."
        ) from cause
    except UnicodeDecodeError as cause:
        raise EncodingError(
            f"{where}: line {line} or later cannot be read as utf-8. Pass the right --encoding."
        ) from cause


@final
class _Lines:
    """The lines of a text, in which quotes are doubled instead of escaped by backslashes.

    There are no spaces around quoted values. A line of more than `LINE_BYTES` letters raises a
    `TableError`. `where` is the name of the file in messages.
    """

    newline = ""  # of the last line that ended with one

    def __init__(self, where: str, text: TextIO, dialect: Dialect, n_skipped: int) -> None:
        self.where = where
        self._text = text
        self._dialect = dialect
        before, letters, closing, after = _build_patterns(dialect)
        self._value = re.compile(f"({before})({letters})({closing}){after}")
        self._list_closing = re.compile(f"{before}{letters}({closing})").findall
        self._escapes = re.compile(r"\\(.)", re.DOTALL)
        self._is_inside = False  # whether a quote is open at the start of the next line
        self._number = 0
        for _ in range(n_skipped):
            self._read_line()

    def __iter__(self) -> "_Lines":
        """Return the lines themselves."""
        return self

    def __next__(self) -> str:
        """Return the next line with its newline."""
        line = self._read_line()
        if not line:
            raise StopIteration
        quote, escape = self._dialect.quote, self._dialect.escape
        if quote not in line and not (self._is_inside and escape):
            return line
        # A value that an earlier line opens is completed to a quoted value.
        start = f"{quote}x" if self._is_inside else ""
        if escape or f" {quote}" in line or f"{quote} " in line:
            self._is_inside = False
            return self._value.sub(self._normalize_value, start + line)[len(start) :]
        # Most lines stay as they are, and need no call for each value.
        self._is_inside = self._list_closing(start + line)[-1:] == [""]
        return line

    def _normalize_value(self, found: re.Match[str]) -> str:
        """Return a quoted value and the delimiter before it, without the spaces around quotes.

        Quotes inside of it are doubled instead of escaped. Only the last value of a line may be
        without its second quote.
        """
        before, letters, closing = found.groups()
        self._is_inside = not closing
        if self._dialect.escape:
            letters = self._escapes.sub(self._replace_backslash, letters)
        if self._dialect.delimiter != " ":
            before = before.replace(" ", "")
        return f"{before}{letters}{closing}"

    def _replace_backslash(self, found: re.Match[str]) -> str:
        """Return a doubled quote for an escaped one, and a backslash for an escaped one.

        Other backslashes are letters.
        """
        quote = self._dialect.quote
        return {quote: quote * 2, "\\": "\\"}.get(found[1], found[0])

    def _read_line(self) -> str:
        """Return the next line with its newline as it is, or the empty text at the end."""
        line = self._text.readline(LINE_BYTES)
        self._number += 1
        if line.endswith("\n"):
            self.newline = "\r\n" if line.endswith("\r\n") else "\n"
        elif line.endswith("\r"):
            self.newline = "\r"
        elif len(line) == LINE_BYTES:
            raise build_length_error(f"{self.where}: line {self._number}")
        return line


def _build_patterns(dialect: Dialect) -> tuple[str, str, str, str]:
    """Return the patterns of the pieces of a quoted value, which follows a delimiter or none.

    They are the start with the first quote, the letters, the second quote, if it is there, and the
    spaces after it. The letters end at the first quote that is neither doubled nor escaped. Quotes
    inside of other values open nothing. There are no spaces around values if they are delimiters.
    """
    delimiter, quote = re.escape(dialect.delimiter), dialect.quote
    spaces = "" if dialect.delimiter == " " else " *"
    letters = rf"(?:[^{quote}]++|{quote}{quote})*+"
    if dialect.escape:
        letters = rf"(?:[^\\{quote}]++|{quote}{quote}|\\(?s:.))*+"
    after = rf"(?:{spaces}(?={delimiter}|[\r\n]|\Z))?"
    return rf"(?:\A|{delimiter}){spaces}{quote}", letters, f"{quote}?", after


def _build_width_error(
    where: str, line: int, found: int, expected: int, dialect: Dialect
) -> TableError:
    """Return the error for a record with another number of values than the first one."""
    if found > expected:
        action = f"Put quotes around the cells that hold the delimiter {dialect.delimiter!r}"
    else:
        action = "If it is a footer, remove it. Otherwise complete the line"
    return TableError(
        f"{where}: line {line} has {found} cells, but expected {expected} as in the first line. "
        f"{action}, or pass the right --delimiter. If the table starts below it, pass --skip."
    )


def build_length_error(where: str) -> TableError:
    """Return the error for a line that is too long; `where` names the file and the line."""
    return TableError(
        f"{where} is longer than {LINE_BYTES >> 20} MiB, or a quote that opens there is never "
        "closed. Shorten its values, or close the quote."
    )
