"""Which sheet of a workbook has a table, and which of its lines are titles above it."""

from collections.abc import Iterable, Sequence
from typing import Any

from altbi.io._number_formats import DECIMAL_COMMA, PLAIN, remove_percent_sign

Row = list[Any]

_MIN_ROWS = 20


def is_filled(cell: object) -> bool:
    """Return whether a cell holds more than spaces."""
    return not isinstance(cell, str) or bool(cell.strip())


def has_data(rows: Iterable[Row]) -> bool:
    """Return whether a sheet has a cell that is not empty."""
    return any(is_filled(cell) for row in rows for cell in row)


def has_table(rows: Iterable[Row]) -> bool:
    """Return whether a sheet has at least two rows of three cells, or `_MIN_ROWS` rows of values.

    Two cells, and a cell that is no text, are values. Other sheets with data are notes, such as
    sentences below each other, or labels and their values.
    """
    n_wide = n_rows = 0
    for row in rows:
        cells = [cell for cell in row if is_filled(cell)]
        n_wide += len(cells) > 2
        n_rows += len(cells) > 1 or not all(map(_is_text, cells))
        if n_wide > 1 or n_rows >= _MIN_ROWS:
            return True
    return False


def count_titles(head: Sequence[Row]) -> int:
    """Return how many of the first rows are title lines above the table.

    The rule follows that of `find_header` for titles with empty values beside them. A title line
    has a single cell that is not empty, and this is a text. Or it has two of at least three cells,
    a label and its value: the label ends with a colon, or the value is no text. The row below the
    last title line has several cells, and all are texts. Otherwise there are no title lines.
    """
    rows = [[cell for cell in row if is_filled(cell)] for row in head]
    is_title = [
        (len(cells) == 1 and _is_text(cells[0])) or (len(row) > 2 and _is_labelled_value(cells))
        for row, cells in zip(head, rows, strict=True)
    ]
    n_titles = [*is_title, False].index(False)
    below = rows[n_titles] if n_titles < len(rows) else []
    return n_titles if len(below) > 1 and all(map(_is_text, below)) else 0


def _is_labelled_value(cells: Row) -> bool:
    """Return whether the cells of a row are a label and its value."""
    if len(cells) != 2 or not _is_text(cells[0]):
        return False
    return cells[0].rstrip().endswith(":") or not _is_text(cells[1])


def _is_text(cell: object) -> bool:
    """Return whether a cell is a text, and the text not a number."""
    if not isinstance(cell, str):
        return False
    text = remove_percent_sign(cell.strip())
    return not (PLAIN.may_parse(text) or DECIMAL_COMMA.may_parse(text))
