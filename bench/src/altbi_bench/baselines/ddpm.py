"""DDPM: a network that removes noise from rows; it changes outliers more than inliers."""

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
MIN_BETA, MAX_BETA = 1e-4, 1e-2
# Rows are treated as noisy rows of this time, and denoised from there.
START = 250
WIDTH, HIDDEN, TIME_WIDTH, BLOCKS = 128, 256, 256, 3
MAX_PERIOD = 10_000
WEIGHT_DECAY = 5e-4
# Training ends when the loss exceeds that of PATIENCE epochs before.
PATIENCE, MIN_EPOCHS = 39, 52


@final
class Block(nn.Module):
    """A residual block."""

    def __init__(self) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.BatchNorm1d(WIDTH),
            nn.Linear(WIDTH, HIDDEN),
            nn.ReLU(),
            Dropout(0.4),
            nn.Linear(HIDDEN, WIDTH),
            Dropout(0.1),
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the input plus the residual."""
        return hidden + self.residual(hidden)


@final
class Denoiser(Network):
    """A residual network that predicts the noise in a row, given its time."""

    block_rows = 256  # fewer than usual, because a row takes 250 calls

    betas: Tensor
    alpha_bar: Tensor
    time_encodings: Tensor

    def __init__(self, n_features_encoded: int) -> None:
        super().__init__()
        self.first = nn.Linear(n_features_encoded, WIDTH)
        self.embed_time = nn.Sequential(
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
        betas = torch.linspace(MIN_BETA, MAX_BETA, TIMES, dtype=torch.float64)
        self.register_buffer("betas", betas)
        self.register_buffer("alpha_bar", (1 - betas).cumprod(0))
        self.register_buffer("time_encodings", encode_times(TIMES, TIME_WIDTH))

    def predict_noise(self, rows: Tensor, time: Tensor) -> Tensor:
        """Predict the noise in rows; `time` is one embedding for all rows, or one for each."""
        return self.rest(self.first(rows) + time)

    def loss(self, rows: Tensor) -> Tensor:
        """Add noise of random times, and compute the mean squared error of its prediction."""
        times = torch.randint(TIMES, (len(rows),))
        noise = torch.randn_like(rows)
        noisy = self.add_noise(rows, noise, times)
        predicted = self.predict_noise(noisy, self.embed_time(self.time_encodings[times]))
        return (predicted - noise).square().mean()

    def add_noise(self, rows: Tensor, noise: Tensor, times: Tensor) -> Tensor:
        """Shrink each row and add noise; later times have more noise."""
        alpha_bar = self.alpha_bar[times, None]
        signal = alpha_bar.sqrt().to(rows.dtype) * rows
        return signal + (1 - alpha_bar).sqrt().to(rows.dtype) * noise

    def denoise(self, rows: Tensor) -> Tensor:
        """Reverse the diffusion from `START`; each step returns the mean of the earlier rows."""
        times = self.embed_time(self.time_encodings[:START])
        shares = (self.betas / (1 - self.alpha_bar).sqrt()).tolist()
        growths = (1 / (1 - self.betas).sqrt()).tolist()
        for time in reversed(range(START)):
            noise = self.predict_noise(rows, times[time])
            rows = growths[time] * rows.sub(noise, alpha=shares[time])
        return rows

    def forward(self, rows: Tensor) -> Tensor:
        """Return the mean squared change of each row."""
        return (rows - self.denoise(rows)).square().mean(-1)


def encode_times(n_times: int, width: int) -> Tensor:
    """Return the sinusoidal encoding of each time."""
    half = width // 2
    frequencies = torch.exp(-math.log(MAX_PERIOD) / half * torch.arange(half, dtype=torch.float64))
    angles = torch.arange(n_times)[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], 1).float()


@final
class DDPM(Baseline):
    """Denoising diffusion: denoising changes outliers more than inliers.

    A residual network learns to predict the noise that was added to rows. For scoring, a row is
    treated as a noisy row and denoised step by step, without new noise. The score is the mean
    squared change.

    Training ends early, from the 52nd epoch on, when an epoch's loss exceeds that of 39 epochs
    before.

    Parameters
    ----------
    epochs : int, default=400
        Largest number of passes over the rows.
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
    """Return whether the last loss is higher than that of `PATIENCE` epochs before."""
    return len(losses) >= MIN_EPOCHS and losses[-1] > losses[-1 - PATIENCE]
