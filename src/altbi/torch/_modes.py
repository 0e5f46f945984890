"""Torch's modes, number of threads, and random state."""

import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import final

import torch

from altbi._threads import is_worker_thread
from altbi.errors import ParameterError, quote

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
            f"device={quote(name)}: torch cannot use this device ({str(cause).splitlines()[0]}). "
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
    the number, and every thread restores it when it leaves its outermost block. Only worker threads
    of `altbi._threads` do not, because that would change the order of sums in other workers.
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
            if not is_worker_thread():
                torch.set_num_threads(1 if _LIMIT.local.depth else _LIMIT.n_threads)


@contextmanager
def allow_workers() -> Iterator[None]:
    """Allow worker threads to enter `single_thread` within a block.

    The number of threads is restored at the end of the block, when all workers have ended.
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
