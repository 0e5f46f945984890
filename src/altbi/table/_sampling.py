"""The training sample: a uniform, seeded, bounded subset of the rows of a table."""

import numpy as np
from numpy.typing import NDArray

from altbi.errors import ParameterError

# The constants of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def row_keys(start: int, stop: int, seed: int) -> NDArray[np.uint64]:
    """Return a random 64-bit key for each row from ``start`` up to, but not including, ``stop``.

    A key depends only on the seed and the row number, so chunks get the same keys as the full
    table. Keys are unique, because each step of the hash is a bijection. A reader of chunks that
    keeps the rows with the smallest keys ends up with the sample of `sample_rows`.

    Examples
    --------
    >>> bool((row_keys(0, 5, seed=1)[3:] == row_keys(3, 5, seed=1)).all())
    True
    """
    # The seed is hashed first; otherwise seed + 1 would give the keys of seed, shifted by one row.
    stream = _hash_integers(np.array([seed % 2**64], dtype=np.uint64) + _GOLDEN)
    rows = np.arange(start, stop, dtype=np.uint64)
    return _hash_integers(stream + (rows + np.uint64(1)) * _GOLDEN)


def sample_rows(n_rows: int, limit: int, seed: int) -> NDArray[np.int64]:
    """Sample at most ``limit`` row numbers below ``n_rows`` uniformly; return them sorted.

    A limit below 1 raises a `ParameterError`.

    Parameters
    ----------
    n_rows : int
        Number of rows in the table.
    limit : int
        Largest size of the sample. A smaller table is used completely.
    seed : int
        Seed of the `row_keys`; the sample holds the rows with the smallest keys.

    Returns
    -------
    ndarray of int
        Row numbers, counted from 0.

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


def _hash_integers(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the splitmix64 hash of each number, a bijection of the 64-bit integers."""
    state = (state ^ (state >> np.uint64(30))) * _MIX_1
    state = (state ^ (state >> np.uint64(27))) * _MIX_2
    return state ^ (state >> np.uint64(31))
