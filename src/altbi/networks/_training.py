"""ALTBI's training: growing batches, truncated losses, and snapshots of the last steps.

Batches and the interface of training procedures are used by ODIM's training too. A network is
trained through the interface `TrainedNetwork`, whatever library it is written in.
"""

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from altbi._threads import single_blas_thread
from altbi.errors import TrainingError
from altbi.networks._backbone import (
    Backbone,
    Losses,
    Objective,
    Rows,
    TrainedNetwork,
)
from altbi.networks._schedule import Schedule, TrainingStep
from altbi.networks._snapshots import SnapshotArrays, stack_states

INLIER, OUTLIER = 1, -1
# Largest number of labelled outliers in one update.
_MAX_OUTLIERS = 32
# The losses of labelled outliers should exceed the others by this many standard deviations.
_MARGIN = 2.0
# Smallest standard deviation of losses that is used in the penalty for labelled outliers.
_MIN_SCALE = 1e-3

Labels = NDArray[np.int8]
Mask = NDArray[np.bool_]
Steps = Generator[TrainingStep, None, SnapshotArrays]


class TrainingProcedure(Protocol):
    """Interface of a training procedure."""

    @property
    def backbone(self) -> Backbone:
        """The parameters of the network to train, and of its optimizer."""
        ...

    @property
    def planned_steps(self) -> int | None:
        """Number of steps, or None if it is not known before the training."""
        ...

    def run(self, rows: Rows, labels: Labels | None, seed: int, *, sized_for: int | None) -> Steps:
        """Train on encoded rows, yield after each step, and return the snapshots.

        `labels` are 1 for inliers, -1 for outliers and 0 for other rows. The seed determines
        weights, batches and noise. `sized_for` is the number of features for which automatic sizes
        are chosen; None means all features.
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
    """Labels of some training rows."""

    is_inlier: Mask  # (n_rows,): labelled inliers among the training rows; their losses count
    outliers: Rows  # (n_outliers, n_features): training makes their losses large
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

    def run(self, rows: Rows, labels: Labels | None, seed: int, *, sized_for: int | None) -> Steps:
        """Train a network on encoded rows, yield after each step, and return the snapshots.

        Labels are 1 for inliers, -1 for outliers and 0 for other rows. Automatic sizes are chosen
        for `sized_for` features; None means all. A `TrainingError` is raised if the loss is not
        finite, and a `ParameterError` if the trained network cannot be scored.
        """
        generator = np.random.default_rng(seed)
        network = self.backbone.start_training(rows.shape[1], generator, sized_for=sized_for)
        training_rows, training_labels = self._split_by_label(rows, labels)
        snapshots = []
        for step in train(network, training_rows, self.schedule, training_labels, generator):
            if self.schedule.is_snapshot(step.step):
                network.resample_noise()
                snapshots.append(network.copy_state())
            yield step
        network.check_trained(rows)
        return stack_states(snapshots)

    def _split_by_label(
        self, rows: Rows, labels: Labels | None
    ) -> tuple[Rows, TrainingLabels | None]:
        """Return the rows that are not labelled as outliers, and the labels with the outliers.

        Without labels, return all rows and None.
        """
        if labels is None:
            return rows, None
        is_outlier = labels == OUTLIER
        return rows[~is_outlier], TrainingLabels(
            labels[~is_outlier] == INLIER, rows[is_outlier], self.outlier_weight, self.label_trust
        )

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
    network: TrainedNetwork,
    rows: Rows,
    schedule: Schedule,
    labels: TrainingLabels | None,
    generator: np.random.Generator,
) -> Iterator[TrainingStep]:
    """Train a network in place by ALTBI's training, and yield after each step.

    `rows` are the training rows without labelled outliers. Batches grow by the schedule and are
    sampled by the generator. In each batch, only the share of smallest losses counts. BLAS has one
    thread in each step, so that results do not depend on the number of threads. Raise a
    `TrainingError` if the loss is not finite.
    """
    for step in range(schedule.n_steps):
        batch_size = schedule.batch_size_at(step, len(rows))
        share = schedule.kept_share_at(step)
        with single_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            for batch in iter_batches(len(rows), batch_size, schedule.n_updates, generator):
                loss = _update_on_batch(network, rows, batch, share, labels, generator)
        yield TrainingStep(step, batch_size, share, check_loss(loss, step))


def _update_on_batch(
    network: TrainedNetwork,
    rows: Rows,
    batch: NDArray[np.intp],
    share: float,
    labels: TrainingLabels | None,
    generator: np.random.Generator,
) -> float:
    """Update a network in place on the rows at `batch`, and return the objective.

    The objective is the mean of the share of smallest losses. With labels, a random sample of at
    most 32 labelled outliers joins the batch, and the objective includes the penalty for them. If
    `outlier_weight` is 0, they are left out.
    """
    if labels is None:
        return network.update(rows[batch], lambda losses: average_smallest(losses, share))
    is_inlier = labels.is_inlier[batch]
    if not len(labels.outliers) or labels.outlier_weight == 0:
        return network.update(
            rows[batch], lambda losses: average_smallest(losses, share, is_inlier)
        )
    outliers = labels.outliers[generator.permutation(len(labels.outliers))[:_MAX_OUTLIERS]]
    joined = np.concatenate([rows[batch], outliers])
    return network.update(joined, _build_penalized_objective(share, is_inlier, labels))


def _build_penalized_objective(share: float, is_inlier: Mask, labels: TrainingLabels) -> Objective:
    """Return the objective of a batch whose last rows are labelled outliers.

    It is the mean of the share of smallest losses of the other rows, plus the weighted penalty for
    the outliers. `is_inlier` has one value for each of the other rows.
    """
    # During the warm-up, losses do not yet show which labels are wrong.
    trust = labels.label_trust if share < 1 else 1.0

    def compute(losses: Losses) -> tuple[float, Losses]:
        """Return the objective of these losses, and its gradient by the losses."""
        others, outlier_losses = losses[: len(is_inlier)], losses[len(is_inlier) :]
        value, gradient = average_smallest(others, share, is_inlier)
        penalty, grad_penalty = penalize_outliers(outlier_losses, others, share, trust)
        weight = labels.outlier_weight
        return value + weight * penalty, np.concatenate([gradient, weight * grad_penalty])

    return compute


def select_smallest(losses: Losses, share: float) -> Mask:
    """Return a mask ``(n_rows,)`` of the share of rows with the smallest losses.

    Rows that tie with the largest selected loss are selected too. If a loss is NaN, no row is
    selected, so that truncation cannot hide a diverged network.
    """
    # Without 1e-9, products such as 0.29 * 100 would be rounded down to 28.
    rank = math.floor(share * (len(losses) - 1) + 1e-9)
    if np.isnan(losses).any():
        return np.zeros(len(losses), dtype=bool)
    return losses <= np.partition(losses, rank)[rank]


def average_smallest(
    losses: Losses, share: float, is_inlier: Mask | None = None
) -> tuple[float, Losses]:
    """Return the mean of the share of smallest losses, and its gradient by all losses.

    Labelled inliers always count; the share then refers to the other rows. If a loss is NaN, the
    mean is NaN and the gradient is 0.
    """
    if np.isnan(losses).any():
        return math.nan, np.zeros_like(losses)
    if is_inlier is None:
        kept = select_smallest(losses, share)
    else:
        kept = is_inlier.copy()
        if not kept.all():
            kept[~is_inlier] = select_smallest(losses[~is_inlier], share)
    return float(losses[kept].mean()), (kept / kept.sum()).astype(losses.dtype)


def penalize_outliers(
    outlier_losses: Losses, losses: Losses, share: float, label_trust: float
) -> tuple[float, Losses]:
    r"""Return the penalty for labelled outliers with small losses, and its gradient.

    The penalty is the mean of :math:`s \log(1 + \exp((m - l) / s + 2))` over the outlier losses
    :math:`l`. Here :math:`m` is the maximum and :math:`s` the standard deviation of the share of
    smallest `losses`, which count as constants. A row labelled by mistake has a small loss.
    Therefore only the share `label_trust` of the largest outlier losses is used. If a loss is NaN,
    the penalty is NaN and the gradient is 0.
    """
    if np.isnan(losses).any() or np.isnan(outlier_losses).any():
        return math.nan, np.zeros_like(outlier_losses)
    counted = losses[select_smallest(losses, share)]
    scale = max(float(counted.std()), _MIN_SCALE)
    is_trusted = outlier_losses >= np.quantile(outlier_losses, 1 - label_trust)
    excess = (counted.max() - outlier_losses[is_trusted]) / scale + _MARGIN
    penalty = scale * float(np.logaddexp(0, excess).mean())
    gradient = np.zeros_like(outlier_losses)
    # The derivative of log(1 + exp(x)) is the logistic function of x.
    gradient[is_trusted] = -np.exp(-np.logaddexp(0, -excess)) / is_trusted.sum()
    return penalty, gradient


def iter_batches(
    n_rows: int, batch_size: int, count: int, generator: np.random.Generator
) -> Iterator[NDArray[np.intp]]:
    """Yield the row indices of `count` random batches; no row repeats until all were used.

    A batch may be smaller if few rows are left. Rows are shuffled again if fewer than two are left,
    because BatchNorm cannot normalize one row.
    """
    order = generator.choice(n_rows, min(batch_size * count, n_rows), replace=False)
    for _ in range(count):
        if len(order) < 2:
            order = generator.permutation(n_rows)
        yield order[:batch_size]
        order = order[batch_size:]


def check_loss(loss: float, step: int) -> float:
    """Return the loss of a step; raise a `TrainingError` if it is not finite."""
    if not math.isfinite(loss):
        raise TrainingError(
            f"Training diverged: the loss is {loss} in step {step}. "
            "Lower the backbone's learning_rate."
        )
    return loss
