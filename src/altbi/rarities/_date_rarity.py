"""Rarity of dates: their time of day, weekday and day of the month, and dates far off the range.

The position of a date inside the range does not count, so that a model fitted on one month scores
the next one.
"""

from typing import Annotated, final

import msgspec
import numpy as np
from numpy.typing import NDArray

from altbi.rarities._rare_counts import compute_rarities

DAY = 86_400.0
_N_HOURS, _N_WEEKDAYS, _N_DAYS = 24, 7, 31
_THURSDAY = 3  # 1970-01-01
# Quantiles that give the range of usual dates; a few wrong dates do not move them.
_OUTER_SHARE = 0.01
# Parts of a date are learned from at least so many rows for each of their values.
_MIN_ROWS_BY_VALUE = 10
# Dates count as in range up to this many lengths of the range away from it, and at least these
# seconds.
_MARGIN_SHARE, _MIN_MARGIN = 1.0, 366 * DAY

# Rarity from which a part of a date is described.
_MIN_DESCRIBED = 1.0
_NAMES = {"hours": "time of day", "weekdays": "day of the week", "days": "day of the month"}
Floats = NDArray[np.float64]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
# Dates are 64-bit integers, of seconds at most.
Moment = Annotated[float, msgspec.Meta(ge=-1e19, le=1e19)]


@final
class DateRarity(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Rarities of the dates of a column, in seconds since 1970.

    Examples
    --------
    >>> noon = 86_400.0 * np.arange(365) + 43_200
    >>> rarity = fit_date_rarity(noon)
    >>> rarity.score(np.array([noon[3], noon[3] + 400 * 86_400, noon[3] - 1e10, np.nan])).round(1)
    array([0. , 0. , 5.9, 0. ])
    """

    low: Moment  # quantiles of the dates
    high: Moment
    n_rows: Count
    # How often each value occurs; empty if it says nothing.
    hours: Annotated[tuple[Count, ...], msgspec.Meta(max_length=_N_HOURS)]
    weekdays: Annotated[tuple[Count, ...], msgspec.Meta(max_length=_N_WEEKDAYS)]
    days: Annotated[tuple[Count, ...], msgspec.Meta(max_length=_N_DAYS)]

    def __post_init__(self) -> None:
        """Raise a `ValueError` if the fields contradict each other."""
        if not self.low <= self.high:
            raise ValueError("date rarity: expected low <= high")
        sizes = {"hours": _N_HOURS, "weekdays": _N_WEEKDAYS, "days": _N_DAYS}
        for name, size in sizes.items():
            if len(getattr(self, name)) not in (0, size):
                raise ValueError(f"date rarity: expected {size} counts of {name}")

    def score(self, dates: Floats) -> Floats:
        """Return the rarities ``(n_rows,)`` of dates; 0 for missing ones.

        It is the largest rarity of a part, or that of a date far off the range if that is larger.
        """
        is_present = ~np.isnan(dates)
        known = np.where(is_present, dates, self.low)
        rarities = self._score_distance(known)
        for name, values in _split_dates(known).items():
            counts = np.array(getattr(self, name))
            if len(counts):
                found = compute_rarities(counts, counts)[values]
                rarities = np.maximum(rarities, found)
        return rarities * is_present

    def describe(self, date: float) -> str:
        """Return what is expected instead of a rare date: the usual range or another part."""
        dates = np.array([date])
        rarest, expected = float(self._score_distance(dates)[0]), ""
        if rarest > 0:
            days = (int(moment // DAY) for moment in (self.low, self.high))
            expected = " to ".join(str(np.datetime64(day, "D")) for day in days)
        for name, values in _split_dates(dates).items():
            counts = np.array(getattr(self, name))
            if len(counts) and (found := compute_rarities(counts, counts)[values[0]]) > max(
                rarest, _MIN_DESCRIBED
            ):
                rarest, expected = found, f"another {_NAMES[name]}"
        return expected

    def _score_distance(self, dates: Floats) -> Floats:
        """Return rarities that grow with the distance from the range beyond its margin."""
        length = self.high - self.low
        margin = max(_MARGIN_SHARE * length, _MIN_MARGIN)
        excess = np.maximum(np.maximum(self.low - dates, dates - self.high) - margin, 0)
        return float(np.log(self.n_rows + 1)) * np.minimum(excess / margin, 1)


def _split_dates(dates: Floats) -> dict[str, NDArray[np.int64]]:
    """Return the hour, weekday and day of the month of each date, counted from 0."""
    days = np.floor(dates / DAY).astype(np.int64)
    hours = np.clip(np.floor((dates - days * DAY) / 3600), 0, _N_HOURS - 1).astype(np.int64)
    calendar = days.astype("datetime64[D]")
    month_days = (calendar - calendar.astype("datetime64[M]")).astype(np.int64)
    return {
        "hours": hours,
        "weekdays": (days + _THURSDAY) % _N_WEEKDAYS,
        "days": np.clip(month_days, 0, _N_DAYS - 1),
    }


def fit_date_rarity(dates: Floats) -> DateRarity | None:
    """Fit the rarities of a column of dates; None if there are no dates."""
    present = dates[~np.isnan(dates)]
    if not len(present):
        return None
    low, high = np.quantile(present, [_OUTER_SHARE, 1 - _OUTER_SHARE]).tolist()
    found = {}
    sizes = {"hours": _N_HOURS, "weekdays": _N_WEEKDAYS, "days": _N_DAYS}
    for name, values in _split_dates(present).items():
        counts = np.bincount(values, minlength=sizes[name])
        is_learned = len(present) >= _MIN_ROWS_BY_VALUE * sizes[name] and _covers(name, high - low)
        found[name] = tuple(counts.tolist()) if is_learned else ()
    return DateRarity(low=low, high=high, n_rows=len(present), **found)


def _covers(name: str, seconds: float) -> bool:
    """Return whether a range of dates is long enough to show how a part repeats."""
    needed = {"hours": 3 * DAY, "weekdays": 21 * DAY, "days": 92 * DAY}
    return seconds >= needed[name]
