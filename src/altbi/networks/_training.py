"""The loop of Algorithm 1."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from altbi.errors import TrainingError
from altbi.networks._schedule import Schedule
from altbi.networks._torch_modes import flush_denormals

__all__ = [
    "Adam",
    "KnownLabels",
    "TrainingStep",
    "batches",
    "finite_loss",
    "outlier_penalty",
    "select_smallest",
    "train",
    "truncated_mean",
]

_OUTLIERS_AT_ONCE = 32
# A labelled outlier's loss should exceed the others' by so many deviations.
_MARGIN = 2.0
_LEAST_UNIT = 1e-3
# From so many rows on, shuffling all of them takes longer than learning from a batch.
_MANY_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """What happened in one step of the training; under a privacy budget the loss is not told."""

    step: int
    batch_size: int
    kept: float
    loss: float | None


@dataclass(frozen=True, slots=True)
class KnownLabels:
    """What is known of some rows before training.

    Attributes
    ----------
    is_inlier : Tensor of shape (n_rows,)
        Rows to learn from whose losses always count.
    outliers : Tensor of shape (n_outliers, n_features)
        Rows believed to be odd: their losses are made large, not small.
    push : float
        Weight of that beside the others' mean loss.
    trust : float
        Share of these labels that is believed.
    """

    is_inlier: Tensor
    outliers: Tensor
    outlier_weight: float
    label_trust: float


@final
class Adam:
    """Adam as in ``torch.optim``, on all parameters as one vector.

    torch's own first step imports its compiler, which takes longer than a whole training here. A
    parameter without a gradient counts as one whose gradient is zero.

    Parameters
    ----------
    parameters : iterable of Parameter
        What to learn; they become views of one vector.
    learning_rate, weight_decay, betas
        As in ``torch.optim.Adam``, with its eps of 1e-8.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        learning_rate: float,
        weight_decay: float,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.betas = betas
        self.steps = 0
        self.vector = parameters_to_vector(self.parameters).detach()
        vector_to_parameters(self.vector, self.parameters)
        self.mean = torch.zeros_like(self.vector)
        self.square = torch.zeros_like(self.vector)
        # Fresh memory for each step would cost more than what is computed in it.
        self.deviation = torch.empty_like(self.vector)

    def lower(self, loss: Tensor) -> None:
        """Move the parameters against the gradient of a loss."""
        for parameter in self.parameters:
            parameter.grad = None
        # Of cells that the model is sure of, slopes are next to nothing.
        with flush_denormals():
            torch.autograd.backward(loss)
            self.step()

    @torch.no_grad()
    def step(self, gradient: Tensor | None = None) -> None:
        """Move the parameters against their gradients, or against one that is given."""
        self.steps += 1
        of_mean, of_square = self.betas
        if gradient is None:
            gradients = (torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters)
            gradient = torch.cat([each.flatten() for each in gradients])
        gradient.add_(self.vector, alpha=self.weight_decay)
        self.mean.lerp_(gradient, 1 - of_mean)
        self.square.mul_(of_square).addcmul_(gradient, gradient, value=1 - of_square)
        torch.div(self.square, 1 - of_square**self.steps, out=self.deviation).sqrt_().add_(1e-8)
        rate = self.learning_rate / (1 - of_mean**self.steps)
        self.vector.addcdiv_(self.mean, self.deviation, value=-rate)


def select_smallest(losses: Tensor, share: float) -> Tensor:
    """Mark the share of rows with the smallest losses, the likely inliers.

    Where a loss is not a number, none is marked: that is for nobody to leave out.
    """
    # Products such as 0.29 * 100 fall just short of what they should be.
    place = math.floor(share * (len(losses) - 1) + 1e-9)
    losses = losses.detach()
    return (losses <= losses.kthvalue(place + 1).values) & ~losses.isnan().any()


def truncated_mean(losses: Tensor, share: float, is_inlier: Tensor | None = None) -> Tensor:
    """Average the share of losses that is smallest; those of known inliers always count."""
    if is_inlier is None:
        kept = select_smallest(losses, share)
        return torch.where(kept, losses, 0).sum() / kept.sum()
    others = losses[~is_inlier]
    kept = others[select_smallest(others, share)] if len(others) else others
    return torch.cat([kept, losses[is_inlier]]).mean()


def outlier_penalty(odd: Tensor, losses: Tensor, share: float, label_trust: float) -> Tensor:
    """Measure how far the losses of labelled outliers fall short of being outliers' losses.

    What they should exceed is the largest of the losses that count by two deviations. Of the labels
    only a share is trusted: a row that was labelled by mistake looks like the others, so the rows
    with the smallest losses are left out.
    """
    counted = losses.detach()[select_smallest(losses, share)]
    if not len(counted):
        return losses.sum()  # not a number
    unit = counted.std(correction=0).clamp(min=_LEAST_UNIT)
    trusted = odd[odd >= torch.quantile(odd.detach(), 1 - label_trust)]
    return unit * functional.softplus((counted.max() - trusted) / unit + _MARGIN).mean()


def batches(
    n_rows: int, batch_size: int, count: int, generator: torch.Generator
) -> Iterator[Tensor]:
    """Draw row numbers for the updates of one step: a shuffled pass over the rows, then another."""
    order = _begun(n_rows, batch_size * count, generator)
    for _ in range(count):
        # A single row left over is no batch: BatchNorm finds no spread in it.
        if len(order) < 2:
            order = _shuffled(n_rows, generator)
        yield order[:batch_size]
        order = order[batch_size:]


def _begun(n_rows: int, count: int, generator: torch.Generator) -> Tensor:
    """Give the first `count` row numbers of a drawn order, or all; few of many cost no more."""
    if n_rows < max(_MANY_ROWS, 4 * count):
        return _shuffled(n_rows, generator)
    drawn = torch.randint(n_rows, (2 * count,), generator=generator, device=generator.device)
    ranked, places = drawn.sort(stable=True)
    is_first = ranked.diff(prepend=ranked[:1] - 1) != 0
    # Of numbers drawn one by one, those that were not there before are as good as shuffled. Of
    # 2 n draws among 4 n rows or more hardly ever so few differ that a batch would be short.
    return drawn[places[is_first].sort().values]


def _shuffled(n_rows: int, generator: torch.Generator) -> Tensor:
    """Give all row numbers in a drawn order, where the generator is: nothing leaves its device."""
    return torch.randperm(n_rows, generator=generator, device=generator.device)


def train(
    model: nn.Module,
    rows: Tensor,
    schedule: Schedule,
    *,
    learning_rate: float,
    weight_decay: float = 0.0,
    known: KnownLabels | None = None,
    generator: torch.Generator,
) -> Iterator[TrainingStep]:
    """Run Algorithm 1 on the model, in place; batches are drawn from the generator.

    Yields after each step. `rows` are those to learn from, without labelled outliers.
    """
    optimizer = Adam(model.parameters(), learning_rate, weight_decay)
    for step in range(schedule.n_steps):
        batch_size = schedule.batch_size_at(step, len(rows))
        share = schedule.kept_share_at(step)
        model.train()
        for batch in batches(len(rows), batch_size, schedule.n_updates, generator):
            if known is None:
                loss = truncated_mean(model(rows[batch]), share)
            else:
                loss = _labelled_loss(model, rows, batch, share, known, generator)
            optimizer.lower(loss)
        yield TrainingStep(step, batch_size, share, finite_loss(loss, step, learning_rate))


def _labelled_loss(
    model: nn.Module,
    rows: Tensor,
    batch: Tensor,
    share: float,
    known: KnownLabels,
    generator: torch.Generator,
) -> Tensor:
    """Learn from the batch as always, and push the losses of labelled outliers up."""
    is_inlier = known.is_inlier[batch]
    if not len(known.outliers) or known.outlier_weight == 0:
        return truncated_mean(model(rows[batch]), share, is_inlier)
    order = _shuffled(len(known.outliers), generator)
    odd = known.outliers[order[:_OUTLIERS_AT_ONCE]]
    losses = model(torch.cat([rows[batch], odd]))
    losses, odd_losses = losses[: len(batch)], losses[len(batch) :]
    # Before the model knows anything, its losses do not tell which labels are wrong.
    label_trust = known.label_trust if share < 1 else 1.0
    learned = truncated_mean(losses, share, is_inlier)
    return learned + known.outlier_weight * outlier_penalty(odd_losses, losses, share, label_trust)


def finite_loss(loss: Tensor, step: int, learning_rate: float) -> float:
    """Give the loss as a number, or say that training diverged."""
    value = float(loss.detach())
    if not math.isfinite(value):
        raise TrainingError(
            f"Training diverged: the loss is {value} in step {step}. "
            f"Lower learning_rate, which is {learning_rate}."
        )
    return value
