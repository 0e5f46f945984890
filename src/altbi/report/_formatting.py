"""Formatting of numbers, values and columns, for the terminal, the report and reasons.csv."""

import math
from datetime import UTC, datetime, time, timedelta

from altbi.encoding import Column

# An empty text is a value, not a missing one.
EMPTY_TEXT = "''"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HALF_DAY = timedelta(hours=12)
SHOWN_CATEGORIES = 5
# Scores from this size on are written with an exponent.
LARGE_SCORE = 1e7


def format_number(value: float, digits: int = 6) -> str:
    """Format a number with this many significant digits; integers in full.

    >>> format_number(1234567.0), format_number(0.123456789), format_number(98765.4321, 4)
    ('1234567', '0.123457', '98765')
    >>> format_number(1719.53, 4), format_number(0.25)
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


def format_value(value: object, digits: int | None = 6) -> str:
    """Format a value of a table, with all digits if `digits` is None; missing becomes "".

    >>> format_value(None), format_value("")
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
        return format_number(value, digits) if digits else repr(value).removesuffix(".0")
    if isinstance(value, datetime):
        value = value.replace(microsecond=0) if digits else value
        return value.isoformat(" ").removesuffix(" 00:00:00").removesuffix("+00:00")
    return str(value)


def format_expected(expected: object, value: object, digits: int = 6) -> str:
    """Format an expected value; next to a date without a time, as the nearest date."""
    if isinstance(expected, datetime) and isinstance(value, datetime) and value.time() == time():
        expected = (min(expected, datetime.max - HALF_DAY) + HALF_DAY).date()
    return format_value(expected, digits)


def format_nearest(nearest: object, value: object) -> str:
    """Format the value of a reference row; as a date if neither value has a time."""
    if isinstance(nearest, datetime) and isinstance(value, datetime):
        nearest = nearest.date() if nearest.time() == value.time() == time() else nearest
    return format_value(nearest)


def format_score(value: float, threshold: float) -> str:
    """Format a score with the number of decimals that gives the threshold four digits."""
    if abs(value) >= LARGE_SCORE or not math.isfinite(value):
        return f"{value:.4g}"
    size = math.floor(math.log10(abs(threshold))) if threshold else 0
    return f"{value:,.{min(max(3 - size, 0), 6)}f}"


def format_share(value: float) -> str:
    """Format a share in per cent, with few digits; only zero becomes 0%.

    >>> format_share(0.0), format_share(0.00001), format_share(0.0312), format_share(0.5)
    ('0%', 'under 0.01%', '3.1%', '50%')
    """
    if 0 < value < 0.0001:
        return "under 0.01%"
    decimals = 0 if value == 0 or abs(value) >= 0.1 else 1 if abs(value) >= 0.01 else 2
    return f"{100 * value:.{decimals}f}%"


def describe_column(column: Column) -> str:
    """Return the range or the categories of a column in the training sample."""
    if not column.n_present:
        return "no values"
    if column.kind == "category":
        shown = ", ".join(map(format_value, column.categories[:SHOWN_CATEGORIES]))
        rest = column.n_categories - min(len(column.categories), SHOWN_CATEGORIES)
        return f"{shown}{' and ' if shown and rest else ''}{f'{rest} more' if rest else ''}"
    if column.kind == "boolean":
        return "true or false" if column.low < column.high else format_value(column.low > 0)
    low, high = (_format_bound(column, bound) for bound in (column.low, column.high))
    return low if low == high else f"{low} to {high}"


def _format_bound(column: Column, bound: float) -> str:
    if column.kind != "date":
        return format_number(bound)
    try:
        return format_value((EPOCH + timedelta(seconds=bound)).replace(tzinfo=None))
    except OverflowError:  # beyond year 9999
        return f"{bound:.6g} seconds after 1970"
