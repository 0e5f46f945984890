"""State of torch that belongs to the caller: borrowed for a while, given back, or kept out."""

import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import final

import torch

from altbi.errors import ParameterError

__all__ = [
    "PrivateRandomState",
    "default_modes",
    "flush_denormals",
    "resolve_device",
    "run_single_threaded",
    "run_with_thread_pool",
    "single_precision",
    "single_thread",
]

_SMALLEST_NORMAL = sys.float_info.min


def resolve_device(name: str) -> torch.device:
    """Give the device of this name, or say that it is not there; "auto" is a GPU if there is one.

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
            f"device={name!r}, but torch cannot use it here ({str(cause).splitlines()[0]}). "
            "Give 'cpu', or install a torch that knows the device."
        ) from cause


@contextmanager
def default_modes() -> Iterator[None]:
    """Compute as torch does by default, whatever mode the caller is in."""
    with (
        torch.inference_mode(mode=False),
        torch.enable_grad(),
        torch.autocast("cpu", enabled=False),
        _on_cpu(),
    ):
        yield


def _on_cpu() -> AbstractContextManager[object]:
    """Keep out another default device; where there is none, every call would pay for that."""
    is_cpu = torch.get_default_device().type == "cpu"
    return nullcontext() if is_cpu else torch.device("cpu")


@contextmanager
def single_precision() -> Iterator[None]:
    """Let new numbers be float32, whatever the caller's default is."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Let this thread take numbers that are too small for their full precision for zero.

    Processors take many times as long for them.
    """
    # torch does not tell what the caller has set; the processor does, by what it computes.
    was_so = _SMALLEST_NORMAL / 2 == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(was_so)


@contextmanager
def single_thread() -> Iterator[None]:
    """Compute on one thread, so that sums are taken in one order, then give the others back.

    The number of threads is partly a thread's own and partly the process's: the first to come in
    remembers it, and everyone who leaves sets it again, once out of the outermost block.
    """
    _THREAD_LIMIT.enter()
    try:
        yield
    finally:
        _THREAD_LIMIT.leave()


@contextmanager
def run_with_thread_pool() -> Iterator[None]:
    """Let threads of our own, which begin with `run_single_threaded`, compute side by side.

    The caller's own number of threads stays as it is. The process's part is given back when all
    have ended: products of one that is still computing would be split, and round otherwise.
    """
    _THREAD_LIMIT.open()
    try:
        yield
    finally:
        _THREAD_LIMIT.close()


def run_single_threaded() -> None:
    """Let a thread of our own compute on one thread, until it ends."""
    _THREAD_LIMIT.stay()


class _ThreadLimit:
    """The caller's number of threads, while someone computes on one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0
        self.threads = 1
        self.own = _Depth()

    def enter(self) -> None:
        with self.lock:
            if self.inside == 0:
                self.threads = torch.get_num_threads()
            self.inside += 1
            self.own.depth += 1
            torch.set_num_threads(1)

    def open(self) -> None:
        with self.lock:
            if self.inside == 0:
                self.threads = torch.get_num_threads()
            self.inside += 1

    def close(self) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                torch.set_num_threads(self.threads)

    def stay(self) -> None:
        with self.lock:
            self.own.depth += 1
            torch.set_num_threads(1)

    def leave(self) -> None:
        with self.lock:
            self.inside -= 1
            self.own.depth -= 1
            torch.set_num_threads(1 if self.own.depth else self.threads)


class _Depth(threading.local):
    """In how many blocks a thread is, one within the other."""

    depth = 0


_THREAD_LIMIT = _ThreadLimit()


@final
class PrivateRandomState:
    """A random state of our own, lent to code that draws from torch's global one.

    While it is lent, torch's global state is ours, and no other fit's; afterwards the caller's is
    back as it was.

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

    # Whoever has it may fit another model within.
    _LOCK = threading.RLock()

    def __init__(self, seed: int) -> None:
        self.state = torch.Generator().manual_seed(seed).get_state()

    @classmethod
    def for_custom(cls, is_custom: bool, seed: int) -> AbstractContextManager[None]:
        """Return a context with a private random state, or an empty one for networks of ours."""
        return cls(seed).active_if(is_custom)

    def active_if(self, is_needed: bool) -> AbstractContextManager[None]:
        """Return a context in which this state is torch's global one, if that is needed."""
        return self.active() if is_needed else nullcontext()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let the block draw from this state."""
        with self._LOCK:
            before = torch.get_rng_state()
            torch.set_rng_state(self.state)
            try:
                yield
            finally:
                self.state = torch.get_rng_state()
                torch.set_rng_state(before)
