"""Rarity of the time between two dates of a row, such as an end before its start."""

from typing import Annotated, final

import msgspec
import numpy as np
from numpy.typing import NDArray

from altbi.rarities._rare_counts import compute_rarities

# Bins: before, equal, and after, each in powers of two of a second. The last ones are open.
N_POWERS = 36
N_BINS = 2 * N_POWERS + 1
MIN_ROWS = 50

Floats = NDArray[np.float64]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


@final
class DateDifference(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Rarities of the times from the dates of one column to those of another, in seconds.

    Examples
    --------
    >>> start = 86_400.0 * np.arange(200)
    >>> difference = fit_date_difference(start, start + 1e5 + np.arange(200), first=0, second=1)
    >>> difference.score(np.array([0.0, 0, np.nan]), np.array([1e5, -1e5, 0])).round(1)
    array([0. , 3.7, 0. ])
    """

    first: Annotated[int, msgspec.Meta(ge=0)]  # indices of the columns
    second: Annotated[int, msgspec.Meta(ge=0)]
    counts: Annotated[tuple[Count, ...], msgspec.Meta(min_length=N_BINS, max_length=N_BINS)]

    def score(self, first: Floats, second: Floats) -> Floats:
        """Return the rarities ``(n_rows,)`` of the times between dates; 0 if one is missing."""
        counts = np.array(self.counts)
        is_present = ~(np.isnan(first) | np.isnan(second))
        found: Floats = compute_rarities(counts, counts)[_find_bins(first, second)] * is_present
        return found


def _find_bins(first: Floats, second: Floats) -> NDArray[np.intp]:
    """Return the bin of each difference; missing dates count as equal."""
    seconds = np.nan_to_num(second - first)
    # The exponents of floating-point numbers are exact, unlike logarithms.
    powers = np.clip(np.frexp(np.abs(seconds))[1], 1, N_POWERS)
    found: NDArray[np.intp] = (N_POWERS + np.sign(seconds) * powers).astype(np.intp)
    return found


def fit_date_difference(
    first_dates: Floats, second_dates: Floats, *, first: int, second: int
) -> DateDifference | None:
    """Fit the rarities of times between two columns of dates; None with fewer than 50 rows."""
    is_present = ~(np.isnan(first_dates) | np.isnan(second_dates))
    if is_present.sum() < MIN_ROWS:
        return None
    bins = _find_bins(first_dates[is_present], second_dates[is_present])
    counts = np.bincount(bins, minlength=N_BINS)
    return DateDifference(first=first, second=second, counts=tuple(counts.tolist()))
