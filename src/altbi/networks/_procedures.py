"""Training procedures: each trains a network and returns its snapshots."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray

from altbi.networks._backbones import Backbone
from altbi.networks._interfaces import GenerativeModel
from altbi.networks._peak_search import Spread, search_peak
from altbi.networks._schedule import Schedule, TrainingStep
from altbi.networks._snapshots import SnapshotArrays, copy_state, stack_states
from altbi.networks._torch_modes import (
    PrivateRandomState,
    default_modes,
    resolve_device,
    single_thread,
)
from altbi.networks._training import TrainingLabels, train

INLIER, OUTLIER = 1, -1

Result = TypeVar("Result")
Steps = Generator[TrainingStep, None, SnapshotArrays]


class TrainingProcedure(Protocol):
    """Interface of a training procedure.

    Attributes
    ----------
    backbone : Backbone
        The network to train.
    planned_steps : int or None
        Number of steps, if it is known before the training.
    """

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


@dataclass(frozen=True, slots=True, kw_only=True)
class AltbiTraining:
    """ALTBI's training: growing batches, truncated losses, snapshots of the last steps.

    This is Algorithm 1 of the paper.

    Attributes
    ----------
    backbone : Backbone
        The network to train.
    schedule : Schedule
        Batch sizes, truncation and snapshots.
    outlier_weight : float
        Weight of the penalty that makes the losses of labelled outliers large.
    label_trust : float
        Share of the outlier labels that training trusts.
    may_stop_early : bool
        Whether a privacy budget may end the training before its last step.
    """

    backbone: Backbone
    schedule: Schedule
    outlier_weight: float
    label_trust: float
    may_stop_early: bool = False

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


@dataclass(frozen=True, slots=True, kw_only=True)
class OdimTraining:
    """ODIM's training: several networks, each kept where its losses are most bimodal.

    The attributes are the parameters of `altbi.ODIM`.
    """

    backbone: Backbone
    n_models: int
    batch_size: int
    check_every: int
    patience: int
    max_updates: int
    spread: Spread

    @property
    def planned_steps(self) -> None:
        """None, because the losses decide when training ends."""
        return

    def run(
        self,
        model: GenerativeModel,
        untrained: GenerativeModel,
        rows: NDArray[np.float32],
        labels: NDArray[np.int8] | None,
        seed: int,
    ) -> Steps:
        """Train `n_models` networks one after the other, and return the best state of each.

        Yield at each check, with check numbers that continue over all networks. Each network is
        initialized again in `model` and trained on the CPU. `untrained` and `labels` are not used.
        """
        generator = torch.Generator().manual_seed(seed)
        snapshots, n_checks = [], 0
        for _ in range(self.n_models):
            model.initialize(generator)
            for check in search_peak(
                model,
                torch.from_numpy(rows),
                batch_size=self.batch_size,
                check_every=self.check_every,
                patience=self.patience,
                max_updates=self.max_updates,
                spread=self.spread,
                learning_rate=self.backbone.resolve_learning_rate(),
                weight_decay=self.backbone.weight_decay,
                generator=generator,
            ):
                if check.is_best:
                    best = copy_state(model)
                yield TrainingStep(n_checks, check.batch_size, 1.0, check.loss)
                n_checks += 1
            snapshots.append(best)
        return stack_states(snapshots)

    def count_snapshots(self, history: Sequence[TrainingStep]) -> int:
        """Return the number of networks; each has one snapshot."""
        return self.n_models

    def is_complete(self, history: Sequence[TrainingStep]) -> bool:
        """Return whether there is at least one check for each network."""
        return len(history) >= self.n_models


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
