"""How a CSV file is written: what separates its cells, what quotes them, what ends a line."""

import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from altbi.errors import ParameterError

__all__ = ["Dialect", "detect_dialect"]

_DELIMITERS = (",", "\t", ";", "|")
_NAMED = {"tab": "\t", "\\t": "\t", "space": " "}
_LOOK = 500
_EDGE = rb"[,;\t|\r\n]"


@dataclass(frozen=True, slots=True)
class Dialect:
    r"""The rules of one CSV file; its text is UTF-8.

    Parameters
    ----------
    delimiter : str
        What separates two cells.
    quote : str, default='"'
        What stands around a cell that holds delimiters or newlines; doubled, it is a letter.
    escape : bool, default=False
        Whether a backslash makes the next letter an ordinary one.
    newline : bytes, default=b'\n'
        What ends a line; the last byte of it.

    Examples
    --------
    >>> Dialect(",").cut(b'1,"a\nb"\n2,"c\n')
    8
    """

    delimiter: str
    quote: str = '"'
    escape: bool = False
    newline: bytes = b"\n"

    def cut(self, data: bytes) -> int:
        """Give the place after the last whole record of a text that starts with one."""
        if self.quote.encode() not in data and not (self.escape and b"\\" in data):
            return data.rfind(self.newline) + 1
        whole = _patterns(self).records.match(data)
        return whole.end() if whole else 0

    def first_record(self, data: bytes) -> bytes:
        """Give the first record of a text that starts with one."""
        first = _patterns(self).record.match(data)
        return first.group() if first else data

    def widths(self, data: bytes) -> Iterator[int]:
        """Count the cells of each record that is not blank."""
        start = width = 0
        field = _patterns(self).field
        while start < len(data) and (match := field.match(data, start)):
            width += 1
            if match["end"] != self.delimiter.encode():
                if width > 1 or match.end() - start > len(match["end"]):
                    yield width
                width = 0
            start = match.end()


def detect_dialect(head: bytes, delimiter: str | None = None) -> Dialect:
    r"""Tell the dialect by the first lines.

    >>> detect_dialect(b"a;b\n1,5;2,5\n").delimiter
    ';'
    """
    newline = b"\n" if b"\n" in head else b"\r"
    quote = _find_quote(head)
    # A backslash before a quote that ends no cell can only be there to keep it from ending one.
    marks = quote.encode() + rb"(?![,;\t|\r\n" + quote.encode() + rb"]|\Z)"
    escape = re.search(rb"\\" + marks, head) is not None
    if delimiter is not None:
        return Dialect(_checked(delimiter), quote, escape, newline)
    return Dialect(_find_delimiter(head, quote, escape), quote, escape, newline)


@dataclass(frozen=True, slots=True)
class _Patterns:
    field: re.Pattern[bytes]
    record: re.Pattern[bytes]
    records: re.Pattern[bytes]


@functools.lru_cache(maxsize=64)
def _patterns(dialect: Dialect) -> _Patterns:
    """Build the expressions; they never look back, so that a long cell costs one pass."""
    d, q = (re.escape(letter.encode()) for letter in (dialect.delimiter, dialect.quote))
    slash = rb"\\" if dialect.escape else b""
    escaped = rb"|\\." if dialect.escape else b""
    bare = rb"(?:[^%b\r\n%b]++%b)*+" % (d, slash, escaped)
    inner = rb"(?:[^%b%b]++|%b%b%b)*+" % (q, slash, q, q, escaped)
    # An unclosed quote must not be taken for a letter: the record goes on in the next piece.
    cell = rb"(?:%b%b%b%b|(?!%b)%b)" % (q, inner, q, bare, q, bare)
    end = rb"(?:\r\n?|\n)"
    record = rb"(?:%b%b)*+%b%b" % (cell, d, cell, end)
    return _Patterns(
        field=re.compile(rb"%b(?P<end>%b|%b|\Z)" % (cell, d, end), re.DOTALL),
        record=re.compile(record, re.DOTALL),
        records=re.compile(rb"(?:%b)*+" % record, re.DOTALL),
    )


def _checked(delimiter: str) -> str:
    """Refuse a delimiter that the reader could not tell from the rest."""
    letter = _NAMED.get(delimiter, delimiter)
    if len(letter) != 1 or not letter.isascii() or letter in "\r\n\"'\\\0":
        raise ParameterError(
            f"delimiter={delimiter!r}, but expected one letter such as ',' or ';', or 'tab'."
        )
    return letter


def _find_quote(head: bytes) -> str:
    """Take the apostrophe only where each cell that starts with one also ends with one."""
    before = rb"(?:\A|(?<=%b))" % _EDGE
    if re.search(before + rb'"', head):
        return '"'
    opened = len(re.findall(before + rb"'", head))
    closed = len(re.findall(before + rb"'(?:[^'\r\n]|'')*+'(?=%b|\Z)" % _EDGE, head))
    return "'" if opened == closed > 0 else '"'


def _find_delimiter(head: bytes, quote: str, escape: bool) -> str:
    """Take the delimiter that cuts most lines into the same number of cells, more than one."""
    ranks: dict[str, tuple[float, int]] = {}
    for delimiter in _DELIMITERS:
        widths = list(itertools.islice(Dialect(delimiter, quote, escape).widths(head), _LOOK))
        width, times = Counter(widths).most_common(1)[0] if widths else (1, 0)
        if width > 1 and 2 * times >= len(widths):
            ranks[delimiter] = (times / len(widths), width)
    best = max(ranks, key=lambda delimiter: ranks[delimiter], default=",")
    rivals = {other: rank for other, rank in ranks.items() if rank[0] >= ranks[best][0]}
    if best == "," and len(rivals) > 1 and _decimal_commas(head):
        del rivals[","]
        return max(rivals, key=lambda delimiter: rivals[delimiter])
    return best


def _decimal_commas(head: bytes) -> bool:
    """Tell whether commas stand within numbers: 1,5;2,5 are two cells and not three."""
    return 10 * len(re.findall(rb"(?<=\d),(?=\d)", head)) > 9 * head.count(b",")
