"""Tiles of columns for matrix products in which the position of a column changes no bit.

A BLAS kernel computes a block of columns at a time, and may add up in another order in the first
and last block. OpenBLAS 0.3.31 does so for float32 on CPUs with AVX2: with 8 or more inputs, the
first and last 8 columns of each panel of at most 320 columns are rounded differently. Tiles
therefore have 320 columns, one panel, and rows fill all columns but the first and last 8. With
this layout, all columns were equal to the bit for 1 to 1,001 inputs, 2 to 1,000 outputs, both
precisions, and the kernels of OpenBLAS for Haswell, Sandy Bridge, Nehalem and Katmai.
`is_position_independent` checks it for the library in use.
"""

from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from altbi._buffers import Buffers

Float = TypeVar("Float", bound=np.floating[Any])

TILE_COLUMNS = 320
TILE_MARGIN = 8
TILE_ROWS = TILE_COLUMNS - 2 * TILE_MARGIN

# With this many outputs, it is unlikely that two orders of addition agree in all of them.
_CHECKED_OUTPUTS = 64


def split_into_tiles(
    rows: NDArray[np.floating[Any]], height: int, dtype: DTypeLike, buffers: Buffers | None = None
) -> NDArray[Any]:
    """Return rows ``(n_rows, n_features)`` as columns of tiles ``(n_tiles, height, TILE_COLUMNS)``.

    The features of a row are the first values of its column. All other values are 0: below the
    features, in the margins, and after the last row. With `buffers` of the same type, the next call
    with them overwrites the tiles.
    """
    n_features = rows.shape[1]
    n_full, rest = divmod(len(rows), TILE_ROWS)
    shape = n_full + (rest > 0), height, TILE_COLUMNS
    tiles = np.empty(shape, dtype=dtype) if buffers is None else buffers.get("tiles", *shape)
    tiles.fill(0)
    inner = tiles[:, :n_features, TILE_MARGIN:-TILE_MARGIN]
    full = rows[: n_full * TILE_ROWS].reshape(n_full, TILE_ROWS, n_features)
    inner[:n_full] = full.transpose(0, 2, 1)
    if rest:
        inner[n_full, :, :rest] = rows[-rest:].T
    return tiles


def join_tiles(
    tiles: NDArray[Float], n_rows: int, buffers: Buffers | None = None
) -> NDArray[Float]:
    """Return the columns ``(height, n_rows)`` of tiles, without margins and padding.

    They are a view of the tiles if there is one tile. With `buffers` of the same type, the next
    call with them overwrites the columns.
    """
    inner = tiles[:, :, TILE_MARGIN:-TILE_MARGIN].transpose(1, 0, 2)
    if len(tiles) == 1:
        return inner[:, 0, :n_rows]
    shape = inner.shape
    columns = np.empty(shape, tiles.dtype) if buffers is None else buffers.get("columns", *shape)
    np.copyto(columns, inner)
    return columns.reshape(tiles.shape[1], -1)[:, :n_rows]


@cache
def is_position_independent(n_outputs: int, n_inputs: int, dtype: DTypeLike) -> bool:
    """Return whether the position of a column changes no bit of a matrix product on this machine.

    Random matrices ``(n_outputs, n_inputs)`` are multiplied by a tile of equal columns, and all
    columns outside the margins are compared. Call this with a single BLAS thread; the result is
    cached.
    """
    generator = np.random.default_rng(0)
    for _ in range(1 + _CHECKED_OUTPUTS // n_outputs):
        matrix = generator.normal(size=(n_outputs, n_inputs)).astype(dtype)
        column = generator.normal(size=(n_inputs, 1)).astype(dtype)
        product = np.matmul(matrix, np.repeat(column, TILE_COLUMNS, axis=1))
        inner = product[:, TILE_MARGIN:-TILE_MARGIN]
        if not np.array_equal(inner, np.broadcast_to(inner[:, :1], inner.shape)):
            return False
    return True
