"""What is known about some rows: that they are normal, or that they are odd."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from altbi.errors import ParameterError

__all__ = ["INLIER", "OUTLIER", "UNKNOWN", "Roles", "roles_of"]

INLIER, UNKNOWN, OUTLIER = 1, 0, -1
Roles = NDArray[np.int8]


def roles_of(
    known_inlier: ArrayLike | None, known_outlier: ArrayLike | None, n_rows: int
) -> Roles | None:
    """Give each row its role; None where nothing is known."""
    if known_inlier is None and known_outlier is None:
        return None
    roles = np.full(n_rows, UNKNOWN, dtype=np.int8)
    inlier = _mask("known_inlier", known_inlier, n_rows)
    outlier = _mask("known_outlier", known_outlier, n_rows)
    if (inlier & outlier).any():
        row = int(np.flatnonzero(inlier & outlier)[0])
        raise ParameterError(
            f"Row {row} (counted from 0) is both in known_inlier and in known_outlier. "
            "Decide for one of them, or for neither."
        )
    if outlier.all():
        raise ParameterError(
            "known_outlier marks every row, but training needs rows that may be normal."
        )
    roles[inlier] = INLIER
    roles[outlier] = OUTLIER
    return roles


def _mask(name: str, given: ArrayLike | None, n_rows: int) -> NDArray[np.bool_]:
    if given is None:
        return np.zeros(n_rows, dtype=bool)
    mask = np.asarray(given)
    if mask.dtype != bool or mask.shape != (n_rows,):
        raise ParameterError(
            f"{name} has the shape {mask.shape} and the type {mask.dtype}, but expected one "
            f"boolean for each of the {n_rows} rows."
        )
    return mask
