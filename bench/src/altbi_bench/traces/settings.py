"""Observed trainings: their settings, and the losses of all rows after each step.

Labels are used for the observation only. The training is that of `altbi.ALTBI`, to the bit.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from altbi import IWAE, Schedule
from altbi._threads import single_blas_thread
from altbi.networks import Objective, SnapshotArrays, train
from altbi.networks._iwae import IWAETraining
from altbi.networks._iwae_network import IWAENetwork
from altbi.networks._training import select_smallest
from altbi_bench.catalogue.datasets import Labels

__all__ = [
    "N_EVALUATION_SAMPLES",
    "SETTINGS",
    "WINDOWS",
    "LabelledTraining",
    "Losses",
    "Observation",
    "Setting",
    "observe_training",
]

LEARNING_RATE, WEIGHT_DECAY = 1e-3, 5e-7
# Monte Carlo samples that every step is evaluated with: with a single one, AUC is mostly noise.
N_EVALUATION_SAMPLES = 8
# Added to a seed for random numbers that no job uses as its own.
SEED_OFFSET = 2**31

Losses = NDArray[np.float32]


@final
@dataclass(frozen=True, slots=True)
class Setting:
    """A training to observe: Monte Carlo samples, schedule, and the averages to evaluate.

    Each window (T1, T2) is a mean over the snapshots of the steps T1 + 1 to T2, counted after the
    warm-up.
    """

    n_samples: int
    schedule: Schedule
    windows: tuple[tuple[int, int], ...] = ()

    def plan(self) -> dict[str, Any]:
        """Return the parameters of the training for records, so that outdated ones are found."""
        samples = {"draws": self.n_samples, "watching_draws": N_EVALUATION_SAMPLES}
        return {**self.schedule.get_params(), **samples, "learning_rate": LEARNING_RATE}


def _reference(**changes: float) -> Setting:
    """Return the training behind the paper's numbers, with more steps for later windows."""
    plan: dict[str, Any] = {"gamma": 1.03, "rho": 0.92, **changes}
    schedule = Schedule(n0=128, T0=10, T1=61, T2=100, updates=5, first_truncated=2, **plan)
    return Setting(2, schedule, WINDOWS)


def _vae(**changes: float) -> Setting:
    """Return the training of the VAE in the paper's figures: a hundred updates."""
    plan: dict[str, Any] = {"gamma": 1.0, "rho": 1.0, **changes}
    return Setting(1, Schedule(n0=128, T0=10, T1=0, T2=90, updates=1, first_truncated=1, **plan))


# The paper's Table B.10, and the window of the authors' code.
WINDOWS = (*((first, first + n) for n in (5, 10, 20, 30) for first in (50, 60, 70)), (61, 80))
SETTINGS = {
    "reference": _reference(),
    "reference, no growth": _reference(gamma=1.0),
    "VAE": _vae(),
    "VAE, growth": _vae(gamma=1.1),
    "VAE, truncation": _vae(rho=0.9),
    "VAE, both": _vae(gamma=1.1, rho=0.9),
}


@final
@dataclass(frozen=True, slots=True)
class Observation:
    """The state of a training after one step.

    Attributes
    ----------
    kept_outliers : float
        Share of outliers among the rows of the last batch whose losses counted.
    losses : ndarray
        Losses of all rows, averaged over Monte Carlo samples that are the same in all steps.
    snapshot : ndarray
        Losses of all rows with the detector's own samples, if the step is a snapshot of it.
    """

    kept_outliers: float
    losses: Losses
    snapshot: Losses


def observe_training(rows: Losses, y: Labels, setting: Setting, seed: int) -> Iterator[Observation]:
    """Train as the detector does, and yield the losses of all rows after each step."""
    generator = np.random.default_rng(seed)
    other = np.random.default_rng(seed + SEED_OFFSET)  # keeps the training unchanged
    sizes = IWAE(n_samples=setting.n_samples).choose_sizes(rows.shape[1])
    network = sizes.build()
    network.initialize(generator)
    model, noise = LabelledTraining(network), _sample_evaluation_noise(network, seed)
    labelled = np.column_stack([rows, y.astype(np.float32)])
    for step in train(model, labelled, setting.schedule, None, generator):
        if setting.schedule.is_snapshot(step.step):
            network.resample_noise()
        else:
            other.standard_normal(dtype=np.float32, out=network.scoring_noise)
        snapshot = _compute_losses(network, rows, network.scoring_noise.copy()[None])
        losses = _compute_losses(network, rows, noise)
        yield Observation(model.kept_outliers(step.kept), losses, snapshot)


def _sample_evaluation_noise(network: IWAENetwork, seed: int) -> Losses:
    """Sample the noise that all steps are evaluated with."""
    shape = (N_EVALUATION_SAMPLES // len(network.scoring_noise), *network.scoring_noise.shape)
    return np.random.default_rng(seed + 2 * SEED_OFFSET).standard_normal(shape, dtype=np.float32)


def _compute_losses(network: IWAENetwork, rows: Losses, noises: Losses) -> Losses:
    """Compute the mean losses of rows over several arrays of noise."""
    total = np.zeros(len(rows), dtype=np.float32)
    # The results do not depend on the number of threads.
    with single_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        for noise in noises:
            network.scoring_noise[:] = noise
            total += network.evaluate_losses(rows)
    return total / np.float32(len(noises))


@final
class LabelledTraining:
    """A training on rows whose last column is the label, which the network does not see."""

    def __init__(self, network: IWAENetwork) -> None:
        self.training = IWAETraining(network, LEARNING_RATE, WEIGHT_DECAY)
        self.last: tuple[Losses, Losses] | None = None

    def update(self, rows: Losses, objective: Objective) -> float:
        """Update the weights on a batch, and store its losses with the labels."""

        def observe(losses: Losses) -> tuple[float, Losses]:
            self.last = losses.copy(), rows[:, -1]
            return objective(losses)

        return self.training.update(np.ascontiguousarray(rows[:, :-1]), observe)

    def evaluate_losses(self, rows: Losses) -> Losses:
        """Return the losses of labelled rows with the stored noise."""
        return self.training.evaluate_losses(np.ascontiguousarray(rows[:, :-1]))

    def resample_noise(self) -> None:
        """Sample the stored noise for scoring again."""
        self.training.resample_noise()

    def copy_state(self) -> SnapshotArrays:
        """Return a copy of the network's state."""
        return self.training.copy_state()

    def check_trained(self, rows: Losses) -> None:
        """Do nothing: a trained IWAE can always be saved."""

    def kept_outliers(self, share: float) -> float:
        """Return the share of outliers among the rows of the last batch whose losses counted."""
        if self.last is None:
            raise RuntimeError("There was no batch yet.")
        losses, labels = self.last
        return float(labels[select_smallest(losses, share)].mean())
