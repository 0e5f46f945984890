"""Drift: values of a table that the training sample did not have."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self, final

import numpy as np
from numpy.typing import NDArray

from altbi.encoding._column import OTHER
from altbi.encoding._scaling import Layout
from altbi.encoding._values import read_category_codes
from altbi.table import Table

MAX_SHOWN_COLUMNS = 5
# Largest share of values outside the fitted range, and of rare or unknown categories, that raises
# no warning.
MAX_OUTSIDE = 0.05
MAX_OTHERS = 0.1
# In fewer rows a few outliers are a large share.
MIN_ROWS = 100


@final
@dataclass(frozen=True, slots=True)
class Drift:
    """Counts of values that the training sample did not have, by column.

    Attributes
    ----------
    missing : Counter
        Missing values in columns that had none.
    unseen : Counter
        Unknown categories in columns whose categories all have an encoded feature.
    outside : Counter
        Numbers and dates outside the fitted range.
    others : Counter
        Rare or unknown categories, which are encoded alike, in columns that had few rare ones.
    rows : int
        Number of rows.
    """

    missing: Counter[str] = field(default_factory=Counter)
    unseen: Counter[str] = field(default_factory=Counter)
    outside: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    rows: int = 0

    def __add__(self, other: Self) -> "Drift":
        """Return the sum of all counts, for the drift of two pieces of a table."""
        return Drift(
            self.missing + other.missing,
            self.unseen + other.unseen,
            self.outside + other.outside,
            self.others + other.others,
            self.rows + other.rows,
        )

    def describe(self) -> Iterator[str]:
        """Yield a warning for each type of drift.

        Rare categories and values outside the range are reported only for tables of at least 100
        rows. They must affect more than 10 % or 5 % of the rows of a column.
        """
        if self.missing:
            yield (
                f"Missing values in {_format_counts(self.missing)}, where the training sample had "
                "none; they count as typical values."
            )
        if self.unseen:
            yield (
                f"Unknown categories in {_format_counts(self.unseen)}, which the training sample "
                f"did not have; they count as {OTHER!r}."
            )
        others = self._select_frequent(self.others, MAX_OTHERS)
        if others:
            yield (
                f"Rare or unknown categories in {_format_counts(others)} of {self.rows} rows, more "
                f"than in the training sample; they count as {OTHER!r}. If the table has changed, "
                "fit again."
            )
        outside = self._select_frequent(self.outside, MAX_OUTSIDE)
        if outside:
            yield (
                f"Many values outside the range of the training sample in "
                f"{_format_counts(outside)} of {self.rows} rows. If the table has changed, fit "
                "again."
            )

    def _select_frequent(self, counts: Counter[str], share: float) -> Counter[str]:
        """Return the counts of columns in which more than a share of the rows is affected.

        Tables of fewer than 100 rows have none.
        """
        if self.rows < MIN_ROWS:
            return Counter()
        return Counter({name: n for name, n in counts.items() if n > share * self.rows})


def _format_counts(counts: Counter[str]) -> str:
    """Format the five columns with the highest counts, and the number of further columns."""
    shown = [f"{name!r} ({count} values)" for name, count in counts.most_common(MAX_SHOWN_COLUMNS)]
    n_more = len(counts) - len(shown)
    return ", ".join(shown) + (f" and {n_more} more columns" if n_more else "")


def measure_drift(table: Table, layout: Layout) -> Drift:
    """Count the values of a table that the training sample did not have, by column.

    New missing values are not counted in declared columns. Columns without drift have no entry.
    """
    missing: Counter[str] = Counter()
    unseen: Counter[str] = Counter()
    outside: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for number, n_missing, n_outside in _count_missing_and_outside(table, layout):
        column = layout.columns[number]
        if column.n_present:
            outside[column.name] = n_outside
        if not (column.n_missing or column.is_declared):
            missing[column.name] = n_missing
    for number in layout.categorical:
        column = layout.columns[number]
        codes = read_category_codes(table, number, column)
        if not (column.n_missing or column.is_declared):
            missing[column.name] = int((codes < 0).sum())
        n_others = int((codes == len(column.categories)).sum())
        if not column.n_rare:
            unseen[column.name] = n_others
        elif column.has_few_rare:
            others[column.name] = n_others
    return Drift(+missing, +unseen, +outside, +others, len(table))


def _count_missing_and_outside(table: Table, layout: Layout) -> Iterator[tuple[int, int, int]]:
    """Yield index, number of missing values and number of values out of range of numeric columns.

    Columns without either are left out, and so are columns that hold texts in this table.
    """
    is_number = np.array([table.kinds[n] != "category" for n in layout.numeric], dtype=bool)
    numbers = layout.numeric[is_number]
    if not len(numbers):
        return
    values = table.numbers(numbers.tolist())
    is_inside = values >= layout.low[is_number]
    is_inside &= values <= layout.high[is_number]  # NaN is not inside
    rows, positions = np.nonzero(~is_inside)
    is_missing = np.isnan(values[rows, positions])
    n_missing = _count_positions(positions[is_missing], len(numbers))
    n_outside = _count_positions(positions[~is_missing], len(numbers))
    for position in np.flatnonzero(n_missing + n_outside):
        yield int(numbers[position]), int(n_missing[position]), int(n_outside[position])


def _count_positions(positions: NDArray[np.intp], length: int) -> NDArray[np.intp]:
    """Return how often each position from 0 to ``length - 1`` occurs."""
    return np.bincount(positions, minlength=length)
