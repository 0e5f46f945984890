"""The units of a row side by side, and the arithmetic that fills them for all columns at once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from altbi.encode.column import Column

__all__ = ["LIMIT", "Layout", "layout_of", "scaled_cells"]

# Far outside the fitted range a value is held here: the models square it, and the square of a
# larger one, summed over columns, could leave float32 (3e38); as an outlier it is beyond doubt.
LIMIT = 1e9


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the units of each column stand, and what scales them, as arrays for all at once."""

    columns: tuple[Column, ...]
    starts: NDArray[np.intp]  # first unit of each column
    unit_columns: NDArray[np.intp]
    scalars: NDArray[np.intp]  # columns that are no categories, one entry each below
    half: NDArray[np.float64]
    low: NDArray[np.float64]
    span: NDArray[np.float64]
    fill: NDArray[np.float64]
    marked: NDArray[np.intp]  # which of the scalars have an indicator of missing cells
    categories: tuple[int, ...]


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
        low=np.array([column.low for column in known]) * half,
        span=np.array([column.span for column in known]),
        fill=np.array([column.fill for column in known]),
        marked=np.flatnonzero([column.missing > 0 for column in known]),
        categories=tuple(n for n, column in enumerate(columns) if column.kind == "category"),
    )


def scaled_cells(
    cells: NDArray[np.float64], layout: Layout, missing: NDArray[np.bool_] | None
) -> NDArray[np.float64]:
    """Map the fitted range to [0, 1], with a way round the overflow of huge differences."""
    with np.errstate(over="ignore", under="ignore"):
        scaled = cells * layout.half
        scaled -= layout.low
        scaled /= layout.span
    np.clip(scaled, -LIMIT, LIMIT, out=scaled)
    if missing is not None:
        np.copyto(scaled, layout.fill, where=missing)
    return scaled
