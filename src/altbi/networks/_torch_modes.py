"""Context managers that set torch's modes, threads and random state temporarily."""

import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import final

import torch

from altbi.errors import ParameterError

_SMALLEST_NORMAL = sys.float_info.min


def resolve_device(name: str) -> torch.device:
    """Return the device of this name; "auto" is CUDA if it is available, else the CPU.

    Raise a `ParameterError` if torch cannot use the device.

    Examples
    --------
    >>> resolve_device("cpu")
    device(type='cpu')
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


@contextmanager
def single_thread() -> Iterator[None]:
    """Limit torch to one thread within a block, so that sums are taken in the same order.

    Blocks may be nested and may be open in several threads. torch keeps its number of threads
    partly for each thread and partly for the process. The first thread that enters a block stores
    the number. Every thread restores it when it leaves its outermost block.
    """
    _THREAD_LIMIT.enter()
    try:
        yield
    finally:
        _THREAD_LIMIT.leave()


@contextmanager
def run_with_thread_pool() -> Iterator[None]:
    """Allow a pool of worker threads within a block; workers start with `run_single_threaded`.

    The caller's own number of threads does not change. The process-wide number is restored at the
    end of the block, when all workers have ended. Earlier, it would change the order of sums in
    workers still running.
    """
    _THREAD_LIMIT.open_pool()
    try:
        yield
    finally:
        _THREAD_LIMIT.close_pool()


def run_single_threaded() -> None:
    """Limit torch to one thread in this worker of `run_with_thread_pool`, until the worker ends."""
    _THREAD_LIMIT.limit_worker()


class _ThreadLimit:
    """Bookkeeping of torch's number of threads while it is limited to one.

    Attributes
    ----------
    n_active : int
        Blocks and pools that are open, in all threads.
    n_threads : int
        The caller's number of threads, to be restored.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.n_active = 0
        self.n_threads = 1
        self.local = _Depth()

    def enter(self) -> None:
        """Limit the current thread to one torch thread; store the number if no block is open."""
        with self.lock:
            self._activate()
            self.local.depth += 1
            torch.set_num_threads(1)

    def leave(self) -> None:
        """Leave a block; restore the number of threads if it was this thread's outermost one."""
        with self.lock:
            self.n_active -= 1
            self.local.depth -= 1
            torch.set_num_threads(1 if self.local.depth else self.n_threads)

    def open_pool(self) -> None:
        """Register a pool; store the number of threads if no block is open."""
        with self.lock:
            self._activate()

    def close_pool(self) -> None:
        """Unregister a pool; restore the number of threads if no block or pool is open."""
        with self.lock:
            self.n_active -= 1
            if self.n_active == 0:
                torch.set_num_threads(self.n_threads)

    def limit_worker(self) -> None:
        """Limit the current thread to one torch thread until it ends."""
        with self.lock:
            self.local.depth += 1
            torch.set_num_threads(1)

    def _activate(self) -> None:
        """Count one more open block or pool; the first one stores the number of threads."""
        if self.n_active == 0:
            self.n_threads = torch.get_num_threads()
        self.n_active += 1


class _Depth(threading.local):
    """Number of nested blocks of the current thread."""

    depth = 0


_THREAD_LIMIT = _ThreadLimit()


@final
class PrivateRandomState:
    """A random state that temporarily replaces torch's global one.

    Custom networks use the global random state. While a private state is active, no other fit can
    use it; afterwards the caller's state is restored.

    Examples
    --------
    >>> before = torch.get_rng_state()
    >>> with PrivateRandomState(seed=0).active():
    ...     first = torch.rand(3)
    >>> with PrivateRandomState(seed=0).active():
    ...     torch.equal(torch.rand(3), first)
    True
    >>> torch.equal(torch.get_rng_state(), before)
    True
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
