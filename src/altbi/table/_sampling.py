"""The training sample: uniform, seeded, bounded, the same for a file and for a table in memory."""

import numpy as np
from numpy.typing import NDArray

from altbi.errors import ParameterError

__all__ = ["row_keys", "sample_rows"]

# The constants of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)


def row_keys(start: int, stop: int, seed: int) -> NDArray[np.uint64]:
    """Give the rows from ``start`` up to ``stop`` their random keys.

    A key depends on the seed and the row's number alone, so that a reader of chunks gets the keys
    that the whole table has. It need only keep the `limit` rows with the smallest keys so far: what
    it holds after the last chunk is what `sample_rows` picks. No two rows share a key, because
    each step of the hash can be undone.

    Examples
    --------
    >>> bool((row_keys(0, 5, seed=1)[3:] == row_keys(3, 5, seed=1)).all())
    True
    """
    # The seed is hashed first: otherwise the keys of seed + 1 were those of seed, one row on.
    stream = _mixed(np.array([seed % 2**64], dtype=np.uint64) + GOLDEN)
    rows = np.arange(start, stop, dtype=np.uint64)
    return _mixed(stream + (rows + np.uint64(1)) * GOLDEN)


def sample_rows(n_rows: int, limit: int, seed: int) -> NDArray[np.int64]:
    """Pick at most ``limit`` of the row numbers 0 … ``n_rows - 1``, all equally likely, in order.

    The sample is the rows with the smallest `row_keys`; a reader of chunks that keeps those has
    the same sample without knowing ``n_rows``.

    Parameters
    ----------
    n_rows : int
        Rows in the table.
    limit : int
        Most rows in the sample; a table that is not larger is taken whole.
    seed : int
        Which of the possible samples.

    Examples
    --------
    >>> sample_rows(4, limit=10, seed=0)
    array([0, 1, 2, 3])
    >>> len(sample_rows(1000, limit=10, seed=0))
    10
    """
    if limit < 1:
        raise ParameterError(f"limit={limit!r}, but expected at least 1 row in the sample.")
    if n_rows <= limit:
        return np.arange(n_rows, dtype=np.int64)
    keys = row_keys(0, n_rows, seed)
    largest = np.partition(keys, limit - 1)[limit - 1]
    return np.flatnonzero(keys <= largest).astype(np.int64)


def _mixed(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash each number: the finisher of splitmix64, a permutation of the 64-bit integers."""
    state = (state ^ (state >> np.uint64(30))) * MIX_1
    state = (state ^ (state >> np.uint64(27))) * MIX_2
    return state ^ (state >> np.uint64(31))
