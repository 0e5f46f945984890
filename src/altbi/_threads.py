"""Parallel work on blocks of rows: Python threads, each with a single-threaded BLAS.

A BLAS library adds up in an order that depends on its number of threads. With one BLAS thread for
each block, results depend neither on the number of threads nor on the machine's load.

threadpoolctl limits are process-wide. BLAS libraries that threadpoolctl does not support, such as
Accelerate, and the threads of PyTorch are not limited.
"""

import contextvars
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")

_MAX_THREADS_AHEAD = 8


@final
class _BlasLibraries:
    """The loaded BLAS libraries, and the limits of those with one limit for the process.

    Finding the libraries takes milliseconds, so they are searched for again only if a module was
    imported since, and only while no block is open. A library that is loaded while a block is open
    is not limited until the next one.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.n_open = 0  # open blocks of all threads
        self._n_threads = 1  # the caller's number of threads while a block is open
        self._n_modules = 0  # modules that were imported when libraries were searched for
        self._libraries: list[Any] = []
        self._limits = _Limits()

    def count_threads(self) -> int:
        """Return the number of BLAS threads that the caller has set; the smallest of all libraries.

        While a block is open, it is the number from before the block. Without a BLAS library it is
        the number of CPUs.
        """
        if self.n_open:
            return self._n_threads
        return min((library.num_threads for library in self._find()), default=_count_cpus())

    def open_block(self) -> None:
        """Count one more open block; the first one limits the libraries to one thread.

        Libraries with a limit for each calling thread are not changed.
        """
        if self.n_open == 0:
            self._n_threads = self.count_threads()
            self._limits.set([each for each in self._libraries if not _is_limited_by_thread(each)])
        self.n_open += 1

    def close_block(self) -> None:
        """Count one open block less; the last one restores the caller's limits."""
        self.n_open -= 1
        if self.n_open == 0:
            self._limits.restore()

    def limit_threads(self, n_threads: int) -> None:
        """Set the number of threads of all libraries; call it while no block is open."""
        for library in self._find():
            _set_threads(library, n_threads)

    def list_limited_by_thread(self) -> list[Any]:
        """Return the libraries that have a limit for each thread."""
        return [library for library in self._libraries if _is_limited_by_thread(library)]

    def _find(self) -> list[Any]:
        """Return controllers of the loaded BLAS libraries; search again after new imports."""
        if self._n_modules != len(sys.modules):
            self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers
            self._n_modules = len(sys.modules)
        return self._libraries


class _Limits:
    """Limits of some libraries to one thread, and their former numbers of threads."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, int]] = []

    def set(self, libraries: list[Any]) -> None:
        """Store the libraries' numbers of threads, and limit them to one thread."""
        self._before = [(library, library.num_threads) for library in libraries]
        for library in libraries:
            _set_threads(library, 1)

    def restore(self) -> None:
        """Restore the numbers of threads that the last `set` has stored."""
        for library, n_threads in self._before:
            _set_threads(library, n_threads)


def _is_limited_by_thread(library: Any) -> bool:  # noqa: ANN401 - threadpoolctl has no types
    """Return whether a library counts threads separately for each calling thread, as OpenMP."""
    return getattr(library, "threading_layer", None) == "openmp"


def _set_threads(library: Any, n_threads: int) -> None:  # noqa: ANN401
    """Set a library's number of threads, whichever thread has set it before.

    threadpoolctl 3.8 ignores all threads but the first to set OpenBLAS' number, until it is reset.
    """
    reset = getattr(library, "clear_controlling_thread", None)
    if reset is not None:
        reset(force=True)
    library.set_num_threads(n_threads)
    if reset is not None:
        reset(force=True)


@final
class _ThreadState(threading.local):
    """State of the current thread."""

    def __init__(self) -> None:
        self.depth = 0  # nested `single_blas_thread` blocks
        self.is_worker = False  # whether `map_in_threads` has started the thread
        self.limits = _Limits()  # of libraries with a limit for each thread


_BLAS = _BlasLibraries()
_LOCAL = _ThreadState()
# A forked process has only the forking thread, so no other thread may hold the lock at a fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _BLAS.lock.acquire(),
        after_in_parent=lambda: _BLAS.lock.release(),
        after_in_child=lambda: _BLAS.lock.release(),
    )


def _count_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def count_threads() -> int:
    """Return how many threads to use for blocks: 1 inside a `single_blas_thread` block.

    Otherwise, it is the smaller of the CPUs that this process may use and the caller's number of
    BLAS threads. This follows variables such as OMP_NUM_THREADS and limits by threadpoolctl.
    """
    if _LOCAL.depth:
        return 1
    with _BLAS.lock:
        return max(min(_count_cpus(), _BLAS.count_threads()), 1)


def limit_threads(n_threads: int) -> None:
    """Set the number of BLAS threads for the rest of the process.

    `count_threads` follows it, but never exceeds the number of CPUs.
    """
    with _BLAS.lock:
        _BLAS.limit_threads(n_threads)


def is_worker_thread() -> bool:
    """Return whether `map_in_threads` has started the current thread."""
    return _LOCAL.is_worker


def _mark_worker() -> None:
    """Mark the current thread as one that `map_in_threads` has started."""
    _LOCAL.is_worker = True


@contextmanager
def _open_block() -> Iterator[None]:
    """Limit the BLAS libraries to one thread while the ``with`` block is open.

    The last of several open blocks restores the limits. Libraries with a limit for each calling
    thread are not changed.
    """
    with _BLAS.lock:
        _BLAS.open_block()
    try:
        yield
    finally:
        with _BLAS.lock:
            _BLAS.close_block()


@contextmanager
def single_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread within a block, and use no other threads for nested blocks.

    Blocks may be nested and may be open in several threads. The first one stores the caller's
    limits, and the last one restores them, in whichever order they end.
    """
    with _open_block():
        if _LOCAL.depth == 0:
            _LOCAL.limits.set(_BLAS.list_limited_by_thread())
        _LOCAL.depth += 1
        try:
            yield
        finally:
            _LOCAL.depth -= 1
            if _LOCAL.depth == 0:
                _LOCAL.limits.restore()


def map_in_threads(function: Callable[[int], Result], tasks: range) -> Iterator[Result]:
    """Yield the results of tasks in order, computed by `count_threads` threads.

    Each task runs in a `single_blas_thread` block, with the caller's context variables, such as
    `numpy.errstate`. With one task or one thread, tasks run in the calling thread. An error ends
    the iteration, and tasks that have not started are cancelled.
    """

    def run(task: int) -> Result:
        """Run one task in a block of its thread; the process has been limited before."""
        with single_blas_thread():
            return function(task)

    n_threads = min(count_threads(), len(tasks))
    with _open_block():
        if n_threads <= 1:
            yield from map(run, tasks)
            return
        context = contextvars.copy_context()
        with ThreadPoolExecutor(n_threads, initializer=_mark_worker) as pool:
            # A context can be active in one thread at a time, so each task has a copy.
            yield from pool.map(lambda task: context.copy().run(run, task), tasks)


def map_ahead(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield the results of items in order, while threads compute those of the next items.

    There are `count_threads` threads, but at most 8, to limit the memory of items and results. Each
    item is computed in a `single_blas_thread` block. With one item or one thread, items are
    computed in the calling thread, without such a block. The calling thread requests the items. An
    error of the items is raised after the results of the items before it.
    """
    n_threads = min(count_threads(), _MAX_THREADS_AHEAD)
    iterator = iter(items)
    first = list(islice(iterator, 2))
    if n_threads == 1 or len(first) < 2:
        yield from map(function, chain(first, iterator))
        return

    def run(item: Item) -> Result:
        """Compute one item in a block of its thread."""
        with single_blas_thread():
            return function(item)

    context = contextvars.copy_context()
    with _open_block(), ThreadPoolExecutor(n_threads, initializer=_mark_worker) as pool:
        futures = _map_to_futures(
            lambda item: pool.submit(context.copy().run, run, item), chain(first, iterator)
        )
        pending: deque[Future[Result]] = deque()
        try:
            for future in futures:
                pending.append(future)
                if len(pending) > n_threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def _map_to_futures(
    submit: Callable[[Item], Future[Result]], items: Iterable[Item]
) -> Iterator[Future[Result]]:
    """Yield the futures of items; an error of the items becomes the error of a last future."""
    try:
        yield from map(submit, items)
    except Exception as error:  # noqa: BLE001 - raised when its future is due
        failed: Future[Result] = Future()
        failed.set_exception(error)
        yield failed


def map_blocks(
    function: Callable[[NDArray[np.float32]], NDArray[Any]],
    rows: NDArray[np.float32],
    block_rows: int,
) -> NDArray[Any]:
    """Apply a function to blocks of `rows` in parallel, and return ``(n_outputs, n_rows)``.

    `rows` has the shape ``(n_rows, n_features)``. The function maps ``(n_features, block_rows)`` to
    ``(n_outputs, block_rows)``. All blocks are padded with zeros to this shape, and each is
    computed by one thread. The first block is computed even if there are no rows, to find
    `n_outputs`.
    """

    def compute(start: int) -> NDArray[Any]:
        """Return the results of the block that begins at row `start`, without the padding."""
        block = rows[start : start + block_rows]
        columns = np.zeros((rows.shape[1], block_rows), dtype=np.float32)
        columns[:, : len(block)] = block.T
        return function(columns)[:, : len(block)]

    def store(start: int) -> None:
        """Write the results of the block that begins at row `start` to `results`."""
        results[:, start : start + block_rows] = compute(start)

    (first,) = map_in_threads(compute, range(1))
    # Results of blocks are copied into one array, because many small arrays fragment the heap.
    results = np.empty((len(first), len(rows)), dtype=first.dtype)
    results[:, :block_rows] = first
    for _ in map_in_threads(store, range(block_rows, len(rows), block_rows)):
        pass
    return results
