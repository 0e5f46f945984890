"""DSEBM: an energy learned by removing noise from rows."""

from collections.abc import Iterator
from typing import final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from altbi._parameters import is_number
from altbi.model._threshold import Contamination
from altbi_bench.baselines.base import Baseline, Linear, Network, Rules, Trainer

__all__ = ["DSEBM"]

WIDTHS = (128, 128)


@final
class Energy(Network):
    """Half the squared distance to a point, minus the sum of a network's outputs."""

    def __init__(self, n_features_encoded: int) -> None:
        super().__init__()
        first, last = WIDTHS
        self.point = nn.Parameter(torch.zeros(n_features_encoded))
        self.first = Linear(n_features_encoded, first)
        self.last = Linear(first, last)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the energy; it is high where rows are rare."""
        outputs = functional.softplus(self.last(functional.softplus(self.first(rows))))
        return (rows - self.point).square().sum(-1) / 2 - outputs.sum(-1)

    def reconstruct(self, rows: Tensor) -> Tensor:
        """Return the rows minus the gradient of their energy."""
        # The gradient in closed form, so that torch does not differentiate twice. The derivative of
        # softplus is the sigmoid. The gradient of the distance term is ``rows - point``.
        first = self.first(rows)
        last = self.last(functional.softplus(first))
        grad_hidden = (last.sigmoid() @ self.last.weight) * first.sigmoid()
        return torch.addmm(self.point, grad_hidden, self.first.weight)


@final
class DSEBM(Baseline):
    """Deep structured energy-based model: outliers have a high energy.

    The energy of a row is half its squared distance to a point minus the outputs of a network. It
    is trained by score matching: noise is added to a row, and one gradient step on the energy
    should remove it. The energy is then low where rows are dense. The score is the energy.

    Layer sizes, epochs and batch size are our choice. The loss of held-out rows still decreases
    after this number of epochs.

    Parameters
    ----------
    epochs : int, default=100
        Passes over the rows.
    batch_size : int, default=128
        Rows in a batch.
    learning_rate : float, default=0.001
        Learning rate of Adam.
    noise : float, default=1.0
        Standard deviation of the noise, relative to that of a column. At 1 the energy estimates the
        negative log-density of noisy rows. With less noise it is flatter and has finer details.
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
    Zhai et al.: Deep structured energy based models for anomaly detection. ICML 2016.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> X[17] = 9.0
    >>> int(DSEBM(epochs=20).fit(X).outlier_score(X).argmax())
    17
    """

    def __init__(
        self,
        *,
        epochs: int = 100,
        batch_size: int = 128,
        learning_rate: float = 1e-3,
        noise: float = 1.0,
        contamination: Contamination = "auto",
        max_rows: int = 50_000,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.noise = noise
        self.contamination = contamination
        self.max_rows = max_rows
        self.random_state = random_state

    def _own_rules(self) -> Rules:
        is_positive = is_number(self.noise, 0) and self.noise > 0
        return {"noise": (is_positive, "a number above 0")}

    def _build_network(self, n_features_encoded: int) -> Energy:
        return Energy(n_features_encoded)

    def _train_network(self, network: Energy, rows: Tensor) -> Iterator[float]:
        trainer = Trainer(
            network.parameters(), learning_rate=self.learning_rate, batch_size=self.batch_size
        )

        def loss(batch: Tensor) -> Tensor:
            noisy = batch + self.noise * torch.randn_like(batch)
            return (network.reconstruct(noisy) - batch).square().sum(1).mean()

        for _ in range(self.epochs):
            yield trainer.epoch(rows, loss)
