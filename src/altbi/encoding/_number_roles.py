"""Roles of columns of numbers: keys and counters, codes, and quantities."""

import math
from typing import Literal

import numpy as np

from altbi._formatting import format_number
from altbi.encoding._column_profile import MIN_COUNTER_ROWS, ColumnProfile, Values

NumberRole = Literal["number", "code", "identifier"]

_MIN_RANDOM_ROWS = 200  # an even distribution is not recognised in fewer rows
# Number of repeated values that chance would give before their absence shows a key: with 20
# expected, at most 2 occur once in 10**6 columns.
_MIN_EXPECTED_REPEATS = 20
_MAX_REPEATS = 0.1  # of the repeats that chance would give
# Elapsed times and totals do not repeat either. With fewer expected repeats than this, keys must
# also be spread evenly, as a sample of a counter is.
_MANY_EXPECTED_REPEATS = 100
_MAX_DISTANCE = 0.1  # largest Kolmogorov distance to the even distribution
_MAX_INTEGER = 2.0**64

# Ranges of integers that a generator of keys fills evenly: all numbers of 6 to 19 digits, and words
# of 32, 63 or 64 bits. A measured quantity that fills one of them evenly is not known.
_KEY_RANGES = (
    *((10.0 ** (n_digits - 1), 10.0**n_digits) for n_digits in range(6, 20)),
    *((0.0, 2.0**bits) for bits in (31, 32, 63, 64)),
    (-(2.0**31), 2.0**31),
    (-(2.0**63), 2.0**63),
)
_SECONDS_OF_1980, _SECONDS_OF_2100 = 3.15e8, 4.2e9
_YEARS = (1500, 2200)


def infer_number_role(profile: ColumnProfile) -> tuple[NumberRole, str]:
    """Return the role of a column of numbers, and the reason."""
    values = profile.numbers
    low, high = float(values.min()), float(values.max())
    if is_integral(values):
        evidence = describe_key(values, profile)
        if evidence:
            return "identifier", evidence
        evidence = _describe_code(np.sort(values), profile.n_present)
        if evidence:
            return "code", evidence
    limits = f"{format_number(low)} to {format_number(high)}"
    return "number", f"{profile.n_distinct:,} distinct numbers from {limits}."


def is_integral(values: Values) -> bool:
    """Return whether all values are integers of at most 64 bits."""
    # Most measurements are recognised by their first values.
    for some in (values[:64], values):
        if not (np.abs(some) <= _MAX_INTEGER).all() or (np.rint(some) != some).any():
            return False
    return True


def describe_key(values: Values, profile: ColumnProfile) -> str | None:
    """Return the evidence that integers are keys, or None.

    Keys are counters, integers that repeat much less often than chance would have it, and numbers
    that fill a range of computer integers evenly.
    """
    n_present, n_distinct = profile.n_present, profile.n_distinct
    if n_present < MIN_COUNTER_ROWS or n_distinct < 0.9 * n_present:
        return None
    ranked = np.sort(values)
    if not _may_be_times(ranked):
        counter = _describe_counter(values, ranked, profile)
        if counter:
            return counter
    return _describe_random_key(ranked, n_present)


def _describe_counter(values: Values, ranked: Values, profile: ColumnProfile) -> str | None:
    """Return the evidence that integers count rows, or are a sample of such a counter.

    If n values were independent, R possible integers would repeat at least n - R (1 - exp(-n / R))
    times, whatever their distribution. Far fewer repeats mean that something keeps them unique.
    """
    n_present, n_distinct = profile.n_present, profile.n_distinct
    low, high = ranked[0], ranked[-1]
    n_possible = high - low + 1
    span = f"from {format_number(low)} to {format_number(high)}"
    if n_distinct == n_present:
        steps = np.diff(values)
        if (steps == steps[0]).all():
            return f"A counter: each row adds {format_number(steps[0])}, {span}."
        if n_possible == n_distinct:
            return f"A counter: each integer {span} occurs once."
        is_sorted = abs(np.sign(steps).mean()) >= 0.9
        if is_sorted and n_possible > 2 * profile.n_source_rows:
            return None  # elapsed time or a total, as far as the values show
    expected = n_present + n_possible * math.expm1(-n_present / n_possible)
    n_repeats = n_present - n_distinct
    if expected < _MIN_EXPECTED_REPEATS or n_repeats > _MAX_REPEATS * expected:
        return None
    is_even = _compute_distance(ranked, low, high + 1) <= _MAX_DISTANCE
    if not is_even and expected < _MANY_EXPECTED_REPEATS:
        return None
    return (
        f"{n_distinct:,} distinct integers in {n_present:,} rows {span}; at least "
        f"{expected:,.0f} repeats are expected by chance."
    )


def _describe_random_key(ranked: Values, n_present: int) -> str | None:
    """Return the evidence that distinct integers in ascending order are random keys, or None."""
    n_distinct = len(ranked)
    if n_distinct < _MIN_RANDOM_ROWS or not _has_even_last_digits(ranked):
        return None
    limit = 0.02 + 1.2 / math.sqrt(n_distinct)
    for low, high in _KEY_RANGES:
        inside = ranked[0] >= low and ranked[-1] < high
        if inside and _compute_distance(ranked, low, high) <= limit:
            return (
                f"{n_distinct:,} distinct integers in {n_present:,} rows fill the range from "
                f"{format_number(low)} to {format_number(high)} evenly."
            )
    return None


def _may_be_times(ranked: Values) -> bool:
    """Return whether integers in ascending order may be years, dates or seconds since 1970."""
    low, high = ranked[0], ranked[-1]
    if _YEARS[0] <= low and high <= _YEARS[1]:
        return True
    for ticks in (1.0, 1e3, 1e6, 1e9):
        if low >= ticks * _SECONDS_OF_1980 and high <= ticks * _SECONDS_OF_2100:
            return True
    return any(_are_calendar_dates(ranked, n_digits) for n_digits in (6, 8, 10, 12, 14))


def _are_calendar_dates(ranked: Values, n_digits: int) -> bool:
    """Return whether integers have the form yyyymm, yyyymmdd, yyyymmddhh, ... of `n_digits`."""
    scale = 10.0 ** (n_digits - 4)
    if ranked[0] < _YEARS[0] * scale or ranked[-1] >= (_YEARS[1] + 1) * scale:
        return False
    months = ranked // (scale / 100) % 100
    is_valid = (months >= 1) & (months <= 12)
    if n_digits >= 8:
        days = ranked // (scale / 10_000) % 100
        is_valid &= (days >= 1) & (days <= 31)
    return bool(is_valid.all())


def _compute_distance(ranked: Values, low: float, high: float) -> float:
    """Return the Kolmogorov distance of sorted values to the even distribution on [low, high)."""
    shares = (ranked - low) / (high - low)
    return float(np.abs(shares - (np.arange(len(ranked)) + 0.5) / len(ranked)).max())


def _has_even_last_digits(values: Values) -> bool:
    """Return whether the last digits of distinct integers are about equally frequent.

    Amounts are not: many are multiples of 5 or 10, or end with 9. Integers of more than 53 bits are
    not examined, because their last digits are rounded.
    """
    if np.abs(values).max() > 2.0**53:
        return True
    shares = np.bincount(np.abs(values % 10).astype(np.int64), minlength=10) / len(values)
    return bool(np.abs(shares - 0.1).max() <= 0.03 + 4 * math.sqrt(0.09 / len(values)))


def _describe_code(ranked: Values, n_present: int) -> str | None:
    """Return the evidence that distinct integers in ascending order are codes, or None.

    Codes such as postcodes have the same number of digits, fill the range of these digits, and
    leave most integers out although each code occurs often. A quantity that occurs as often would
    leave few integers out, except for rounded amounts, whose last digits are not even.
    """
    n_distinct, high = len(ranked), ranked[-1]
    if n_distinct < 50 or n_present < 5 * n_distinct or ranked[0] < 0 or high < 100:
        return None
    n_digits = len(str(int(high)))
    lowest = 10.0 ** (n_digits - 1)
    n_full = n_distinct - int(np.searchsorted(ranked, lowest))
    # Leading zeros are lost when codes become numbers.
    if n_full < 0.85 * n_distinct:
        return None
    is_sparse = n_distinct <= 0.5 * (high - ranked[0] + 1)
    is_even = _compute_distance(ranked, 0.0 if n_full < n_distinct else lowest, 10 * lowest) <= 0.2
    # Values of an instrument with a step of 3 or 7 have even last digits, too.
    has_step = np.gcd.reduce(np.diff(ranked).astype(np.int64)) > 1
    if has_step or not (is_sparse and is_even and _has_even_last_digits(ranked)):
        return None
    return (
        f"{n_distinct:,} codes of {n_digits} digits in {n_present:,} rows; "
        f"{1 - n_distinct / (high - ranked[0] + 1):.0%} of the integers between never occur."
    )
