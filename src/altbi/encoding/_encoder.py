"""Tables to rows of float32 in [0, 1]: fitted on the training sample, applied to any rows."""

from collections.abc import Iterator
from typing import Self, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.encoding._column import (
    OTHER,
    Column,
    expected_cells,
    fit_category,
    fit_scalar,
    notes_on,
    remembered_cells,
)
from altbi.encoding._drift import Drift, measure_drift
from altbi.encoding._layout import Layout, Scale, hold, layout_of, scaled_cells
from altbi.encoding._schema import columns_from_json, columns_to_json, integer_from, mapping_from
from altbi.encoding._values import check_columns, codes_of, numbers_of, own_cells
from altbi.errors import AltbiError, ModelFileError, ParameterError, TableError, infinity_error
from altbi.table import Kind, Table

__all__ = ["TableEncoder"]

CELLS_AT_ONCE = 2**15  # 256 KiB of float64: the steps of the scaling stay in the cache
COLUMNS_AT_ONCE = 32


@final
class TableEncoder:
    """Turns the columns of a table into features for a model, and a model's features back into columns.

    A number or date is one unit, 0 at the sample's smallest value and 1 at its largest; values
    outside that range are not clipped, only held within ±1e9. A boolean is one unit, 0 or 0.25. A
    category has a unit of 0 or 0.25 for each of its frequent categories and one for all others. A
    column with missing cells in the sample has one more unit that marks them.

    Parameters
    ----------
    max_categories : int, default=32
        Most categories of a category that get a unit of their own.
    min_count : int, default=2
        Fewest rows of the sample in which such a category occurs.

    Examples
    --------
    >>> from altbi.table import as_table
    >>> table = as_table(pa.table({"size": [1.0, 3.0, 2.0], "colour": ["red", "red", "blue"]}))
    >>> TableEncoder().fit(table).transform(table)
    array([[0.  , 0.25, 0.  ],
           [1.  , 0.25, 0.  ],
           [0.5 , 0.  , 0.25]], dtype=float32)
    """

    def __init__(self, *, max_categories: int = 32, min_count: int = 2) -> None:
        self.max_categories = max_categories
        self.min_count = min_count
        self._kept: Layout | None = None

    def fit(self, table: Table) -> Self:
        """Learn ranges, categories and fills from the training sample."""
        for name, least in (("max_categories", 0), ("min_count", 1)):
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
    def declare(cls, columns: tuple[Column, ...], max_categories: int = 32) -> Self:
        """Take columns that were declared beforehand, and learn nothing."""
        most = max(len(column.categories) for column in columns)
        return cls(max_categories=max(max_categories, most))._keep(columns)

    def transform(self, table: Table) -> NDArray[np.float32]:
        """Encode rows as ``(n_rows, n_features_encoded)``; a row's features depend on that row alone."""
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
    def n_features_encoded(self) -> int:
        """Units of a row."""
        return len(self.feature_columns)

    @property
    def feature_columns(self) -> NDArray[np.intp]:
        """The number of the column that each unit belongs to."""
        return self._layout.feature_columns

    def sum_by_column(self, parts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add up what belongs to the features of one column: ``(n, n_features_encoded)`` to ``(n, n_columns)``."""
        return np.add.reduceat(parts, self._layout.starts, axis=1)

    def decode_expected(self, features: NDArray[np.floating]) -> list[pa.Array]:
        """Turn a model's features ``(n, n_features_encoded)`` into one array per column, in the column's own terms.

        Numbers come in their original features, booleans as true or false, dates as timestamps in UTC
        without a zone, categories as the text of the strongest category.
        """
        return list(map(expected_cells, self.columns, self._by_column(features)))

    def decode(self, rows: NDArray[np.floating]) -> list[pa.Array]:
        """Turn standardized rows back into cells, one array per column, as `expected` gives them.

        Numbers come back up to the rounding of float32, gaps as null.
        """
        return list(map(remembered_cells, self.columns, self._by_column(rows)))

    def group_medians(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        """Give the middle of groups of standardized rows: ``(n, k, n_features_encoded)`` to ``(n, n_features_encoded)``.

        That is the (lower) median, which is a value of the group; for the categories of a category it
        is the share of rows that have it.
        """
        half = (rows.shape[1] - 1) // 2
        middle = np.partition(rows, half, axis=1)[:, half]
        categories = self._layout.category_features
        middle[:, categories] = rows[:, :, categories].mean(axis=1)
        return middle

    def _by_column(self, features: NDArray[np.floating]) -> list[NDArray[np.float64]]:
        return np.split(np.asarray(features, dtype=np.float64), self._layout.starts[1:], axis=1)

    def values(self, table: Table) -> list[pa.Array]:
        """Give a table's own cells, one array per column, in the same terms as `expected`."""
        check_columns(table, self.columns)
        return [own_cells(table, number, column) for number, column in enumerate(self.columns)]

    def find_problems(self, features: NDArray[np.float32]) -> list[str]:
        """Say of which categories most cells of the sample have no category of their own."""
        return [
            f"Column {column.name!r} holds {column.distinct} different texts, most of them too "
            f"rare for a category of their own: they count as {OTHER!r}, and the column says little. "
            "If it holds dates or numbers, convert it; if it names rows, leave it out."
            for number, column in enumerate(self.columns)
            if column.kind == "category"
            and (features[:, self._layout.starts[number] + len(column.categories)] > 0).mean() > 0.5
        ]

    def describe_changes(self) -> list[str]:
        """Say what the encoding changes: constant columns, missing cells, rare categories."""
        return [note for column in self.columns for note in notes_on(column)]

    def drift(self, table: Table) -> Drift:
        """Count what the table holds that the training sample did not."""
        check_columns(table, self.columns)
        return measure_drift(table, self._layout)

    def to_json(self) -> dict[str, object]:
        """Give the state as plain, strict JSON."""
        columns = columns_to_json(self.columns)
        return {
            "max_categories": self.max_categories,
            "min_count": self.min_count,
            "columns": columns,
        }

    @classmethod
    def from_json(cls, state: object) -> Self:
        """Build an encoder from its state; whatever is wrong with it is a `ModelFileError`."""
        fields = mapping_from(state, {"max_categories", "min_count", "columns"}, "its start")
        encoder = cls(
            max_categories=integer_from(fields["max_categories"], "max_categories"),
            min_count=integer_from(fields["min_count"], "min_count"),
        )
        columns = columns_from_json(fields["columns"])
        if max(len(column.categories) for column in columns) > encoder.max_categories:
            raise ModelFileError(
                "The encoder's state has a column with more than max_categories categories."
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
                texts = table.categories(number)
                yield number, fit_category(name, texts, self.max_categories, self.min_count)
            else:
                scalars.append(number)
        for first in range(0, len(scalars), COLUMNS_AT_ONCE):
            group = scalars[first : first + COLUMNS_AT_ONCE]
            for number, values in zip(group, table.numbers(group).T, strict=True):
                yield number, fit_scalar(table.names[number], table.kinds[number], values)

    def _scaled(self, table: Table, scale: Scale) -> NDArray[np.float32]:
        """Fill the features of all columns."""
        check_columns(table, self.columns)
        features = np.zeros((len(table), self.n_features_encoded), dtype=np.float32)
        self._put_scalars(table, scale, features)
        for number in self._layout.category_columns:
            self._put_categories(table, number, scale, features)
        return features

    def _put_scalars(self, table: Table, scale: Scale, features: NDArray[np.float32]) -> None:
        """Scale all numbers at once, in blocks of rows that fit the cache."""
        layout = self._layout
        if not len(layout.scalars):
            return
        numbers = numbers_of(table, layout.scalars)
        places: slice | NDArray[np.intp] = layout.starts[layout.scalars]
        if len(layout.scalars) == self.n_features_encoded:
            places = slice(None)  # no other features: a plain copy is faster
        step = 1 << (max(CELLS_AT_ONCE // len(layout.scalars), 1).bit_length() - 1)
        buffer = np.empty((min(step, len(numbers)), len(layout.scalars)))
        for first in range(0, len(numbers), step):
            cells = numbers[first : first + step]
            block = features[first : first + step]
            scaled = scaled_cells(cells, scale, buffer)
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
            raise infinity_error(self.columns[self._layout.scalars[place]].name, first + int(row))
        return np.isnan(cells)

    def _put_categories(
        self, table: Table, number: int, scale: Scale, features: NDArray[np.float32]
    ) -> None:
        column, start = self.columns[number], self._layout.starts[number]
        codes = codes_of(table, number, column)
        rows = np.flatnonzero(codes >= 0)
        features[rows, start + codes[rows]] = scale.marks[start + codes[rows]]
        if column.missing:
            mark = start + column.n_features_encoded - 1
            features[codes < 0, mark] = scale.marks[mark]
