"""Labels of rows that a person has judged to be normal or to be outliers."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from altbi.errors import ParameterError

INLIER, UNKNOWN, OUTLIER = 1, 0, -1
Labels = NDArray[np.int8]


def parse_labels(
    known_inlier: ArrayLike | None,
    known_outlier: ArrayLike | None,
    table: Any,  # noqa: ANN401 - any table
    n_rows: int,
) -> Labels | None:
    """Return one label for each row: 1 for inliers, -1 for outliers, 0 for unknown.

    Both masks have one boolean for each row. The result is None if both are None. Masks of a wrong
    type, shape or pandas index, or rows in both masks, raise a `ParameterError`. Only the index of
    `table` is used.
    """
    if known_inlier is None and known_outlier is None:
        return None
    is_inlier = _parse_mask("known_inlier", known_inlier, table, n_rows)
    is_outlier = _parse_mask("known_outlier", known_outlier, table, n_rows)
    if (is_inlier & is_outlier).any():
        row = int(np.argmax(is_inlier & is_outlier))
        raise ParameterError(
            f"Row {row} (counted from 0) is both in known_inlier and in known_outlier. "
            "Remove it from one of them."
        )
    labels = np.full(n_rows, UNKNOWN, dtype=np.int8)
    labels[is_inlier] = INLIER
    labels[is_outlier] = OUTLIER
    return labels


def _parse_mask(name: str, given: Any, table: Any, n_rows: int) -> NDArray[np.bool_]:  # noqa: ANN401
    """Return the argument `name` as one boolean for each row; None becomes all False.

    Anything but `n_rows` booleans raises a `ParameterError`, and so does a pandas series with
    another index than a pandas table.
    """
    if given is None:
        return np.zeros(n_rows, dtype=bool)
    is_pandas = hasattr(given, "iloc") and hasattr(table, "iloc")
    if is_pandas and not given.index.equals(table.index):
        raise ParameterError(
            f"{name} has another index than the table. Align it with the table, or pass an array."
        )
    try:
        mask = np.asarray(given)
    except ValueError as cause:
        raise ParameterError(
            f"{name} is not an array ({cause}). Pass one boolean for each row."
        ) from cause
    if mask.dtype != bool or mask.shape != (n_rows,):
        raise ParameterError(
            f"{name} has the shape {mask.shape} and the type {mask.dtype}, but expected one "
            f"boolean for each of the {n_rows} rows. Compare labels with == 1, and replace missing "
            "labels by False."
        )
    return mask
