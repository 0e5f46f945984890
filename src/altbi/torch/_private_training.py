"""Algorithm 1 with noise: what it learns of any single row is bounded."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from altbi.errors import import_extra
from altbi.model._privacy_accounting import Release
from altbi.networks import IWAENetwork
from altbi.networks._schedule import Schedule
from altbi.networks._training import Adam, TrainingStep
from altbi.torch._truncation import Truncation

__all__ = ["NoisyPlan", "PerRowGradients", "noisy_sum", "per_row_gradients", "private_train"]

# Numbers of per-row gradients that are held at a time.
_GRADIENT_CELLS = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyPlan:
    """A schedule with its noise; all of it is public.

    Attributes
    ----------
    schedule : Schedule
        Batch sizes, kept shares, snapshots.
    n_rows : int
        Rows of the table, as they were released.
    clip : float
        The norm that a row's gradient is held to.
    noise : float
        Noise of gradient and count together, as a multiple of what one row changes.
    count_share : float
        Share of that for the count.
    steps : int
        Steps that the budget allows.
    """

    schedule: Schedule
    n_rows: int
    clip: float
    noise: float
    count_share: float
    steps: int

    def rate(self, step: int) -> float:
        """Share of the rows in a batch, each of them drawn on its own."""
        return self.schedule.batch_size_at(step, self.n_rows) / self.n_rows

    @property
    def gradient_noise(self) -> float:
        """Noise of the gradient, in what one row changes."""
        return self.noise / math.sqrt(1 - self.count_share)

    @property
    def count_noise(self) -> float:
        """Noise of the count; one row changes it by a half."""
        return self.noise / (2 * math.sqrt(self.count_share)) if self.count_share else 0.0

    def releases(self) -> list[Release]:
        """Say what the training releases, steps of one rate together."""
        what = "sum of clipped gradients"
        if self.count_share:
            what += ", and count of rows below the threshold"
        rates = [self.rate(step) for step in range(self.steps)]
        updates = self.schedule.n_updates
        counts = {rate: rates.count(rate) * updates for rate in rates}
        return [Release(what, self.noise, rate, times) for rate, times in counts.items()]


@final
class PerRowGradients:
    """The gradient of each row's own loss, by Opacus.

    A row's K draws are inside its loss, so that it has one gradient, whatever K is.

    Parameters
    ----------
    model : IWAENetwork
        Without BatchNorm, which mixes rows.
    hooked : GradSampleModule
        The same model, with Opacus' hooks.
    generator : torch.Generator
        Where the model's draws come from.
    """

    def __init__(self, model: IWAENetwork, hooked: nn.Module, generator: torch.Generator) -> None:
        self.model = model
        self.hooked = hooked
        self.generator = generator
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.at_once = max(_GRADIENT_CELLS // sum(p.numel() for p in self.parameters), 1)

    @torch.no_grad()
    def losses(self, batch: Tensor) -> Tensor:
        """Give the rows' losses; the next gradients are those of the same draws."""
        state = self.generator.get_state()
        losses = [self.model(part) for part in torch.split(batch, self.at_once) if len(part)]
        self.generator.set_state(state)
        return torch.cat(losses) if losses else batch.new_zeros(0)

    def clipped_sum(self, batch: Tensor, kept: Tensor, clip: float) -> Tensor:
        """Add up the gradients of the rows that count, each at most `clip` long."""
        total = torch.zeros(sum(p.numel() for p in self.parameters))
        parts = (torch.split(rows, self.at_once) for rows in (batch, kept))
        for part, counts in zip(*parts, strict=True):
            if len(part):
                total += self._clipped(part, counts, clip)
        return total

    def _clipped(self, part: Tensor, counts: Tensor, clip: float) -> Tensor:
        rows = self.of_rows(part)
        norms = torch.linalg.vector_norm(rows, dim=1)
        # A norm of 0 asks for no clipping, an infinite one leaves nothing of the row.
        return (clip / norms).clamp(max=1).mul(counts) @ rows

    def of_rows(self, part: Tensor) -> Tensor:
        """Give the gradients ``(n_rows, n_parameters)``; what is not finite counts as 0."""
        self.model.zero_grad()
        # Inputs without gradients would make torch warn about the first hook.
        torch.autograd.backward(self.hooked(part.detach().requires_grad_()).sum())
        samples = [parameter.grad_sample for parameter in self.parameters]  # type: ignore[attr-defined]
        for parameter in self.parameters:
            parameter.grad_sample = None  # type: ignore[attr-defined]
        rows = torch.cat([sample.flatten(1) for sample in samples], dim=1)
        return rows.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)


@contextmanager
def per_row_gradients(model: IWAENetwork, generator: torch.Generator) -> Iterator[PerRowGradients]:
    """Lend the model Opacus' hooks, and a generator for its draws."""
    hooks = import_extra("opacus.grad_sample", extra="privacy")
    # Not strict: Opacus distrusts all buffers, but the draws for scoring take no part in training.
    hooked = hooks.GradSampleModule(model.train(), loss_reduction="sum", strict=False)
    try:
        model.generator = generator
        yield PerRowGradients(model, hooked, generator)
    finally:
        hooked.to_standard_module()


def private_train(
    model: IWAENetwork,
    rows: Tensor,
    plan: NoisyPlan,
    truncation: Truncation,
    *,
    learning_rate: float,
    weight_decay: float,
    generator: torch.Generator,
    secret: np.random.Generator,
) -> Iterator[TrainingStep]:
    """Train the model in place, with batches and noise from the secret.

    Who can draw the noise again can take it away. The generator, for the model's own draws, would
    not do: torch's have seeds of 32 bits, which can be tried out. Yields after each step; no loss
    is told, as that would be news about the rows.
    """
    optimizer = Adam(model.parameters(), learning_rate, weight_decay)
    with per_row_gradients(model, generator) as gradients:
        for step in range(plan.steps):
            rate, share = plan.rate(step), plan.schedule.kept_share_at(step)
            for _ in range(plan.schedule.n_updates):
                drawn = torch.from_numpy(secret.random(len(rows)) < rate)
                total = noisy_sum(gradients, rows[drawn], step, plan, truncation, secret)
                # Public numbers only: how many rows were drawn would be news about the table.
                optimizer.step(total / (share * rate * plan.n_rows))
            yield TrainingStep(step, round(rate * plan.n_rows), share, None)


def noisy_sum(
    gradients: PerRowGradients,
    batch: Tensor,
    step: int,
    plan: NoisyPlan,
    truncation: Truncation,
    secret: np.random.Generator,
) -> Tensor:
    """Release the sum of a batch's clipped gradients; the truncation learns a noisy count."""
    share, rho = plan.schedule.kept_share_at(step), plan.schedule.rho
    losses = gradients.losses(batch)
    total = gradients.clipped_sum(batch, truncation.kept(losses, share), plan.clip)
    reach = plan.clip * (truncation.sensitivity if share < 1 else 1.0)
    noise = torch.from_numpy(secret.standard_normal(len(total))).float()
    total += noise * (plan.gradient_noise * reach)
    beside = float(secret.standard_normal()) * plan.count_noise
    truncation.observe(losses, beside, plan.rate(step) * plan.n_rows, rho)
    return total
