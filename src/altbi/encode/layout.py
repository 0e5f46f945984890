"""The units of a row side by side, and the arithmetic that fills them for all columns at once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from altbi.encode.bend import MOST_DEVIATIONS, bent
from altbi.encode.column import LEVEL_WEIGHT, MISSING_WEIGHT, Column

__all__ = ["LIMIT", "Layout", "Scale", "layout_of", "scaled_cells"]

# Far outside the fitted range a value is held here: the models square it, and the square of a
# larger one, summed over columns, could leave float32 (3e38); as an outlier it is beyond doubt.
LIMIT = 1e9


@dataclass(frozen=True, slots=True)
class Scale:
    """How cells become units: ``(cell * half - shift) / divisor``, held within ``±limit``.

    What is missing reads as `fill`. Deviations are bent far out.
    """

    shift: NDArray[np.float64]  # this and the next two for each column that is no category
    divisor: NDArray[np.float64]
    fill: NDArray[np.float64]
    limit: float
    bends: bool
    marks: NDArray[np.float32]  # what a unit reads as where a level or a gap is


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the units of each column stand, and what scales them, as arrays for all at once."""

    columns: tuple[Column, ...]
    starts: NDArray[np.intp]  # first unit of each column
    unit_columns: NDArray[np.intp]
    scalars: NDArray[np.intp]  # columns that are no categories, one entry each below
    half: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    ranges: Scale
    deviations: Scale
    marked: NDArray[np.intp]  # which of the scalars have an indicator of missing cells
    categories: tuple[int, ...]
    levels: NDArray[np.bool_]  # which units are levels of categories


def layout_of(columns: tuple[Column, ...]) -> Layout:
    """Lay the columns' units side by side, in the columns' order."""
    counts = np.array([column.n_units for column in columns], dtype=np.intp)
    scalars = [number for number, column in enumerate(columns) if column.kind != "category"]
    known = [columns[number] for number in scalars]
    half = np.array([column.half for column in known])
    return Layout(
        columns=columns,
        starts=np.cumsum(counts) - counts,
        unit_columns=np.repeat(np.arange(len(columns), dtype=np.intp), counts),
        scalars=np.array(scalars, dtype=np.intp),
        half=half,
        low=np.array([column.low for column in known]),
        high=np.array([column.high for column in known]),
        ranges=_ranges(columns, known, half),
        deviations=_deviations(columns, known, half),
        marked=np.flatnonzero([column.missing > 0 for column in known]),
        categories=tuple(n for n, column in enumerate(columns) if column.kind == "category"),
        levels=np.array(
            [
                column.kind == "category" and place <= len(column.levels)
                for column in columns
                for place in range(column.n_units)
            ]
        ),
    )


def _ranges(columns: tuple[Column, ...], known: list[Column], half: NDArray[np.float64]) -> Scale:
    """Map the fitted range to [0, 1]."""
    marks = [
        MISSING_WEIGHT if column.missing and place == column.n_units - 1 else LEVEL_WEIGHT
        for column in columns
        for place in range(column.n_units)
    ]
    return Scale(
        shift=np.array([column.low for column in known]) * half,
        divisor=np.array([column.span for column in known]),
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
        shift=np.array([column.centre for column in known]) * half,
        # Nothing is known of a column without values: whatever comes later reads as 0.
        divisor=np.array([column.scales[0] if column.present else np.inf for column in known]),
        fill=np.full(len(known), np.nan),
        limit=MOST_DEVIATIONS,
        bends=True,
        marks=np.array(marks, dtype=np.float32),
    )


def scaled_cells(
    cells: NDArray[np.float64],
    half: NDArray[np.float64],
    scale: Scale,
    missing: NDArray[np.bool_] | None,
) -> NDArray[np.float64]:
    """Scale cells, with a way round the overflow of huge differences."""
    with np.errstate(over="ignore", under="ignore"):
        scaled = cells * half
        scaled -= scale.shift
        scaled /= scale.divisor
    if missing is not None:
        np.copyto(scaled, scale.fill, where=missing)
    if scale.bends:
        return bent(scaled)
    return np.clip(scaled, -scale.limit, scale.limit, out=scaled)
