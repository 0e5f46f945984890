"""ALTBI's training with clipped and noisy gradients (DP-SGD)."""

import abc
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
from altbi.networks import Schedule, TrainingStep
from altbi.torch._iwae_module import IWAEModule
from altbi.torch._training import Adam, isolate

# Largest number of values of per-row gradients that are held in memory at a time.
_MAX_GRADIENT_VALUES = 1 << 24
# Share of the joint release of gradient and count that is spent on the count.
COUNT_SHARE = 0.02
# Learning rate of the tracked threshold, and its initial value: the loss per encoded feature of an
# untrained network for values in [0, 1].
_TRACKING_RATE = 0.2
_INITIAL_THRESHOLD = 0.1
# Losses per encoded feature are above -6, because log-variances are at least -6.
_LOWEST_LOSS = -7.0
# Limits that keep noise from moving the threshold out of the range of losses. The first one is for
# a change of the log-distance from the lowest loss, the others for that distance.
_MAX_CHANGE = 1.0
_MIN_DISTANCE, _MAX_DISTANCE = 0.1, 210.0


class Truncation(abc.ABC):
    """A rule that selects the rows of a batch that count.

    Loss truncation leaves out the largest losses of a batch. Under a privacy budget, the rule must
    bound how much one row can change the sum of the clipped gradients.
    """

    name: str  # in the ledger
    guaranteed: bool = True  # whether one row changes the sum by at most `sensitivity`
    sensitivity: float = 1.0  # in clipping norms, in steps that truncate losses
    count_share: float = 0.0  # of the noise budget, for a count released with the gradient

    @abc.abstractmethod
    def select(self, losses: Tensor, share: float) -> Tensor:
        """Return a mask ``(n_rows,)`` of the rows of a batch whose gradients count.

        `share` is the share of the rows that should count; 1 selects all rows.
        """

    @abc.abstractmethod
    def observe(self, losses: Tensor, noise: float, expected_rows: float, share: float) -> None:
        """Update the rule in place after a batch with these losses.

        `noise` is to be added to a count of rows. `expected_rows` is the public expected batch
        size, and `share` is the share of rows that should count.
        """


@final
class Tracked(Truncation):
    """Select rows up to a threshold that follows noisy counts of such rows.

    The threshold depends on earlier releases only, so a row cannot change whether another row
    counts. The count is released together with the gradient, as one more value of the same vector.

    See Andrew, Thakkar, McMahan, Ramaswamy: Differentially private learning with adaptive clipping.
    NeurIPS 2021.
    """

    name = "tracked"
    count_share = COUNT_SHARE

    def __init__(self, n_features_encoded: int) -> None:
        self.n_features_encoded = n_features_encoded
        self.per_feature = _INITIAL_THRESHOLD

    def select(self, losses: Tensor, share: float) -> Tensor:
        """Return a mask of the rows up to the threshold; all rows for a share of 1."""
        if share >= 1:
            return torch.ones_like(losses, dtype=torch.bool)
        return self._is_below(losses)

    def observe(self, losses: Tensor, noise: float, expected_rows: float, share: float) -> None:
        """Move the threshold towards the quantile `share` of the losses, in place.

        Only the noisy number of rows up to the threshold is used. Rows count as 1/2 or -1/2, so
        `noise` is a sample scaled to a sensitivity of 1/2. One update multiplies the distance
        from the lowest loss by a bounded factor, and that distance is bounded too.
        """
        # Rows count as 1/2 or -1/2, because 0 or 1 would double the sensitivity.
        excess = float((self._is_below(losses).double() - 0.5).sum() + noise)
        share_below = 0.5 + excess / expected_rows
        change = min(max(_TRACKING_RATE * (share - share_below), -_MAX_CHANGE), _MAX_CHANGE)
        distance = (self.per_feature - _LOWEST_LOSS) * math.exp(change)
        self.per_feature = _LOWEST_LOSS + min(max(distance, _MIN_DISTANCE), _MAX_DISTANCE)

    def _is_below(self, losses: Tensor) -> Tensor:
        """Return a mask of the losses up to the threshold, which is given per encoded feature."""
        return losses.detach() <= self.per_feature * self.n_features_encoded


@final
class Trimmed(Truncation):
    """Select the share of the batch with the smallest losses.

    Adding or removing a row changes whether at most one other row counts. The sum changes by at
    most two clipping norms, which needs twice the noise.
    """

    name = "trimmed"
    sensitivity = 2.0

    def select(self, losses: Tensor, share: float) -> Tensor:
        """Return a mask of the share of rows with the smallest losses, rounded up.

        Of equal losses, the first ones are selected.
        """
        order = torch.sort(losses.detach(), stable=True).indices
        is_kept = torch.zeros_like(losses, dtype=torch.bool)
        is_kept[order[: math.ceil(share * len(losses))]] = True
        return is_kept

    def observe(self, losses: Tensor, noise: float, expected_rows: float, share: float) -> None:
        """Do nothing: the rule depends on the current batch only."""


def create_truncation(choice: str | type[Truncation], n_features_encoded: int) -> Truncation:
    """Create a rule from its name, "tracked" or "trimmed", or from its class.

    A class is created without arguments. Only "tracked" uses `n_features_encoded`.
    """
    if isinstance(choice, type):
        return choice()
    return Tracked(n_features_encoded) if choice == "tracked" else Trimmed()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyPlan:
    """A schedule with its noise; all of its values are public."""

    schedule: Schedule
    n_rows: int  # released number of rows of the table
    clip: float  # norm to which the gradient of each row is clipped
    noise: float  # of gradient and count together, as a multiple of their sensitivity
    count_share: float  # share of the noise budget that is spent on the count
    steps: int  # that the budget allows

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
    The network has no BatchNorm, which would mix rows. `hooked` is the same network with the hooks
    of Opacus, and `generator` is the source of its Monte Carlo samples.
    """

    def __init__(self, model: IWAEModule, hooked: nn.Module, generator: torch.Generator) -> None:
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
    model: IWAEModule, generator: torch.Generator
) -> Iterator[PerRowGradients]:
    """Attach the hooks of Opacus to a network within a block, and remove them at its end.

    The network is set to training mode, and its noise comes from the generator, also after the
    block. Raise an error if Opacus is not installed.
    """
    opacus = import_extra("opacus.grad_sample", extra="privacy")
    # Not strict: Opacus rejects all buffers, but the noise for scoring is not used in training.
    with isolate(None):
        hooked = opacus.GradSampleModule(model.train(), loss_reduction="sum", strict=False)
    try:
        model.generator = generator
        yield PerRowGradients(model, hooked, generator)
    finally:
        hooked.to_standard_module()


def train_privately(
    model: IWAEModule,
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

    The network has no BatchNorm. The generator is the source of its Monte Carlo samples. `secret`
    is the source of batches and noise: whoever can reproduce the noise can subtract it. Generators
    of torch have 32-bit seeds, which can be guessed by trying all of them.
    """
    optimizer = Adam(model.parameters(), learning_rate, weight_decay)
    with attach_per_row_gradients(model, generator) as gradients:
        for step in range(plan.steps):
            rate, share = plan.sampling_rate(step), plan.schedule.kept_share_at(step)
            with isolate(None):
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
