"""64-bit hashes of the values of a table, computed without a loop over rows.

Equal values have equal hashes. Others may have, too, so values are compared before a match counts.
"""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from altbi.table import Table

Hashes = NDArray[np.uint64]

# The constants of SplitMix64.
GOLDEN, FIRST, SECOND = (
    np.uint64(each) for each in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
MISSING = np.uint64(0)
EXACT_LIMIT = 2.0**53
BLOCK = 8  # bytes
# Blocks of a text that are hashed in NumPy. Longer texts are hashed one by one.
MAX_BLOCKS = 128


def hash_column(table: Table, column: int, cells: pa.Array) -> Hashes:
    """Return the hashes ``(n_rows,)`` of a column's values; missing ones have the hash `MISSING`.

    `cells` are the values as the source has them. Large numbers are hashed as texts, because
    float64 has not all of their digits.
    """
    if table.kinds[column] == "category":
        return hash_texts(table.categories(column))
    values = table.numbers([column])[:, 0] + 0.0  # -0.0 becomes 0.0
    hashes = mix(values.view(np.uint64))
    hashes[np.isnan(values)] = MISSING
    is_large = find_large(values)
    if is_large.any():
        hashes[is_large] = hash_texts(read_exact_texts(cells.filter(pa.array(is_large))))
    return hashes


def find_large(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return a mask of the numbers from which float64 does not have all integers."""
    return np.asarray(np.abs(values) >= EXACT_LIMIT)


def read_exact_texts(cells: pa.Array) -> pa.Array:
    """Return numbers or texts of a source as texts with all of their digits."""
    if pa.types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    return pc.utf8_trim_whitespace(cells.cast(pa.large_string()))


def hash_texts(texts: pa.Array) -> Hashes:
    """Return the hashes of texts or bytes; missing ones have the hash `MISSING`.

    >>> hashes = hash_texts(pa.array(["a", "b", None, "a"]))
    >>> bool(hashes[0] == hashes[3] != hashes[1]), int(hashes[2])
    (True, 0)
    """
    is_text = pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)
    encoded = texts.cast(pa.large_string() if is_text else pa.large_binary()).dictionary_encode()
    hashes = np.append(_hash_distinct(encoded.dictionary), MISSING)
    # The index -1 of missing values is that of the last hash.
    return hashes[pc.fill_null(encoded.indices, -1).to_numpy()]


def _hash_distinct(texts: pa.Array) -> Hashes:
    """Return the hashes of texts without missing ones."""
    _, offsets, content = texts.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[texts.offset :][: len(texts) + 1]
    starts, lengths = ends[:-1], np.diff(ends)
    size = 0 if content is None else content.size
    padded = np.zeros(size + 2 * BLOCK, dtype=np.uint8)
    if content is not None:
        padded[BLOCK:-BLOCK] = np.frombuffer(content, dtype=np.uint8)
    blocks = _view_blocks(padded)
    hashes = mix(lengths.astype(np.uint64) + GOLDEN)
    rows = np.arange(len(texts))
    for number in range(MAX_BLOCKS):
        rows = rows[lengths[rows] > BLOCK * number]
        if not len(rows):
            return hashes
        hashes[rows] = mix(
            hashes[rows] ^ _read_blocks(blocks, starts[rows], lengths[rows], BLOCK * number)
        )
    for row in rows.tolist():
        text = padded[BLOCK + starts[row] : BLOCK + ends[row + 1]]
        digest = hashlib.blake2b(text.tobytes(), digest_size=BLOCK).digest()
        hashes[row] = int.from_bytes(digest, "little")
    return hashes


def _view_blocks(content: NDArray[np.uint8]) -> Hashes:
    """Return a view of the 8 bytes from each position on as little-endian integers."""
    return np.ndarray((len(content) - BLOCK + 1,), "<u8", content, strides=(1,))


def _read_blocks(
    blocks: Hashes, starts: NDArray[np.int64], lengths: NDArray[np.int64], offset: int
) -> Hashes:
    """Return the 8 bytes of each text from an offset on; bytes after its end are 0."""
    found = blocks[starts + (BLOCK + offset)].astype(np.uint64)
    n_bits = (BLOCK * np.minimum(lengths - offset, BLOCK)).astype(np.uint64)
    return found & (~np.uint64(0) >> (np.uint64(8 * BLOCK) - n_bits))


def mix(values: Hashes, seed: int = 1) -> Hashes:
    """Return the next value of SplitMix64 for each state; other seeds return later values."""
    mixed = values + np.uint64(seed * int(GOLDEN) % 2**64)
    mixed ^= mixed >> np.uint64(30)
    mixed *= FIRST
    mixed ^= mixed >> np.uint64(27)
    mixed *= SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed
