"""DROCC: a classifier that tells the rows from points which it makes up around them."""

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
# Made-up points lie between the radius and so many times the radius from their row.
OUTER = 2.0
# They are brought back there after so many steps.
STEPS_OF_A_ROUND = 10
# A point where all hidden units are off has no way up: it stays, and divides by no zero.
LEAST_SLOPE = 1e-12
# The learning rate falls tenfold each time when these shares of the epochs after warm-up are over.
FALLS = (0.3, 0.6, 0.9)


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
    def climb(self, points: Tensor, steps: int, rate: float) -> Tensor:
        """Say how far points move that go up the logit, by steps of the same length.

        A step goes along a sum of the hidden layer's weights. What it does to the hidden units
        follows from the products of these weights alone: only the whole move is computed in the
        columns, of which there may be many more.
        """
        weights, upward = self.hidden.weight, self.last.weight
        products = weights @ weights.T
        units = self.hidden(points)
        path = torch.zeros_like(units)
        for _ in range(steps):
            # Weights of the units that are on; a comparison would take four times as long.
            slope = units.sign().clamp_(min=0).mul_(upward)
            lift = slope @ products
            steepness = (slope * lift).sum(1, keepdim=True).clamp(min=LEAST_SLOPE**2).sqrt()
            path.addcdiv_(slope, steepness, value=rate)
            units.addcdiv_(lift, steepness, value=rate)
        return path @ weights


def into_ring(offsets: Tensor, radius: float) -> Tensor:
    """Lengthen or shorten offsets until they reach the ring around their rows."""
    length = torch.linalg.vector_norm(offsets, dim=1, keepdim=True)
    wanted = length.clamp(radius, OUTER * radius)
    return offsets * (wanted / length.clamp(min=LEAST_SLOPE))


@final
class DROCC(Baseline):
    """Deep robust one-class classification: outliers look like points made up around the rows.

    A small network is trained to tell the rows from points in a ring around each of them. These
    points are made up anew for each batch: random ones, which climb to where the network takes
    them for rows. What remains is a tight region around the rows.

    Parameters
    ----------
    epochs : int, default=200
        Passes over the rows, with those of the warm-up.
    batch_size : int, default=256
        Rows in a batch; a smaller one at the end is left out.
    learning_rate : float, default=0.0001
        Learning rate of Adam; after the warm-up it falls to a tenth three times.
    warm_up : int, default=50
        First passes, in which there are no made-up points; with as many epochs or fewer there are
        none at all.
    radius : float or "auto", default=3.0
        Inner radius of the ring, in deviations of the columns; the outer one is twice as large.
        "auto" is half the root of the number of columns, as rows grow longer with it.
    ascent_steps : int, default=50
        Steps that made-up points climb.
    ascent_rate : float, default=0.001
        Length of such a step.
    contamination : float in (0, 0.5] or "auto", default='auto'
        Share of outliers that sets the threshold; "auto" estimates it from the scores.
    max_rows : int, default=50000
        Rows in the training sample, drawn uniformly from larger tables.
    random_state : int, RandomState or None, default=0
        Seed of sample, weights, batches and made-up points.

    Attributes
    ----------
    offset_ : float
        Threshold: rows with ``score_samples`` below it are outliers.
    history_ : list of float
        Mean loss of each epoch.

    Notes
    -----
    Several published numbers are those of equal scores for all rows, most likely since a slope of
    length 0 made the weights no numbers. Here a point without a slope stays where it is.

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
            made_up = self._made_up(network, batch)
            return plain_loss(batch) + functional.softplus(network.logit(made_up)).mean()

        for epoch in range(self.epochs):
            trainer.adam.learning_rate = self._rate_at(epoch)
            yield trainer.epoch(rows, plain_loss if epoch < self.warm_up else loss)

    def _rate_at(self, epoch: int) -> float:
        """Return the learning rate of an epoch."""
        done, planned = epoch - self.warm_up, self.epochs - self.warm_up
        return self.learning_rate * 0.1 ** sum(done > round(fall * planned) for fall in FALLS)

    def _made_up(self, network: Classifier, batch: Tensor) -> Tensor:
        """Make up a point in the ring around each row that looks like a row to the network."""
        radius = math.sqrt(batch.shape[1]) / 2 if self.radius == "auto" else self.radius
        offsets = torch.randn_like(batch)
        for done in range(0, self.ascent_steps, STEPS_OF_A_ROUND):
            steps = min(STEPS_OF_A_ROUND, self.ascent_steps - done)
            moves = network.climb(batch + offsets, steps, self.ascent_rate)
            offsets = into_ring(offsets + moves, radius)
        return batch + offsets


def _is_radius(value: object) -> bool:
    if isinstance(value, str):
        return value == "auto"
    return is_number(value, 0, 1e6) and value != 0
