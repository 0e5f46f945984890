"""Process-wide state of torch, borrowed for a while and given back."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["one_thread", "seeded"]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from a known seed, then give the caller's random state back."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread, so that sums are taken in one order, then give the others back."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
