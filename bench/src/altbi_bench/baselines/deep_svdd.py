"""DeepSVDD: a network that maps the rows close to one point."""

from collections.abc import Iterator
from typing import final

import numpy as np
import torch
from torch import Tensor

from altbi._parameters import is_number
from altbi.model._threshold import Contamination
from altbi_bench.baselines.base import Baseline, Linear, Network, Rules, Trainer, is_flag

__all__ = ["DeepSVDD", "move_from_zero"]

WIDTHS = (64, 32)
# Smallest coordinate of the centre. Weights of 0 would map all rows to a centre of 0.
MIN_COORDINATE = 0.1
# Weight of the penalty on the mean squared outputs of both layers.
ACTIVITY_WEIGHT = 0.1


class Sphere(Network):
    """A network without biases, and the centre to which it maps rows."""

    centre: Tensor

    def __init__(self, n_features_encoded: int) -> None:
        super().__init__()
        first, last = WIDTHS
        self.first = Linear(n_features_encoded, first, bias=False)
        self.last = Linear(first, last, bias=False)
        self.register_buffer("centre", torch.zeros(last))

    def layers(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs of both layers."""
        first = self.first(rows).relu()
        return first, self.last(first).relu()

    def forward(self, rows: Tensor) -> Tensor:
        """Return the squared distance to the centre."""
        return (self.layers(rows)[1] - self.centre).square().sum(-1)


def move_from_zero(centre: Tensor) -> Tensor:
    """Return a centre without coordinates that are too small."""
    away = torch.where(centre < 0, -MIN_COORDINATE, MIN_COORDINATE)
    return torch.where(centre.abs() < MIN_COORDINATE, away, centre)


@final
class DeepSVDD(Baseline):
    """Deep support vector data description: outliers are mapped far from a centre.

    A small network without biases is trained to map all rows close to one point, the mean of its
    outputs before training. Outliers stay far from this point.

    Parameters
    ----------
    epochs : int, default=100
        Passes over the rows.
    batch_size : int, default=32
        Rows in a batch.
    learning_rate : float, default=0.001
        Learning rate of Adam.
    held_out : float, default=0.1
        Share of the rows that is not used for training, as in the code behind the published
        numbers. These rows are sampled.
    foreign_centre : bool, default=False
        Compute the centre with another, untrained network, as in that code.
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
        Mean loss of each epoch.

    References
    ----------
    Ruff et al.: Deep one-class classification. ICML 2018.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> X[17] = 9.0
    >>> int(DeepSVDD(epochs=20).fit(X).outlier_score(X).argmax())
    17
    """

    def __init__(
        self,
        *,
        epochs: int = 100,
        batch_size: int = 32,
        learning_rate: float = 1e-3,
        held_out: float = 0.1,
        foreign_centre: bool = False,
        contamination: Contamination = "auto",
        max_rows: int = 50_000,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.held_out = held_out
        self.foreign_centre = foreign_centre
        self.contamination = contamination
        self.max_rows = max_rows
        self.random_state = random_state

    def _build_network(self, n_features_encoded: int) -> Sphere:
        return Sphere(n_features_encoded)

    def _own_rules(self) -> Rules:
        return {
            "held_out": (is_number(self.held_out, 0, 0.9), "a share from 0 to 0.9"),
            "foreign_centre": (is_flag(self.foreign_centre), "True or False"),
        }

    def _train_network(self, network: Sphere, rows: Tensor) -> Iterator[float]:
        with torch.no_grad():
            other = Sphere(rows.shape[1]) if self.foreign_centre else network
            network.centre.copy_(move_from_zero(other.layers(rows)[1].mean(0)))
        # Sampled: the last rows of a table may all be outliers.
        rows = rows[torch.randperm(len(rows))][: max(round((1 - self.held_out) * len(rows)), 2)]
        trainer = Trainer(
            network.parameters(), learning_rate=self.learning_rate, batch_size=self.batch_size
        )

        def loss(batch: Tensor) -> Tensor:
            first, last = network.layers(batch)
            activity = first.square().sum(1).mean() + last.square().sum(1).mean()
            return (last - network.centre).square().sum(1).mean() + ACTIVITY_WEIGHT * activity

        for _ in range(self.epochs):
            yield trainer.epoch(rows, loss)
