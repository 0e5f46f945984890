"""Formatting of numbers, values and columns, for the terminal, the report and reasons.csv."""

import math
from datetime import UTC, datetime, time, timedelta

from altbi.encoding import Column

# An empty text is a value, not a missing one.
EMPTY_TEXT = "''"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HALF_DAY = timedelta(hours=12)
SHOWN_CATEGORIES = 5
# Scores from this value on have four significant digits.
LARGE_SCORE = 1e7


def format_number(value: float, digits: int = 6) -> str:
    """Format a number with this many significant digits; integers in full.

    Digits before the decimal point are never replaced by zeros. Numbers from 10**15 on, or below
    0.0001, have an exponent. Infinity and NaN become "inf" and "nan".

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
    """Format a value of a table as text; a missing value becomes "".

    None and NaN are missing. An empty text becomes two quotes, booleans "true" and "false".
    `digits` limits the digits of numbers, and cuts dates to seconds; None keeps the exact value.
    Midnight is left out of dates without a time zone, and "+00:00" is left out for UTC.

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
    """Format an expected value of a column, for display next to the row's `value`.

    If both are dates and `value` has no time of day, the expected time is rounded to the nearest
    date.
    """
    if isinstance(expected, datetime) and isinstance(value, datetime) and value.time() == time():
        expected = (min(expected, datetime.max - HALF_DAY) + HALF_DAY).date()
    return format_value(expected, digits)


def format_nearest(nearest: object, value: object) -> str:
    """Format the value of a reference row, for display next to the row's `value`.

    If both are dates and neither has a time of day, only the date is shown.
    """
    if isinstance(nearest, datetime) and isinstance(value, datetime):
        nearest = nearest.date() if nearest.time() == value.time() == time() else nearest
    return format_value(nearest)


def format_score(value: float, threshold: float) -> str:
    """Format a score with as many decimals as give the threshold four significant digits.

    There are at most 6 decimals, and commas between thousands. Infinite scores and scores from
    10**7 on have four significant digits.
    """
    if abs(value) >= LARGE_SCORE or not math.isfinite(value):
        return f"{value:.4g}"
    size = math.floor(math.log10(abs(threshold))) if threshold else 0
    return f"{value:,.{min(max(3 - size, 0), 6)}f}"


def format_share(value: float) -> str:
    """Format a share in per cent, with at most two decimals; only zero becomes 0%.

    >>> format_share(0.0), format_share(0.00001), format_share(0.0312), format_share(0.5)
    ('0%', 'under 0.01%', '3.1%', '50%')
    """
    if 0 < value < 0.0001:
        return "under 0.01%"
    decimals = 0 if value == 0 or abs(value) >= 0.1 else 1 if abs(value) >= 0.01 else 2
    return f"{100 * value:.{decimals}f}%"


def describe_column(column: Column) -> str:
    """Describe the values that a column had in the training sample.

    Numbers and dates: their range. Categories: at most five, and the number of the others.
    Booleans: "true or false", or the only value. A column without values: "no values".
    """
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
    """Format the smallest or largest value of a column; dates are given in seconds since 1970.

    Dates after the year 9999 become a number of seconds.
    """
    if column.kind != "date":
        return format_number(bound)
    try:
        return format_value((EPOCH + timedelta(seconds=bound)).replace(tzinfo=None))
    except OverflowError:  # beyond year 9999
        return f"{bound:.6g} seconds after 1970"
