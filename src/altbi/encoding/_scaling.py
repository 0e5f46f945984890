"""The positions of encoded features, and the scaling of numbers to features."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from altbi.encoding._column import CATEGORY_WEIGHT, MISSING_WEIGHT, Column

# Encoded values are clipped here. The networks square them, and the sum of larger squares over
# columns could exceed float32 (3e38).
LIMIT = 1e9
# Robust z-scores beyond this grow by their logarithm, so that one extreme value does not hide the
# contributions of other columns, and differences between extreme values remain visible.
TAIL_START = 20.0
TAIL_SCALE = 5.0
MAX_Z_SCORE = 1e300  # larger sizes are clipped, so that their logarithm is finite

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Scaling:
    """Scaling of the numeric columns: ``(value * prescale - shift) / divisor``."""

    prescale: Values
    shift: Values
    divisor: Values
    fill_value: Values  # encoded value of a missing value
    limit: float  # larger results are clipped; with compresses_tails they grow by their logarithm
    compresses_tails: bool
    # For each encoded feature: its value in rows that have the category or the missing value.
    indicators: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions of the columns' encoded features, and the scalings of numeric columns.

    Numeric columns hold numbers, booleans or dates; `low` and `high` are their ranges.
    """

    columns: tuple[Column, ...]
    starts: NDArray[np.intp]  # index of each column's first encoded feature
    feature_columns: NDArray[np.intp]  # index of each encoded feature's column
    numeric: NDArray[np.intp]  # indices of the numeric columns
    low: Values
    high: Values
    has_indicator: NDArray[np.intp]  # positions in `numeric` of columns with an indicator
    range_scaling: Scaling  # to [0, 1]
    robust_scaling: Scaling  # to robust z-scores
    categorical: tuple[int, ...]  # indices of the category columns
    is_category: NDArray[np.bool_]  # whether each encoded feature stands for a category


def build_layout(columns: tuple[Column, ...]) -> Layout:
    """Build the layout of fitted columns; features are in the order of the columns."""
    sizes = np.array([column.n_features_encoded for column in columns], dtype=np.intp)
    numeric = [number for number, column in enumerate(columns) if column.kind != "category"]
    known = [columns[number] for number in numeric]
    return Layout(
        columns=columns,
        starts=np.cumsum(sizes) - sizes,
        feature_columns=np.repeat(np.arange(len(columns), dtype=np.intp), sizes),
        numeric=np.array(numeric, dtype=np.intp),
        low=np.array([column.low for column in known]),
        high=np.array([column.high for column in known]),
        has_indicator=np.flatnonzero([column.n_missing > 0 for column in known]),
        range_scaling=_build_range_scaling(columns, known),
        robust_scaling=_build_robust_scaling(columns, known),
        categorical=tuple(n for n, column in enumerate(columns) if column.kind == "category"),
        is_category=np.array(
            [
                column.kind == "category" and position <= len(column.categories)
                for column in columns
                for position in range(column.n_features_encoded)
            ]
        ),
    )


def _build_range_scaling(columns: tuple[Column, ...], numeric: list[Column]) -> Scaling:
    """Build the scaling of numeric columns to their ranges, [0, 1] or [0, 0.25] for booleans.

    Categories are marked by 0.25 and missing values by 0.05. Missing numbers have the median.
    """
    indicators = [
        MISSING_WEIGHT
        if column.n_missing and position == column.n_features_encoded - 1
        else CATEGORY_WEIGHT
        for column in columns
        for position in range(column.n_features_encoded)
    ]
    return Scaling(
        prescale=np.array([column.prescale for column in numeric]),
        shift=np.array([column.low * column.prescale for column in numeric]),
        divisor=np.array([column.divisor for column in numeric]),
        fill_value=np.array([column.fill_value for column in numeric]),
        limit=LIMIT,
        compresses_tails=False,
        indicators=np.array(indicators, dtype=np.float32),
    )


def _build_robust_scaling(columns: tuple[Column, ...], numeric: list[Column]) -> Scaling:
    """Build the scaling of numeric columns to robust z-scores.

    Categories and missing values are marked by 1 / scale. Missing numbers are NaN.
    """
    indicators = [
        0.0 if position == 0 and column.kind != "category" else 1 / scale
        for column in columns
        for position, scale in enumerate(column.scales)
    ]
    return Scaling(
        prescale=np.array([column.prescale for column in numeric]),
        shift=np.array([column.median * column.prescale for column in numeric]),
        # The scale of a column without values is unknown: all later values are encoded as 0.
        divisor=np.array([c.scales[0] if c.n_present else np.inf for c in numeric]),
        fill_value=np.full(len(numeric), np.nan),
        limit=TAIL_START,
        compresses_tails=True,
        indicators=np.array(indicators, dtype=np.float32),
    )


def scale_values(values: Values, scaling: Scaling, buffer: Values) -> tuple[Values, bool]:
    """Scale values into a buffer, and return a view of it and whether all results are regular.

    Results are regular if none is NaN and all are within ``±scaling.limit``. Overflow is not
    reported.
    """
    scaled = buffer[: len(values)]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        np.multiply(values, scaling.prescale, out=scaled)
        scaled -= scaling.shift
        scaled /= scaling.divisor
    # Comparisons with NaN are false.
    return scaled, bool(-scaling.limit <= scaled.min() and scaled.max() <= scaling.limit)


def limit_values(scaled: Values, scaling: Scaling, is_missing: NDArray[np.bool_]) -> None:
    """Fill missing values, and clip or compress values beyond the limit, all in place."""
    np.copyto(scaled, scaling.fill_value, where=is_missing)
    if scaling.compresses_tails:
        _compress_tails(scaled)
    else:
        np.clip(scaled, -scaling.limit, scaling.limit, out=scaled)


def _compress_tails(z_scores: Values) -> None:
    """Replace each robust z-score z beyond ±20 in place, so that it grows by its logarithm.

    The result is ``sign(z) * (20 + 5 * log(|z| / 20))``. NaN stays NaN.
    """
    is_far = np.abs(z_scores) > TAIL_START
    sizes = np.minimum(np.abs(z_scores[is_far]), MAX_Z_SCORE)
    compressed = TAIL_START + TAIL_SCALE * np.log(sizes / TAIL_START)
    z_scores[is_far] = np.copysign(compressed, z_scores[is_far])


def expand_tails(z_scores: Values) -> Values:
    """Return robust z-scores without the compression of `_compress_tails`."""
    sizes = np.abs(z_scores)
    expanded = TAIL_START * np.exp(np.maximum(sizes - TAIL_START, 0) / TAIL_SCALE)
    return np.copysign(np.where(sizes > TAIL_START, expanded, sizes), z_scores)
