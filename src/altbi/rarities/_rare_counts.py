"""Rarity of a value from how often the values of its column occur."""

import numpy as np
from numpy.typing import NDArray

# Rare values that have at least this share of the rows together are usual.
USUAL_SHARE = 0.2

Floats = NDArray[np.float64]


def compute_rarities(
    counts: NDArray[np.integer],
    wanted: NDArray[np.integer],
    usual_share: float = USUAL_SHARE,
) -> Floats:
    """Compute the rarities of values that occur `wanted` times, in nats.

    `counts` are those of all distinct values. The rarity is the lower one of ``log((largest + 1) /
    (count + 1))`` and ``log(usual_share * (total + 1) / (tail + 1))``, where the tail are all rows
    whose value does not occur more often. So a value is unusual only if it is much rarer than the
    most frequent one, and if values as rare as it have less than `usual_share` of the rows. It is
    never negative.

    >>> compute_rarities(np.array([980, 15, 5]), np.array([980, 15, 5])).round(2)
    array([0.  , 2.25, 3.51])
    >>> compute_rarities(np.array([1, 1, 1, 1]), np.array([1, 0])).round(2)
    array([0., 0.])
    """
    ordered = np.sort(counts)
    sums = np.concatenate([[0], np.cumsum(ordered)])
    # A value that never occurs is as unusual as those that occur once.
    tails = sums[np.searchsorted(ordered, np.maximum(wanted, 1), side="right")]
    largest, total = int(ordered[-1]) if len(ordered) else 0, int(sums[-1])
    by_count = np.log((largest + 1) / (np.minimum(wanted, largest) + 1))
    by_tail = np.log(usual_share * (total + 1) / (tails + 1))
    rarities: Floats = np.maximum(np.minimum(by_count, by_tail), 0.0)
    return rarities
