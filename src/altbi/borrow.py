"""State of torch that belongs to the caller: borrowed for a while, given back, or kept out."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["one_thread", "plain_torch"]


@contextmanager
def plain_torch() -> Iterator[None]:
    """Compute as torch does by default, whatever mode the caller is in."""
    with (
        torch.inference_mode(mode=False),
        torch.enable_grad(),
        torch.autocast("cpu", enabled=False),
    ):
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread, so that sums are taken in one order, then give the others back.

    The number of threads is partly a thread's own and partly the process's: the first to come in
    remembers it, and everyone who leaves sets it again.
    """
    _BORROWED.enter()
    try:
        yield
    finally:
        _BORROWED.leave()


class _Borrowed:
    """The caller's number of threads, while someone computes on one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0
        self.threads = 1

    def enter(self) -> None:
        with self.lock:
            if self.inside == 0:
                self.threads = torch.get_num_threads()
            self.inside += 1
            torch.set_num_threads(1)

    def leave(self) -> None:
        with self.lock:
            self.inside -= 1
            torch.set_num_threads(self.threads)


_BORROWED = _Borrowed()
