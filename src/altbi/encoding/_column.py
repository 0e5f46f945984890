"""The state of one column: fitted on the training sample, saved in model files."""

import math
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace
from numpy.typing import NDArray

from altbi.encoding._column_roles import ColumnRole, Role, is_special
from altbi.errors import ModelFileError, infinity_error, quote
from altbi.table import Kind

# A Gaussian decoder with a variance of exp(-6) adds exp(6) / 2 = 200 nats for a feature that is off
# by 1, so that one rare category would hide all numbers. A feature that is off by 0.25 adds at most
# 12.6 nats, like a number with a robust z-score of 5. A missing value adds at most 0.5 nats: the
# network can use the indicator, but a row is not an outlier because of it.
CATEGORY_WEIGHT = 0.25
MISSING_WEIGHT = 0.05

# Smallest standard deviation of a binary feature: a category that occurs once in thousands of rows
# must not outweigh all numbers.
MIN_BINARY_STD = 1 / 6
N_DIFFERING_FEATURES = 2  # two rows of different categories differ in two features
# A missing value counts as half a robust z-score.
MISSING_SCALE = 2.0
IQR_OF_GAUSSIAN = 1.349

OTHER = "(other)"
MAX_EXACT_INTEGER = 2.0**53
MAX_COLUMNS = 100_000

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
ScaleFactor = Annotated[float, msgspec.Meta(ge=sys.float_info.min)]


# gc=False: a column refers to no other object that could refer back to it. Without it, reading the
# header of a model with 100,000 columns takes twice as long.
class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, gc=False):
    """A column of the training sample; `low`, `high` and `median` are 0 for categories.

    Dates are given in seconds since 1970.
    """

    name: str
    kind: Kind
    n_present: Count  # number of values in the sample
    n_missing: Count
    low: float = 0.0  # range of the values; 0 to 0 if there are none
    high: float = 0.0
    # Encoded value of a missing number, boolean or date: the encoded median. 0 for categories.
    fill_value: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    median: float = 0.0  # the lower median
    # For each encoded feature, the distance that counts as 1 robust z-score. For numbers it is
    # IQR / 1.349, or the standard deviation if the quartiles are equal, times `prescale`.
    scales: Annotated[tuple[ScaleFactor, ...], msgspec.Meta(min_length=1)] = (1.0,)
    # Categories with an encoded feature of their own, the most frequent first.
    categories: tuple[str, ...] = ()
    n_categories: Count = 0  # number of all categories in the sample
    n_rare_rows: Count = 0  # number of values without an encoded feature of their own
    is_declared: bool = False  # range and categories were declared; counts are placeholders
    # How the column is used, and why. None if roles are not inferred: then its kind is its use.
    role: ColumnRole | None = None

    @property
    def use(self) -> Role:
        """The role by which the column is used: its special role, or the role of its kind."""
        return self.role.role if self.role is not None and is_special(self.role) else self.kind

    @property
    def is_stated(self) -> bool:
        """Whether the user stated the role."""
        return self.role is not None and self.role.is_stated

    @property
    def is_used(self) -> bool:
        """Whether values are compared; those of identifiers, free text and copies are not."""
        return self.use in ("number", "date", "boolean", "category", "code")

    @property
    def has_position(self) -> bool:
        """Whether encoded values differ; those of numbers that count as categories do not."""
        return self.is_used and (self.kind != "number" or self.use != "category")

    @property
    def is_standardized(self) -> bool:
        """Whether the column has robust z-scores: those of others are 0.

        Of dates, booleans, numbers that count as categories and unused columns, only the rarity
        counts.
        """
        return self.has_position and self.kind not in ("date", "boolean")

    @property
    def is_constant(self) -> bool:
        """Whether the sample has at most one distinct value; True without any value."""
        return self.n_categories <= 1 if self.kind == "category" else self.low == self.high

    @property
    def unmarked_feature(self) -> int:
        """Index of the feature that is no indicator: the number, or that of rare categories."""
        return len(self.categories) if self.kind == "category" else 0

    @property
    def n_rare(self) -> int:
        """Number of categories without an encoded feature of their own."""
        return self.n_categories - len(self.categories)

    @property
    def has_few_rare(self) -> bool:
        """Whether less than 3 % of the rows had a rare category; for category columns.

        Always False for declared columns.
        """
        is_extreme = self.scales[len(self.categories)] <= _compute_category_scale(0.0)
        return is_extreme and 2 * self.n_rare_rows <= self.n_present

    @property
    def prescale(self) -> float:
        """Factor applied to values before subtraction, so that ``high - low`` cannot overflow.

        It is 0.5 if an end of the range exceeds 1 in size, else 1. Halving is exact for numbers
        that are not tiny, and it cancels out in the encoded value.
        """
        return 0.5 if max(abs(self.low), abs(self.high)) > 1 else 1.0

    @property
    def divisor(self) -> float:
        """Divisor that scales the prescaled range to [0, 1], or to [0, 0.25] for booleans.

        A constant counts as a range of 1. The divisor of a column without values is infinite.
        """
        if not self.n_present:
            return math.inf  # all later values are then encoded as 0
        value_range = (self.high * self.prescale - self.low * self.prescale) or self.prescale
        # A boolean has the same weight as a category.
        return value_range / CATEGORY_WEIGHT if self.kind == "boolean" else value_range

    @property
    def n_features_encoded(self) -> int:
        """Number of encoded features, including the indicator of missing values."""
        n_values = len(self.categories) + 1 if self.kind == "category" else 1
        return n_values + (self.n_missing > 0)


class EncoderState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The state of a `TableEncoder` in a model file: its parameters and fitted columns."""

    max_categories: Count
    min_count: Count
    columns: Annotated[tuple[Column, ...], msgspec.Meta(min_length=1, max_length=MAX_COLUMNS)]


def validate_state(state: EncoderState) -> None:
    """Raise a `ModelFileError` if fields of a decoded state contradict each other.

    Names must be distinct, at least one column must have a value, and each column must satisfy
    `_evaluate_rules`.
    """
    columns = state.columns
    if len({column.name for column in columns}) < len(columns):
        raise ModelFileError("encoder: two columns have the same name")
    if not any(column.n_present for column in columns):
        raise ModelFileError("encoder: no column has a value")
    for number, column in enumerate(columns):
        rules = _evaluate_rules(column) | _evaluate_role_rules(column, number)
        rules["at most max_categories categories"] = len(column.categories) <= state.max_categories
        if not all(rules.values()):
            broken = next(rule for rule, holds in rules.items() if not holds)
            raise ModelFileError(f"encoder, column {number}: expected {broken}")


def _evaluate_rules(column: Column) -> dict[str, bool]:
    """Return the rules that a column must satisfy, as texts for messages, and whether they hold."""
    is_category = column.kind == "category"
    n_own = len(column.categories)
    indicator_scales = column.scales[not is_category :]
    return {
        "at least one row": column.n_present + column.n_missing >= 1,
        "a constant if all values are missing": column.n_present > 0 or column.is_constant,
        "distinct categories": len(set(column.categories)) == n_own,
        "categories only in category columns": is_category or not (n_own or column.n_categories),
        "at most as many categories as values": not is_category
        or n_own <= column.n_categories <= column.n_present,
        "at most as many rare rows as values": column.n_rare_rows <= column.n_present,
        "no range in category columns": not is_category
        or column.low == column.high == column.fill_value == 0,
        "finite numbers": all(map(math.isfinite, (column.low, column.high, *column.scales))),
        "low <= median <= high": column.low <= column.median <= column.high,
        "a fill_value from 0 to 1": 0 <= column.fill_value <= 1,
        "one scale for each encoded feature": len(column.scales) == column.n_features_encoded,
        # A smaller scale would dominate every distance.
        "scales of at least 0.001 for indicators": min(indicator_scales, default=1) >= 0.001,
    }


# Kinds of columns that can have a role; all kinds for the others.
_ROLE_KINDS: Mapping[Role, tuple[Kind, ...]] = {
    "number": ("number",),
    "date": ("date",),
    "boolean": ("boolean",),
    "category": ("category", "number", "boolean"),
    "code": ("number",),
    "identifier": ("category", "number", "date"),
    "free text": ("category",),
}


def _evaluate_role_rules(column: Column, number: int) -> dict[str, bool]:
    """Return the rules that the role of a column must satisfy, and whether they hold."""
    role = column.role
    if role is None:
        return {}
    n_values = column.n_present
    return {
        "a role of its kind": column.kind in _ROLE_KINDS.get(role.role, (column.kind,)),
        "is_text in category columns only": role.is_text == (column.kind == "category"),
        "a copy of an earlier column": role.duplicate_of is None or role.duplicate_of < number,
        "at most as many distinct values as values": role.n_distinct <= n_values,
        "no role in declared columns": not column.is_declared,
    }


def fit_numeric(name: str, kind: Kind, values: NDArray[np.float64]) -> Column:
    """Fit a column of numbers, booleans (0 or 1) or dates (seconds since 1970); NaN is missing.

    Infinite values raise a `TableError`. A column without values keeps the range 0 to 0.
    """
    is_infinite = np.isinf(values)
    if is_infinite.any():
        raise infinity_error(name, int(is_infinite.argmax()))
    present = values[~np.isnan(values)]
    n_missing = len(values) - len(present)
    indicator = (MISSING_SCALE,) if n_missing else ()
    if not len(present):
        scales = (1.0, *indicator)
        return Column(name=name, kind=kind, n_present=0, n_missing=n_missing, scales=scales)
    # The lower median is a value of the sample, and needs no sum that could overflow.
    middle = (len(present) - 1) // 2
    median = float(np.partition(present, middle)[middle])
    column = Column(
        name=name,
        kind=kind,
        n_present=len(present),
        n_missing=n_missing,
        low=float(present.min()),
        high=float(present.max()),
        median=median,
    )
    fill_value = (median * column.prescale - column.low * column.prescale) / column.divisor
    scales = (_compute_robust_scale(present, column), *indicator)
    return replace(column, fill_value=fill_value, scales=scales)


def _compute_robust_scale(values: NDArray[np.float64], column: Column) -> float:
    """Compute the scale of robust z-scores, IQR / 1.349, multiplied by `prescale`.

    If the quartiles are equal, it is the standard deviation. A constant has the scale 1 before
    multiplication. Booleans have a scale of at least 1/6.
    """
    if column.is_constant:
        return column.prescale
    # Quartiles of encoded values would be equal if the range contains one extreme value.
    values = values * column.prescale
    first, third = np.quantile(values, [0.25, 0.75])
    scale = float(third - first) / IQR_OF_GAUSSIAN
    if not scale:
        value_range = column.high * column.prescale - column.low * column.prescale
        relative = (values - column.low * column.prescale) / value_range
        scale = float(relative.std() * value_range)
    scale = max(scale, sys.float_info.min)
    return max(scale, MIN_BINARY_STD) if column.kind == "boolean" else scale


def fit_category(name: str, texts: pa.Array, max_categories: int, min_count: int) -> Column:
    """Fit a column of categories; frequent ones get an encoded feature each.

    These are the `max_categories` most frequent ones that occur at least `min_count` times. Ties
    are broken by the text. All other categories share one feature. Nulls are missing values.
    """
    counts = pc.value_counts(texts.drop_null())
    pairs = zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)
    ranked = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))
    frequent = [(text, count) for text, count in ranked[:max_categories] if count >= min_count]
    n_present = len(texts) - texts.null_count
    n_others = n_present - sum(count for _, count in frequent)
    shares = [count / len(texts) for count in (*(count for _, count in frequent), n_others)]
    indicator = (MISSING_SCALE,) if texts.null_count else ()
    return Column(
        name=name,
        kind="category",
        n_present=n_present,
        n_missing=texts.null_count,
        scales=(*map(_compute_category_scale, shares), *indicator),
        categories=tuple(text for text, _ in frequent),
        n_categories=len(ranked),
        n_rare_rows=n_others,
    )


def _compute_category_scale(share: float) -> float:
    """Compute the scale of a category's feature from the share of rows with this category.

    It is sqrt(2) times the standard deviation of a binary feature, which counts as at least 1/6.
    """
    return math.sqrt(N_DIFFERING_FEATURES) * max(math.sqrt(share * (1 - share)), MIN_BINARY_STD)


# What is said of columns with a role of their own, before the evidence for it.
_USES = {
    "identifier": "is an identifier, of which only repeated values count",
    "free text": "is free text, which is not used",
    "duplicate": "is a copy, which counts only beside other columns",
    "code": "holds codes, which count as categories, too",
}


def describe_problems(column: Column, *, has_rarities: bool = False) -> Iterator[str]:
    """Yield warnings about a fitted column: its role, constant, missing values, rare categories.

    A column without values yields only one sentence. A declared column yields none. With
    `has_rarities`, the model counts how rare each category is.
    """
    if column.is_declared:
        return
    yield from describe_role(column)
    n_rows = column.n_present + column.n_missing
    if not column.n_present:
        yield f"Column {quote(column.name)} has no value in any of {n_rows} rows; it is a constant."
        return
    if column.is_constant and abs(column.low) > MAX_EXACT_INTEGER:
        yield (
            f"Column {quote(column.name)} holds numbers too large to be distinguished; it is a "
            "constant. If they identify rows, exclude the column."
        )
    elif column.is_constant:
        yield f"Column {quote(column.name)} holds a single value; it is a constant."
    if column.n_missing:
        yield _describe_missing(column)
    if column.n_rare and not has_rarities and column.is_used:
        yield (
            f"Column {quote(column.name)} has {column.n_rare} rare categories; "
            f"they count as {OTHER!r}."
        )


def describe_role(column: Column) -> Iterator[str]:
    """Yield a sentence if the column was found to be used otherwise than others of its kind.

    A role that the user stated is no news, and yields none.
    """
    if column.role is not None and is_special(column.role) and not column.is_stated:
        yield f"Column {quote(column.name)} {_USES[column.use]}: {column.role.reason}"


def _describe_missing(column: Column) -> str:
    """Return a sentence about the missing values of a column."""
    share = column.n_missing / (column.n_present + column.n_missing)
    found = f"Column {quote(column.name)} has {column.n_missing} missing values ({share:.2%})"
    if not column.is_used:
        return f"{found}."
    if column.kind == "category":
        return f"{found}; they are marked by an indicator, like a category of their own."
    # Losses and whitened distances use the median, other distances give the weight 0.
    return (
        f"{found}; they are marked by an indicator, and replaced by the median or left out of "
        "distances."
    )
