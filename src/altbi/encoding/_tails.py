"""Deviations far out count by their logarithm, and back."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["FARTHEST", "MOST_DEVIATIONS", "compress_tails", "expand_tails"]

# Beyond so many deviations a value counts by its logarithm: it is odd in any case, and one cell
# must not hide what the others say. Where usual values lie out there, too, an odd one stays odd.
FARTHEST = 20.0
STRETCH = 5.0
# More than that are held: the logarithm of infinity is no number to go on with.
MOST_DEVIATIONS = 1e300


def compress_tails(deviations: NDArray[np.float64]) -> NDArray[np.float64]:
    """Let what is far out count by its logarithm; where nothing is, it costs two looks."""
    lowest, highest = (look.reduce(deviations, axis=None) for look in (np.fmin, np.fmax))
    if not (lowest < -FARTHEST or highest > FARTHEST):  # NaN, a gap, is not far out
        return deviations
    far = np.abs(deviations) > FARTHEST
    sizes = np.minimum(np.abs(deviations[far]), MOST_DEVIATIONS)
    found = FARTHEST + STRETCH * np.log(sizes / FARTHEST)
    deviations[far] = np.copysign(found, deviations[far])
    return deviations


def expand_tails(deviations: NDArray[np.float64]) -> NDArray[np.float64]:
    """Undo `compress_tails`."""
    size = np.abs(deviations)
    far = FARTHEST * np.exp(np.maximum(size - FARTHEST, 0) / STRETCH)
    return np.copysign(np.where(size > FARTHEST, far, size), deviations)
