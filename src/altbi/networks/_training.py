"""ALTBI's training: growing batches, truncated losses, and snapshots of the last steps.

Adam, batches, isolation and the interface of training procedures are used by ODIM's training too.
"""

import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from altbi.errors import TrainingError
from altbi.networks._generative_model import (
    Backbone,
    GenerativeModel,
    SnapshotArrays,
    copy_state,
    stack_states,
)
from altbi.networks._schedule import Schedule, TrainingStep
from altbi.networks._torch_modes import (
    PrivateRandomState,
    default_modes,
    flush_denormals,
    resolve_device,
    single_thread,
)

INLIER, OUTLIER = 1, -1
# Largest number of labelled outliers in one update.
_MAX_OUTLIERS = 32
# The losses of labelled outliers should exceed the others by this many standard deviations.
_MARGIN = 2.0
# Smallest standard deviation of losses that is used in the penalty for labelled outliers.
_MIN_SCALE = 1e-3
# From this number of rows on, shuffling all of them takes longer than one update.
_MANY_ROWS = 50_000

Result = TypeVar("Result")
Steps = Generator[TrainingStep, None, SnapshotArrays]


class TrainingProcedure(Protocol):
    """Interface of a training procedure."""

    @property
    def backbone(self) -> Backbone:
        """The network to train."""
        ...

    @property
    def planned_steps(self) -> int | None:
        """Number of steps, or None if it is not known before the training."""
        ...

    def run(
        self,
        model: GenerativeModel,
        untrained: GenerativeModel,
        rows: NDArray[np.float32],
        labels: NDArray[np.int8] | None,
        seed: int,
    ) -> Steps:
        """Train the network in place, yield after each step, and return the snapshots.

        `model` is on the meta device or a custom network, and is initialized first. `untrained` is
        a second one, for checks. The seed determines weights, batches and noise.
        """
        ...

    def count_snapshots(self, history: Sequence[TrainingStep]) -> int:
        """Return the number of snapshots that a training with this history has produced."""
        ...

    def is_complete(self, history: Sequence[TrainingStep]) -> bool:
        """Return whether a history has a number of steps that a complete training can have."""
        ...


@dataclass(frozen=True, slots=True)
class TrainingLabels:
    """Labels of some training rows, on the training device."""

    is_inlier: Tensor  # (n_rows,): labelled inliers among the training rows; their losses count
    outliers: Tensor  # (n_outliers, n_features): training makes their losses large
    outlier_weight: float  # weight of the penalty for labelled outliers with small losses
    label_trust: float  # share of the outlier labels that training trusts


@dataclass(frozen=True, slots=True, kw_only=True)
class AltbiTraining:
    """ALTBI's training, which is Algorithm 1 of the paper."""

    backbone: Backbone
    schedule: Schedule
    outlier_weight: float  # weight of the penalty that makes the losses of labelled outliers large
    label_trust: float  # share of the outlier labels that training trusts
    may_stop_early: bool = False  # whether a privacy budget may end the training earlier

    @property
    def planned_steps(self) -> int:
        """Number of steps, including the warm-up."""
        return self.schedule.n_steps

    def run(
        self,
        model: GenerativeModel,
        untrained: GenerativeModel,
        rows: NDArray[np.float32],
        labels: NDArray[np.int8] | None,
        seed: int,
    ) -> Steps:
        """Train the network in place, yield after each step, and return the snapshots.

        The network is initialized by the seed and trained on the backbone's device. Labels are 1
        for inliers, -1 for outliers and 0 for other rows. At the end, ``model.check_trained`` may
        raise an error.
        """
        device = resolve_device(self.backbone.device)
        generator = torch.Generator(device).manual_seed(seed)
        model.initialize(generator)
        training_rows, training_labels = self._split_by_label(rows, labels, device)
        snapshots = []
        for step in train(
            model,
            training_rows,
            self.schedule,
            learning_rate=self.backbone.resolve_learning_rate(),
            weight_decay=self.backbone.weight_decay,
            labels=training_labels,
            generator=generator,
        ):
            if self.schedule.is_snapshot(step.step):
                model.resample_noise()
                snapshots.append(copy_state(model))
            yield step
        model.check_trained(torch.from_numpy(rows), untrained)
        return stack_states(snapshots)

    def _split_by_label(
        self, rows: NDArray[np.float32], labels: NDArray[np.int8] | None, device: torch.device
    ) -> tuple[torch.Tensor, TrainingLabels | None]:
        """Return the rows that are not labelled outliers, and the labels, on the device.

        Without labels, return all rows and None.
        """
        if labels is None:
            return torch.from_numpy(rows).to(device), None
        is_outlier = labels == OUTLIER
        others, is_inlier, outliers = (
            torch.from_numpy(array).to(device)
            for array in (rows[~is_outlier], labels[~is_outlier] == INLIER, rows[is_outlier])
        )
        return others, TrainingLabels(is_inlier, outliers, self.outlier_weight, self.label_trust)

    def count_snapshots(self, history: Sequence[TrainingStep]) -> int:
        """Return the number of snapshots of a training with this history.

        A training that may stop early has at least one snapshot, its last state.
        """
        if not self.may_stop_early:
            return self.schedule.n_snapshots
        return max(sum(self.schedule.is_snapshot(step.step) for step in history), 1)

    def is_complete(self, history: Sequence[TrainingStep]) -> bool:
        """Return whether the history has all planned steps.

        For a training that may stop early, at least one step is enough.
        """
        if self.may_stop_early:
            return 0 < len(history) <= self.planned_steps
        return len(history) == self.planned_steps


def train(
    model: nn.Module,
    rows: Tensor,
    schedule: Schedule,
    *,
    learning_rate: float,
    weight_decay: float = 0.0,
    labels: TrainingLabels | None = None,
    generator: torch.Generator,
) -> Iterator[TrainingStep]:
    """Train a network in place by ALTBI's training, and yield after each step.

    `rows` are the training rows without labelled outliers. Batches grow by the schedule and are
    sampled by the generator. In each batch, only the share of smallest losses counts. The network
    must be initialized, and each step sets training mode. Raise a `TrainingError` if the loss is
    not finite.
    """
    optimizer = Adam(model.parameters(), learning_rate, weight_decay)
    for step in range(schedule.n_steps):
        batch_size = schedule.batch_size_at(step, len(rows))
        share = schedule.kept_share_at(step)
        model.train()
        for batch in iter_batches(len(rows), batch_size, schedule.n_updates, generator):
            if labels is None:
                loss = compute_truncated_mean(model(rows[batch]), share)
            else:
                loss = _compute_labelled_loss(model, rows, batch, share, labels, generator)
            optimizer.minimize(loss)
        yield TrainingStep(step, batch_size, share, check_loss(loss, step, learning_rate))


def _compute_labelled_loss(
    model: nn.Module,
    rows: Tensor,
    batch: Tensor,
    share: float,
    labels: TrainingLabels,
    generator: torch.Generator,
) -> Tensor:
    """Compute the truncated mean of a batch plus the penalty for labelled outliers.

    A random sample of at most `_MAX_OUTLIERS` labelled outliers is used. Without outliers, or with
    an outlier weight of 0, there is no penalty.
    """
    is_inlier = labels.is_inlier[batch]
    if not len(labels.outliers) or labels.outlier_weight == 0:
        return compute_truncated_mean(model(rows[batch]), share, is_inlier)
    order = _shuffle(len(labels.outliers), generator)
    outliers = labels.outliers[order[:_MAX_OUTLIERS]]
    losses = model(torch.cat([rows[batch], outliers]))
    losses, outlier_losses = losses[: len(batch)], losses[len(batch) :]
    # During the warm-up, losses do not yet show which labels are wrong.
    label_trust = labels.label_trust if share < 1 else 1.0
    penalty = compute_outlier_penalty(outlier_losses, losses, share, label_trust)
    return compute_truncated_mean(losses, share, is_inlier) + labels.outlier_weight * penalty


def select_smallest(losses: Tensor, share: float) -> Tensor:
    """Return a mask of the share of rows with the smallest losses, the likely inliers.

    Rows that tie with the largest selected loss are selected too. If a loss is NaN, no row is
    selected, so that truncation cannot hide a diverged network.
    """
    # Without 1e-9, products such as 0.29 * 100 would be rounded down to 28.
    rank = math.floor(share * (len(losses) - 1) + 1e-9)
    losses = losses.detach()
    return (losses <= losses.kthvalue(rank + 1).values) & ~losses.isnan().any()


def compute_truncated_mean(losses: Tensor, share: float, is_inlier: Tensor | None = None) -> Tensor:
    """Compute the mean of the share of smallest losses; labelled inliers always count.

    With `is_inlier`, the share refers to the other rows. If a loss is NaN, the result is NaN.
    """
    if losses.isnan().any():
        return losses.sum()  # NaN, which `check_loss` reports
    if is_inlier is None:
        kept = select_smallest(losses, share)
        return torch.where(kept, losses, 0).sum() / kept.sum()
    others = losses[~is_inlier]
    kept = others[select_smallest(others, share)] if len(others) else others
    return torch.cat([kept, losses[is_inlier]]).mean()


def compute_outlier_penalty(
    outlier_losses: Tensor, losses: Tensor, share: float, label_trust: float
) -> Tensor:
    """Compute the penalty for labelled outliers whose losses are too small.

    The penalty is the mean of ``s * softplus((m - l) / s + 2)`` over the outlier losses ``l``. Here
    ``m`` is the maximum and ``s`` the standard deviation of the share of smallest `losses`. A row
    labelled by mistake has a small loss. Therefore only the share `label_trust` of the largest
    outlier losses is used. If a loss is NaN, the penalty is NaN.
    """
    counted = losses.detach()[select_smallest(losses, share)]
    if not len(counted):
        return losses.sum()  # NaN, which `check_loss` reports
    scale = counted.std(correction=0).clamp(min=_MIN_SCALE)
    limit = torch.quantile(outlier_losses.detach(), 1 - label_trust)
    trusted = outlier_losses[outlier_losses >= limit]
    return scale * functional.softplus((counted.max() - trusted) / scale + _MARGIN).mean()


def iter_batches(
    n_rows: int, batch_size: int, count: int, generator: torch.Generator
) -> Iterator[Tensor]:
    """Yield the row indices of `count` batches, without replacement until all rows were used.

    A batch may be smaller if few rows are left. Rows are shuffled again if fewer than two are left,
    because BatchNorm cannot normalize one row.
    """
    order = _sample_order(n_rows, batch_size * count, generator)
    for _ in range(count):
        if len(order) < 2:
            order = _shuffle(n_rows, generator)
        yield order[:batch_size]
        order = order[batch_size:]


def _sample_order(n_rows: int, count: int, generator: torch.Generator) -> Tensor:
    """Return at least `count` distinct random row indices, or all of them if there are fewer."""
    if n_rows < max(_MANY_ROWS, 4 * count):
        return _shuffle(n_rows, generator)
    # Indices sampled with replacement, without duplicates, are distributed like a shuffle. Of
    # 2 * count samples among at least 4 * count rows, fewer than count distinct ones are very rare.
    sampled = torch.randint(n_rows, (2 * count,), generator=generator, device=generator.device)
    ranked, positions = sampled.sort(stable=True)
    is_first = ranked.diff(prepend=ranked[:1] - 1) != 0
    return sampled[positions[is_first].sort().values]


def _shuffle(n_rows: int, generator: torch.Generator) -> Tensor:
    """Return all row indices in random order, on the generator's device."""
    return torch.randperm(n_rows, generator=generator, device=generator.device)


@final
class Adam:
    """Adam as in ``torch.optim.Adam``, with all parameters in one vector.

    It replaces ``torch.optim.Adam`` because the first step of that class imports torch's compiler,
    which takes longer than a training run here. The parameters become views of one vector. Those
    without a gradient count as having the gradient 0.
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
        self.n_steps = 0
        self.vector = parameters_to_vector(self.parameters).detach()
        vector_to_parameters(self.vector, self.parameters)
        self.first_moment = torch.zeros_like(self.vector)
        self.second_moment = torch.zeros_like(self.vector)
        # Reused in every step: allocating it costs more than the arithmetic of a step.
        self.denominator = torch.empty_like(self.vector)

    def minimize(self, loss: Tensor) -> None:
        """Compute the gradients of a loss by backpropagation, and update the parameters.

        Former gradients are discarded. Denormal numbers count as zero meanwhile.
        """
        for parameter in self.parameters:
            parameter.grad = None
        # Gradients of values that the network predicts well are often denormal numbers.
        with flush_denormals():
            torch.autograd.backward(loss)
            self.step()

    @torch.no_grad()
    def step(self, gradient: Tensor | None = None) -> None:
        """Update the parameters in place by their gradients, or by a given gradient vector.

        A given vector is modified: the weight decay is added to it.
        """
        self.n_steps += 1
        beta1, beta2 = self.betas
        if gradient is None:
            gradients = (torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters)
            gradient = torch.cat([each.flatten() for each in gradients])
        gradient.add_(self.vector, alpha=self.weight_decay)
        self.first_moment.lerp_(gradient, 1 - beta1)
        self.second_moment.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        torch.div(self.second_moment, 1 - beta2**self.n_steps, out=self.denominator)
        self.denominator.sqrt_().add_(1e-8)
        rate = self.learning_rate / (1 - beta1**self.n_steps)
        self.vector.addcdiv_(self.first_moment, self.denominator, value=-rate)


def check_loss(loss: Tensor, step: int, learning_rate: float) -> float:
    """Return the loss as a float; raise a `TrainingError` if it is not finite."""
    value = float(loss.detach())
    if not math.isfinite(value):
        raise TrainingError(
            f"Training diverged: the loss is {value} in step {step}. "
            f"Lower learning_rate, which is {learning_rate}."
        )
    return value


def run_isolated(
    steps: Generator[TrainingStep, None, Result], *, is_custom: bool, seed: int
) -> Generator[TrainingStep, None, Result]:
    """Yield the steps of a training, and return its result.

    Each step runs on one thread and in torch's default modes, which are restored between steps.
    Sums are then taken in one order, so that results do not depend on the number of threads. A
    custom network also gets its own global random state with this seed.
    """
    random_state = PrivateRandomState(seed)
    while True:
        with single_thread(), default_modes(), random_state.active_if(is_custom):
            try:
                step = next(steps)
            except StopIteration as end:
                return cast(Result, end.value)
        yield step
