"""Diffusion time estimation: networks that estimate the amount of noise in a row."""

import abc
from collections.abc import Iterator
from typing import final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from altbi.errors import TableError
from altbi.model._threshold import Contamination
from altbi_bench.baselines.base import Baseline, Linear, Network, Rules, Trainer, is_flag

__all__ = ["DTEC", "DTEIG"]

TIMES = 400
MIN_BETA, MAX_BETA = 1e-4, 1e-2
BINS = 7
WIDTHS = (256, 512, 256)
DROPOUT = 0.5
WEIGHT_DECAY = 5e-4
# Added to a scale, so that its logarithm is finite.
MIN_SCALE = 1e-5


@final
class Dropout(nn.Module):
    """Dropout as in torch, but faster: torch spends more time on it than on the matrix products.

    One random number of 64 bits decides on four values. The number of values must be a multiple of
    four.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share
        # A value is dropped if a random number in [-2**15, 2**15) is below this bound.
        self.bound = round((share - 0.5) * 2**16)

    def forward(self, values: Tensor) -> Tensor:
        """Drop a share of the values in training, and scale the others up."""
        if not self.training:
            return values
        numbers = torch.empty(values.numel() // 4, dtype=torch.int64).random_(-(2**63), None)
        kept = numbers.view(torch.int16).view(values.shape) >= self.bound
        return values * kept.to(values.dtype).div_(1 - self.share)


class NoiseEstimator(Network):
    """A network that estimates the time of noisy rows; later times have more noise."""

    variances: Tensor

    def __init__(self, n_features_encoded: int, n_outputs: int) -> None:
        super().__init__()
        first, second, third = WIDTHS
        self.layers = nn.Sequential(
            Linear(n_features_encoded, first),
            nn.ReLU(),
            Linear(first, second),
            nn.ReLU(),
            Dropout(DROPOUT),
            Linear(second, third),
            nn.ReLU(),
            Dropout(DROPOUT),
            Linear(third, n_outputs),
        )
        betas = torch.linspace(MIN_BETA, MAX_BETA, TIMES, dtype=torch.float64)
        self.register_buffer("variances", (1 - (1 - betas).cumprod(0)).float())

    @abc.abstractmethod
    def compute_output_loss(self, outputs: Tensor, times: Tensor) -> Tensor:
        """Compute the mean loss of the network's outputs for rows with noise of these times."""

    def loss(self, rows: Tensor) -> Tensor:
        """Add noise of random times to rows, and compute the loss of the estimated times."""
        times = torch.randint(TIMES, (len(rows),))
        noise_std = self.variances[times, None].sqrt()
        noisy = torch.addcmul(rows, noise_std, torch.randn_like(rows))
        return self.compute_output_loss(self.layers(noisy), times)


@final
class BinEstimator(NoiseEstimator):
    """Estimate the probability of each bin of times."""

    def __init__(self, n_features_encoded: int, *, softmax_twice: bool) -> None:
        super().__init__(n_features_encoded, BINS)
        self.softmax_twice = softmax_twice

    def compute_output_loss(self, outputs: Tensor, times: Tensor) -> Tensor:
        """Compute the cross-entropy."""
        if self.softmax_twice:
            outputs = outputs.softmax(-1)
        return functional.cross_entropy(outputs, times * BINS // TIMES)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the mean bin."""
        # In single precision, all extreme rows would have the same score.
        shares = self.layers(rows).double().softmax(-1)
        return (shares * torch.arange(BINS)).sum(-1)


@final
class ScaleEstimator(NoiseEstimator):
    """Estimate the square root of the scale of the inverse gamma distribution of the variance."""

    def __init__(self, n_features_encoded: int, *, raw_output: bool) -> None:
        super().__init__(n_features_encoded, 1)
        self.shape = n_features_encoded / 2 - 1
        self.raw_output = raw_output

    def compute_output_loss(self, outputs: Tensor, times: Tensor) -> Tensor:
        """Compute the negative log-likelihood of the variances, without constant terms."""
        scales = outputs[:, 0].square()
        logs = (scales + MIN_SCALE).log()
        return (scales / self.variances[times] - self.shape * logs).mean()

    def forward(self, rows: Tensor) -> Tensor:
        """Return the scale, which is proportional to the most likely variance, or its root."""
        roots = self.layers(rows)[:, 0]
        return roots if self.raw_output else roots.square()


class NoiseEstimation(Baseline):
    """Base class of both estimators: their training."""

    @final
    def _train_network(self, network: NoiseEstimator, rows: Tensor) -> Iterator[float]:
        trainer = Trainer(
            network.parameters(),
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            weight_decay=WEIGHT_DECAY,
        )
        for _ in range(self.epochs):
            yield trainer.epoch(rows, network.loss)


@final
class DTEC(NoiseEstimation):
    """Diffusion time estimation by classification: outliers resemble rows with much noise.

    Noise of a random amount is added to rows, and a network learns to predict the amount, in seven
    bins. The score of a row is its mean bin.

    Parameters
    ----------
    epochs : int, default=400
        Passes over the rows.
    batch_size : int, default=64
        Rows in a batch.
    learning_rate : float, default=0.0001
        Learning rate of Adam.
    softmax_twice : bool, default=False
        Apply softmax twice in the loss, as in the code behind the published numbers. Training then
        learns less from rows with wrong predictions.
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
    Livernoche et al.: On diffusion modeling for anomaly detection. ICLR 2024.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> X[17] = 9.0
    >>> int(DTEC(epochs=20).fit(X).outlier_score(X).argmax())
    17
    """

    def __init__(
        self,
        *,
        epochs: int = 400,
        batch_size: int = 64,
        learning_rate: float = 1e-4,
        softmax_twice: bool = False,
        contamination: Contamination = "auto",
        max_rows: int = 50_000,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.softmax_twice = softmax_twice
        self.contamination = contamination
        self.max_rows = max_rows
        self.random_state = random_state

    def _own_rules(self) -> Rules:
        return {"softmax_twice": (is_flag(self.softmax_twice), "True or False")}

    def _build_network(self, n_features_encoded: int) -> BinEstimator:
        return BinEstimator(n_features_encoded, softmax_twice=self.softmax_twice)


@final
class DTEIG(NoiseEstimation):
    """Diffusion time estimation by an inverse gamma distribution.

    Noise of a random amount is added to rows. Given the row, the variance of the noise nearly has
    an inverse gamma distribution, and a network learns its scale. The score of a row is the scale.

    Parameters
    ----------
    epochs : int, default=400
        Passes over the rows.
    batch_size : int, default=64
        Rows in a batch.
    learning_rate : float, default=0.0001
        Learning rate of Adam.
    raw_output : bool, default=False
        Score by the network's output, whose square is the scale, as in the code behind the
        published numbers. Its sign is arbitrary, so outliers may have the lowest scores.
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
    Livernoche et al.: On diffusion modeling for anomaly detection. ICLR 2024.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 8))
    >>> detector = DTEIG(epochs=60, learning_rate=1e-3).fit(X)
    >>> bool(detector.outlier_score(np.full((1, 8), 9.0)) > np.median(detector.outlier_score(X)))
    True
    """

    def __init__(
        self,
        *,
        epochs: int = 400,
        batch_size: int = 64,
        learning_rate: float = 1e-4,
        raw_output: bool = False,
        contamination: Contamination = "auto",
        max_rows: int = 50_000,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.raw_output = raw_output
        self.contamination = contamination
        self.max_rows = max_rows
        self.random_state = random_state

    def _own_rules(self) -> Rules:
        return {"raw_output": (is_flag(self.raw_output), "True or False")}

    def _build_network(self, n_features_encoded: int) -> ScaleEstimator:
        if n_features_encoded < 3:
            raise TableError(
                f"DTEIG: the table has {n_features_encoded} encoded features, but the inverse "
                "gamma distribution of the noise variance needs at least 3. Use DTEC."
            )
        return ScaleEstimator(n_features_encoded, raw_output=self.raw_output)
