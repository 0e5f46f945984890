"""Ways to write dates and times of day as text, with the month as a number or as a name."""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from altbi.io._number_formats import HEAD_ROWS

_MICROSECONDS_PER_DAY = 86_400_000_000
_TIMESTAMP = pa.timestamp("us")

# Names of the months in English, German, French, Spanish, Italian, Portuguese and Dutch, in lower
# case. A point may follow.
_MONTH_NAMES = (
    "january jan januar jänner jän janvier janv enero ene "  # codespell:ignore
    "gennaio gen janeiro januari",
    "february feb februar februari février févr fév febrero "  # codespell:ignore
    "febbraio fevereiro fev",
    "march mar märz mär mrz mars marzo março maart mrt",
    "april apr avril avr abril abr aprile",
    "may mai mayo maggio mag maio mei",
    "june jun juni juin junio giugno giu junho",  # codespell:ignore
    "july jul juli juillet juil julio luglio lug julho",  # codespell:ignore
    "august aug août aou agosto ago augustus",
    "september sep sept septembre septiembre settembre set setembro",
    "october oct oktober okt octobre octubre ottobre ott outubro out",  # codespell:ignore
    "november nov novembre noviembre novembro",
    "december dec dezember dez décembre déc "  # codespell:ignore
    "diciembre dic dicembre dezembro",
)
_MONTHS = {
    name: month for month, names in enumerate(_MONTH_NAMES, start=1) for name in names.split()
}
_DAY, _MONTH, _NAME = r"(?P<d>\d{1,2})", r"(?P<m>\d{1,2})", r"(?P<b>\pL+)\.?"
_FULL_DAY, _FULL_MONTH = r"(?P<d>\d{2})", r"(?P<m>\d{2})"

# Patterns by name. %y is the year.
DATE_ORDERS = {
    "year/month/day": rf"%y/{_MONTH}/{_DAY}",
    "year-month-day": rf"%y-{_MONTH}-{_DAY}",
    "year.month.day": rf"%y\.{_MONTH}\.{_DAY}",
    "day.month.year": rf"{_DAY}\.{_MONTH}\.%y",
    "day/month/year": rf"{_DAY}/{_MONTH}/%y",
    "month/day/year": rf"{_MONTH}/{_DAY}/%y",
    "day-month-year": rf"{_DAY}-{_MONTH}-%y",
    "month-day-year": rf"{_MONTH}-{_DAY}-%y",
    "day, month name, year": (
        rf"{_DAY}(?:st|nd|rd|th|er)?(?:\.? ?|-|/| de ){_NAME}(?:,? ?|-|/| de )%y"
    ),
    "month name, day, year": rf"{_NAME}(?: |-|/){_DAY}(?:st|nd|rd|th)?(?:,? |,|-|/)%y",
}
# Version numbers, such as 1.10.12, are no dates.
SHORT_YEAR_ORDERS = {
    **{name: pattern for name, pattern in DATE_ORDERS.items() if name != "year.month.day"},
    "day.month.year": rf"{_FULL_DAY}\.{_FULL_MONTH}\.%y",
}
# Years of two digits are 1969 to 2068, as in POSIX.
_FIRST_SHORT_YEAR = 69

_SECONDS = r"(?::(?P<S>\d{2}(?:\.\d{1,6})?))?"
CLOCKS = {
    "24": rf"(?P<H>\d{{1,2}}):(?P<M>\d{{2}}){_SECONDS}",
    # An hour without minutes, as Arrow accepts it in ISO 8601.
    "24 or hour": rf"(?P<H>\d{{1,2}})(?::(?P<M>\d{{2}}){_SECONDS})?",
    "12": rf"(?P<H>\d{{1,2}})(?::(?P<M>\d{{2}}){_SECONDS})?"
    "[ \u00a0\u202f]?"
    r"(?P<p>[AaPp])\.?[Mm]\.?",
}


@dataclass(frozen=True, slots=True)
class DatePattern:
    """A way to write dates, with an optional time of day after them, or times of day alone."""

    date: str  # a key of `DATE_ORDERS`; empty for times of day alone
    clock: str  # a key of `CLOCKS`
    n_year_digits: int = 4

    def parse(self, texts: pa.Array) -> pa.Array:
        """Parse texts to timestamps or times of day, in microseconds and without a time zone.

        Other texts, and dates and times that do not exist, raise `pyarrow.ArrowInvalid`.
        """
        fields = _extract_fields(texts, self._list_patterns())
        if not self.date:
            return fields.to_array(fields.read_time(), pa.time64("us"))
        years = fields.read_integers("y", 1970)
        if self.n_year_digits == 2:
            years = years + np.where(years < _FIRST_SHORT_YEAR, 2000, 1900)
        days = _count_days(years, fields.read_months(), fields.read_integers("d", 1))
        return fields.to_array(days * _MICROSECONDS_PER_DAY + fields.read_time(), _TIMESTAMP)

    def may_parse(self, text: str) -> bool:
        """Return False only if `parse` would raise for this text; faster than `parse`."""
        pattern = self._list_patterns()[-1].replace(r"\pL", r"[^\W\d_]")
        return re.match(pattern, text) is not None

    def _list_patterns(self) -> list[str]:
        """Return the pattern of all texts in this way, after one of dates without times.

        The latter takes half the time.
        """
        if not self.date:
            return [f"^{CLOCKS[self.clock]}$"]
        orders = DATE_ORDERS if self.n_year_digits == 4 else SHORT_YEAR_ORDERS
        date = orders[self.date].replace("%y", rf"(?P<y>\d{{{self.n_year_digits}}})")
        return [f"^{date}$", f"^{date}(?:(?:,? |T){CLOCKS[self.clock]})?$"]


def _extract_fields(texts: pa.Array, patterns: Sequence[str]) -> "_Fields":
    """Return the groups of the first pattern that all texts match.

    If there is none, `pyarrow.ArrowInvalid` is raised.
    """
    for pattern in patterns:
        head = pc.match_substring_regex(texts[:HEAD_ROWS], pattern)
        if pc.all(head, min_count=0).as_py():
            groups = pc.extract_regex(texts, pattern)
            if groups.null_count == texts.null_count:
                return _Fields(groups, texts.is_null())
    raise pa.ArrowInvalid("a text that does not match the pattern")


class _Fields:
    """The groups of a pattern in texts, as numbers; missing texts have default values."""

    def __init__(self, groups: pa.Array, is_missing: pa.Array) -> None:
        self._groups = groups
        self._names = {field.name for field in groups.type}
        self._is_missing = is_missing.to_numpy(zero_copy_only=False)

    def to_array(self, values: NDArray[np.int64], type_: pa.DataType) -> pa.Array:
        """Return an array of a temporal type, with null for missing texts."""
        return pa.array(values, mask=self._is_missing).cast(type_)

    def read_integers(self, name: str, default: int) -> NDArray[np.int64]:
        """Return a group as integers; a group that is missing or did not match is `default`."""
        return self._read(name, default, pa.int64())

    def _read(self, name: str, default: int, type_: pa.DataType) -> NDArray[np.int64]:
        """Return a group as numbers of a type, as `read_integers`."""
        group = pc.struct_field(self._groups, name)
        filled = pc.if_else(pc.equal(group, ""), str(default), group).fill_null(str(default))
        return filled.cast(type_).to_numpy()

    def read_months(self) -> NDArray[np.int64]:
        """Return the numbers of the months; an unknown name raises `pyarrow.ArrowInvalid`."""
        if "m" in self._names:
            return self.read_integers("m", 1)
        names = pc.utf8_lower(pc.struct_field(self._groups, "b")).fill_null("may")
        index = pc.index_in(names, value_set=pa.array(_MONTHS))
        if index.null_count:
            raise pa.ArrowInvalid("no name of a month")
        return np.array(list(_MONTHS.values()))[index.to_numpy()]

    def read_time(self) -> NDArray[np.int64]:
        """Return the times of day in microseconds; a text without a time is midnight.

        Times that do not exist raise `pyarrow.ArrowInvalid`.
        """
        if "H" not in self._names:
            return np.zeros(len(self._groups), np.int64)
        hours = self._read_hours()
        minutes = self.read_integers("M", 0)
        seconds = self._read("S", 0, pa.float64())
        if not ((hours <= 23) & (minutes <= 59) & (seconds < 60)).all():
            raise pa.ArrowInvalid("no such time")
        return (hours * 60 + minutes) * 60_000_000 + np.rint(seconds * 1e6).astype(np.int64)

    def _read_hours(self) -> NDArray[np.int64]:
        """Return the hours, counted from midnight; 13 PM and 0 AM raise `pyarrow.ArrowInvalid`."""
        if "p" not in self._names:
            return self.read_integers("H", 0)
        hours = self.read_integers("H", 12)
        if not ((hours >= 1) & (hours <= 12)).all():
            raise pa.ArrowInvalid("no such hour")
        half = pc.utf8_upper(pc.struct_field(self._groups, "p")).fill_null("")
        return hours % 12 + 12 * pc.equal(half, "P").to_numpy(zero_copy_only=False)


@functools.cache
def _list_month_starts() -> NDArray[np.int64]:
    """Return the first day of each month from year 0 to 10000, in days since 1970."""
    return (
        np.arange("0000-01", "10000-02", dtype="datetime64[M]").astype("datetime64[D]").astype(int)
    )


def _count_days(
    years: NDArray[np.int64], months: NDArray[np.int64], days: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the days since 1970; a day that does not exist raises `pyarrow.ArrowInvalid`."""
    if not ((months >= 1) & (months <= 12)).all():
        raise pa.ArrowInvalid("no such month")
    starts = _list_month_starts()
    index = years * 12 + months - 1
    counted = starts[index] + days - 1
    if not ((days >= 1) & (counted < starts[index + 1])).all():
        raise pa.ArrowInvalid("no such day")
    return counted
