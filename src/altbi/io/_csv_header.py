"""The title lines and column names of a CSV file, from its first records."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from altbi.errors import TableError, quote
from altbi.io._csv_dialect import DATE, NUMBER, Record, count_values, is_value
from altbi.io._source import MAX_COLUMNS, check_names

_MAX_TITLE_LINES = 50
_MISSING = re.compile(r"\s*(nan|na|n/a|null|none|[?.-])\s*", re.I)
_SHOWN = 5


def find_header(records: Sequence[Record], header: bool | None) -> int | None:
    """Return the index of the first record that is neither blank nor a title line; None if none is.

    Title lines stand above the header. They have another number of values than most records, and at
    most one that is not empty, or a leading ``#``. Others are filled with empty values to the width
    of the table, see `_is_padded_title`. Those are rows if `header` is False, or if the record
    below them does not look like a header.

    >>> find_header([["Sales"], [], ["shop", "price"], ["a", "1"], ["b", "2"]], None)
    2
    >>> find_header([["Sales", "", ""], ["", "", ""], ["shop", "n", "sum"], ["a", "1", "2"]], None)
    2
    """
    filled = [index for index, record in enumerate(records) if record]
    if not filled:
        return None
    rows = [records[index] for index in filled]
    width = Counter(count_values(rows)).most_common(1)[0][0]
    n_short = _count_leading(_is_short_title(row, width) for row in rows[:-1])
    if n_short >= _MAX_TITLE_LINES:
        return filled[0]
    n_titles = _count_leading(
        _is_short_title(row, width) or _is_padded_title(row, width) for row in rows[:-1]
    )
    is_table = header is not False and n_titles <= _MAX_TITLE_LINES
    if is_table and _has_header_below(rows[n_short:n_titles], rows[n_titles:], width):
        return filled[n_titles]
    return filled[n_short]


def _count_leading(flags: Iterable[bool]) -> int:
    """Return how many of the first flags are true, before one that is not."""
    return sum(1 for _ in itertools.takewhile(bool, flags))


def _is_short_title(record: Record, width: int) -> bool:
    """Return whether a record of another width than the table, above one, is a title line."""
    is_comment = record[0].lstrip().startswith("#")
    return len(record) != width and width > 1 and (len(_list_filled(record)) <= 1 or is_comment)


def _is_padded_title(record: Record, width: int) -> bool:
    """Return whether a record may be a title line that a spreadsheet has filled with empty values.

    All its values are empty. Or it has at least three values, of which one is a text. Or two of
    them are a label and its value: the label ends with a colon, or the value is a number or a date.
    """
    texts = _list_filled(record)
    if len(record) != width or width < 2 or not texts:
        return len(record) == width > 1
    if width == 2 or len(texts) > 2 or NUMBER.fullmatch(texts[0]):
        return False
    label, value = texts[0].rstrip(), texts[-1]
    return len(texts) == 1 or label.endswith(":") or is_value(value)


def _has_header_below(titles: Sequence[Record], rows: Sequence[Record], width: int) -> bool:
    """Return whether rows begin with a header, so that the records above it are title lines.

    A header has texts, and a text for all columns, or nearly all, in which rows have values. Few
    of the other rows, except for the last one, may look like titles. Several titles need an empty
    line among them, or numbers or dates among the rows.
    """
    header, *below = rows
    body = [row for row in below if _list_filled(row)]
    texts = _list_filled(header)
    used = {index for row in body for index, value in enumerate(row) if value.strip()}
    n_named = sum(bool(header[index].strip()) for index in used if index < len(header))
    is_header = len(header) == width and len(texts) > 1 and not any(map(is_value, texts))
    if not is_header or n_named < len(used) - max(1, len(used) // 5):
        return False
    # The last row may be a total.
    if 10 * sum(_is_padded_title(row, width) for row in body[:-1]) > len(body):
        return False
    has_values = any(is_value(value) for row in body for value in row)
    return len(titles) == 1 or has_values or not all(map(_list_filled, titles))


def _list_filled(record: Record) -> list[str]:
    """Return the values of a record that are not empty."""
    return [value for value in record if value.strip()]


@dataclass(frozen=True, slots=True)
class Columns:
    """The column names, whether the first line holds them, and notes about assumptions."""

    names: list[str]
    header: bool
    notes: list[str] = field(default_factory=list)


def name_columns(cells: Sequence[str], header: bool | None, where: str) -> Columns:
    """Return the names of the columns, given the values of the first line.

    `header` is whether the line holds names. None detects it: a line of numbers, also with missing
    values, is a row, unless it counts 0, 1, 2, … Columns without a header are called x0, x1, ...;
    an empty name becomes ``unnamed_`` and its number, counted from 1. Assumptions are noted.
    Duplicate names, and more than `MAX_COLUMNS` columns, raise a `TableError`.

    >>> name_columns(["price", ""], None, "a.csv").names
    ['price', 'unnamed_2']
    >>> name_columns(["1.5", "2"], None, "a.csv").names
    ['x0', 'x1']
    """
    check_number_of_columns(len(cells), where)
    generated = [f"x{index}" for index in range(len(cells))]
    if header is False:
        return Columns(generated, header=False)
    filled = [cell for cell in cells if cell.strip() and not _MISSING.fullmatch(cell)]
    if header is None and filled and all(map(NUMBER.fullmatch, filled)):
        if not _is_counting_header(filled):
            note = f"The first line of {where} holds numbers only, so it was read as a row"
            return Columns(generated, header=False, notes=[f"{note}: the columns are x0, x1, …"])
        note = f"The first line of {where} counts 0, 1, 2, …, so it was read as names of columns."
        return _use_header(cells, where, [note])
    values = [cell for cell in filled if NUMBER.fullmatch(cell) or DATE.fullmatch(cell)]
    is_ambiguous = header is None and values
    return _use_header(cells, where, [_describe_ambiguity(values, where)] if is_ambiguous else [])


def check_number_of_columns(n_columns: int, where: str) -> None:
    """Raise a `TableError` for more than `MAX_COLUMNS` columns."""
    if n_columns > MAX_COLUMNS:
        raise TableError(
            f"{where}: it has {n_columns:,} columns, but expected at most {MAX_COLUMNS:,}. "
            "If they are rows, transpose the table."
        )


def _describe_ambiguity(values: Sequence[str], where: str) -> str:
    """Return the note that names in the header look like values; at most five are quoted."""
    shown = ", ".join(map(quote, values[:_SHOWN])) + (", …" if len(values) > _SHOWN else "")
    return (
        f"The first line of {where} was read as names of columns, among them {shown}. If it is a "
        "row, pass --no-header; if not, pass --header."
    )


def _use_header(cells: Sequence[str], where: str, notes: list[str]) -> Columns:
    """Return the cells as column names; empty ones become ``unnamed_1``, ..., counted from 1.

    A note that lists these follows `notes`. Duplicate names raise a `TableError`.
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


def describe_header(
    records: Sequence[Record], start: int, columns: Columns, where: str
) -> Iterator[str]:
    """Yield notes about the title lines above `start`, and about the header there, if it is one.

    Title lines without any value are not mentioned if there are others. A header of at least three
    columns with names for less than half of them is noted, and one that may be a comment.
    """
    lines = [" ".join(_list_filled(record)) for record in records[:start] if record]
    titles = list(filter(None, lines)) or lines
    if titles:
        yield (
            f"{len(titles)} line(s) above the table in {where} were skipped, the first of them "
            f"{quote(titles[0])}. If they are rows, pass --skip 0."
        )
    yield from columns.notes
    width, n_named = len(columns.names), len(_list_filled(records[start]))
    if columns.header and width > 2 and 2 * n_named < width:
        yield (
            f"The line of {where} that was read as names of columns has {n_named} of {width:,} "
            "names. If the table starts below it, pass the number of lines above it to --skip."
        )
    if columns.header and records[start][0].lstrip().startswith("#"):
        yield (
            f"The line of {where} that was read as names of columns begins with '#'. If it is a "
            "comment, pass the number of lines above the table to --skip."
        )
