"""How many of some rows or cells are among those with the highest scores."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["compute_top_weights"]


def compute_top_weights(scores: NDArray[np.float64], n_top: int) -> NDArray[np.float64]:
    """Return for each score the probability to be among the `n_top` highest.

    It is 1 or 0 except for equal scores, of which some are in and some are out at random.

    >>> compute_top_weights(np.array([3.0, 1.0, 1.0, 0.0]), 2)
    array([1. , 0.5, 0.5, 0. ])
    """
    n_top = min(n_top, len(scores))
    if n_top == 0:
        return np.zeros(len(scores))
    lowest = np.partition(scores, len(scores) - n_top)[len(scores) - n_top]
    above, equal = scores > lowest, scores == lowest
    return np.where(above, 1.0, np.where(equal, (n_top - above.sum()) / equal.sum(), 0.0))
