"""The units of a row side by side, and the arithmetic that fills them for all columns at once."""

from dataclasses import dataclass
from math import gcd

import numpy as np
from numpy.typing import NDArray

from altbi.encoding._column import CATEGORY_WEIGHT, MISSING_WEIGHT, Column
from altbi.encoding._tails import FARTHEST, compress_tails

__all__ = ["LIMIT", "Layout", "Scale", "abreast", "hold", "layout_of", "lines_of", "scaled_cells"]

# Far outside the fitted range a value is held here: the models square it, and the square of a
# larger one, summed over columns, could leave float32 (3e38); as an outlier it is beyond doubt.
LIMIT = 1e9
# Short rows are worked on side by side, in lines of about so many cells: short lines are slow.
_LINE_CELLS = 512


@dataclass(frozen=True, slots=True)
class Scale:
    """How cells become units: ``(cell * half - shift) / divisor``, held within ``±limit``.

    What is missing reads as `fill`. Deviations are compress_tails beyond the limit.
    """

    half: NDArray[np.float64]  # this and the next two for a line of rows, column by column
    shift: NDArray[np.float64]
    divisor: NDArray[np.float64]
    fill: NDArray[np.float64]  # for each column that is no category
    limit: float
    bends: bool
    marks: NDArray[np.float32]  # what a unit reads as where a category or a gap is


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the units of each column stand, and what scales them, as arrays for all at once."""

    columns: tuple[Column, ...]
    starts: NDArray[np.intp]  # first unit of each column
    feature_columns: NDArray[np.intp]
    scalars: NDArray[np.intp]  # columns that are no categories, one entry each below
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    ranges: Scale
    deviations: Scale
    marked: NDArray[np.intp]  # which of the scalars have an indicator of missing cells
    category_columns: tuple[int, ...]
    category_features: NDArray[np.bool_]  # which encoded features are categories


def layout_of(columns: tuple[Column, ...]) -> Layout:
    """Lay the columns' units side by side, in the columns' order."""
    counts = np.array([column.n_features_encoded for column in columns], dtype=np.intp)
    scalars = [number for number, column in enumerate(columns) if column.kind != "category"]
    known = [columns[number] for number in scalars]
    half = np.array([column.half for column in known])
    return Layout(
        columns=columns,
        starts=np.cumsum(counts) - counts,
        feature_columns=np.repeat(np.arange(len(columns), dtype=np.intp), counts),
        scalars=np.array(scalars, dtype=np.intp),
        low=np.array([column.low for column in known]),
        high=np.array([column.high for column in known]),
        ranges=_ranges(columns, known, half),
        deviations=_deviations(columns, known, half),
        marked=np.flatnonzero([column.missing > 0 for column in known]),
        category_columns=tuple(n for n, column in enumerate(columns) if column.kind == "category"),
        category_features=np.array(
            [
                column.kind == "category" and place <= len(column.categories)
                for column in columns
                for place in range(column.n_features_encoded)
            ]
        ),
    )


def _ranges(columns: tuple[Column, ...], known: list[Column], half: NDArray[np.float64]) -> Scale:
    """Map the fitted range to [0, 1]."""
    marks = [
        MISSING_WEIGHT
        if column.missing and place == column.n_features_encoded - 1
        else CATEGORY_WEIGHT
        for column in columns
        for place in range(column.n_features_encoded)
    ]
    return Scale(
        half=abreast(half),
        shift=abreast(np.array([column.low for column in known]) * half),
        divisor=abreast(np.array([column.span for column in known])),
        fill=np.array([column.fill for column in known]),
        limit=LIMIT,
        bends=False,
        marks=np.array(marks, dtype=np.float32),
    )


def _deviations(
    columns: tuple[Column, ...], known: list[Column], half: NDArray[np.float64]
) -> Scale:
    """Map the median to 0 and one deviation to 1."""
    marks = [
        0.0 if place == 0 and column.kind != "category" else 1 / scale
        for column in columns
        for place, scale in enumerate(column.scales)
    ]
    return Scale(
        half=abreast(half),
        shift=abreast(np.array([column.centre for column in known]) * half),
        # Nothing is known of a column without values: whatever comes later reads as 0.
        divisor=abreast(
            np.array([column.scales[0] if column.present else np.inf for column in known])
        ),
        fill=np.full(len(known), np.nan),
        limit=FARTHEST,
        bends=True,
        marks=np.array(marks, dtype=np.float32),
    )


def abreast(of_columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Repeat what is known of each column for a whole line of rows, a power of two of them."""
    n_rows = max(_LINE_CELLS // max(len(of_columns), 1), 1)
    return np.tile(of_columns, 1 << (n_rows.bit_length() - 1))


def lines_of(
    cells: NDArray[np.float64], *of_columns: NDArray[np.float64]
) -> tuple[NDArray[np.float64], ...]:
    """Put rows side by side, as many as make even lines, and cut what was repeated for them."""
    n_rows, n_columns = cells.shape
    width = gcd(n_rows, len(of_columns[0]) // n_columns) * n_columns
    return cells.reshape(-1, width), *(values[:width] for values in of_columns)


def scaled_cells(
    cells: NDArray[np.float64], scale: Scale, room: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Scale cells, with a way round the overflow of huge differences; the result is in `room`."""
    lines, half, shift, divisor = lines_of(cells, scale.half, scale.shift, scale.divisor)
    scaled = room[: len(cells)].reshape(lines.shape)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        np.multiply(lines, half, out=scaled)
        scaled -= shift
        scaled /= divisor
    return scaled.reshape(cells.shape)


def hold(scaled: NDArray[np.float64], scale: Scale, missing: NDArray[np.bool_]) -> None:
    """Fill what is missing, and bend or hold what lies beyond the limit."""
    np.copyto(scaled, scale.fill, where=missing)
    if scale.bends:
        compress_tails(scaled)
    else:
        np.clip(scaled, -scale.limit, scale.limit, out=scaled)
