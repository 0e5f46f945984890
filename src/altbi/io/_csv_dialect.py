"""The dialect of a CSV file, from its first lines: its delimiter, quotes and escapes.

Arrow does not detect them, and DuckDB's detection skips lines at the start that it does not
understand, and takes the decimal commas in ``1,5;2,5`` for delimiters.
"""

import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from altbi.errors import ParameterError, quote

if TYPE_CHECKING:
    from _csv import Reader

_DELIMITERS = (",", "\t", ";", "|")
_NAMED = {"tab": "\t", "\\t": "\t", "space": " "}
_HEAD_RECORDS = 500
_EDGE = r"[,;\t|\r\n]"
NUMBER = re.compile(r"\s*[+-]?(\d+([.,]\d*)?|[.,]\d+|inf(inity)?)(e[+-]?\d+)?\s*%?\s*", re.I)
DATE = re.compile(r"\s*(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3\d{4})\b.*")

Record = list[str]


@dataclass(frozen=True, slots=True)
class Dialect:
    """The delimiter, quote and escape letters of a CSV file."""

    delimiter: str
    quote: str = '"'  # encloses delimiters and newlines; doubled quotes stand for one quote
    escape: bool = False  # whether a backslash makes the next letter an ordinary one

    def split(self, text: str) -> Iterator[Record]:
        r"""Yield the values of each record, an empty list for a blank line.

        It stops before a value of more than 131,072 letters.

        >>> list(Dialect(";").split('a;b\n"x\n";1,5\n'))
        [['a', 'b'], ['x\n', '1,5']]
        """
        try:
            yield from self.read(io.StringIO(text, newline=""))
        except csv.Error:
            return

    def split_head(self, text: str, limit: int) -> tuple[list[Record], bool]:
        """Return the first records of a text, and whether all of them up to `limit` were split.

        They are not if there is a value of more than 131,072 letters.
        """
        records: list[Record] = []
        try:
            for record in itertools.islice(self.read(io.StringIO(text, newline="")), limit):
                records.append(record)
        except csv.Error:
            return records, False
        return records, True

    def read(self, lines: Iterable[str], *, strict: bool = False) -> "Reader":
        """Return a reader of Python's that yields the values of each record in some lines.

        If it is `strict`, quotes that are not closed properly raise a `csv.Error`.
        """
        return csv.reader(
            lines,
            strict=strict,
            delimiter=self.delimiter,
            quotechar=self.quote,
            doublequote=not self.escape,
            escapechar="\\" if self.escape else None,
        )


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the rows of a CSV file start, and how they are written."""

    dialect: Dialect
    n_lines: int  # lines above the table that the user states
    n_records: int  # records below them and above the first row, blank lines included
    has_header: bool  # whether the last of them holds the column names


def detect_dialect(head: str, delimiter: str | None = None) -> Dialect:
    r"""Return the dialect that the first lines of a file show.

    `delimiter` overrides the detected one; if it is invalid, it raises a `ParameterError`.
    Backslashes are escapes only if one precedes a quote inside of a value.

    >>> detect_dialect("a;b\n1,5;2,5\n").delimiter
    ';'
    """
    quote = _find_quote(head)
    # A backslash escapes the next letter if it precedes a quote inside of a value.
    inner_quote = quote + r"(?![,;\t|\r\n" + quote + r"]|\Z)"
    escape = re.search(r"\\" + inner_quote, head) is not None
    if delimiter is not None:
        return Dialect(_parse_delimiter(delimiter), quote, escape)
    return Dialect(_find_delimiter(head, quote, escape), quote, escape)


def _parse_delimiter(delimiter: str) -> str:
    r"""Return a delimiter as one character; "tab", "\t" and "space" are accepted as names.

    A quote, a backslash, a newline and anything but one ASCII character raise a `ParameterError`.
    """
    letter = _NAMED.get(delimiter, delimiter)
    if len(letter) != 1 or not letter.isascii() or letter in "\r\n\"'\\\0":
        raise ParameterError(
            f"delimiter={quote(delimiter)}, but expected one letter such as ',' or ';', or 'tab'."
        )
    return letter


def _find_quote(head: str) -> str:
    """Return the quote character of a file: a double quote or an apostrophe.

    It is the apostrophe only if no value starts with a double quote. In addition, some values must
    start with an apostrophe, and all of these must end with one.
    """
    before = rf"(?:\A|(?<={_EDGE}))"
    if re.search(before + '"', head):
        return '"'
    opened = len(re.findall(before + "'", head))
    closed = len(re.findall(rf"{before}'(?:[^'\r\n]|'')*+'(?={_EDGE}|\Z)", head))
    return "'" if opened == closed > 0 else '"'


def _find_delimiter(head: str, quote: str, escape: bool) -> str:
    """Return the comma, tab, semicolon or bar that splits most records into equally many values.

    It must split at least half of the first 500 records into the same number of values, above one;
    the default is the comma. Ties go to the delimiter with more values. A comma loses against an
    equally consistent delimiter if commas are decimal.
    """
    ranks: dict[str, tuple[float, int]] = {}
    for delimiter in _DELIMITERS:
        widths = count_values(
            itertools.islice(Dialect(delimiter, quote, escape).split(head), _HEAD_RECORDS)
        )
        width, times = Counter(widths).most_common(1)[0] if widths else (1, 0)
        if width > 1 and 2 * times >= len(widths):
            ranks[delimiter] = (times / len(widths), width)
    best = max(ranks, key=lambda delimiter: ranks[delimiter], default=",")
    rivals = {other: rank for other, rank in ranks.items() if rank[0] >= ranks[best][0]}
    if best == "," and len(rivals) > 1 and _has_decimal_commas(head):
        del rivals[","]
        return max(rivals, key=lambda delimiter: rivals[delimiter])
    return best


def count_values(records: Iterator[Record] | Sequence[Record]) -> list[int]:
    """Return the number of values of each record that is not a blank line."""
    return [len(record) for record in records if record]


def _has_decimal_commas(head: str) -> bool:
    """Return whether more than 90% of the commas stand between two digits, as in 1,5;2,5."""
    return 10 * len(re.findall(r"(?<=\d),(?=\d)", head)) > 9 * head.count(",")


def is_value(text: str) -> bool:
    """Return whether a text is a number or a date, so that it is no name of a column."""
    return bool(NUMBER.fullmatch(text) or DATE.fullmatch(text))
