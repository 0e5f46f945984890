"""ALTBI's training with clipped and noisy gradients (DP-SGD)."""

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
from altbi.networks import Adam, IWAENetwork, Schedule, TrainingStep
from altbi.torch._truncation import Truncation

# Largest number of values of per-row gradients that are held in memory at a time.
_MAX_GRADIENT_VALUES = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyPlan:
    """A schedule with its noise; all of its values are public.

    Attributes
    ----------
    schedule : Schedule
        Batch sizes, truncation and snapshots.
    n_rows : int
        Released number of rows of the table.
    clip : float
        Norm to which the gradient of each row is clipped.
    noise : float
        Noise of gradient and count together, as a multiple of their sensitivity.
    count_share : float
        Share of the noise budget that is spent on the count.
    steps : int
        Number of steps that the budget allows.
    """

    schedule: Schedule
    n_rows: int
    clip: float
    noise: float
    count_share: float
    steps: int

    def sampling_rate(self, step: int) -> float:
        """Return the probability with which each row is in a batch of this step."""
        return self.schedule.batch_size_at(step, self.n_rows) / self.n_rows

    @property
    def gradient_noise(self) -> float:
        """Noise of the gradient's sum, as a multiple of its sensitivity."""
        return self.noise / math.sqrt(1 - self.count_share)

    @property
    def count_noise(self) -> float:
        """Standard deviation of the count's noise; 0 without a count. Its sensitivity is 1/2."""
        return self.noise / (2 * math.sqrt(self.count_share)) if self.count_share else 0.0

    def releases(self) -> list[Release]:
        """Return the releases of all steps; steps with the same sampling rate form one release.

        `Release.times` counts all updates of these steps.
        """
        what = "sum of clipped gradients"
        if self.count_share:
            what += ", and count of rows below the threshold"
        rates = [self.sampling_rate(step) for step in range(self.steps)]
        updates = self.schedule.n_updates
        counts = {rate: rates.count(rate) * updates for rate in rates}
        return [Release(what, self.noise, rate, times) for rate, times in counts.items()]


@final
class PerRowGradients:
    """Gradients of each row's own loss, computed by Opacus.

    The Monte Carlo samples of a row are part of its loss, so a row has one gradient for any K.

    Parameters
    ----------
    model : IWAENetwork
        A network without BatchNorm, which would mix rows.
    hooked : GradSampleModule
        The same network with the hooks of Opacus.
    generator : torch.Generator
        Source of the network's Monte Carlo samples.
    """

    def __init__(self, model: IWAENetwork, hooked: nn.Module, generator: torch.Generator) -> None:
        self.model = model
        self.hooked = hooked
        self.generator = generator
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.n_parameters = sum(p.numel() for p in self.parameters)
        self.block_rows = max(_MAX_GRADIENT_VALUES // self.n_parameters, 1)

    @torch.no_grad()
    def losses(self, batch: Tensor) -> Tensor:
        """Return the losses ``(n_rows,)`` of a batch, without gradients.

        The generator's state is restored, so that the next gradients use the same Monte Carlo
        samples. An empty batch has no losses.
        """
        state = self.generator.get_state()
        losses = [self.model(block) for block in torch.split(batch, self.block_rows) if len(block)]
        self.generator.set_state(state)
        return torch.cat(losses) if losses else batch.new_zeros(0)

    def clipped_sum(self, batch: Tensor, is_kept: Tensor, clip: float) -> Tensor:
        """Return the sum ``(n_parameters,)`` of the selected rows' gradients, each clipped.

        A gradient with a norm above `clip` is scaled to that norm. An empty batch has the sum 0.
        """
        total = torch.zeros(self.n_parameters)
        blocks = (torch.split(array, self.block_rows) for array in (batch, is_kept))
        for block, is_block_kept in zip(*blocks, strict=True):
            if len(block):
                gradients = self.compute(block)
                norms = torch.linalg.vector_norm(gradients, dim=1)
                # The factor is 1 for a norm of 0, and 0 for an infinite norm.
                factors = (clip / norms).clamp(max=1).mul(is_block_kept)
                total += factors @ gradients
        return total

    def compute(self, rows: Tensor) -> Tensor:
        """Return the gradients ``(n_rows, n_parameters)`` of the rows' losses.

        Values that are not finite become 0. Gradients stored in the parameters are discarded.
        """
        self.model.zero_grad()
        # Without gradients of the input, torch would warn about the first hook.
        torch.autograd.backward(self.hooked(rows.detach().requires_grad_()).sum())
        samples = [parameter.grad_sample for parameter in self.parameters]  # type: ignore[attr-defined]
        for parameter in self.parameters:
            parameter.grad_sample = None  # type: ignore[attr-defined]
        gradients = torch.cat([sample.flatten(1) for sample in samples], dim=1)
        return gradients.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)


@contextmanager
def attach_per_row_gradients(
    model: IWAENetwork, generator: torch.Generator
) -> Iterator[PerRowGradients]:
    """Attach the hooks of Opacus to a network within a block, and remove them at its end.

    The network is set to training mode, and its noise comes from the generator, also after the
    block. Raise an error if Opacus is not installed.
    """
    opacus = import_extra("opacus.grad_sample", extra="privacy")
    # Not strict: Opacus rejects all buffers, but the noise for scoring is not used in training.
    hooked = opacus.GradSampleModule(model.train(), loss_reduction="sum", strict=False)
    try:
        model.generator = generator
        yield PerRowGradients(model, hooked, generator)
    finally:
        hooked.to_standard_module()


def train_privately(
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
    """Train a network in place by noisy gradients, and yield after each step without a loss.

    Parameters
    ----------
    model : IWAENetwork
        A network without BatchNorm.
    rows : Tensor
        Encoded training rows.
    plan : NoisyPlan
        The schedule with its noise.
    truncation : Truncation
        Selects the rows of a batch that count.
    learning_rate, weight_decay : float
        As in Adam.
    generator : torch.Generator
        Source of the network's Monte Carlo samples.
    secret : numpy.random.Generator
        Source of batches and noise. Whoever can reproduce the noise can subtract it. Generators of
        torch have 32-bit seeds, which can be guessed by trying all of them.

    Yields
    ------
    TrainingStep
        The step, without a loss.
    """
    optimizer = Adam(model.parameters(), learning_rate, weight_decay)
    with attach_per_row_gradients(model, generator) as gradients:
        for step in range(plan.steps):
            rate, share = plan.sampling_rate(step), plan.schedule.kept_share_at(step)
            for _ in range(plan.schedule.n_updates):
                is_sampled = torch.from_numpy(secret.random(len(rows)) < rate)
                batch = rows[is_sampled]
                total = release_noisy_sum(gradients, batch, step, plan, truncation, secret)
                # The expected size of the batch is public, its actual size is not.
                optimizer.step(total / (share * rate * plan.n_rows))
            yield TrainingStep(step, round(rate * plan.n_rows), share, None)


def release_noisy_sum(
    gradients: PerRowGradients,
    batch: Tensor,
    step: int,
    plan: NoisyPlan,
    truncation: Truncation,
    secret: np.random.Generator,
) -> Tensor:
    """Return the noisy sum ``(n_parameters,)`` of the clipped gradients of a batch.

    The truncation selects the rows that count. Afterwards, it is updated by a noisy count of rows,
    if it needs one.
    """
    share, rho = plan.schedule.kept_share_at(step), plan.schedule.rho
    losses = gradients.losses(batch)
    total = gradients.clipped_sum(batch, truncation.select(losses, share), plan.clip)
    sensitivity = plan.clip * (truncation.sensitivity if share < 1 else 1.0)
    noise = torch.from_numpy(secret.standard_normal(len(total))).float()
    total += noise * (plan.gradient_noise * sensitivity)
    count_noise = float(secret.standard_normal()) * plan.count_noise
    truncation.observe(losses, count_noise, plan.sampling_rate(step) * plan.n_rows, rho)
    return total
