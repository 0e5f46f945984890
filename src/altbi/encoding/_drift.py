"""What a table holds that the training sample did not; it is changed on its way in, and said."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self, final

import numpy as np
from numpy.typing import NDArray

from altbi.encoding._column import OTHER, Column
from altbi.encoding._layout import Layout, abreast, lines_of
from altbi.encoding._values import codes_of
from altbi.table import Table

__all__ = ["Drift", "measure_drift"]

_SHOWN = 5
# From this share of cells outside the learned range on, a column is another one than at fit.
_DRIFTED = 0.05
# Rare categories that were fewer than 3 % of the rows at fit, and are so many now: another table.
_CROWDED = 0.1
# In fewer rows a few odd ones are a large share: they are outliers, not another table.
_ENOUGH_ROWS = 100


@final
@dataclass(frozen=True, slots=True)
class Drift:
    """Cells that are missing where none was, categories that no column had, values out of range.

    A column whose rare categories were folded into one unit cannot tell a rare category from a new one:
    `TableEncoder.notes` has said that it has such categories, and `others` counts both together, where
    they were few.
    """

    missing: Counter[str] = field(default_factory=Counter)
    unseen: Counter[str] = field(default_factory=Counter)
    outside: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    rows: int = 0

    def __add__(self, other: Self) -> "Drift":
        return Drift(
            self.missing + other.missing,
            self.unseen + other.unseen,
            self.outside + other.outside,
            self.others + other.others,
            self.rows + other.rows,
        )

    def sentences(self) -> Iterator[str]:
        """Say in one sentence each which columns hold surprises, and what becomes of them."""
        if self.missing:
            yield (
                f"Cells are missing in {_counted(self.missing)}, where the training sample had no "
                "gaps; they take a neutral value."
            )
        if self.unseen:
            yield (
                f"Levels that the model does not know stand in {_counted(self.unseen)}; "
                f"they count as {OTHER!r}."
            )
        crowded = Counter({n: c for n, c in self.others.items() if c > _CROWDED * self.rows})
        if crowded and self.rows >= _ENOUGH_ROWS:
            yield (
                f"Levels that were rare at the fit, or are new, stand in {_counted(crowded)} of "
                f"{self.rows} rows; they count as {OTHER!r}. If the table has changed, fit again."
            )
        # A few cells beyond the sample's range are nothing but rows that were not in the sample.
        drifted = Counter({n: c for n, c in self.outside.items() if c > _DRIFTED * self.rows})
        if drifted and self.rows >= _ENOUGH_ROWS:
            yield (
                f"Many cells lie outside the range that was learned: in {_counted(drifted)} of "
                f"{self.rows} rows. If the table has changed since the fit, fit again."
            )


def _counted(counts: Counter[str]) -> str:
    """Name the columns with most surprises first."""
    named = [f"{name!r} ({count} cells)" for name, count in counts.most_common(_SHOWN)]
    more = len(counts) - len(named)
    return ", ".join(named) + (f" and {more} more columns" if more else "")


def measure_drift(table: Table, layout: Layout) -> Drift:
    """Count surprises; cells of numbers that do not stand out cost two looks."""
    missing: Counter[str] = Counter()
    unseen: Counter[str] = Counter()
    outside: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for column, gaps, strays in _numbers_that_stand_out(table, layout):
        if column.present:
            outside[column.name] = strays
        if not (column.missing or column.declared):
            missing[column.name] = gaps
    for number in layout.category_columns:
        column = layout.columns[number]
        codes = codes_of(table, number, column)
        if not (column.missing or column.declared) and (codes < 0).any():
            missing[column.name] += int((codes < 0).sum())
        n_others = int((codes == len(column.categories)).sum())
        if not column.rare:
            unseen[column.name] = n_others
        elif column.had_few_others:
            others[column.name] = n_others
    return Drift(+missing, +unseen, +outside, +others, len(table))


def _numbers_that_stand_out(table: Table, layout: Layout) -> Iterator[tuple[Column, int, int]]:
    """Give columns with gaps or values outside the learned range, and how many there are."""
    places = [p for p, n in enumerate(layout.scalars) if table.kinds[n] != "category"]
    if not places or not len(table):
        return
    cells = table.numbers(layout.scalars[places].tolist())
    found, missing = _standing_out(cells, layout.low[places], layout.high[places])
    gaps = np.bincount(found[missing], minlength=len(places))
    strays = np.bincount(found[~missing], minlength=len(places))
    for place in np.flatnonzero(gaps + strays):
        column = layout.columns[layout.scalars[places[place]]]
        yield column, int(gaps[place]), int(strays[place])


def _standing_out(
    cells: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Give the column of each cell that is missing or out of range, and whether it is missing."""
    lines, low, high = lines_of(cells, abreast(low), abreast(high))
    within = lines >= low
    within &= lines <= high  # a gap is neither
    places = np.flatnonzero(~within)
    return places % cells.shape[1], np.isnan(lines.ravel()[places])
