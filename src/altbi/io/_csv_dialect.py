"""The dialect of a CSV file, from its first lines: its delimiter, quotes and escapes.

Arrow does not detect them, and DuckDB's detection skips lines at the start that it does not
understand, and takes the decimal commas in ``1,5;2,5`` for delimiters.
"""

import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from altbi.errors import ParameterError, quote

if TYPE_CHECKING:
    from _csv import Reader

_DELIMITERS = (",", "\t", ";", "|")
_NAMED = {"tab": "\t", "\\t": "\t", "space": " "}
_HEAD_RECORDS = 500
_EDGE = r"[,;\t|\r\n]"
_IN_APOSTROPHES = r"'(?:[^'\r\n]|'')*+'"
NUMBER = re.compile(r"\s*[+-]?(\d+([.,]\d*)?|[.,]\d+|inf(inity)?)(e[+-]?\d+)?\s*(%\s*)?", re.I)
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
    letter = None if delimiter is None else _parse_delimiter(delimiter)
    if _may_quote_by_apostrophes(head):
        dialect = _detect_with_quote(head, "'", letter)
        if _is_quoted_by_apostrophes(head, dialect.delimiter):
            return dialect
    return _detect_with_quote(head, '"', letter)


def _detect_with_quote(head: str, quote: str, delimiter: str | None) -> Dialect:
    """Return the dialect that the first lines of a file show if `quote` encloses values."""
    # A backslash escapes the next letter if it precedes a quote inside of a value.
    inner_quote = quote + r"(?![,;\t|\r\n" + quote + r"]|\Z)"
    escape = re.search(r"\\" + inner_quote, head) is not None
    return Dialect(delimiter or _find_delimiter(head, quote, escape), quote, escape)


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


def _may_quote_by_apostrophes(head: str) -> bool:
    """Return whether no value starts with a double quote, and some are in apostrophes.

    All values that start with an apostrophe must end with one.
    """
    before = rf"(?:\A|(?<={_EDGE}))"
    if re.search(before + '"', head):
        return False
    opened = len(re.findall(before + "'", head))
    return opened == len(re.findall(rf"{before}{_IN_APOSTROPHES}(?={_EDGE}|\Z)", head)) > 0


def _is_quoted_by_apostrophes(head: str, delimiter: str) -> bool:
    """Return whether apostrophes around values are quotes, as they are letters elsewhere.

    They are if such a value holds the delimiter, or if at least half of the values of a column that
    are not empty have them. If fewer records are split alike with these quotes, they are letters.
    """
    by_letters = Dialect(delimiter)
    share, _ = _rate_split(Dialect(delimiter, "'").split(head))
    if share < _rate_split(by_letters.split(head))[0]:
        return False
    edge = f"[{re.escape(delimiter)}\r\n]"
    values = re.findall(rf"(?:\A|(?<={edge})){_IN_APOSTROPHES}(?={edge}|\Z)", head)
    if any(delimiter in value for value in values):
        return True
    for column in itertools.zip_longest(*by_letters.split(head), fillvalue=""):
        filled = [value for value in column if value.strip()]
        if filled and 2 * sum(map(_is_in_apostrophes, filled)) >= len(filled):
            return True
    return False


def _is_in_apostrophes(value: str) -> bool:
    """Return whether a value is in apostrophes."""
    return re.fullmatch(_IN_APOSTROPHES, value) is not None


def _find_delimiter(head: str, quote: str, escape: bool) -> str:
    """Return the comma, tab, semicolon or bar that splits most records into equally many values.

    It must split at least half of the first 500 records into the same number of values, above one;
    the default is the comma. Ties go to the delimiter with more values. A comma loses against an
    equally consistent delimiter if commas are parts of values.
    """
    ranks = _rank_delimiters(head, quote, escape)
    best = max(ranks, key=lambda delimiter: ranks[delimiter], default=",")
    rivals = {other: ranks[other] for other in _list_rivals(ranks, best)}
    if best == "," and rivals:
        other = max(rivals, key=lambda delimiter: rivals[delimiter])
        if _has_commas_in_values(head, Dialect(",", quote, escape), Dialect(other, quote, escape)):
            return other
    return best


def _rank_delimiters(head: str, quote: str, escape: bool) -> dict[str, tuple[float, int]]:
    """Return the share of records that a delimiter splits alike, and into how many values.

    Delimiters that split less than half of the first records alike are left out.
    """
    ranks: dict[str, tuple[float, int]] = {}
    for delimiter in _DELIMITERS:
        share, width = _rate_split(_split_first(head, Dialect(delimiter, quote, escape)))
        if width > 1 and share >= 0.5:
            ranks[delimiter] = (share, width)
    return ranks


def _rate_split(records: Iterator[Record]) -> tuple[float, int]:
    """Return the largest share of records with the same number of values, and this number."""
    widths = count_values(records)
    width, times = Counter(widths).most_common(1)[0] if widths else (1, 0)
    return times / max(len(widths), 1), width


def _list_rivals(ranks: Mapping[str, tuple[float, int]], best: str) -> list[str]:
    """Return the other delimiters that split at least as many records alike as the best one."""
    return [each for each in ranks if each != best and ranks[each][0] >= ranks[best][0]]


def _split_first(head: str, dialect: Dialect) -> Iterator[Record]:
    """Return an iterator over the first records of a text."""
    return itertools.islice(dialect.split(head), _HEAD_RECORDS)


def count_values(records: Iterator[Record] | Sequence[Record]) -> list[int]:
    """Return the number of values of each record that is not a blank line."""
    return [len(record) for record in records if record]


def _has_commas_in_values(head: str, by_comma: Dialect, by_other: Dialect) -> bool:
    """Return whether commas are parts of values that another delimiter separates.

    They are if more than 90% of them stand between two digits, as in 1,5;2,5. Or more than 90%
    stand there or before a space, as in Smith, John;1,5, and the other delimiter splits the records
    into a larger share of numbers and dates.
    """
    n_commas = head.count(",")
    if 10 * len(re.findall(r"(?<=\d),(?=\d)", head)) > 9 * n_commas:
        return True
    if 10 * len(re.findall(r"(?<=\d),(?=\d)|,(?= )", head)) <= 9 * n_commas:
        return False
    return _compute_share_of_values(head, by_other) > _compute_share_of_values(head, by_comma)


def _compute_share_of_values(head: str, dialect: Dialect) -> float:
    """Return which share of the values of the first records are numbers or dates."""
    flags = [is_value(text) for record in _split_first(head, dialect) for text in record]
    return sum(flags) / max(len(flags), 1)


def describe_dialect(
    head: str, dialect: Dialect, delimiter: str | None, where: str
) -> Iterator[str]:
    """Yield notes about assumptions on the dialect that `detect_dialect` returns.

    `head` has the first lines of the file, and `where` is its name. `delimiter` is the one that the
    user states, or None.
    """
    if dialect.quote == "'":
        yield (
            f"Apostrophes around values of {where} are read as quotes. If they are letters, write "
            "the values in double quotes."
        )
    ranks = _rank_delimiters(head, dialect.quote, dialect.escape)
    best = max(ranks, key=lambda delimiter: ranks[delimiter], default="")
    if delimiter is None and dialect.delimiter == best and _list_rivals(ranks, best):
        found = [_name_delimiter(each) for each in (best, *_list_rivals(ranks, best))]
        yield (
            f"The lines of {where} can be split at {' and at '.join(found)} alike. They are split "
            f"at {found[0]}. If this is wrong, pass --delimiter."
        )


def _name_delimiter(delimiter: str) -> str:
    """Return a delimiter for messages."""
    return "tab" if delimiter == "\t" else repr(delimiter)


def is_value(text: str) -> bool:
    """Return whether a text is a number or a date, so that it is no name of a column."""
    return bool(NUMBER.fullmatch(text) or DATE.fullmatch(text))
