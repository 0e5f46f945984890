"""The loop of Algorithm 1."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from altbi.schedule import Schedule

__all__ = ["Progress", "batches", "keep_smallest", "one_thread", "seeded", "train"]


@dataclass(frozen=True, slots=True)
class Progress:
    """What happened in one step of the training."""

    step: int
    batch_size: int
    kept: float
    loss: float


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


def keep_smallest(losses: Tensor, share: float) -> Tensor:
    """Mark the share of rows with the smallest losses, the likely inliers."""
    return losses <= torch.quantile(losses.detach(), share)


def batches(n_rows: int, batch_size: int, count: int) -> Iterator[Tensor]:
    """Draw row numbers for the updates of one step: a shuffled pass over the rows, then another."""
    order = torch.randperm(n_rows)
    for _ in range(count):
        if len(order) == 0:
            order = torch.randperm(n_rows)
        yield order[:batch_size]
        order = order[batch_size:]


def train(
    model: nn.Module,
    rows: Tensor,
    schedule: Schedule,
    *,
    learning_rate: float,
    weight_decay: float = 0.0,
) -> Iterator[Progress]:
    """Run Algorithm 1 on the model, in place; yields after each step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, weight_decay=weight_decay)
    for step in range(schedule.steps):
        batch_size = schedule.batch_size_at(step, len(rows))
        share = schedule.kept_share_at(step)
        model.train()
        for batch in batches(len(rows), batch_size, schedule.updates):
            losses = model(rows[batch])
            kept = keep_smallest(losses, share)
            loss = losses[kept].mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        yield Progress(step, batch_size, share, float(loss.detach()))
