"""DDPM: a network that takes noise out of rows; what it changes much is odd."""

import math
from collections.abc import Iterator
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from altbi.model._threshold import Contamination
from altbi_bench.baselines.base import Baseline, Linear, Network, Trainer
from altbi_bench.baselines.dte import Dropout

__all__ = ["DDPM"]

TIMES = 1000
LEAST_BETA, MOST_BETA = 1e-4, 1e-2
# Rows are taken for noisy ones of this time, and led back from there.
START = 250
WIDTH, HIDDEN, TIME_WIDTH, BLOCKS = 128, 256, 256, 3
LONGEST_PERIOD = 10_000
WEIGHT_DECAY = 5e-4
# Training ends when an epoch is no better than one so many epochs before, but not at once.
PATIENCE, LEAST_EPOCHS = 39, 52


@final
class Block(nn.Module):
    """A step aside that is added to what came in."""

    def __init__(self) -> None:
        super().__init__()
        self.aside = nn.Sequential(
            nn.BatchNorm1d(WIDTH),
            nn.Linear(WIDTH, HIDDEN),
            nn.ReLU(),
            Dropout(0.4),
            nn.Linear(HIDDEN, WIDTH),
            Dropout(0.1),
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the input plus the residual."""
        return hidden + self.aside(hidden)


@final
class Denoiser(Network):
    """A residual network that tells which noise is in a row, given how much of it there is."""

    block_rows = 256  # as a row takes 250 calls, and blocks are filled up

    betas: Tensor
    kept: Tensor
    waves: Tensor

    def __init__(self, n_features_encoded: int) -> None:
        super().__init__()
        self.first = nn.Linear(n_features_encoded, WIDTH)
        self.clock = nn.Sequential(
            nn.Linear(TIME_WIDTH, TIME_WIDTH),
            nn.SiLU(),
            nn.Linear(TIME_WIDTH, TIME_WIDTH),
            nn.SiLU(),
            nn.Linear(TIME_WIDTH, WIDTH),
        )
        self.rest = nn.Sequential(
            *(Block() for _ in range(BLOCKS)),
            nn.BatchNorm1d(WIDTH),
            nn.ReLU(),
            Linear(WIDTH, n_features_encoded),
        )
        betas = torch.linspace(LEAST_BETA, MOST_BETA, TIMES, dtype=torch.float64)
        self.register_buffer("betas", betas)
        self.register_buffer("kept", (1 - betas).cumprod(0))
        self.register_buffer("waves", waves(TIMES, TIME_WIDTH))

    def noise(self, rows: Tensor, time: Tensor) -> Tensor:
        """Estimate the noise in rows at a time, which is the same for all rows or one for each."""
        return self.rest(self.first(rows) + time)

    def loss(self, rows: Tensor) -> Tensor:
        """Add noise of random times to rows, and measure how badly it is told."""
        times = torch.randint(TIMES, (len(rows),))
        noise = torch.randn_like(rows)
        told = self.noise(self.noisy(rows, noise, times), self.clock(self.waves[times]))
        return (told - noise).square().mean()

    def noisy(self, rows: Tensor, noise: Tensor, times: Tensor) -> Tensor:
        """Shrink each row and add noise, the more the later its time."""
        kept = self.kept[times, None]
        return kept.sqrt().to(rows.dtype) * rows + (1 - kept).sqrt().to(rows.dtype) * noise

    def cleaned(self, rows: Tensor) -> Tensor:
        """Lead rows back in time, each step to the mean of what may have been before."""
        clock = self.clock(self.waves[:START])
        shares = (self.betas / (1 - self.kept).sqrt()).tolist()
        growths = (1 / (1 - self.betas).sqrt()).tolist()
        for time in reversed(range(START)):
            noise = self.noise(rows, clock[time])
            rows = growths[time] * rows.sub(noise, alpha=shares[time])
        return rows

    def forward(self, rows: Tensor) -> Tensor:
        """Return the mean squared change of each row."""
        return (rows - self.cleaned(rows)).square().mean(-1)


def waves(n_times: int, width: int) -> Tensor:
    """Describe times by cosines and sines, from fast to slow ones."""
    half = width // 2
    speeds = torch.exp(-math.log(LONGEST_PERIOD) / half * torch.arange(half, dtype=torch.float64))
    angles = torch.arange(n_times)[:, None] * speeds
    return torch.cat([angles.cos(), angles.sin()], 1).float()


@final
class DDPM(Baseline):
    """Denoising diffusion: outliers change much when noise is taken out of them.

    A residual network learns to tell the noise that was added to rows. To score, a row is taken for
    a noisy one and led back step by step, without new noise, to what rows look like. The score is
    the mean squared change.

    Training ends early, from the 52nd epoch on, when an epoch's loss exceeds that of 39 epochs
    before.

    Parameters
    ----------
    epochs : int, default=400
        Passes over the rows, at most.
    batch_size : int, default=64
        Rows in a batch. A smaller batch at the end is left out, unless it is the only one.
    learning_rate : float, default=0.0001
        Learning rate of Adam.
    contamination : float in (0, 0.5] or "auto", default='auto'
        Share of outliers that sets the threshold; "auto" estimates it from the scores.
    max_rows : int, default=50000
        Rows in the training sample, drawn uniformly from larger tables.
    random_state : int, RandomState or None, default=0
        Seed of sample, weights, batches and noise.

    Attributes
    ----------
    offset_ : float
        Threshold: rows with ``score_samples`` below it are outliers.
    history_ : list of float
        Mean loss of each epoch.

    References
    ----------
    Ho et al.: Denoising diffusion probabilistic models. NeurIPS 2020.
    Livernoche et al.: On diffusion modeling for anomaly detection. ICLR 2024.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> X[17] = 9.0
    >>> int(DDPM(epochs=10).fit(X).outlier_score(X).argmax())
    17
    """

    def __init__(
        self,
        *,
        epochs: int = 400,
        batch_size: int = 64,
        learning_rate: float = 1e-4,
        contamination: Contamination = "auto",
        max_rows: int = 50_000,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.contamination = contamination
        self.max_rows = max_rows
        self.random_state = random_state

    def _build_network(self, n_features_encoded: int) -> Denoiser:
        return Denoiser(n_features_encoded)

    def _train_network(self, network: Denoiser, rows: Tensor) -> Iterator[float]:
        trainer = Trainer(
            network.parameters(),
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            weight_decay=WEIGHT_DECAY,
            drop_last=True,
        )
        losses: list[float] = []
        while len(losses) < self.epochs and not has_stalled(losses):
            losses.append(trainer.epoch(rows, network.loss))
            yield losses[-1]


def has_stalled(losses: list[float]) -> bool:
    """Return whether the last epoch was worse than an earlier one."""
    return len(losses) >= LEAST_EPOCHS and losses[-1] > losses[-1 - PATIENCE]
