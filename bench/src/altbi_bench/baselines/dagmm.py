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
# Deviation of the first weights and biases.
FIRST_WEIGHTS = 0.02
# Weights of the energy and of the inverse variances beside the error of reconstruction.
OF_ENERGY, OF_VARIANCES = 0.1, 0.005
LONGEST_GRADIENT = 5.0
# Added to the variances: codes that all lie in one plane have a density too.
LEAST_VARIANCE = 1e-6
# A row in the middle of the table has no length that an error could be compared with.
LEAST_LENGTH = 1e-3
# A component that no row belongs to still has a logarithm.
LEAST_WEIGHT = 1e-12

Moments = tuple[Tensor, Tensor, Tensor]


class Mixture(Network):
    """An autoencoder, the soft assignment of its codes to Gaussians, and these Gaussians."""

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
            nn.init.normal_(parameter, std=FIRST_WEIGHTS)
        # Twice the usual precision: the matrices are tiny, and may be close to singular.
        self.register_buffer("weight", torch.full((COMPONENTS,), 1 / COMPONENTS).double())
        self.register_buffer("mean", torch.zeros(COMPONENTS, size).double())
        self.register_buffer("covariance", torch.eye(size).double().repeat(COMPONENTS, 1, 1))

    def codes(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the reconstructed rows, their codes with two errors, and their assignments."""
        code = self.encoder(rows)
        rebuilt = self.decoder(code)
        whole = torch.cat([code, errors(rows, rebuilt)], dim=-1)
        return rebuilt, whole.double(), self.estimator(whole).double()

    def forward(self, rows: Tensor) -> Tensor:
        """Return the energy: the negative log-density of a row's code."""
        return energy(self.codes(rows)[1], (self.weight, self.mean, self.covariance))

    @torch.no_grad()
    def settle(self, rows: Tensor) -> None:
        """Store the moments of all rows' codes, which are used for scoring."""
        self.eval()
        parts = [self.codes(block)[1:] for block in torch.split(rows, self.block_rows)]
        codes, shares = (torch.cat(part) for part in zip(*parts, strict=True))
        self.weight, self.mean, self.covariance = moments(codes, shares)


def tanh_layers(widths: tuple[int, ...]) -> nn.Sequential:
    """Return linear layers with tanh between them."""
    layers: list[nn.Module] = []
    for n_inputs, n_outputs in pairwise(widths):
        layers += [Linear(n_inputs, n_outputs), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def errors(rows: Tensor, rebuilt: Tensor) -> Tensor:
    """Return the relative error of the reconstructed rows, and their cosine with the rows."""
    length = torch.linalg.vector_norm(rows, dim=-1).clamp(min=LEAST_LENGTH)
    rebuilt_length = torch.linalg.vector_norm(rebuilt, dim=-1).clamp(min=LEAST_LENGTH)
    distance = torch.linalg.vector_norm(rows - rebuilt, dim=-1)
    cosine = (rows * rebuilt).sum(-1) / (length * rebuilt_length)
    return torch.stack([distance / length, cosine], dim=-1)


def moments(codes: Tensor, shares: Tensor) -> Moments:
    """Compute each component's weight, mean and covariance, for soft assignments of the codes."""
    total = shares.sum(0).clamp(min=LEAST_WEIGHT)
    mean = shares.T @ codes / total[:, None]
    apart = codes - mean[:, None]
    covariance = (shares.T[:, :, None] * apart).mT @ apart / total[:, None, None]
    floor = LEAST_VARIANCE * torch.eye(codes.shape[1], dtype=codes.dtype)
    return total / len(codes), mean, covariance + floor


def energy(codes: Tensor, mixture: Moments) -> Tensor:
    """Compute the negative log-density of codes under a mixture of Gaussians."""
    weight, mean, covariance = mixture
    root = torch.linalg.cholesky(covariance)
    unit = torch.eye(codes.shape[1], dtype=codes.dtype)
    inverse = torch.linalg.solve_triangular(root, unit, upper=False)
    # Cell by cell: a matrix product might take its sums in another order for another row.
    scaled = (inverse * (codes[:, None] - mean)[:, :, None]).sum(-1)
    log_determinant = 2 * root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    constant = log_determinant + codes.shape[1] * math.log(2 * math.pi)
    log_density = -(scaled.square().sum(-1) + constant) / 2
    return -(weight.log() + log_density).logsumexp(-1)


@final
class DAGMM(Baseline):
    """Deep autoencoding Gaussian mixture: outliers have codes of low density.

    An autoencoder brings a row down to one number, beside which its relative error and its cosine
    with the rebuilt row are put. A second network assigns these codes softly to four Gaussians.
    Both are trained together, to rebuild the rows and to give their codes a high density.

    Parameters
    ----------
    epochs : int, default=200
        Passes over the rows.
    batch_size : int, default=256
        Rows in a batch; a smaller one at the end is left out.
    learning_rate : float, default=0.0001
        Learning rate of Adam.
    untrained : bool, default=False
        Keep the network's first weights, and learn the Gaussians alone, as in the code behind the
        published numbers, where no gradient reaches the weights.
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
    takes the root of the determinant twice. Both are put right here, trained or not.

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
        network.settle(rows)

    def _epochs(self, network: Mixture, rows: Tensor) -> Iterator[float]:
        trainer = Trainer(
            network.parameters(),
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            drop_last=True,
            max_norm=LONGEST_GRADIENT,
        )

        def loss(batch: Tensor) -> Tensor:
            rebuilt, codes, shares = network.codes(batch)
            mixture = moments(codes, shares)
            # A component that shrinks to a point would have a density without bounds.
            inverse_variances = mixture[2].diagonal(dim1=-2, dim2=-1).reciprocal().sum()
            error = (batch - rebuilt).square().mean()
            density = OF_ENERGY * energy(codes, mixture).mean()
            return error + density + OF_VARIANCES * inverse_variances

        for _ in range(self.epochs):
            yield trainer.epoch(rows, loss)
