"""What the encoder knows of one column: learned from the sample, kept as JSON, told in words."""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from altbi.encoding._tails import expand_tails
from altbi.errors import infinity_error
from altbi.table import Kind

__all__ = [
    "CATEGORY_WEIGHT",
    "MISSING_WEIGHT",
    "OTHER",
    "Column",
    "expected_cells",
    "fit_category",
    "fit_scalar",
    "notes_on",
    "own_terms",
    "remembered_cells",
]

# A Gaussian decoder whose variance may fall to exp(-6) charges exp(6) / 2 = 200 nats for a unit
# that is off by 1, so that one rare category would drown every number. Off by 0.25 costs at most 12.6,
# as a number 5 deviations off does; off by 0.05, a missing cell, at most 0.5: the model can tell,
# but a row does not become odd by it.
CATEGORY_WEIGHT = 0.25
MISSING_WEIGHT = 0.05

# Among deviations, one choice is at most so rare: a category that occurs once among thousands of rows
# must not outweigh all numbers. A row with another category differs in two units, hence the root.
LEAST_CHOICE = 1 / 6
CATEGORY_SHARE = math.sqrt(2)
# Where others have a value, a gap stands half a deviation off: a row is not odd by a missing cell.
GAP = 2.0
QUARTILES_OF_A_GAUSSIAN = 1.349
# What float32 loses of a number, as a share of it, and the units of time to round to, in seconds.
_NOISE = 2e-6
_UNITS_OF_TIME = np.array([1e-6, 1e-3, 1, 60, 3600, 86400])

OTHER = "(other)"
MOST_EXACT = 2.0**53  # beyond it, float64 has no room for every whole number
YEAR_1, YEAR_9999 = -62_135_596_800.0, 253_402_300_799.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column as the sample showed it.

    Attributes
    ----------
    name : str
        The column's name.
    kind : {"number", "boolean", "date", "category"}
        What it holds.
    present, missing : int
        Cells of the sample with and without a value.
    low, high : float
        Range of the values; seconds since 1970 for dates, 0 for categories.
    fill : float
        Encoded value that a missing cell takes: the sample's (lower) median.
    centre : float
        That median itself; 0 for categories.
    scales : tuple of float
        What counts as one deviation, for each unit. For numbers it is their quartiles' distance as
        that of a Gaussian, which wild values do not change, or, where the quartiles are equal, the
        standard deviation; under the factor `half`.
    categories : tuple of str
        Levels with a unit of their own, the most frequent first.
    distinct : int
        All categories of the sample, those without a unit of their own included.
    declared : bool
        Whether range and categories were declared by someone; counts are then placeholders.
    """

    name: str
    kind: Kind
    present: int
    missing: int
    low: float = 0.0
    high: float = 0.0
    fill: float = 0.0
    centre: float = 0.0
    scales: tuple[float, ...] = (1.0,)
    categories: tuple[str, ...] = ()
    distinct: int = 0
    declared: bool = False

    @property
    def constant(self) -> bool:
        """Whether all values of the sample are the same, or there are none."""
        return self.distinct <= 1 if self.kind == "category" else self.low == self.high

    @property
    def rare(self) -> int:
        """Levels that were folded into the unit for others."""
        return self.distinct - len(self.categories)

    @property
    def had_few_others(self) -> bool:
        """Whether less than 3 % of the sample had no category of a category with a unit of its own."""
        return self.scales[len(self.categories)] <= _choice(0.0)

    @property
    def half(self) -> float:
        """The factor under which the range and its differences cannot overflow.

        Halving is exact for numbers that are not tiny, and it cancels out in the encoded value.
        """
        return 0.5 if max(abs(self.low), abs(self.high)) > 1 else 1.0

    @property
    def span(self) -> float:
        """What differences are divided by: the range, under the factor `half`; 1 for a constant."""
        if not self.present:
            return math.inf  # nothing is known of the scale: whatever comes later reads as 0
        span = (self.high * self.half - self.low * self.half) or self.half
        # A boolean is a choice between two, as a category is: no more weight than that.
        return span / CATEGORY_WEIGHT if self.kind == "boolean" else span

    @property
    def n_features_encoded(self) -> int:
        """Units of the encoding, the indicator of missing cells included."""
        values = len(self.categories) + 1 if self.kind == "category" else 1
        return values + (self.missing > 0)


def fit_scalar(name: str, kind: Kind, values: NDArray[np.float64]) -> Column:
    """Learn range and median of a number, boolean or date column."""
    infinite = np.isinf(values)
    if infinite.any():
        raise infinity_error(name, int(infinite.argmax()))
    seen = values[~np.isnan(values)]
    missing = len(values) - len(seen)
    gap = (GAP,) if missing else ()
    if not len(seen):
        return Column(name=name, kind=kind, present=0, missing=missing, scales=(1.0, *gap))
    # The lower median is a value of the sample, and needs no sum that could overflow.
    middle = (len(seen) - 1) // 2
    median = float(np.partition(seen, middle)[middle])
    bare = Column(
        name=name,
        kind=kind,
        present=len(seen),
        missing=missing,
        low=float(seen.min()),
        high=float(seen.max()),
    )
    fill = (median * bare.half - bare.low * bare.half) / bare.span
    return replace(bare, fill=fill, centre=median, scales=(_deviation(seen, bare), *gap))


def _deviation(seen: NDArray[np.float64], column: Column) -> float:
    """Say what counts as one deviation among these values, under the factor `half`."""
    if column.constant:
        return column.half
    # Not of shares of the range: one wild value would make all the others equal.
    first, third = np.quantile(seen * column.half, [0.25, 0.75])
    deviation = float(third - first) / QUARTILES_OF_A_GAUSSIAN
    if not deviation:
        range_ = column.high * column.half - column.low * column.half
        deviation = float(((seen * column.half - column.low * column.half) / range_).std() * range_)
    # What is left of the smallest range may be too small for a float.
    deviation = max(deviation, sys.float_info.min)
    return max(deviation, LEAST_CHOICE) if column.kind == "boolean" else deviation


def fit_category(name: str, texts: pa.Array, max_categories: int, min_count: int) -> Column:
    """Learn the categories that get a unit of their own: the most frequent, ties by text."""
    counts = pc.value_counts(texts.drop_null())
    pairs = zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)
    ranked = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))
    own = [(text, count) for text, count in ranked[:max_categories] if count >= min_count]
    present = len(texts) - texts.null_count
    others = present - sum(count for _, count in own)
    gap = (GAP,) if texts.null_count else ()
    return Column(
        name=name,
        kind="category",
        present=present,
        missing=texts.null_count,
        scales=(*(_choice(count / len(texts)) for count in (*(c for _, c in own), others)), *gap),
        categories=tuple(text for text, _ in own),
        distinct=len(ranked),
    )


def _choice(share: float) -> float:
    """Say what counts as one deviation in a unit that is on in this share of rows."""
    return CATEGORY_SHARE * max(math.sqrt(share * (1 - share)), LEAST_CHOICE)


def expected_cells(column: Column, units: NDArray[np.float64]) -> pa.Array:
    """Turn a column's units back into its own terms."""
    if column.kind == "category":
        texts = pa.array([*column.categories, OTHER], pa.large_string())
        return texts.take(pa.array(units[:, : len(texts)].argmax(axis=1)))
    if not column.present:
        return pa.nulls(len(units), _TYPES[column.kind])
    values = _unscaled(column, units[:, 0])
    return own_terms(column.kind, values)


def remembered_cells(column: Column, units: NDArray[np.float64]) -> pa.Array:
    """Turn a column's units, in deviations from its centre, back into its own terms."""
    gone = units[:, -1] > 0 if column.missing else np.zeros(len(units), dtype=bool)
    if column.kind == "category":
        texts = pa.array([*column.categories, OTHER], pa.large_string())
        strongest = (units[:, : len(texts)] * column.scales[: len(texts)]).argmax(axis=1)
        return texts.take(pa.array(strongest, mask=gone))
    if not column.present:
        return pa.nulls(len(units), _TYPES[column.kind])
    with np.errstate(over="ignore", invalid="ignore"):
        moved = expand_tails(units[:, 0]) * column.scales[0]
        values = (column.centre * column.half + moved) / column.half
        noise = _NOISE * np.maximum(np.abs(moved), column.scales[0]) / column.half
        rounded = _without(noise, values, column.kind)
    held = np.where(np.isfinite(rounded), rounded, values)
    held = np.clip(held, -sys.float_info.max, sys.float_info.max)
    return own_terms(column.kind, np.where(gone, np.nan, held))


def _without(
    noise: NDArray[np.float64], values: NDArray[np.float64], kind: Kind
) -> NDArray[np.float64]:
    """Round away the digits that float32 has lost: 37.000002 was 37, and 23:59:58 was midnight."""
    if kind == "date":
        units = _UNITS_OF_TIME[np.searchsorted(_UNITS_OF_TIME[:-1], noise)]
        return np.round(values / units) * units
    places = 10.0 ** -np.ceil(np.log10(noise))
    return np.round(values * places) / places


def own_terms(kind: Kind, values: NDArray[np.float64]) -> pa.Array:
    """Give numbers as what they stand for: booleans, dates, or themselves; NaN is null."""
    missing = np.isnan(values)
    if kind == "boolean":
        return pa.array(values >= 0.5, mask=missing)
    if kind == "date":
        # Held where calendars and Python's datetime can follow.
        microseconds = np.clip(np.where(missing, 0, values), YEAR_1, YEAR_9999) * 1e6
        return pa.array(np.rint(microseconds).astype(np.int64), mask=missing).cast(_TYPES["date"])
    return pa.array(values, mask=missing)


_TYPES = {"number": pa.float64(), "boolean": pa.bool_(), "date": pa.timestamp("us")}


def _unscaled(column: Column, encoded: NDArray[np.float64]) -> NDArray[np.float64]:
    """Undo the scaling; a constant column expects its one value."""
    if column.constant:
        return np.full(len(encoded), column.low)
    with np.errstate(over="ignore"):
        values = (column.low * column.half + encoded * column.span) / column.half
    return np.clip(values, -sys.float_info.max, sys.float_info.max)


def notes_on(column: Column) -> Iterator[str]:
    """Say in one sentence each what the encoding changes."""
    if column.declared:
        return
    rows = column.present + column.missing
    if not column.present:
        yield f"Column {column.name!r} has no value in any of {rows} rows; it is kept as constant."
        return
    if column.constant and abs(column.low) > MOST_EXACT:
        yield (
            f"Column {column.name!r} holds numbers too large to be told apart; it is kept as a "
            "constant. If they name the rows, leave it out of the search."
        )
    elif column.constant:
        yield f"Column {column.name!r} holds a single value; it is kept as a constant."
    if column.missing:
        share = column.missing / rows
        yield (
            f"Column {column.name!r} has {column.missing} missing cells ({share:.2%}); "
            "they take a neutral value and are marked."
        )
    if column.rare:
        yield f"Column {column.name!r} has {column.rare} rare categories; they count as {OTHER!r}."
