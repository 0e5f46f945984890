"""DROCC: a classifier that separates rows from generated points around them."""

import math
from collections.abc import Iterator
from typing import Literal, final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from altbi._parameters import is_count, is_number
from altbi.model._threshold import Contamination
from altbi_bench.baselines.base import Baseline, Linear, Network, Rules, Trainer

__all__ = ["DROCC"]

WIDTH = 128
# Generated points lie between the radius and this multiple of it from their row.
OUTER_FACTOR = 2.0
# Points are projected to the ring after this number of steps.
STEPS_PER_PROJECTION = 10
# Smallest norm that is divided by. Where all hidden units are 0, the gradient is 0 too.
MIN_NORM = 1e-12
# The learning rate is divided by 10 after these shares of the epochs after the warm-up.
MILESTONES = (0.3, 0.6, 0.9)


class Classifier(Network):
    """A classifier with one hidden layer that returns the logit of a row of the table."""

    def __init__(self, n_features_encoded: int) -> None:
        super().__init__()
        self.hidden = Linear(n_features_encoded, WIDTH)
        self.last = Linear(WIDTH, 1)

    def logit(self, rows: Tensor) -> Tensor:
        """Return ``(n_rows,)`` logits; high means a row of the table."""
        return self.last(self.hidden(rows).relu())[:, 0]

    def forward(self, rows: Tensor) -> Tensor:
        """Return the negative logit."""
        return -self.logit(rows)

    @torch.no_grad()
    def ascend(self, points: Tensor, steps: int, rate: float) -> Tensor:
        """Return how far points move by gradient ascent on the logit, in steps of length `rate`.

        The gradient is a weighted sum of the rows of the hidden layer's weights. Its effect on the
        hidden units follows from the products of these rows. So steps are computed in hidden units,
        and only their sum is computed in features, of which there may be many more.
        """
        weights, output_weights = self.hidden.weight, self.last.weight
        products = weights @ weights.T
        units = self.hidden(points)
        path = torch.zeros_like(units)
        for _ in range(steps):
            # Weights of the active units; a comparison would take four times as long.
            coefficients = units.sign().clamp_(min=0).mul_(output_weights)
            change = coefficients @ products
            norm = (coefficients * change).sum(1, keepdim=True).clamp(min=MIN_NORM**2).sqrt()
            path.addcdiv_(coefficients, norm, value=rate)
            units.addcdiv_(change, norm, value=rate)
        return path @ weights


def project_to_ring(offsets: Tensor, radius: float) -> Tensor:
    """Scale offsets to the nearest length inside the ring around their rows."""
    length = torch.linalg.vector_norm(offsets, dim=1, keepdim=True)
    wanted = length.clamp(radius, OUTER_FACTOR * radius)
    return offsets * (wanted / length.clamp(min=MIN_NORM))


@final
class DROCC(Baseline):
    """Deep robust one-class classification: outliers resemble points generated around rows.

    A small network is trained to separate the rows from points in a ring around each row. The
    points are generated for each batch: they start at random and follow the gradient towards
    points that the network classifies as rows. The network learns a tight region around the rows.

    Parameters
    ----------
    epochs : int, default=200
        Passes over the rows, including the warm-up.
    batch_size : int, default=256
        Rows in a batch; a smaller one at the end is left out.
    learning_rate : float, default=0.0001
        Learning rate of Adam; after the warm-up it is divided by 10 three times.
    warm_up : int, default=50
        First passes, without generated points.
    radius : float or "auto", default=3.0
        Inner radius of the ring, in standard deviations of the columns; the outer radius is twice
        as large. "auto" is ``sqrt(n_features_encoded) / 2``.
    ascent_steps : int, default=50
        Steps of gradient ascent of generated points.
    ascent_rate : float, default=0.001
        Length of a step.
    contamination : float in (0, 0.5] or "auto", default='auto'
        Share of outliers that sets the threshold; "auto" estimates it from the scores.
    max_rows : int, default=50000
        Rows in the training sample, drawn uniformly from larger tables.
    random_state : int, RandomState or None, default=0
        Seed of sample, weights, batches and generated points.

    Attributes
    ----------
    offset_ : float
        Threshold: rows with ``score_samples`` below it are outliers.
    history_ : list of float
        Mean loss of each epoch.

    Notes
    -----
    Several published numbers are those of equal scores for all rows. The likely cause is a division
    by the norm of a zero gradient. Here, points with a zero gradient do not move.

    References
    ----------
    Goyal et al.: DROCC: Deep robust one-class classification. ICML 2020.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> X[17] = 9.0
    >>> detector = DROCC(epochs=60, warm_up=5, learning_rate=0.01).fit(X)
    >>> int(detector.outlier_score(X).argmax())
    17
    """

    def __init__(
        self,
        *,
        epochs: int = 200,
        batch_size: int = 256,
        learning_rate: float = 1e-4,
        warm_up: int = 50,
        radius: float | Literal["auto"] = 3.0,
        ascent_steps: int = 50,
        ascent_rate: float = 1e-3,
        contamination: Contamination = "auto",
        max_rows: int = 50_000,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.warm_up = warm_up
        self.radius = radius
        self.ascent_steps = ascent_steps
        self.ascent_rate = ascent_rate
        self.contamination = contamination
        self.max_rows = max_rows
        self.random_state = random_state

    def _own_rules(self) -> Rules:
        rate = self.ascent_rate
        return {
            "warm_up": (is_count(self.warm_up, 0), "a whole number of at least 0"),
            "radius": (_is_radius(self.radius), "'auto' or a number above 0, at most a million"),
            "ascent_steps": (is_count(self.ascent_steps), "a whole number of at least 1"),
            "ascent_rate": (is_number(rate, 0) and rate > 0, "a number above 0"),
        }

    def _build_network(self, n_features_encoded: int) -> Classifier:
        return Classifier(n_features_encoded)

    def _train_network(self, network: Classifier, rows: Tensor) -> Iterator[float]:
        trainer = Trainer(
            network.parameters(),
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            drop_last=True,
        )

        def plain_loss(batch: Tensor) -> Tensor:
            return functional.softplus(-network.logit(batch)).mean()

        def loss(batch: Tensor) -> Tensor:
            negatives = self._generate_negatives(network, batch)
            return plain_loss(batch) + functional.softplus(network.logit(negatives)).mean()

        for epoch in range(self.epochs):
            trainer.adam.learning_rate = self._rate_at(epoch)
            yield trainer.epoch(rows, plain_loss if epoch < self.warm_up else loss)

    def _rate_at(self, epoch: int) -> float:
        """Return the learning rate of an epoch."""
        done, planned = epoch - self.warm_up, self.epochs - self.warm_up
        return self.learning_rate * 0.1 ** sum(
            done > round(share * planned) for share in MILESTONES
        )

    def _generate_negatives(self, network: Classifier, batch: Tensor) -> Tensor:
        """Return a point in the ring around each row that the network classifies as a row."""
        radius = math.sqrt(batch.shape[1]) / 2 if self.radius == "auto" else self.radius
        offsets = torch.randn_like(batch)
        for done in range(0, self.ascent_steps, STEPS_PER_PROJECTION):
            steps = min(STEPS_PER_PROJECTION, self.ascent_steps - done)
            moves = network.ascend(batch + offsets, steps, self.ascent_rate)
            offsets = project_to_ring(offsets + moves, radius)
        return batch + offsets


def _is_radius(value: object) -> bool:
    if isinstance(value, str):
        return value == "auto"
    return is_number(value, 0, 1e6) and value != 0
