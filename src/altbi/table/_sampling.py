"""The training sample: a uniform, seeded, bounded subset of the rows of a table."""

from typing import final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.errors import ParameterError, quote

# The constants of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_MAX_KEY = 2**64 - 1
_KEYS_PER_CHUNK = 1 << 20


def compute_row_keys(start: int, stop: int, seed: int) -> NDArray[np.uint64]:
    """Return a random 64-bit key for each row from ``start`` up to, but not including, ``stop``.

    A key depends only on the seed and the row number, so chunks get the same keys as the full
    table. Keys are unique, because each step of the hash is a bijection.
    """
    # The seed is hashed first; otherwise seed + 1 would give the keys of seed, shifted by one row.
    stream = _hash_integers(np.array([seed % 2**64], dtype=np.uint64) + _GOLDEN)
    rows = np.arange(start, stop, dtype=np.uint64)
    return _hash_integers(stream + (rows + np.uint64(1)) * _GOLDEN)


def _hash_integers(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the splitmix64 hash of each number, a bijection of the 64-bit integers."""
    state = (state ^ (state >> np.uint64(30))) * _MIX_1
    state = (state ^ (state >> np.uint64(27))) * _MIX_2
    return state ^ (state >> np.uint64(31))


def sample_rows(n_rows: int, limit: int, seed: int) -> NDArray[np.int64]:
    """Sample at most ``limit`` row numbers below ``n_rows`` uniformly; return them sorted.

    The sample holds the rows with the smallest keys of `compute_row_keys`. A smaller table is used
    completely. A limit below 1 raises a `ParameterError`.

    >>> sample_rows(4, limit=10, seed=0)
    array([0, 1, 2, 3])
    """
    if limit < 1:
        raise ParameterError(f"limit={quote(limit)}, but expected at least 1 row in the sample.")
    if n_rows <= limit:
        return np.arange(n_rows, dtype=np.int64)
    keys = compute_row_keys(0, n_rows, seed)
    largest = np.partition(keys, limit - 1)[limit - 1]
    return np.flatnonzero(keys <= largest).astype(np.int64)


def compute_largest_sample_key(n_rows: int, limit: int, seed: int) -> int:
    """Return the largest key of the rows that `sample_rows` samples, in bounded memory.

    Workers pass it as `max_key` to a `RowSampler`, so that each samples its own partition. A table
    of at most `limit` rows returns the largest 64-bit integer.
    """
    if n_rows <= limit:
        return _MAX_KEY
    smallest = np.empty(0, dtype=np.uint64)
    for first in range(0, n_rows, _KEYS_PER_CHUNK):
        chunk = compute_row_keys(first, min(first + _KEYS_PER_CHUNK, n_rows), seed)
        keys = np.append(smallest, chunk)
        smallest = np.partition(keys, min(limit, len(keys)) - 1)[:limit]
    return int(smallest.max())


@final
class RowSampler:
    """Samples the rows of `sample_rows` from a table that arrives in chunks.

    Chunks are added in the order of the table. At most ``2 * limit`` rows and one chunk are in
    memory. For a partition, `first_row` is the number of its first row in the table, and rows with
    keys above `max_key` are not sampled.
    """

    def __init__(
        self, limit: int, seed: int, *, first_row: int = 0, max_key: int = _MAX_KEY
    ) -> None:
        self.limit = limit
        self.seed = seed
        self.next_row = first_row
        self._keys = np.empty(0, dtype=np.uint64)
        self._rows = np.empty(0, dtype=np.int64)
        self._batches: list[pa.RecordBatch] = []
        self._max_key = np.uint64(max_key)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next rows; rows whose key is too large for the sample are dropped."""
        keys = compute_row_keys(self.next_row, self.next_row + len(batch), self.seed)
        chosen = np.flatnonzero(keys <= self._max_key)
        # `take` copies the rows, so that the batch can be freed.
        self._batches.append(batch.take(pa.array(chosen)))
        self._keys = np.append(self._keys, keys[chosen])
        self._rows = np.append(self._rows, self.next_row + chosen)
        self.next_row += len(batch)
        if len(self._keys) > 2 * self.limit:
            self._shrink()

    def result(self) -> tuple[pa.Table, NDArray[np.int64]]:
        """Return the sampled rows and their row numbers, in the order of the table.

        At least one batch must have been added.
        """
        if len(self._keys) > self.limit:
            self._shrink()
        return pa.Table.from_batches(self._batches), self._rows

    def _shrink(self) -> None:
        """Drop all rows but those with the `limit` smallest keys; there must be as many.

        The largest of these keys becomes `_max_key`, above which `add` drops later rows.
        """
        self._max_key = np.partition(self._keys, self.limit - 1)[self.limit - 1]
        kept = np.flatnonzero(self._keys <= self._max_key)
        table = pa.Table.from_batches(self._batches).take(pa.array(kept))
        self._batches = table.combine_chunks().to_batches()
        self._keys, self._rows = self._keys[kept], self._rows[kept]
