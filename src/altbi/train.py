"""The loop of Algorithm 1."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from altbi.errors import TrainingError
from altbi.schedule import Schedule

__all__ = ["Progress", "batches", "keep_smallest", "train"]


@dataclass(frozen=True, slots=True)
class Progress:
    """What happened in one step of the training."""

    step: int
    batch_size: int
    kept: float
    loss: float


def keep_smallest(losses: Tensor, share: float) -> Tensor:
    """Mark the share of rows with the smallest losses, the likely inliers."""
    return losses <= torch.quantile(losses.detach(), share)


def batches(n_rows: int, batch_size: int, count: int) -> Iterator[Tensor]:
    """Draw row numbers for the updates of one step: a shuffled pass over the rows, then another."""
    order = torch.randperm(n_rows)
    for _ in range(count):
        # A single row left over is no batch: BatchNorm finds no spread in it.
        if len(order) < 2:
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
    optimizer = torch.optim.Adam(
        model.parameters(), lr=learning_rate, weight_decay=weight_decay, fused=True
    )
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
        yield Progress(step, batch_size, share, _finite(loss, step, learning_rate))


def _finite(loss: Tensor, step: int, learning_rate: float) -> float:
    value = float(loss.detach())
    if not math.isfinite(value):
        raise TrainingError(
            f"Training diverged: the loss is {value} in step {step}. "
            f"Lower learning_rate, which is {learning_rate}."
        )
    return value
