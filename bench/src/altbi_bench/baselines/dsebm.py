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
    """A bowl around one point, lowered by what a network finds in a row."""

    def __init__(self, n_features_encoded: int) -> None:
        super().__init__()
        first, last = WIDTHS
        self.point = nn.Parameter(torch.zeros(n_features_encoded))
        self.first = Linear(n_features_encoded, first)
        self.last = Linear(first, last)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the energy; it is high where rows are rare."""
        found = functional.softplus(self.last(functional.softplus(self.first(rows))))
        return (rows - self.point).square().sum(-1) / 2 - found.sum(-1)

    def reconstruct(self, rows: Tensor) -> Tensor:
        """Go one step down: give the rows minus the energy's gradient there."""
        # The gradient in closed form: to train it, torch need not differentiate twice. The slope
        # of softplus is the sigmoid, and the rows of the bowl cancel those they are taken from.
        first = self.first(rows)
        last = self.last(functional.softplus(first))
        slope = (last.sigmoid() @ self.last.weight) * first.sigmoid()
        return torch.addmm(self.point, slope, self.first.weight)


@final
class DSEBM(Baseline):
    """Deep structured energy-based model: outliers have a high energy.

    The energy of a row is half its squared distance to a point minus the outputs of a network. It
    is trained by score matching: noise is added to a row, and one step down the energy is to remove
    it. So the energy gets low where rows are, and its slope points to them.

    Two layers of 128, epochs and batches are our choice: the loss of rows that were held out still
    falls after so many epochs. The score is the energy.

    Parameters
    ----------
    epochs : int, default=100
        Passes over the rows.
    batch_size : int, default=128
        Rows in a batch.
    learning_rate : float, default=0.001
        Learning rate of Adam.
    noise : float, default=1.0
        Deviation of the noise, in deviations of a column. At 1 the energy estimates minus the
        log-density of noisy rows; with less noise it is flatter and shows finer details.
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
