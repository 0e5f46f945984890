"""Values of a table: reading them as at fit, decoding them from features, and their drift."""

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from altbi.encoding._column import OTHER, Column
from altbi.errors import TableError, list_names, quote
from altbi.table import Kind, Table

# Robust z-scores beyond this grow by their logarithm, so that one extreme value does not hide the
# contributions of other columns, and differences between extreme values remain visible.
TAIL_START = 20.0
TAIL_SCALE = 5.0
MAX_Z_SCORE = 1e300  # larger sizes are clipped, so that their logarithm is finite
# No standardized feature is larger: neither a compressed z-score nor the feature of a category.
MAX_STANDARDIZED = 3460.0

# Relative rounding error of float32, with some reserve.
ROUNDING_ERROR = 2e-6
TIME_UNITS = np.array([1e-6, 1e-3, 1, 60, 3600, 86400])  # in seconds
YEAR_1, YEAR_9999 = -62_135_596_800.0, 253_402_300_799.0
ARROW_TYPES = {"number": pa.float64(), "boolean": pa.bool_(), "date": pa.timestamp("us")}

MAX_SHOWN_COLUMNS = 5
# Largest share of values outside the fitted range, and of rare or unknown categories, that raises
# no warning.
MAX_OUTSIDE = 0.05
MAX_OTHERS = 0.1
# In fewer rows a few outliers are a large share.
MIN_ROWS = 100

Values = NDArray[np.float64]


def check_columns(table: Table, columns: tuple[Column, ...]) -> None:
    """Raise a `TableError` if names, order or kinds of a table's columns differ from the fit.

    Numbers and booleans are interchangeable. The kind of a column without values does not matter.
    """
    names = tuple(column.name for column in columns)
    if table.names != names:
        raise _build_names_error(names, table.names)
    if table.kinds != tuple(column.kind for column in columns):
        for number, column in enumerate(columns):
            _check_kind(table, number, column)


def _check_kind(table: Table, number: int, column: Column) -> None:
    """Raise a `TableError` if a column has another kind than at fit.

    Numbers and booleans are interchangeable. A column without values, at fit or now, is accepted.
    """
    kinds = {column.kind, table.kinds[number]}
    if len(kinds) == 1 or kinds == {"number", "boolean"} or not column.n_present:
        return
    if not _find_missing(table, number).all():
        raise TableError(
            f"Column {quote(column.name)} is a {table.kinds[number]} column, but expected a "
            f"{column.kind} column as at fit. Convert it, or fit again."
        )


def _build_names_error(fitted: tuple[str, ...], given: tuple[str, ...]) -> TableError:
    """Return (do not raise) the error for columns that are missing, unexpected or in another order.

    The message lists some names of each kind.
    """
    before, now = set(fitted), set(given)
    missing = [name for name in fitted if name not in now]
    unexpected = [name for name in given if name not in before]
    problem = "the columns have another order"
    if missing or unexpected:
        problem = (
            f"columns [{list_names(missing)}] are missing and columns "
            f"[{list_names(unexpected)}] are unexpected"
        )
    return TableError(
        f"The table differs from the one at fit: {problem}. "
        f"Pass the columns {list_names(fitted)}, in this order."
    )


def read_numbers(table: Table, numeric: NDArray[np.intp]) -> Values:
    """Return columns ``(n_rows, len(numeric))`` that were numeric at fit, as float64.

    Numeric columns are numbers, booleans or dates. Missing values are NaN. A text column is
    possible if the fit or this table has no values there; its texts become 0.
    """
    is_text = np.isin(numeric, [n for n, kind in enumerate(table.kinds) if kind == "category"])
    if not is_text.any():
        return table.numbers(numeric.tolist())
    values = np.empty((len(table), len(numeric)))
    values[:, ~is_text] = table.numbers(numeric[~is_text].tolist())
    for position in np.flatnonzero(is_text):
        is_missing = _find_missing(table, int(numeric[position]))
        values[:, position] = np.where(is_missing, np.nan, 0.0)
    return values


def read_category_codes(table: Table, number: int, column: Column) -> NDArray[np.int64]:
    """Return for each value of a column its index among the fitted categories.

    Rare and unknown categories have the index ``len(column.categories)``, missing values -1.
    `number` is the column's index in the table. If that column is numeric, all its values count as
    unknown categories.
    """
    other = len(column.categories)
    if table.kinds[number] != "category":
        return np.where(_find_missing(table, number), -1, other)
    texts = table.categories(number)
    found = pc.index_in(texts, value_set=pa.array(column.categories, pa.large_string()))
    codes = found.fill_null(other).to_numpy().astype(np.int64)
    codes[_find_missing(table, number)] = -1
    return codes


def _find_missing(table: Table, number: int) -> NDArray[np.bool_]:
    """Return a mask ``(n_rows,)`` of the missing values in the column at index `number`."""
    if table.kinds[number] == "category":
        return table.categories(number).is_null().to_numpy(zero_copy_only=False)
    return np.isnan(table.numbers([number])[:, 0])


def read_values(table: Table, number: int, column: Column) -> pa.Array:
    """Return a column of a table as texts, timestamps, booleans or numbers; missing is null.

    A text column stays text. Other values have the kind of the fitted column.
    """
    if table.kinds[number] == "category":
        return table.categories(number)
    return _convert_numbers(column.kind, table.numbers([number])[:, 0])


def compress_tails(z_scores: Values) -> None:
    """Replace each robust z-score z beyond ±20 in place, so that it grows by its logarithm.

    The result is ``sign(z) * (20 + 5 * log(|z| / 20))``. NaN stays NaN.
    """
    is_far = np.abs(z_scores) > TAIL_START
    sizes = np.minimum(np.abs(z_scores[is_far]), MAX_Z_SCORE)
    compressed = TAIL_START + TAIL_SCALE * np.log(sizes / TAIL_START)
    z_scores[is_far] = np.copysign(compressed, z_scores[is_far])


def expand_tails(z_scores: Values) -> Values:
    """Return (not in place) robust z-scores without the compression of `compress_tails`."""
    sizes = np.abs(z_scores)
    expanded = TAIL_START * np.exp(np.maximum(sizes - TAIL_START, 0) / TAIL_SCALE)
    return np.copysign(np.where(sizes > TAIL_START, expanded, sizes), z_scores)


def decode_features(column: Column, features: Values) -> pa.Array:
    """Convert features of one column, as `transform` returns them, to values of the column.

    The category with the largest feature is returned; the last one is "(other)". A constant column
    has its only value, a column without values at fit is null. Missing-value indicators are
    ignored.
    """
    if column.kind == "category":
        texts = pa.array([*column.categories, OTHER], pa.large_string())
        return texts.take(pa.array(features[:, : len(texts)].argmax(axis=1)))
    if not column.n_present:
        return pa.nulls(len(features), ARROW_TYPES[column.kind])
    if column.is_constant:
        return _convert_numbers(column.kind, np.full(len(features), column.low))
    with np.errstate(over="ignore"):
        values = (column.low * column.prescale + features[:, 0] * column.divisor) / column.prescale
    return _convert_numbers(column.kind, _clip_to_finite(values))


def decode_standardized(column: Column, features: Values) -> pa.Array:
    """Convert features of one column, as `standardize` returns them, to values of the column.

    Numbers and dates are rounded to hide the error of float32. Rows with an indicator of a missing
    value, columns without values at fit, dates and columns that are not used are null. Rare
    categories become "(other)".
    """
    if not column.is_standardized:
        return pa.nulls(len(features), ARROW_TYPES.get(column.kind, pa.large_string()))
    is_missing = features[:, -1] > 0 if column.n_missing else np.zeros(len(features), dtype=bool)
    if column.kind == "category":
        texts = pa.array([*column.categories, OTHER], pa.large_string())
        shares = features[:, : len(texts)] * column.scales[: len(texts)]
        shares[:, -1] = 1 - shares[:, :-1].sum(axis=1)  # rare categories are not marked
        return texts.take(pa.array(shares.argmax(axis=1), mask=is_missing))
    if not column.n_present:
        return pa.nulls(len(features), ARROW_TYPES[column.kind])
    with np.errstate(over="ignore", invalid="ignore"):
        distances = expand_tails(features[:, 0]) * column.scales[0]
        values = (column.median * column.prescale + distances) / column.prescale
        errors = ROUNDING_ERROR * np.maximum(np.abs(distances), column.scales[0]) / column.prescale
        rounded = _round_to_error(values, errors, column.kind)
    values = _clip_to_finite(np.where(np.isfinite(rounded), rounded, values))
    return _convert_numbers(column.kind, np.where(is_missing, np.nan, values))


def _round_to_error(values: Values, errors: Values, kind: Kind) -> Values:
    """Round values to the digits above their errors: 37.000002 to 37, 23:59:58 to midnight.

    Dates are rounded to the smallest unit above their error: microseconds, milliseconds, seconds,
    minutes, hours or days.
    """
    if kind == "date":
        units = TIME_UNITS[np.searchsorted(TIME_UNITS[:-1], errors)]
        return np.round(values / units) * units
    factors = 10.0 ** -np.ceil(np.log10(errors))
    return np.round(values * factors) / factors


def _clip_to_finite(values: Values) -> Values:
    """Replace infinite values by the largest finite numbers; NaN stays NaN."""
    return np.clip(values, -sys.float_info.max, sys.float_info.max)


def _convert_numbers(kind: Kind, values: Values) -> pa.Array:
    """Convert numbers to an array of booleans, timestamps or numbers; NaN becomes null.

    Numbers of at least 0.5 are True. Dates are seconds since 1970, clipped to the years 1 to 9999.
    """
    is_missing = np.isnan(values)
    if kind == "boolean":
        return pa.array(values >= 0.5, mask=is_missing)
    if kind == "date":
        # Python's datetime has no other years.
        microseconds = np.clip(np.where(is_missing, 0, values), YEAR_1, YEAR_9999) * 1e6
        integers = np.rint(microseconds).astype(np.int64)
        return pa.array(integers, mask=is_missing).cast(ARROW_TYPES["date"])
    return pa.array(values, mask=is_missing)


@final
@dataclass(frozen=True, slots=True)
class Drift:
    """Counts of values that the training sample did not have, by column."""

    # Missing values in columns that had none.
    missing: Counter[str] = field(default_factory=Counter)
    # Unknown categories in columns whose categories all have an encoded feature.
    unseen: Counter[str] = field(default_factory=Counter)
    # Numbers and dates outside the fitted range.
    outside: Counter[str] = field(default_factory=Counter)
    # Rare or unknown categories, which are encoded alike, in columns that had few rare ones.
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

        Rare categories are reported if they are over 10 % of a column, and values outside the range
        if they are over 5 %. Both are only reported for tables of at least 100 rows.
        """
        if self.missing:
            yield (
                f"Missing values in {_format_counts(self.missing)}, where the training sample had "
                "none. If the table has changed, fit again."
            )
        if self.unseen:
            yield (
                f"Unknown categories in {_format_counts(self.unseen)}, which the training sample "
                "did not have. If the table has changed, fit again."
            )
        others = self._select_frequent(self.others, MAX_OTHERS)
        if others:
            yield (
                f"Rare or unknown categories in {_format_counts(others)} of {self.rows} rows, more "
                "than in the training sample. If the table has changed, fit again."
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
    shown = [
        f"{quote(name, 30)} ({count} values)"
        for name, count in counts.most_common(MAX_SHOWN_COLUMNS)
    ]
    n_more = len(counts) - len(shown)
    return ", ".join(shown) + (f" and {n_more} more columns" if n_more else "")


def measure_drift(table: Table, columns: tuple[Column, ...]) -> Drift:
    """Count the values of a table that the training sample did not have, by column.

    Missing values do not count in declared columns. If a column had rare categories at fit, rare
    and unknown ones count together, and only if few rows had them. Zero counts are left out.
    """
    missing, outside = _count_missing_and_outside(table, columns)
    unseen: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for number, column in enumerate(columns):
        if column.kind == "category":
            codes = read_category_codes(table, number, column)
            missing[column.name] = int((codes < 0).sum())
            n_others = int((codes == len(column.categories)).sum())
            if not column.n_rare:
                unseen[column.name] = n_others
            elif column.has_few_rare:
                others[column.name] = n_others
        if column.n_missing or column.is_declared:
            del missing[column.name]
    return Drift(+missing, +unseen, +outside, +others, len(table))


def _count_missing_and_outside(
    table: Table, columns: tuple[Column, ...]
) -> tuple[Counter[str], Counter[str]]:
    """Count missing values, and values outside the fitted range, of columns numeric at fit.

    Columns that hold texts in this table are left out. A column without values at fit has no range.
    """
    numbers = [
        number
        for number, column in enumerate(columns)
        if "category" not in (column.kind, table.kinds[number])
    ]
    missing: Counter[str] = Counter()
    outside: Counter[str] = Counter()
    # Contiguous columns are counted three times as fast as the columns of rows.
    for number, values in zip(numbers, np.ascontiguousarray(table.numbers(numbers).T), strict=True):
        column = columns[number]
        missing[column.name] = int(np.count_nonzero(np.isnan(values)))
        if column.n_present:
            n_outside = np.count_nonzero(values < column.low)
            outside[column.name] = int(n_outside + np.count_nonzero(values > column.high))
    return missing, outside
