"""Trainings to watch: which there are, and a look at all rows after each step.

Labels are used to watch only; the training is that of `altbi.ALTBI`, to the bit.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, cast, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from altbi.networks._torch_modes import single_thread, default_modes
from altbi.networks import IWAE, IWAENetwork
from altbi.networks._schedule import Schedule
from altbi.networks._training import select_smallest, train
from altbi_bench.catalogue.datasets import Labels

__all__ = ["SETTINGS", "WATCHING_DRAWS", "WINDOWS", "TableScan", "Losses", "Setting", "Watched", "watch"]

LEARNING_RATE, WEIGHT_DECAY = 1e-3, 5e-7
# Draws that a step is judged with, the same in all steps: with one alone AUC is mostly chance.
WATCHING_DRAWS = 8
# Added to a seed it gives another stream, which no job has for its own.
ASIDE = 2**31

Losses = NDArray[np.float32]


@final
@dataclass(frozen=True, slots=True)
class Setting:
    """A training to watch: draws of the bound, schedule, and the averages to judge.

    Each window (T1, T2) is a mean over the snapshots of the steps T1 + 1 to T2, counted after the
    warm-up.
    """

    draws: int
    schedule: Schedule
    windows: tuple[tuple[int, int], ...] = ()

    def plan(self) -> dict[str, Any]:
        """Say what a training depends on; a line has it, so that old ones do not count as new."""
        more = {"draws": self.draws, "watching_draws": WATCHING_DRAWS}
        return {**asdict(self.schedule), **more, "learning_rate": LEARNING_RATE}


def _reference(**changes: float) -> Setting:
    """Do what produced the paper's numbers, for longer, so that later windows can be seen."""
    plan: dict[str, Any] = {"gamma": 1.03, "rho": 0.92, **changes}
    schedule = Schedule(n0=128, T0=10, T1=61, T2=100, updates=5, first_truncated=2, **plan)
    return Setting(2, schedule, WINDOWS)


def _vae(**changes: float) -> Setting:
    """Train the VAE of the paper's figures: a hundred updates."""
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
class TableScan:
    """What is seen after a step.

    Attributes
    ----------
    kept_outliers : float
        Share of outliers among the rows of the last batch whose losses counted.
    losses : ndarray
        Of all rows, each the mean over some draws, the same in all steps.
    snapshot : ndarray
        Of all rows, with one set of draws: the detector's own where it takes a snapshot.
    """

    kept_outliers: float
    losses: Losses
    snapshot: Losses


def on_progress(rows: Losses, y: Labels, setting: Setting, seed: int) -> Iterator[TableScan]:
    """Train as the detector does, to the bit, and look at all rows after each step."""
    generator = torch.Generator().manual_seed(seed)
    aside = torch.Generator().manual_seed(seed + ASIDE)  # so that watching changes nothing
    all_rows = torch.from_numpy(rows)
    labelled = torch.column_stack([all_rows, torch.from_numpy(y.astype(np.float32))])
    with default_modes(), single_thread():
        model = _started(rows.shape[1], setting.draws, generator)
        watched, draws = Watched(model), _draws_to_watch(model, seed)
        for progress in train(
            watched,
            labelled,
            setting.schedule,
            learning_rate=LEARNING_RATE,
            weight_decay=WEIGHT_DECAY,
            generator=generator,
        ):
            if setting.schedule.is_snapshot(progress.step):
                model.resample_noise()
            else:
                model.scoring_noise.normal_(generator=aside)
            snapshot = _losses(model, all_rows, model.scoring_noise.clone()[None])
            losses = _losses(model, all_rows, draws)
            yield TableScan(watched.kept_outliers(progress.kept), losses, snapshot)


def _started(n_features: int, n_draws: int, generator: torch.Generator) -> IWAENetwork:
    """Give a model that is ready to be trained."""
    model = cast(IWAENetwork, IWAE(n_samples=n_draws).build(n_features))
    model.initialize(generator)
    return model


def _draws_to_watch(model: IWAENetwork, seed: int) -> Tensor:
    """Draw the sets that all steps are judged with."""
    shape = (WATCHING_DRAWS // len(model.scoring_noise), *model.scoring_noise.shape)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + 2 * ASIDE))


def _losses(model: IWAENetwork, rows: Tensor, sets_of_draws: Tensor) -> Losses:
    """Average the losses over some sets of draws."""
    model.eval()
    total = np.zeros(len(rows), dtype=np.float32)
    with torch.inference_mode():
        for draws in sets_of_draws:
            model.scoring_noise.copy_(draws)
            total += model(rows).numpy()
    return total / np.float32(len(sets_of_draws))


@final
class Watched(nn.Module):
    """A model whose rows bring their labels along as a last column, which it does not see."""

    def __init__(self, model: IWAENetwork) -> None:
        super().__init__()
        self.model = model
        self.last: tuple[Tensor, Tensor] | None = None

    def forward(self, labelled: Tensor) -> Tensor:
        """Give the model's losses, and remember them and the labels."""
        losses: Tensor = self.model(labelled[:, :-1].contiguous())
        self.last = losses.detach(), labelled[:, -1]
        return losses

    def kept_outliers(self, share: float) -> float:
        """Give the share of outliers among the rows of the last batch whose losses counted."""
        if self.last is None:
            raise RuntimeError("No batch was seen yet.")
        losses, labels = self.last
        return float(labels[select_smallest(losses, share)].mean())
