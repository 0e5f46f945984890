"""The encoder of tables: fitted on the training sample, applied to any rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.encoding._column import (
    CATEGORY_WEIGHT,
    MISSING_WEIGHT,
    OTHER,
    Column,
    EncoderState,
    describe_problems,
    describe_role,
    fit_category,
    fit_numeric,
    validate_state,
)
from altbi.encoding._column_roles import ColumnRole, is_special, limit_sizes
from altbi.encoding._values import (
    TAIL_START,
    Drift,
    Values,
    check_columns,
    compress_tails,
    decode_features,
    decode_standardized,
    measure_drift,
    read_category_codes,
    read_numbers,
    read_values,
)
from altbi.errors import (
    AltbiError,
    ModelFileError,
    ParameterError,
    TableError,
    infinity_error,
    quote,
)
from altbi.table import Kind, Table

# Encoded values are clipped here. The networks square them, and the sum of larger squares over
# columns could exceed float32 (3e38).
LIMIT = 1e9
BLOCK_VALUES = 2**15  # 256 KiB of float64, which stay in the cache
MAX_ROLE_WARNINGS = 20
FIT_COLUMNS = 32  # numeric columns that are read at a time

Features = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Scaling:
    """Scaling of the numeric columns: ``(value * prescale - shift) / divisor``."""

    prescale: Values  # one element for each numeric column, as in the next three fields
    shift: Values
    divisor: Values
    fill_value: Values  # encoded value of a missing value
    limit: float  # larger results are clipped; with compresses_tails they grow by their logarithm
    compresses_tails: bool
    # For each encoded feature: its value in rows that have the category or the missing value.
    indicators: Features

    def scale(self, values: Values, buffer: Values) -> tuple[Values, bool]:
        """Scale rows ``(n_rows, n_numeric)`` into a buffer; return a view, and if all are regular.

        Results are regular if none is NaN and all are within the limit. Call `fill_and_limit` for
        others.
        """
        scaled = buffer[: len(values)]
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            np.multiply(values, self.prescale, out=scaled)
            scaled -= self.shift
            scaled /= self.divisor
        # Comparisons with NaN are false.
        return scaled, bool(-self.limit <= scaled.min() and scaled.max() <= self.limit)

    def fill_and_limit(self, scaled: Values, is_missing: NDArray[np.bool_]) -> None:
        """Fill missing values, and clip or compress values beyond the limit, all in place.

        Both arrays have the shape ``(n_rows, n_numeric)``.
        """
        np.copyto(scaled, self.fill_value, where=is_missing)
        if self.compresses_tails:
            compress_tails(scaled)
        else:
            np.clip(scaled, -self.limit, self.limit, out=scaled)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Positions of the columns' encoded features, and the scalings of numeric columns.

    Numeric columns hold numbers, booleans or dates.
    """

    columns: tuple[Column, ...]
    starts: NDArray[np.intp]  # index of each column's first encoded feature
    feature_columns: NDArray[np.intp]  # index of each encoded feature's column
    is_category: NDArray[np.bool_]  # whether each encoded feature stands for a category
    numeric: NDArray[np.intp]  # indices of the numeric columns
    has_indicator: NDArray[np.intp]  # positions in `numeric` of columns with an indicator
    range_scaling: _Scaling  # to [0, 1]
    robust_scaling: _Scaling  # to robust z-scores


def _build_layout(columns: tuple[Column, ...]) -> _Layout:
    """Compute the positions of encoded features, in the order of the columns, and scalings."""
    sizes = np.array([column.n_features_encoded for column in columns], dtype=np.intp)
    numeric = [number for number, column in enumerate(columns) if column.kind != "category"]
    is_category = [
        column.kind == "category" and position <= len(column.categories)
        for column in columns
        for position in range(column.n_features_encoded)
    ]
    return _Layout(
        columns=columns,
        starts=np.cumsum(sizes) - sizes,
        feature_columns=np.repeat(np.arange(len(columns), dtype=np.intp), sizes),
        is_category=np.array(is_category),
        numeric=np.array(numeric, dtype=np.intp),
        has_indicator=np.flatnonzero([columns[number].n_missing > 0 for number in numeric]),
        range_scaling=_build_range_scaling(columns),
        robust_scaling=_build_robust_scaling(columns),
    )


def _build_range_scaling(columns: tuple[Column, ...]) -> _Scaling:
    """Build the scaling of numeric columns to their ranges, [0, 1] or [0, 0.25] for booleans.

    Categories are marked by 0.25 and missing values by 0.05. Missing numbers have the median.
    """
    numeric = [column for column in columns if column.kind != "category"]
    indicators = [
        _choose_weight(column, position)
        for column in columns
        for position in range(column.n_features_encoded)
    ]
    return _Scaling(
        prescale=np.array([column.prescale for column in numeric]),
        shift=np.array([column.low * column.prescale for column in numeric]),
        divisor=np.array([c.divisor if c.has_position else np.inf for c in numeric]),
        fill_value=np.array([column.fill_value * column.has_position for column in numeric]),
        limit=LIMIT,
        compresses_tails=False,
        indicators=np.array(indicators, dtype=np.float32),
    )


def _choose_weight(column: Column, position: int) -> float:
    """Return the value that marks a category or missing value; 0 for columns that are not used."""
    if not column.is_used:
        return 0.0
    is_missing = column.n_missing and position == column.n_features_encoded - 1
    return MISSING_WEIGHT if is_missing else CATEGORY_WEIGHT


def _build_robust_scaling(columns: tuple[Column, ...]) -> _Scaling:
    """Build the scaling of numeric columns to robust z-scores.

    Categories and missing values are marked by 1 / scale; rare categories are not marked, because
    they are not alike. Missing numbers are NaN. Numbers of a column without values at fit, dates
    and columns that are not used become 0.
    """
    numeric = [column for column in columns if column.kind != "category"]
    indicators = [
        # The scale of a number may be so small that its inverse is infinite.
        1 / scale if column.is_standardized and position != column.unmarked_feature else 0.0
        for column in columns
        for position, scale in enumerate(column.scales)
    ]
    return _Scaling(
        prescale=np.array([column.prescale for column in numeric]),
        shift=np.array([column.median * column.prescale for column in numeric]),
        # The scale of a column without values is unknown: all later values are encoded as 0.
        divisor=np.array(
            [c.scales[0] if c.n_present and c.is_standardized else np.inf for c in numeric]
        ),
        fill_value=np.array([np.nan if column.is_standardized else 0.0 for column in numeric]),
        limit=TAIL_START,
        compresses_tails=True,
        indicators=np.array(indicators, dtype=np.float32),
    )


@final
class TableEncoder:
    """Encoder of the columns of a table as features of a model.

    A number or date is one feature in [0, 1], scaled by the range of the training sample. Values
    outside that range are not clipped, except at ±1e9. A boolean is one feature, 0 or 0.25. A
    category column has a feature of 0 or 0.25 for each frequent category and one for all others. A
    column with missing values in the sample has one more feature, which indicates them.

    At most `max_categories` categories of a column, which occur in at least `min_count` rows of the
    sample, have a feature of their own. Methods of an encoder that is not fitted raise an error.
    """

    def __init__(self, *, max_categories: int = 32, min_count: int = 2) -> None:
        self.max_categories = max_categories
        self.min_count = min_count
        self._fitted_layout: _Layout | None = None

    def fit(self, table: Table, roles: Sequence[ColumnRole] = ()) -> Self:
        """Fit ranges, medians and categories on the training sample, and return the encoder.

        With `roles`, one for each column, identifiers, free text and copies of text columns get no
        features that differ, and their values are not kept. Invalid parameters raise a
        `ParameterError`. A table without values, or with an infinite value, raises a `TableError`.
        """
        for name, least in (("max_categories", 0), ("min_count", 1)):
            if getattr(self, name) < least:
                raise ParameterError(
                    f"{name}={quote(getattr(self, name))}, but expected at least {least}."
                )
        columns = self._fit_columns(table, roles)
        if not any(column.n_present for column in columns):
            raise TableError(
                f"Every value of the table's {len(table)} rows is missing. "
                "Check how the table was read."
            )
        return self._set_columns(columns)

    @classmethod
    def from_columns(cls, columns: tuple[Column, ...]) -> Self:
        """Create an encoder from declared columns, without fitting it on a table.

        `max_categories` is the largest number of categories of a column, or 32 if that is more.
        """
        most = max(len(column.categories) for column in columns)
        return cls(max_categories=max(32, most))._set_columns(columns)

    def transform(self, table: Table) -> Features:
        """Encode rows as ``(n_rows, n_features_encoded)``, each independently of all others.

        Numbers and dates are scaled by the range of the fit; categories and booleans are 0 or 0.25.
        Missing numbers, booleans and dates have the encoded value of the median. Other columns than
        those of the fit, and infinite values, raise a `TableError`.
        """
        return self._encode(table, self._layout.range_scaling)

    def standardize(self, table: Table) -> Features:
        """Encode rows as robust z-scores, for distances between rows.

        Features have the positions, and errors the types, of `transform`. A z-score beyond ±20
        becomes ``sign(z) * (20 + 5 * log(|z| / 20))``. Missing numbers are NaN. The feature of a
        row's category is 1 / scale.
        """
        return self._encode(table, self._layout.robust_scaling)

    def fit_transform(self, table: Table) -> Features:
        """Fit the encoder on the training sample, and return its rows as `transform` does."""
        return self.fit(table).transform(table)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The fitted columns, in the order of the table."""
        return self._layout.columns

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the fitted columns, in the order of the table."""
        return tuple(column.name for column in self.columns)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Kinds of the columns: number, boolean, date or category."""
        return tuple(column.kind for column in self.columns)

    @property
    def n_features_encoded(self) -> int:
        """Number of encoded features."""
        return len(self.feature_columns)

    @property
    def feature_columns(self) -> NDArray[np.intp]:
        """Index of the table column of each encoded feature: ``(n_features_encoded,)``."""
        return self._layout.feature_columns

    @property
    def feature_kinds(self) -> NDArray[np.str_]:
        """What each encoded feature stands for: "value", "category", "missing" or "unused".

        Robust z-scores of dates, and of columns that are not used, are always 0.
        """
        kinds = np.where(self._layout.is_category, "category", "missing")
        kinds[self._layout.starts[self._layout.numeric]] = "value"
        is_unused = np.array([not column.is_standardized for column in self.columns])
        kinds[is_unused[self.feature_columns]] = "unused"
        return kinds

    @property
    def number_features(self) -> NDArray[np.intp]:
        """Indices of the encoded features that are numbers or booleans with robust z-scores."""
        return np.flatnonzero(self.feature_kinds == "value")

    def sum_by_column(self, contributions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum values of encoded features over each column; return ``(n_rows, n_columns)``."""
        return np.add.reduceat(contributions, self._layout.starts, axis=1)

    def decode_expected(self, features: NDArray[np.floating]) -> list[pa.Array]:
        """Convert features, as `transform` returns them, to one array of values per column.

        The types are float64, bool, timestamp[us] (UTC, without a zone) and large_string. The
        category with the largest feature is returned. Only columns without values at fit are null.
        """
        return list(map(decode_features, self.columns, self._split_by_column(features)))

    def decode(self, rows: NDArray[np.floating]) -> list[pa.Array]:
        """Convert rows, as `standardize` returns them, to one array of values per column.

        The types are those of `decode_expected`. Numbers and dates are rounded to hide the error of
        float32, dates at most to whole days. Missing values, and columns without values at fit, are
        null. Rare and unknown categories become "(other)".
        """
        return list(map(decode_standardized, self.columns, self._split_by_column(rows)))

    def _split_by_column(self, features: NDArray[np.floating]) -> list[NDArray[np.float64]]:
        """Return an array ``(n_rows, n)`` of float64 for each column: its n encoded features."""
        return np.split(np.asarray(features, dtype=np.float64), self._layout.starts[1:], axis=1)

    def group_medians(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        """Compute a typical row of each group of k standardized rows.

        `rows` has the shape ``(n_groups, k, n_features_encoded)``, the result that without k.
        Features of categories are averaged. All others have the lower median, a value of the group.
        """
        middle = (rows.shape[1] - 1) // 2
        medians = np.partition(rows, middle, axis=1)[:, middle]
        is_category = self._layout.is_category
        medians[:, is_category] = rows[:, :, is_category].mean(axis=1)
        return medians

    def values(self, table: Table) -> list[pa.Array]:
        """Return the values of a table, not encoded, one array per column; missing values are null.

        The types are those of `decode`, except that text columns stay text. A table with other
        columns than those of the fit raises a `TableError`.
        """
        check_columns(table, self.columns)
        return [read_values(table, number, column) for number, column in enumerate(self.columns)]

    def check_sample(self, features: Features) -> list[str]:
        """Return a warning for each column in which over half of the rows have rare categories.

        `features` is the encoded training sample, from `transform` or `standardize`.
        """
        return [
            f"Column {quote(column.name)} holds {column.n_categories} different texts, most of "
            f"them too rare for a feature of their own; they count as {OTHER!r}. "
            "If it holds dates or numbers, convert it. If it identifies rows, exclude it."
            for number, column in enumerate(self.columns)
            if column.kind == "category"
            and (features[:, self._layout.starts[number] + len(column.categories)] > 0).mean() > 0.5
        ]

    def describe_problems(self, *, has_rarities: bool = False) -> list[str]:
        """Return warnings about roles, constants, missing values and rare categories of the fit.

        Declared columns are left out. With `has_rarities`, the model counts how rare each category
        is, so rare categories are no problem.
        """
        return [
            sentence
            for column in self.columns
            for sentence in describe_problems(column, has_rarities=has_rarities)
        ]

    def describe_roles(self) -> list[str]:
        """Return a sentence for each column used otherwise than others of its kind, at most 20.

        A last sentence has the number of the others.
        """
        found = [sentence for column in self.columns for sentence in describe_role(column)]
        n_more = len(found) - MAX_ROLE_WARNINGS
        if n_more <= 0:
            return found
        return [
            *found[:MAX_ROLE_WARNINGS],
            f"{n_more:,} more columns are used otherwise than others of their kind. `altbi "
            "inspect` lists the roles of a saved model.",
        ]

    def drift(self, table: Table) -> Drift:
        """Count the values of a table that the training sample did not have.

        A table with other columns than those of the fit raises a `TableError`.
        """
        check_columns(table, self.columns)
        return measure_drift(table, self.columns)

    def to_json(self) -> dict[str, Any]:
        """Return parameters and columns as dicts, lists and numbers that JSON can hold."""
        state = EncoderState(
            max_categories=self.max_categories, min_count=self.min_count, columns=self.columns
        )
        return msgspec.to_builtins(state)

    @classmethod
    def from_json(cls, state: object) -> Self:
        """Create a fitted encoder from the result of `to_json`.

        Values that are invalid or contradict each other raise a `ModelFileError`.
        """
        try:
            checked = msgspec.convert(state, EncoderState)
        except msgspec.ValidationError as error:
            raise ModelFileError(f"encoder: {error}") from None
        return cls.from_state(checked)

    @classmethod
    def from_state(cls, state: EncoderState) -> Self:
        """Create a fitted encoder from a decoded state.

        Values that contradict each other raise a `ModelFileError`.
        """
        validate_state(state)
        encoder = cls(max_categories=state.max_categories, min_count=state.min_count)
        return encoder._set_columns(state.columns)

    def _set_columns(self, columns: tuple[Column, ...]) -> Self:
        """Store fitted columns with the positions of their features, and return the encoder."""
        self._fitted_layout = _build_layout(columns)
        return self

    @property
    def _layout(self) -> _Layout:
        """Positions of encoded features, and scalings; without a fit, an `AltbiError` is raised."""
        if self._fitted_layout is None:
            raise AltbiError("TableEncoder is not fitted. Call fit first.")
        return self._fitted_layout

    def _fit_columns(self, table: Table, roles: Sequence[ColumnRole]) -> tuple[Column, ...]:
        """Fit all columns, and return them in the order of the table."""
        columns = {}
        numeric = []
        special = {number for number, role in enumerate(roles) if is_special(role)}
        for number, (name, kind) in enumerate(zip(table.names, table.kinds, strict=True)):
            if kind == "category":
                texts = table.categories(number)
                most = 0 if number in special else self.max_categories
                columns[number] = fit_category(name, texts, most, self.min_count)
            else:
                numeric.append(number)
        for first in range(0, len(numeric), FIT_COLUMNS):
            group = numeric[first : first + FIT_COLUMNS]
            for number, values in zip(group, table.numbers(group).T, strict=True):
                columns[number] = fit_numeric(table.names[number], table.kinds[number], values)
        stored = limit_sizes(roles) if roles else [None] * len(columns)
        return tuple(
            msgspec.structs.replace(columns[number], role=role)
            for number, role in enumerate(stored)
        )

    def _encode(self, table: Table, scaling: _Scaling) -> Features:
        """Encode rows as ``(n_rows, n_features_encoded)`` in float32 by one of the two scalings.

        A table with other columns than those of the fit, or an infinite value, raises a
        `TableError`.
        """
        check_columns(table, self.columns)
        features = np.zeros((len(table), self.n_features_encoded), dtype=np.float32)
        if len(self._layout.numeric):
            self._encode_numeric(table, scaling, features)
        for number, column in enumerate(self.columns):
            if column.kind == "category":
                self._encode_categories(table, number, scaling, features)
        return features

    def _encode_numeric(self, table: Table, scaling: _Scaling, features: Features) -> None:
        """Write the features of all numeric columns into `features`.

        Rows are scaled in blocks that fit the cache. Infinite values raise a `TableError`.
        """
        layout = self._layout
        values = read_numbers(table, layout.numeric)
        targets: slice | NDArray[np.intp] = layout.starts[layout.numeric]
        if len(layout.numeric) == self.n_features_encoded:
            targets = slice(None)  # much faster than an index array
        indicators = layout.starts[layout.numeric[layout.has_indicator]] + 1
        n_rows = max(BLOCK_VALUES // len(layout.numeric), 1)
        buffer = np.empty((min(n_rows, len(values)), len(layout.numeric)))
        for first in range(0, len(values), n_rows):
            block = features[first : first + n_rows]
            block_values = values[first : first + n_rows]
            scaled, is_regular = scaling.scale(block_values, buffer)
            if not is_regular:
                is_missing = self._find_missing(block_values, table.first_row + first)
                scaling.fill_and_limit(scaled, is_missing)
                block[:, indicators] = np.where(
                    is_missing[:, layout.has_indicator], scaling.indicators[indicators], 0
                )
            block[:, targets] = scaled

    def _find_missing(self, values: Values, first_row: int) -> NDArray[np.bool_]:
        """Return a mask of the missing values of a block ``(n_rows, n_numeric)``.

        The first infinite value raises a `TableError`. Row numbers begin with `first_row`.
        """
        infinite = np.argwhere(np.isinf(values))
        if len(infinite):
            row, position = infinite[0]
            name = self.columns[self._layout.numeric[position]].name
            raise infinity_error(name, first_row + int(row))
        return np.isnan(values)

    def _encode_categories(
        self, table: Table, number: int, scaling: _Scaling, features: Features
    ) -> None:
        """Write the features of one category column into `features`, which are 0 before.

        In a column without missing values at fit, a missing value leaves all its features at 0.
        """
        column, start = self.columns[number], self._layout.starts[number]
        codes = read_category_codes(table, number, column)
        rows = np.flatnonzero(codes >= 0)
        features[rows, start + codes[rows]] = scaling.indicators[start + codes[rows]]
        if column.n_missing:
            indicator = start + column.n_features_encoded - 1
            features[codes < 0, indicator] = scaling.indicators[indicator]
