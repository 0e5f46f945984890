"""Work on blocks of rows, side by side in threads."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from altbi.networks._torch_modes import (
    default_modes,
    run_single_threaded,
    run_with_thread_pool,
    single_thread,
)

__all__ = ["map_blocks", "map_in_threads"]

Result = TypeVar("Result")


def map_blocks(
    function: Callable[[Tensor], Tensor], rows: NDArray[np.float32], block_rows: int
) -> NDArray[Any]:
    """Apply a function of ``(n_features, n_rows)`` columns to rows, block by block.

    Every block has the same, padded shape and is computed by one thread: the sums inside are then
    taken in the same order for every row, whatever stands beside it and however many threads there
    are, and results are equal to the bit.
    """

    def compute(start: int) -> NDArray[Any]:
        block = rows[start : start + block_rows]
        columns = np.zeros((rows.shape[1], block_rows), dtype=np.float32)
        columns[:, : len(block)] = block.T
        return function(torch.from_numpy(columns)).numpy()[:, : len(block)]

    def enter(start: int) -> None:
        found[:, start : start + block_rows] = compute(start)

    (first,) = map_in_threads(compute, range(1))
    # One array for all: small results kept among large ones that come and go would spread them
    # over ever more memory.
    found = np.empty((len(first), len(rows)), dtype=first.dtype)
    found[:, :block_rows] = first
    for _ in map_in_threads(enter, range(block_rows, len(rows), block_rows)):
        pass
    return found


def map_in_threads(function: Callable[[int], Result], tasks: range) -> Iterator[Result]:
    """Map over tasks in order, on as many threads as torch has, each of which computes alone."""

    def alone(task: int) -> Result:
        # Also within another task: it may have changed the modes, as models of users do.
        with single_thread(), default_modes(), torch.inference_mode():
            return function(task)

    threads = min(torch.get_num_threads(), len(tasks))
    if threads <= 1:
        yield from map(alone, tasks)
        return
    with (
        run_with_thread_pool(),
        ThreadPoolExecutor(threads, initializer=run_single_threaded) as pool,
    ):
        yield from pool.map(alone, tasks)
