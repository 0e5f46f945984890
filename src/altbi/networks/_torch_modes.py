"""Torch's modes, threads and random state, and parallel work on blocks of rows."""

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from altbi.errors import ParameterError

Result = TypeVar("Result")

_SMALLEST_NORMAL = sys.float_info.min


def resolve_device(name: str) -> torch.device:
    """Return the device of this name; "auto" is CUDA if it is available, else the CPU.

    Raise a `ParameterError` if torch cannot use the device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, NotImplementedError) as cause:
        raise ParameterError(
            f"device={name!r}: torch cannot use this device ({str(cause).splitlines()[0]}). "
            "Pass device='cpu', or install a version of torch that supports the device."
        ) from cause


@contextmanager
def default_modes() -> Iterator[None]:
    """Set torch's default modes within a block, and restore the caller's modes at its end.

    Gradients are enabled, inference mode and autocast are off, and the CPU is the default device.
    """
    with (
        torch.inference_mode(mode=False),
        torch.enable_grad(),
        torch.autocast("cpu", enabled=False),
        _cpu_as_default(),
    ):
        yield


def _cpu_as_default() -> AbstractContextManager[object]:
    """Return a context in which the CPU is the default device.

    If it already is, the context does nothing, because a device context slows down every call of
    torch.
    """
    is_cpu = torch.get_default_device().type == "cpu"
    return nullcontext() if is_cpu else torch.device("cpu")


@contextmanager
def single_precision() -> Iterator[None]:
    """Set float32 as the default data type within a block, and restore the caller's at its end."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Treat denormal numbers as zero in this thread within a block.

    Processors are slow on denormal numbers. The thread's former mode is restored at the end.
    """
    # torch has no getter for this mode. If it is enabled, half the smallest normal number is 0.
    was_enabled = _SMALLEST_NORMAL / 2 == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(was_enabled)


class _Depth(threading.local):
    """Number of nested `single_thread` blocks of the current thread."""

    depth = 0


class _ThreadLimit:
    """Bookkeeping of torch's number of threads while it is limited to one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.n_active = 0  # open blocks and pools of all threads
        self.n_threads = 1  # the caller's number of threads, to be restored
        self.local = _Depth()

    def activate(self) -> None:
        """Count one more open block or pool; the first one stores the number of threads."""
        if self.n_active == 0:
            self.n_threads = torch.get_num_threads()
        self.n_active += 1


_LIMIT = _ThreadLimit()


@contextmanager
def single_thread() -> Iterator[None]:
    """Limit torch to one thread within a block, so that sums are taken in the same order.

    Blocks may be nested and may be open in several threads. torch keeps its number of threads
    partly for each thread and partly for the process. The first thread that enters a block stores
    the number. Every thread restores it when it leaves its outermost block.
    """
    with _LIMIT.lock:
        _LIMIT.activate()
        _LIMIT.local.depth += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _LIMIT.lock:
            _LIMIT.n_active -= 1
            _LIMIT.local.depth -= 1
            torch.set_num_threads(1 if _LIMIT.local.depth else _LIMIT.n_threads)


@contextmanager
def _allow_thread_pool() -> Iterator[None]:
    """Allow a pool of worker threads within a block; workers start with `_limit_worker`.

    The caller's own number of threads does not change. The process-wide number is restored at the
    end of the block, when all workers have ended. Earlier, it would change the order of sums in
    workers still running.
    """
    with _LIMIT.lock:
        _LIMIT.activate()
    try:
        yield
    finally:
        with _LIMIT.lock:
            _LIMIT.n_active -= 1
            if _LIMIT.n_active == 0:
                torch.set_num_threads(_LIMIT.n_threads)


def _limit_worker() -> None:
    """Limit torch to one thread in the current worker thread, until the thread ends."""
    with _LIMIT.lock:
        _LIMIT.local.depth += 1
        torch.set_num_threads(1)


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
        _allow_thread_pool(),
        ThreadPoolExecutor(n_threads, initializer=_limit_worker) as pool,
    ):
        yield from pool.map(run, tasks)


@final
class PrivateRandomState:
    """A random state that temporarily replaces torch's global one.

    Custom networks use the global random state. While a private state is active, no other fit can
    use it; afterwards the caller's state is restored.
    """

    # Reentrant: a custom network may fit another model in its constructor.
    _LOCK = threading.RLock()

    def __init__(self, seed: int) -> None:
        self.state = torch.Generator().manual_seed(seed).get_state()

    def active_if(self, is_needed: bool) -> AbstractContextManager[None]:
        """Return the context `active` if it is needed, else a context that does nothing."""
        return self.active() if is_needed else nullcontext()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make this state torch's global random state within a block.

        Other threads that enter such a block wait. At the end, the caller's state is restored, and
        this state is kept for the next block.
        """
        with self._LOCK:
            before = torch.get_rng_state()
            torch.set_rng_state(self.state)
            try:
                yield
            finally:
                self.state = torch.get_rng_state()
                torch.set_rng_state(before)
