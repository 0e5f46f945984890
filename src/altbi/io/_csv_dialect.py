"""The dialect of a CSV file (delimiter, quotes, newlines) and the names of its columns."""

import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from altbi.errors import ParameterError
from altbi.io._source import check_names

_DELIMITERS = (",", "\t", ";", "|")
_NAMED = {"tab": "\t", "\\t": "\t", "space": " "}
_HEAD_RECORDS = 500
_EDGE = rb"[,;\t|\r\n]"
_NUMBER = re.compile(r"\s*[+-]?(\d+([.,]\d*)?|[.,]\d+|inf(inity)?)(e[+-]?\d+)?\s*%?\s*", re.I)
_DATE = re.compile(r"\s*(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3\d{4})\b.*")
_MISSING = re.compile(r"\s*(nan|na|n/a|null|none|[?.-])\s*", re.I)
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Dialect:
    r"""The rules of one CSV file in UTF-8.

    Parameters
    ----------
    delimiter : str
        Separates two values.
    quote : str, default='"'
        Encloses a value that holds delimiters or newlines; doubled, it is a letter.
    escape : bool, default=False
        Whether a backslash makes the next letter an ordinary one.
    newline : bytes, default=b'\n'
        The last byte of a line.

    Examples
    --------
    >>> Dialect(",").find_end(b'1,"a\nb"\n2,"c\n')
    8
    """

    delimiter: str
    quote: str = '"'
    escape: bool = False
    newline: bytes = b"\n"

    def find_end(self, data: bytes) -> int:
        """Return the position after the last complete record of a text that starts with one."""
        if self.quote.encode() not in data and not (self.escape and b"\\" in data):
            return data.rfind(self.newline) + 1
        records = _patterns(self).records.match(data)
        return records.end() if records else 0

    def first_record(self, data: bytes) -> bytes:
        """Return the first record of a text that starts with one."""
        first = _patterns(self).record.match(data)
        return first.group() if first else data

    def widths(self, data: bytes) -> Iterator[int]:
        """Yield the number of values of each record that is not blank."""
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
    r"""Return the dialect that the first lines show.

    >>> detect_dialect(b"a;b\n1,5;2,5\n").delimiter
    ';'
    """
    newline = b"\n" if b"\n" in head else b"\r"
    quote = _find_quote(head)
    # A backslash before a quote that does not end a value can only escape it.
    inner_quote = quote.encode() + rb"(?![,;\t|\r\n" + quote.encode() + rb"]|\Z)"
    escape = re.search(rb"\\" + inner_quote, head) is not None
    if delimiter is not None:
        return Dialect(_parse_delimiter(delimiter), quote, escape, newline)
    return Dialect(_find_delimiter(head, quote, escape), quote, escape, newline)


@dataclass(frozen=True, slots=True)
class _Patterns:
    field: re.Pattern[bytes]
    record: re.Pattern[bytes]
    records: re.Pattern[bytes]


@functools.lru_cache(maxsize=64)
def _patterns(dialect: Dialect) -> _Patterns:
    """Build the expressions; they never backtrack, so that a long value costs one pass."""
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


def _parse_delimiter(delimiter: str) -> str:
    """Return the delimiter; raise an error for one that the reader cannot use."""
    letter = _NAMED.get(delimiter, delimiter)
    if len(letter) != 1 or not letter.isascii() or letter in "\r\n\"'\\\0":
        raise ParameterError(
            f"delimiter={delimiter!r}, but expected one letter such as ',' or ';', or 'tab'."
        )
    return letter


def _find_quote(head: bytes) -> str:
    """Return the apostrophe only if each value that starts with one also ends with one."""
    before = rb"(?:\A|(?<=%b))" % _EDGE
    if re.search(before + rb'"', head):
        return '"'
    opened = len(re.findall(before + rb"'", head))
    closed = len(re.findall(before + rb"'(?:[^'\r\n]|'')*+'(?=%b|\Z)" % _EDGE, head))
    return "'" if opened == closed > 0 else '"'


def _find_delimiter(head: bytes, quote: str, escape: bool) -> str:
    """Return the delimiter that splits most lines into the same number of values above one."""
    ranks: dict[str, tuple[float, int]] = {}
    for delimiter in _DELIMITERS:
        widths = list(
            itertools.islice(Dialect(delimiter, quote, escape).widths(head), _HEAD_RECORDS)
        )
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
    """Return whether commas are decimal: 1,5;2,5 are two values and not three."""
    return 10 * len(re.findall(rb"(?<=\d),(?=\d)", head)) > 9 * head.count(b",")


@dataclass(frozen=True, slots=True)
class Columns:
    """The names of the columns, whether the first line holds them, and assumptions."""

    names: list[str]
    header: bool
    notes: list[str] = field(default_factory=list)


def name_columns(cells: Sequence[str], header: bool | None, where: str) -> Columns:
    """Return the names of the columns that the first line shows.

    Parameters
    ----------
    cells : sequence of str
        The first line.
    header : bool, optional
        Whether it holds names; by default, it does unless all its cells are numbers, and that is
        noted if some of them are numbers or dates.
    where : str
        Name of the file in messages.

    Examples
    --------
    >>> name_columns(["price", ""], None, "a.csv").names
    ['price', 'unnamed_2']
    >>> name_columns(["1.5", "2"], None, "a.csv").names
    ['x0', 'x1']
    """
    generated = [f"x{index}" for index in range(len(cells))]
    if header is False:
        return Columns(generated, header=False)
    filled = [cell for cell in cells if cell.strip() and not _MISSING.fullmatch(cell)]
    if header is None and filled and all(map(_NUMBER.fullmatch, filled)):
        if not _counts_up(filled):
            note = f"The first line of {where} holds numbers only, so it was read as a row"
            return Columns(generated, header=False, notes=[f"{note}: the columns are x0, x1, …"])
        note = f"The first line of {where} counts 0, 1, 2, …, so it was read as names of columns."
        return _use_header(cells, where, [note])
    values = [cell for cell in filled if _NUMBER.fullmatch(cell) or _DATE.fullmatch(cell)]
    is_ambiguous = header is None and values
    return _use_header(cells, where, [_describe_ambiguity(values, where)] if is_ambiguous else [])


def _describe_ambiguity(values: Sequence[str], where: str) -> str:
    more = ", …" if len(values) > _SHOWN else ""
    return (
        f"The first line of {where} was read as names of columns, among them "
        f"{', '.join(map(repr, values[:_SHOWN]))}{more}. If it is a row, pass --no-header; if not, "
        "pass --header."
    )


def _use_header(cells: Sequence[str], where: str, notes: list[str]) -> Columns:
    names = [
        cell if cell.strip() else f"unnamed_{index}" for index, cell in enumerate(cells, start=1)
    ]
    new = [name for name, cell in zip(names, cells, strict=True) if name != cell]
    if new:
        more = ", …" if len(new) > _SHOWN else ""
        notes = [*notes, f"Columns of {where} without a name are {', '.join(new[:_SHOWN])}{more}."]
    check_names(names, where)
    return Columns(names, header=True, notes=notes)


def _counts_up(cells: Sequence[str]) -> bool:
    """Return whether this is the header 0, 1, 2, … of a data frame without names."""
    return len(cells) > 1 and list(cells) == [str(index) for index in range(len(cells))]
