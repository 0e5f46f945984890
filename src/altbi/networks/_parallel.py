"""Process blocks of rows in parallel threads."""

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

Result = TypeVar("Result")


def map_blocks(
    function: Callable[[Tensor], Tensor], rows: NDArray[np.float32], block_rows: int
) -> NDArray[Any]:
    """Apply a function to blocks of rows in parallel, and return ``(n_outputs, n_rows)``.

    The function maps ``(n_features, block_rows)`` to ``(n_outputs, block_rows)``. All blocks are
    padded with zeros to this shape, and each is computed by one thread. Sums are therefore taken in
    the same order for every row. Results do not depend on other rows or threads. The first block is
    computed even if there are no rows, to find `n_outputs`.
    """

    def compute(start: int) -> NDArray[Any]:
        """Return the results of the block that begins at row `start`, without the padding."""
        block = rows[start : start + block_rows]
        columns = np.zeros((rows.shape[1], block_rows), dtype=np.float32)
        columns[:, : len(block)] = block.T
        return function(torch.from_numpy(columns)).numpy()[:, : len(block)]

    def store(start: int) -> None:
        """Store the results of the block that begins at row `start`."""
        results[:, start : start + block_rows] = compute(start)

    (first,) = map_in_threads(compute, range(1))
    # Results of blocks are copied into one array, because many small arrays fragment the heap.
    results = np.empty((len(first), len(rows)), dtype=first.dtype)
    results[:, :block_rows] = first
    for _ in map_in_threads(store, range(block_rows, len(rows), block_rows)):
        pass
    return results


def map_in_threads(function: Callable[[int], Result], tasks: range) -> Iterator[Result]:
    """Yield the results of tasks in order, computed by as many threads as torch uses.

    Each task runs single-threaded, in torch's default modes and in inference mode. With one task or
    one thread, tasks run in the calling thread.
    """

    def run(task: int) -> Result:
        """Run one task in the modes described above."""
        # Modes are set for nested tasks too, because a custom network may have changed them.
        with single_thread(), default_modes(), torch.inference_mode():
            return function(task)

    n_threads = min(torch.get_num_threads(), len(tasks))
    if n_threads <= 1:
        yield from map(run, tasks)
        return
    with (
        run_with_thread_pool(),
        ThreadPoolExecutor(n_threads, initializer=run_single_threaded) as pool,
    ):
        yield from pool.map(run, tasks)
