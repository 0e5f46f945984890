"""Cells and columns in words, for people."""

import math
from datetime import UTC, datetime, timedelta

from altbi.encoding import Column

__all__ = ["cell_text", "holds_text", "number_text"]

# An empty text is a text, not a gap.
EMPTY_TEXT = "''"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN_CATEGORIES = 5


def number_text(value: float, digits: int = 6) -> str:
    """Give a number with so many digits that matter; whole numbers as they are.

    >>> number_text(1234567.0), number_text(0.123456789), number_text(98765.4321, 4)
    ('1234567', '0.123457', '98765')
    >>> number_text(1719.53, 4), number_text(0.25)
    ('1720', '0.25')
    """
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 10**15 or 0 < abs(value) < 1e-4:
        return f"{value:.{digits}g}"
    if value == int(value) or abs(value) >= 10**digits:
        return str(round(value))
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    text = f"{value:.{max(decimals, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def cell_text(value: object, digits: int | None = 6) -> str:
    """Give a cell as text, with all its digits or so many; a missing one is empty.

    >>> cell_text(None), cell_text("")
    ('', "''")
    """
    if value is None:
        return ""
    if value == "":
        return EMPTY_TEXT
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if math.isnan(value):
            return ""
        return number_text(value, digits) if digits else repr(value).removesuffix(".0")
    if isinstance(value, datetime):
        value = value.replace(microsecond=0) if digits else value
        return value.isoformat(" ").removesuffix(" 00:00:00").removesuffix("+00:00")
    return str(value)


def holds_text(column: Column) -> str:
    """Say what the training sample showed of a column."""
    if not column.n_present:
        return "nothing"
    if column.kind == "category":
        shown = ", ".join(map(cell_text, column.categories[:_SHOWN_CATEGORIES]))
        rest = column.n_categories - min(len(column.categories), _SHOWN_CATEGORIES)
        return f"{shown}{' and ' if shown and rest else ''}{f'{rest} more' if rest else ''}"
    if column.kind == "boolean":
        return "true or false" if column.low < column.high else cell_text(column.low > 0)
    low, high = (_scalar_text(column, value) for value in (column.low, column.high))
    return low if low == high else f"{low} to {high}"


def _scalar_text(column: Column, value: float) -> str:
    if column.kind != "date":
        return number_text(value)
    try:
        return cell_text((_EPOCH + timedelta(seconds=value)).replace(tzinfo=None))
    except OverflowError:  # beyond the years that Python's calendar knows
        return f"{value:.6g} seconds after 1970"
