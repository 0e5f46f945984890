"""DAGMM: an autoencoder and a mixture of Gaussians over its codes, trained together."""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from altbi.model._threshold import Contamination
from altbi_bench.baselines.base import Baseline, Linear, Network, Rules, Trainer, is_flag

__all__ = ["DAGMM"]

WIDTHS = (60, 30, 10, 1)
ESTIMATOR_WIDTH = 10
COMPONENTS = 4
DROPOUT = 0.5
# Standard deviation of the initial weights and biases.
INITIAL_STD = 0.02
# Weights of the energy and of the inverse variances in the loss; the reconstruction error has 1.
ENERGY_WEIGHT, INVERSE_VARIANCE_WEIGHT = 0.1, 0.005
MAX_GRADIENT_NORM = 5.0
# Added to the variances, so that codes in one plane have a density.
MIN_VARIANCE = 1e-6
# Smallest norm that an error is divided by; a row at the mean has norm 0.
MIN_LENGTH = 1e-3
# Smallest weight of a component, so that its logarithm is finite.
MIN_WEIGHT = 1e-12

Moments = tuple[Tensor, Tensor, Tensor]


class Mixture(Network):
    """An autoencoder, soft assignments of its codes to Gaussians, and the Gaussians."""

    weight: Tensor
    mean: Tensor
    covariance: Tensor

    def __init__(self, n_features_encoded: int) -> None:
        super().__init__()
        size = WIDTHS[-1] + 2
        self.encoder = tanh_layers((n_features_encoded, *WIDTHS))
        self.decoder = tanh_layers((*WIDTHS[::-1], n_features_encoded))
        self.estimator = nn.Sequential(
            Linear(size, ESTIMATOR_WIDTH),
            nn.Tanh(),
            nn.Dropout(DROPOUT),
            Linear(ESTIMATOR_WIDTH, COMPONENTS),
            nn.Softmax(dim=-1),
        )
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=INITIAL_STD)
        # In double precision: the matrices are small and may be close to singular.
        self.register_buffer("weight", torch.full((COMPONENTS,), 1 / COMPONENTS).double())
        self.register_buffer("mean", torch.zeros(COMPONENTS, size).double())
        self.register_buffer("covariance", torch.eye(size).double().repeat(COMPONENTS, 1, 1))

    def codes(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the reconstructed rows, their codes with two errors, and their assignments."""
        code = self.encoder(rows)
        rebuilt = self.decoder(code)
        extended = torch.cat([code, errors(rows, rebuilt)], dim=-1)
        return rebuilt, extended.double(), self.estimator(extended).double()

    def forward(self, rows: Tensor) -> Tensor:
        """Return the energy: the negative log-density of a row's code."""
        return energy(self.codes(rows)[1], (self.weight, self.mean, self.covariance))

    @torch.no_grad()
    def store_moments(self, rows: Tensor) -> None:
        """Store the moments of the codes of all rows, which scoring uses."""
        self.eval()
        blocks = [self.codes(block)[1:] for block in torch.split(rows, self.block_rows)]
        codes, shares = (torch.cat(each) for each in zip(*blocks, strict=True))
        self.weight, self.mean, self.covariance = moments(codes, shares)


def tanh_layers(widths: tuple[int, ...]) -> nn.Sequential:
    """Return linear layers with tanh between them."""
    layers: list[nn.Module] = []
    for n_inputs, n_outputs in pairwise(widths):
        layers += [Linear(n_inputs, n_outputs), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def errors(rows: Tensor, rebuilt: Tensor) -> Tensor:
    """Return the relative error of the reconstructed rows, and their cosine with the rows."""
    length = torch.linalg.vector_norm(rows, dim=-1).clamp(min=MIN_LENGTH)
    rebuilt_length = torch.linalg.vector_norm(rebuilt, dim=-1).clamp(min=MIN_LENGTH)
    distance = torch.linalg.vector_norm(rows - rebuilt, dim=-1)
    cosine = (rows * rebuilt).sum(-1) / (length * rebuilt_length)
    return torch.stack([distance / length, cosine], dim=-1)


def moments(codes: Tensor, shares: Tensor) -> Moments:
    """Compute each component's weight, mean and covariance, for soft assignments of the codes."""
    total = shares.sum(0).clamp(min=MIN_WEIGHT)
    mean = shares.T @ codes / total[:, None]
    centred = codes - mean[:, None]
    covariance = (shares.T[:, :, None] * centred).mT @ centred / total[:, None, None]
    floor = MIN_VARIANCE * torch.eye(codes.shape[1], dtype=codes.dtype)
    return total / len(codes), mean, covariance + floor


def energy(codes: Tensor, mixture: Moments) -> Tensor:
    """Compute the negative log-density of codes under a mixture of Gaussians."""
    weight, mean, covariance = mixture
    root = torch.linalg.cholesky(covariance)
    unit = torch.eye(codes.shape[1], dtype=codes.dtype)
    inverse = torch.linalg.solve_triangular(root, unit, upper=False)
    # Elementwise: a matrix product may sum in another order for another row.
    scaled = (inverse * (codes[:, None] - mean)[:, :, None]).sum(-1)
    log_determinant = 2 * root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    constant = log_determinant + codes.shape[1] * math.log(2 * math.pi)
    log_density = -(scaled.square().sum(-1) + constant) / 2
    return -(weight.log() + log_density).logsumexp(-1)


@final
class DAGMM(Baseline):
    """Deep autoencoding Gaussian mixture: outliers have codes of low density.

    An autoencoder maps a row to one number. The code of a row is this number, the relative error of
    the reconstruction, and its cosine with the row. A second network assigns codes softly to four
    Gaussians. Both networks minimise the reconstruction error and maximise the density of codes.

    Parameters
    ----------
    epochs : int, default=200
        Passes over the rows.
    batch_size : int, default=256
        Rows in a batch; a smaller one at the end is left out.
    learning_rate : float, default=0.0001
        Learning rate of Adam.
    untrained : bool, default=False
        Keep the initial weights and fit only the Gaussians. In the code behind the published
        numbers, no gradient reaches the weights.
    contamination : float in (0, 0.5] or "auto", default='auto'
        Share of outliers that sets the threshold; "auto" estimates it from the scores.
    max_rows : int, default=50000
        Rows in the training sample, drawn uniformly from larger tables.
    random_state : int, RandomState or None, default=0
        Seed of sample, weights and batches.

    Attributes
    ----------
    offset_ : float
        Threshold: rows with ``score_samples`` below it are outliers.
    history_ : list of float
        Mean loss of each epoch; empty if untrained.

    Notes
    -----
    The code behind the published numbers also scores with dropout, so that scores are random, and
    takes the root of the determinant twice. Both errors are corrected here.

    References
    ----------
    Zong et al.: Deep autoencoding Gaussian mixture model for unsupervised anomaly detection.
    ICLR 2018.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.choice([-1, 1], size=(200, 1)) + 0.1 * rng.normal(size=(200, 4))
    >>> X[17] = [1, -1, 1, -1]
    >>> detector = DAGMM(epochs=40, batch_size=64, learning_rate=0.01).fit(X)
    >>> int(detector.outlier_score(X).argmax())
    17
    """

    def __init__(
        self,
        *,
        epochs: int = 200,
        batch_size: int = 256,
        learning_rate: float = 1e-4,
        untrained: bool = False,
        contamination: Contamination = "auto",
        max_rows: int = 50_000,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.untrained = untrained
        self.contamination = contamination
        self.max_rows = max_rows
        self.random_state = random_state

    def _own_rules(self) -> Rules:
        return {"untrained": (is_flag(self.untrained), "True or False")}

    def _build_network(self, n_features_encoded: int) -> Mixture:
        return Mixture(n_features_encoded)

    def _train_network(self, network: Mixture, rows: Tensor) -> Iterator[float]:
        if not self.untrained:
            yield from self._epochs(network, rows)
        network.store_moments(rows)

    def _epochs(self, network: Mixture, rows: Tensor) -> Iterator[float]:
        trainer = Trainer(
            network.parameters(),
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            drop_last=True,
            max_norm=MAX_GRADIENT_NORM,
        )

        def loss(batch: Tensor) -> Tensor:
            rebuilt, codes, shares = network.codes(batch)
            mixture = moments(codes, shares)
            # Otherwise a component could shrink to a point, with unbounded density.
            inverse_variances = mixture[2].diagonal(dim1=-2, dim2=-1).reciprocal().sum()
            error = (batch - rebuilt).square().mean()
            density = ENERGY_WEIGHT * energy(codes, mixture).mean()
            return error + density + INVERSE_VARIANCE_WEIGHT * inverse_variances

        for _ in range(self.epochs):
            yield trainer.epoch(rows, loss)
