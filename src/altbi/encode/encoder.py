"""Tables to rows of float32 in [0, 1]: fitted on the training sample, applied to any rows."""

from collections.abc import Iterator
from typing import Self, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.encode.cells import check_columns, codes_of, numbers_of, own_cells
from altbi.encode.column import (
    OTHER,
    Column,
    expected_cells,
    learn_category,
    learn_scalar,
    notes_on,
    remembered_cells,
)
from altbi.encode.layout import Layout, Scale, hold, layout_of, scaled_cells
from altbi.encode.state import columns_from_json, columns_to_json, integer_from, mapping_from
from altbi.encode.surprises import Surprises, surprises_in
from altbi.errors import AltbiError, ModelFileError, ParameterError, TableError, infinity
from altbi.table import Kind, Table

__all__ = ["TableEncoder"]

CELLS_AT_ONCE = 2**15  # 256 KiB of float64: the steps of the scaling stay in the cache
COLUMNS_AT_ONCE = 32


@final
class TableEncoder:
    """Turns the columns of a table into units for a model, and a model's units back into columns.

    A number or date is one unit, 0 at the sample's smallest value and 1 at its largest; values
    outside that range are not clipped, only held within ±1e9. A boolean is one unit, 0 or 0.25. A
    category has a unit of 0 or 0.25 for each of its frequent levels and one for all others. A
    column with missing cells in the sample has one more unit that marks them.

    Parameters
    ----------
    max_levels : int, default=32
        Most levels of a category that get a unit of their own.
    min_count : int, default=2
        Fewest rows of the sample in which such a level occurs.

    Examples
    --------
    >>> from altbi.table import as_table
    >>> table = as_table(pa.table({"size": [1.0, 3.0, 2.0], "colour": ["red", "red", "blue"]}))
    >>> TableEncoder().fit(table).transform(table)
    array([[0.  , 0.25, 0.  ],
           [1.  , 0.25, 0.  ],
           [0.5 , 0.  , 0.25]], dtype=float32)
    """

    def __init__(self, *, max_levels: int = 32, min_count: int = 2) -> None:
        self.max_levels = max_levels
        self.min_count = min_count
        self._kept: Layout | None = None

    def fit(self, table: Table) -> Self:
        """Learn ranges, levels and fills from the training sample."""
        for name, least in (("max_levels", 0), ("min_count", 1)):
            if getattr(self, name) < least:
                raise ParameterError(
                    f"{name}={getattr(self, name)!r}, but expected at least {least}."
                )
        learned = dict(self._learned(table))
        columns = tuple(learned[number] for number in range(len(table.names)))
        if not any(column.present for column in columns):
            raise TableError(
                f"Every cell of the table's {len(table)} rows is missing, but expected values. "
                "Check how the table was read."
            )
        return self._keep(columns)

    @classmethod
    def declare(cls, columns: tuple[Column, ...], max_levels: int = 32) -> Self:
        """Take columns that were declared beforehand, and learn nothing."""
        most = max(len(column.levels) for column in columns)
        return cls(max_levels=max(max_levels, most))._keep(columns)

    def transform(self, table: Table) -> NDArray[np.float32]:
        """Encode rows as ``(n_rows, width)``; a row's units depend on that row alone."""
        return self._scaled(table, self._layout.ranges)

    def standardize(self, table: Table) -> NDArray[np.float32]:
        """Encode rows in deviations from the sample's medians, to measure distances between them.

        Units stand where `transform` has them. Beyond 20 deviations a number counts by its
        logarithm; one that is missing is NaN.
        """
        return self._scaled(table, self._layout.deviations)

    def fit_transform(self, table: Table) -> NDArray[np.float32]:
        """Learn from the sample, and encode it."""
        return self.fit(table).transform(table)

    @property
    def columns(self) -> tuple[Column, ...]:
        """What was learned of each column."""
        return self._layout.columns

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(column.name for column in self.columns)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The columns' kinds."""
        return tuple(column.kind for column in self.columns)

    @property
    def width(self) -> int:
        """Units of a row."""
        return len(self.unit_columns)

    @property
    def unit_columns(self) -> NDArray[np.intp]:
        """The number of the column that each unit belongs to."""
        return self._layout.unit_columns

    def fold(self, parts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add up what belongs to the units of one column: ``(n, width)`` to ``(n, n_columns)``."""
        return np.add.reduceat(parts, self._layout.starts, axis=1)

    def expected(self, units: NDArray[np.floating]) -> list[pa.Array]:
        """Turn a model's units ``(n, width)`` into one array per column, in the column's own terms.

        Numbers come in their original units, booleans as true or false, dates as timestamps in UTC
        without a zone, categories as the text of the strongest level.
        """
        return list(map(expected_cells, self.columns, self._by_column(units)))

    def recover(self, rows: NDArray[np.floating]) -> list[pa.Array]:
        """Turn standardized rows back into cells, one array per column, as `expected` gives them.

        Numbers come back up to the rounding of float32, gaps as null.
        """
        return list(map(remembered_cells, self.columns, self._by_column(rows)))

    def middle(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        """Give the middle of groups of standardized rows: ``(n, k, width)`` to ``(n, width)``.

        That is the (lower) median, which is a value of the group; for the levels of a category it
        is the share of rows that have it.
        """
        half = (rows.shape[1] - 1) // 2
        middle = np.partition(rows, half, axis=1)[:, half]
        levels = self._layout.levels
        middle[:, levels] = rows[:, :, levels].mean(axis=1)
        return middle

    def _by_column(self, units: NDArray[np.floating]) -> list[NDArray[np.float64]]:
        return np.split(np.asarray(units, dtype=np.float64), self._layout.starts[1:], axis=1)

    def cells(self, table: Table) -> list[pa.Array]:
        """Give a table's own cells, one array per column, in the same terms as `expected`."""
        check_columns(table, self.columns)
        return [own_cells(table, number, column) for number, column in enumerate(self.columns)]

    def doubts(self, units: NDArray[np.float32]) -> list[str]:
        """Say of which categories most cells of the sample have no level of their own."""
        return [
            f"Column {column.name!r} holds {column.distinct} different texts, most of them too "
            f"rare for a level of their own: they count as {OTHER!r}, and the column says little. "
            "If it holds dates or numbers, convert it; if it names rows, leave it out."
            for number, column in enumerate(self.columns)
            if column.kind == "category"
            and (units[:, self._layout.starts[number] + len(column.levels)] > 0).mean() > 0.5
        ]

    def notes(self) -> list[str]:
        """Say what the encoding changes: constant columns, missing cells, rare levels."""
        return [note for column in self.columns for note in notes_on(column)]

    def surprises(self, table: Table) -> Surprises:
        """Count what the table holds that the training sample did not."""
        check_columns(table, self.columns)
        return surprises_in(table, self._layout)

    def to_json(self) -> dict[str, object]:
        """Give the state as plain, strict JSON."""
        columns = columns_to_json(self.columns)
        return {"max_levels": self.max_levels, "min_count": self.min_count, "columns": columns}

    @classmethod
    def from_json(cls, state: object) -> Self:
        """Build an encoder from its state; whatever is wrong with it is a `ModelFileError`."""
        fields = mapping_from(state, {"max_levels", "min_count", "columns"}, "its start")
        encoder = cls(
            max_levels=integer_from(fields["max_levels"], "max_levels"),
            min_count=integer_from(fields["min_count"], "min_count"),
        )
        columns = columns_from_json(fields["columns"])
        if max(len(column.levels) for column in columns) > encoder.max_levels:
            raise ModelFileError(
                "The encoder's state has a column with more than max_levels levels."
            )
        return encoder._keep(columns)

    def _keep(self, columns: tuple[Column, ...]) -> Self:
        self._kept = layout_of(columns)
        return self

    @property
    def _layout(self) -> Layout:
        if self._kept is None:
            raise AltbiError("The TableEncoder has learned nothing yet. Call fit first.")
        return self._kept

    def _learned(self, table: Table) -> Iterator[tuple[int, Column]]:
        """Learn column by column; numbers in groups, kind to row-wise memory."""
        scalars = []
        for number, (name, kind) in enumerate(zip(table.names, table.kinds, strict=True)):
            if kind == "category":
                texts = table.levels(number)
                yield number, learn_category(name, texts, self.max_levels, self.min_count)
            else:
                scalars.append(number)
        for first in range(0, len(scalars), COLUMNS_AT_ONCE):
            group = scalars[first : first + COLUMNS_AT_ONCE]
            for number, values in zip(group, table.numbers(group).T, strict=True):
                yield number, learn_scalar(table.names[number], table.kinds[number], values)

    def _scaled(self, table: Table, scale: Scale) -> NDArray[np.float32]:
        """Fill the units of all columns."""
        check_columns(table, self.columns)
        units = np.zeros((len(table), self.width), dtype=np.float32)
        self._put_scalars(table, scale, units)
        for number in self._layout.categories:
            self._put_levels(table, number, scale, units)
        return units

    def _put_scalars(self, table: Table, scale: Scale, units: NDArray[np.float32]) -> None:
        """Scale all numbers at once, in blocks of rows that fit the cache."""
        layout = self._layout
        if not len(layout.scalars):
            return
        numbers = numbers_of(table, layout.scalars)
        places: slice | NDArray[np.intp] = layout.starts[layout.scalars]
        if len(layout.scalars) == self.width:
            places = slice(None)  # no other units: a plain copy is faster
        step = 1 << (max(CELLS_AT_ONCE // len(layout.scalars), 1).bit_length() - 1)
        room = np.empty((min(step, len(numbers)), len(layout.scalars)))
        for first in range(0, len(numbers), step):
            cells = numbers[first : first + step]
            block = units[first : first + step]
            scaled = scaled_cells(cells, scale, room)
            if not (-scale.limit <= scaled.min() and scaled.max() <= scale.limit):  # NaN is neither
                missing = self._missing(cells, table.first_row + first)
                hold(scaled, scale, missing)
                marks = layout.starts[layout.scalars[layout.marked]] + 1
                block[:, marks] = np.where(missing[:, layout.marked], scale.marks[marks], 0)
            block[:, places] = scaled

    def _missing(self, cells: NDArray[np.float64], first: int) -> NDArray[np.bool_]:
        """Mark missing cells, and refuse infinite ones by name and row."""
        infinite = np.argwhere(np.isinf(cells))
        if len(infinite):
            row, place = infinite[0]
            raise infinity(self.columns[self._layout.scalars[place]].name, first + int(row))
        return np.isnan(cells)

    def _put_levels(
        self, table: Table, number: int, scale: Scale, units: NDArray[np.float32]
    ) -> None:
        column, start = self.columns[number], self._layout.starts[number]
        codes = codes_of(table, number, column)
        rows = np.flatnonzero(codes >= 0)
        units[rows, start + codes[rows]] = scale.marks[start + codes[rows]]
        if column.missing:
            mark = start + column.n_units - 1
            units[codes < 0, mark] = scale.marks[mark]
