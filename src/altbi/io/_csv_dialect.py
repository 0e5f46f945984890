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
    r"""The delimiter, quotes, escapes and newlines of one CSV file, decoded to UTF-8.

    Parameters
    ----------
    delimiter : str
        Separates two values.
    quote : str, default='"'
        Encloses a value that holds delimiters or newlines. Doubled quotes stand for one quote.
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
        """Return the position after the last complete record; 0 if there is none.

        The data must start with a record. Newlines inside quotes do not end a record.
        """
        if self.quote.encode() not in data and not (self.escape and b"\\" in data):
            return data.rfind(self.newline) + 1
        records = _build_patterns(self).records.match(data)
        return records.end() if records else 0

    def first_record(self, data: bytes) -> bytes:
        """Return the first record with its newline; all data if no record is complete."""
        first = _build_patterns(self).record.match(data)
        return first.group() if first else data

    def widths(self, data: bytes) -> Iterator[int]:
        """Yield the number of values of each record that is not blank.

        It stops early at a quote that is never closed.
        """
        start = width = 0
        field = _build_patterns(self).field
        while start < len(data) and (match := field.match(data, start)):
            width += 1
            if match["end"] != self.delimiter.encode():
                if width > 1 or match.end() - start > len(match["end"]):
                    yield width
                width = 0
            start = match.end()


def detect_dialect(head: bytes, delimiter: str | None = None) -> Dialect:
    r"""Return the dialect that the first lines show.

    A delimiter that is not None is used as given, or raises a `ParameterError` if it is invalid.

    >>> detect_dialect(b"a;b\n1,5;2,5\n").delimiter
    ';'
    """
    newline = b"\n" if b"\n" in head else b"\r"
    quote = _find_quote(head)
    # A backslash escapes the next letter if it precedes a quote inside of a value.
    inner_quote = quote.encode() + rb"(?![,;\t|\r\n" + quote.encode() + rb"]|\Z)"
    escape = re.search(rb"\\" + inner_quote, head) is not None
    if delimiter is not None:
        return Dialect(_parse_delimiter(delimiter), quote, escape, newline)
    return Dialect(_find_delimiter(head, quote, escape), quote, escape, newline)


@dataclass(frozen=True, slots=True)
class _Patterns:
    """Regular expressions of a dialect for one value, one record, and all complete records."""

    field: re.Pattern[bytes]
    record: re.Pattern[bytes]
    records: re.Pattern[bytes]


@functools.lru_cache(maxsize=64)
def _build_patterns(dialect: Dialect) -> _Patterns:
    """Build the regular expressions of a dialect, cached.

    They never backtrack, so that matching time is linear in the length of the data.
    """
    d, q = (re.escape(letter.encode()) for letter in (dialect.delimiter, dialect.quote))
    slash = rb"\\" if dialect.escape else b""
    escaped = rb"|\\." if dialect.escape else b""
    bare = rb"(?:[^%b\r\n%b]++%b)*+" % (d, slash, escaped)
    inner = rb"(?:[^%b%b]++|%b%b%b)*+" % (q, slash, q, q, escaped)
    # A value that starts with a quote must end with one; otherwise the record is incomplete.
    cell = rb"(?:%b%b%b%b|(?!%b)%b)" % (q, inner, q, bare, q, bare)
    end = rb"(?:\r\n?|\n)"
    record = rb"(?:%b%b)*+%b%b" % (cell, d, cell, end)
    return _Patterns(
        field=re.compile(rb"%b(?P<end>%b|%b|\Z)" % (cell, d, end), re.DOTALL),
        record=re.compile(record, re.DOTALL),
        records=re.compile(rb"(?:%b)*+" % record, re.DOTALL),
    )


def _parse_delimiter(delimiter: str) -> str:
    r"""Return a delimiter as one character; "tab", "\t" and "space" are accepted as names.

    A quote, a backslash, a newline and anything but one ASCII character raise a `ParameterError`.
    """
    letter = _NAMED.get(delimiter, delimiter)
    if len(letter) != 1 or not letter.isascii() or letter in "\r\n\"'\\\0":
        raise ParameterError(
            f"delimiter={delimiter!r}, but expected one letter such as ',' or ';', or 'tab'."
        )
    return letter


def _find_quote(head: bytes) -> str:
    """Return the quote character of a file: a double quote or an apostrophe.

    It is the apostrophe only if no value starts with a double quote. In addition, some values must
    start with an apostrophe, and all of these must end with one.
    """
    before = rb"(?:\A|(?<=%b))" % _EDGE
    if re.search(before + rb'"', head):
        return '"'
    opened = len(re.findall(before + rb"'", head))
    closed = len(re.findall(before + rb"'(?:[^'\r\n]|'')*+'(?=%b|\Z)" % _EDGE, head))
    return "'" if opened == closed > 0 else '"'


def _find_delimiter(head: bytes, quote: str, escape: bool) -> str:
    """Return the delimiter that splits most records into the same number of values above one.

    It must do so for at least half of the records. Ties go to the delimiter with more values. A
    comma loses against an equally consistent delimiter if commas are decimal. The default is the
    comma.
    """
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
    if best == "," and len(rivals) > 1 and _has_decimal_commas(head):
        del rivals[","]
        return max(rivals, key=lambda delimiter: rivals[delimiter])
    return best


def _has_decimal_commas(head: bytes) -> bool:
    """Return whether more than 90% of the commas stand between two digits, as in 1,5;2,5."""
    return 10 * len(re.findall(rb"(?<=\d),(?=\d)", head)) > 9 * head.count(b",")


@dataclass(frozen=True, slots=True)
class Columns:
    """The column names, whether the first line holds them, and notes about assumptions."""

    names: list[str]
    header: bool
    notes: list[str] = field(default_factory=list)


def name_columns(cells: Sequence[str], header: bool | None, where: str) -> Columns:
    """Return the names of the columns that the first line shows.

    Columns without a header are called x0, x1, ...; an empty name becomes ``unnamed_`` and its
    number, counted from 1. Duplicate names raise a `TableError`.

    Parameters
    ----------
    cells : sequence of str
        The values of the first line.
    header : bool, optional
        Whether it holds names. None: it does, unless all cells that are not missing are numbers
        other than 0, 1, 2, … A note is added if some cells are numbers or dates.
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
        if not _is_counting_header(filled):
            note = f"The first line of {where} holds numbers only, so it was read as a row"
            return Columns(generated, header=False, notes=[f"{note}: the columns are x0, x1, …"])
        note = f"The first line of {where} counts 0, 1, 2, …, so it was read as names of columns."
        return _use_header(cells, where, [note])
    values = [cell for cell in filled if _NUMBER.fullmatch(cell) or _DATE.fullmatch(cell)]
    is_ambiguous = header is None and values
    return _use_header(cells, where, [_describe_ambiguity(values, where)] if is_ambiguous else [])


def _describe_ambiguity(values: Sequence[str], where: str) -> str:
    """Return the note that names in the header look like values; at most five are quoted."""
    more = ", …" if len(values) > _SHOWN else ""
    return (
        f"The first line of {where} was read as names of columns, among them "
        f"{', '.join(map(repr, values[:_SHOWN]))}{more}. If it is a row, pass --no-header; if not, "
        "pass --header."
    )


def _use_header(cells: Sequence[str], where: str, notes: list[str]) -> Columns:
    """Return the cells as column names; empty cells get generated names, which a note lists.

    Duplicate names raise a `TableError`.
    """
    names = [
        cell if cell.strip() else f"unnamed_{index}" for index, cell in enumerate(cells, start=1)
    ]
    new = [name for name, cell in zip(names, cells, strict=True) if name != cell]
    if new:
        more = ", …" if len(new) > _SHOWN else ""
        notes = [*notes, f"Columns of {where} without a name are {', '.join(new[:_SHOWN])}{more}."]
    check_names(names, where)
    return Columns(names, header=True, notes=notes)


def _is_counting_header(cells: Sequence[str]) -> bool:
    """Return whether the cells are 0, 1, 2, …, the header that pandas writes without names.

    A single cell is not enough.
    """
    return len(cells) > 1 and list(cells) == [str(index) for index in range(len(cells))]
