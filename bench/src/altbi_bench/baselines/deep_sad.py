"""DeepSAD: DeepSVDD with labels of some rows."""

from collections.abc import Iterator
from typing import Any, Self, final

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from altbi._parameters import is_count, is_number
from altbi.model._labels import OUTLIER, UNKNOWN, Labels
from altbi.model._threshold import Contamination
from altbi_bench.baselines.base import Baseline, Linear, Network, Rules, Trainer
from altbi_bench.baselines.deep_svdd import move_from_zero

__all__ = ["DeepSAD"]

WIDTHS = (100, 50, 128)
# Smallest distance that is divided by.
MIN_DISTANCE = 1e-6
# Larger weights are refused as mistakes.
MAX_WEIGHT = 1000


class PretrainedSphere(Network):
    """An encoder without biases, its decoder, and the centre of normal rows."""

    centre: Tensor

    def __init__(self, n_features_encoded: int) -> None:
        super().__init__()
        first, second, last = WIDTHS
        self.encoder = _layers(n_features_encoded, first, second, last)
        self.decoder = _layers(last, second, first, n_features_encoded)
        self.register_buffer("centre", torch.zeros(last))

    def forward(self, rows: Tensor) -> Tensor:
        """Return the squared distance to the centre."""
        return (self.encoder(rows) - self.centre).square().sum(-1)

    def reconstruction_loss(self, rows: Tensor) -> Tensor:
        """Compute the mean squared reconstruction error."""
        return (self.decoder(self.encoder(rows)) - rows).square().sum(1).mean()


def _layers(*widths: int) -> nn.Sequential:
    first, second, third, last = widths
    return nn.Sequential(
        Linear(first, second, bias=False),
        nn.ReLU(),
        Linear(second, third, bias=False),
        nn.ReLU(),
        Linear(third, last, bias=False),
    )


@final
class DeepSAD(Baseline):
    """Deep semi-supervised anomaly detection: known outliers are pushed from the centre.

    An autoencoder is trained first. The centre is the mean of its encoder's outputs. Then the
    encoder is trained to map labelled outliers far from the centre, and all other rows close to
    it. The autoencoder and the centre do not use labelled outliers. Without labels, the method is
    DeepSVDD after this pretraining. Layer sizes and learning rates are those of the library DeepOD.

    Parameters
    ----------
    epochs : int, default=100
        Passes over the rows after pretraining.
    batch_size : int, default=64
        Rows in a batch.
    learning_rate : float, default=0.001
        Learning rate of Adam.
    first_epochs : int, default=50
        Passes over the rows to pretrain the autoencoder.
    eta : float, default=1.0
        Weight of a labelled row; unlabelled rows have weight 1.
    weight_decay : float, default=1e-06
        Weight decay of Adam.
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
        Mean loss of each epoch, including pretraining.

    References
    ----------
    Ruff et al.: Deep semi-supervised anomaly detection. ICLR 2020.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> X[:10] += 6.0
    >>> known = np.arange(200) < 5
    >>> detector = DeepSAD(epochs=20, first_epochs=5).fit(X, known_outlier=known)
    >>> bool(detector.outlier_score(X)[5:10].min() > np.median(detector.outlier_score(X)))
    True
    """

    def __init__(
        self,
        *,
        epochs: int = 100,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        first_epochs: int = 50,
        eta: float = 1.0,
        weight_decay: float = 1e-6,
        contamination: Contamination = "auto",
        max_rows: int = 50_000,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.first_epochs = first_epochs
        self.eta = eta
        self.weight_decay = weight_decay
        self.contamination = contamination
        self.max_rows = max_rows
        self.random_state = random_state

    def fit(
        self,
        X: Any,  # noqa: ANN401 - any table
        y: object = None,
        *,
        known_inlier: ArrayLike | None = None,
        known_outlier: ArrayLike | None = None,
    ) -> Self:
        """Fit the detector on an array, with labels of some rows; `y` is not used."""
        self._fit(X, known_inlier, known_outlier)
        return self

    def _build_network(self, n_features_encoded: int) -> PretrainedSphere:
        return PretrainedSphere(n_features_encoded)

    def _train_network(self, network: PretrainedSphere, rows: Tensor) -> Iterator[float]:
        return self._train_with_labels(network, rows, None)

    def _train_with_labels(
        self, network: PretrainedSphere, rows: Tensor, labels: Labels | None
    ) -> Iterator[float]:
        known = torch.zeros(len(rows)) if labels is None else torch.from_numpy(labels).float()
        first = self._trainer(network)
        for _ in range(self.first_epochs):
            yield first.epoch(rows[known != OUTLIER], network.reconstruction_loss)
        with torch.no_grad():
            network.centre.copy_(move_from_zero(network.encoder(rows[known != OUTLIER]).mean(0)))
        second, labelled = self._trainer(network.encoder), torch.hstack([rows, known[:, None]])
        for _ in range(self.epochs):
            yield second.epoch(labelled, lambda batch: self._loss(network, batch))

    def _loss(self, network: PretrainedSphere, labelled: Tensor) -> Tensor:
        """Average the distances; for labelled outliers, their inverses."""
        distances, known = network(labelled[:, :-1]), labelled[:, -1]
        is_outlier = known == OUTLIER
        losses = torch.where(is_outlier, 1 / distances.clamp(min=MIN_DISTANCE), distances)
        return torch.where(known == UNKNOWN, losses, self.eta * losses).mean()

    def _trainer(self, network: nn.Module) -> Trainer:
        return Trainer(
            network.parameters(),
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            weight_decay=self.weight_decay,
        )

    def _own_rules(self) -> Rules:
        return {
            "first_epochs": (is_count(self.first_epochs, 0), "a whole number of at least 0"),
            "eta": (is_number(self.eta, 0, MAX_WEIGHT), f"a number from 0 to {MAX_WEIGHT:,}"),
            "weight_decay": (
                is_number(self.weight_decay, 0, MAX_WEIGHT),
                f"a number from 0 to {MAX_WEIGHT:,}",
            ),
        }
