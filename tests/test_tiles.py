import numpy as np
import pytest

from altbi import _tiles
from altbi._buffers import Buffers
from altbi._threads import single_blas_thread
from altbi._tiles import (
    TILE_COLUMNS,
    TILE_MARGIN,
    TILE_ROWS,
    is_position_independent,
    join_tiles,
    split_into_tiles,
)


@pytest.mark.parametrize("n_rows", [0, 1, TILE_ROWS, 2 * TILE_ROWS + 5])
def test_joined_tiles_are_the_rows(n_rows):
    rows = np.random.default_rng(0).normal(size=(n_rows, 3)).astype(np.float32)

    tiles = split_into_tiles(rows, 4, np.float64)

    assert tiles.shape == (-(-n_rows // TILE_ROWS), 4, TILE_COLUMNS)
    assert np.array_equal(join_tiles(tiles, n_rows)[:3], rows.T)
    assert np.count_nonzero(tiles) == rows.size


def test_reused_tiles_keep_no_values():
    buffers, rows = Buffers(np.float64), np.ones((2 * TILE_ROWS, 3), dtype=np.float32)
    split_into_tiles(rows, 4, np.float64, buffers).fill(7)

    tiles = split_into_tiles(rows[:5], 4, np.float64, buffers)

    assert np.array_equal(tiles, split_into_tiles(rows[:5], 4, np.float64))
    assert np.shares_memory(tiles, buffers.arrays["tiles"])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_inputs", [1, 2, 7, 8, 11, 64, 101, 501])
def test_products_of_this_machine_are_position_independent(n_inputs, dtype):
    with single_blas_thread():
        for n_outputs in (2, 15, 100, 1000):
            assert is_position_independent(n_outputs, n_inputs, dtype)


def test_dependence_on_position_is_found(monkeypatch):
    """As on a machine whose kernel rounds the last but eight columns differently."""

    def multiply(matrix, columns):
        product = matrix @ columns
        product[:, -TILE_MARGIN - 1] = np.nextafter(product[:, -TILE_MARGIN - 1], 9)
        return product

    monkeypatch.setattr(_tiles.np, "matmul", multiply)

    assert not is_position_independent.__wrapped__(5, 10, np.float32)


@pytest.mark.parametrize("n_outputs", [1, 10, 100])
def test_enough_outputs_are_compared(monkeypatch, n_outputs):
    compared, matmul = [], np.matmul

    def multiply(matrix, columns):
        compared.append(len(matrix))
        return matmul(matrix, columns)

    monkeypatch.setattr(_tiles.np, "matmul", multiply)

    with single_blas_thread():
        is_position_independent.__wrapped__(n_outputs, 10, np.float64)
    assert sum(compared) >= 64
