"""What is known about some rows: that they are normal, or that they are odd."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from altbi.errors import ParameterError
from altbi.table import Table, sample_rows

__all__ = [
    "INLIER",
    "OUTLIER",
    "UNKNOWN",
    "Labels",
    "add_outliers",
    "check_enough_inliers",
    "draw_training_sample",
    "parse_labels",
]

INLIER, UNKNOWN, OUTLIER = 1, 0, -1
Labels = NDArray[np.int8]


def parse_labels(
    known_inlier: ArrayLike | None,
    known_outlier: ArrayLike | None,
    table: Any,  # noqa: ANN401
    n_rows: int,
) -> Labels | None:
    """Give each row of the user's table its role; None where nothing is known."""
    if known_inlier is None and known_outlier is None:
        return None
    labels = np.full(n_rows, UNKNOWN, dtype=np.int8)
    inlier = _mask("known_inlier", known_inlier, table, n_rows)
    outlier = _mask("known_outlier", known_outlier, table, n_rows)
    if (inlier & outlier).any():
        row = int(np.flatnonzero(inlier & outlier)[0])
        raise ParameterError(
            f"Row {row} (counted from 0) is both in known_inlier and in known_outlier. "
            "Decide for one of them, or for neither."
        )
    labels[inlier] = INLIER
    labels[outlier] = OUTLIER
    return labels


def draw_training_sample(
    table: Table, labels: Labels | None, most: int, seed: int
) -> tuple[Table, Labels | None]:
    """Take the rows to learn from, and their roles: all, or a uniform sample of a large table."""
    if len(table) > most:
        chosen = sample_rows(len(table), most, seed)
        if labels is not None:
            chosen = add_outliers(chosen, labels, most)
            labels = labels[chosen]
        table = table.take(chosen)
    if labels is not None:
        check_enough_inliers(labels)
    return table, labels


def add_outliers(chosen: NDArray[np.int64], labels: Labels, most: int) -> NDArray[np.int64]:
    """Add labelled outliers to the rows of a sample: they are few, and someone found them."""
    outliers = np.flatnonzero(labels == OUTLIER)
    return np.union1d(chosen, outliers) if len(outliers) <= most else chosen


def check_enough_inliers(labels: Labels) -> None:
    """Refuse labels that leave nothing to learn from."""
    left = int((labels != OUTLIER).sum())
    if left < 2:
        raise ParameterError(
            f"known_outlier leaves {left} of {len(labels)} rows to learn from, but expected at "
            "least 2 that may be normal. Mark fewer rows, or raise max_rows."
        )


def _mask(name: str, given: Any, table: Any, n_rows: int) -> NDArray[np.bool_]:  # noqa: ANN401
    if given is None:
        return np.zeros(n_rows, dtype=bool)
    is_pandas = hasattr(given, "iloc") and hasattr(table, "iloc")
    if is_pandas and not given.index.equals(table.index):
        raise ParameterError(
            f"{name} has another index than the table. Align it first, or hand in an array."
        )
    try:
        mask = np.asarray(given)
    except ValueError as cause:
        raise ParameterError(f"{name} is no array ({cause}). Give one boolean a row.") from cause
    if mask.dtype != bool or mask.shape != (n_rows,):
        raise ParameterError(
            f"{name} has the shape {mask.shape} and the type {mask.dtype}, but expected one "
            f"boolean for each of the {n_rows} rows. Compare (== 1), and fill gaps with False."
        )
    return mask
