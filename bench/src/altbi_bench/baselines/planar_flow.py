"""Planar flow: rows are compress_tails until they look normal; unlikely rows are odd."""

import math
from collections.abc import Iterator
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from altbi.model._threshold import Contamination
from altbi_bench.baselines.base import Baseline, Network, Rules, Trainer, is_flag

__all__ = ["PlanarFlow"]

LAYERS = 10
WEIGHT_DECAY = 1e-4
# A layer whose product of across and along is below -1 folds space: several rows become one, and
# what it gives is no density.
LEAST_PRODUCT = -1 + 1e-3


@final
class Bends(Network):
    """Layers that each move a row along one direction, by the tanh of its place across another."""

    def __init__(self, n_features_encoded: int, *, log_det_only: bool) -> None:
        super().__init__()
        self.across = nn.Parameter(0.01 * torch.randn(LAYERS, n_features_encoded))
        self.along = nn.Parameter(0.01 * torch.randn(LAYERS, n_features_encoded))
        self.shift = nn.Parameter(0.01 * torch.randn(LAYERS))
        self.log_det_only = log_det_only

    def bend(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows after the last layer, and the logarithm of the determinant."""
        products = self.along @ self.across.T
        # Rows stand side by side: below each other, products as narrow as these round a row
        # otherwise in another place.
        columns = rows.T.contiguous()
        start = torch.addmm(self.shift[:, None], self.across, columns)
        # A layer sees what the layers before it did. After each round one more layer is exact; all
        # layers in each round take fewer, larger operations than one layer after the other.
        earlier = products.triu(1).T
        moves = start.tanh()
        for _ in range(LAYERS - 1):
            moves = torch.addmm(start, earlier, moves).tanh()
        slopes = (1 - moves.square()) * products.diagonal()[:, None]
        return torch.addmm(columns, self.along.T, moves).T, slopes.log1p().sum(0)

    def negative_log_density(self, rows: Tensor) -> Tensor:
        """Return the negative log-density of each row."""
        compress_tails, log_det = self.bend(rows)
        constant = 0.5 * rows.shape[1] * math.log(2 * math.pi)
        return 0.5 * compress_tails.square().sum(-1) + constant - log_det

    def forward(self, rows: Tensor) -> Tensor:
        """Return the negative log-density, or only its determinant term."""
        return -self.bend(rows)[1] if self.log_det_only else self.negative_log_density(rows)

    @torch.no_grad()
    def unfold(self) -> None:
        """Project the layers onto the nearest invertible ones."""
        missing = (LEAST_PRODUCT - (self.along * self.across).sum(1)).relu()
        if missing.any():
            lengths = self.across.square().sum(1).clamp(min=1e-12)
            self.along.addcmul_((missing / lengths)[:, None], self.across)


@final
class PlanarFlow(Baseline):
    """Normalising flow of planar layers: outliers have a low density.

    Ten layers, each of which bends space across one plane, are trained to turn the rows into
    standard normal ones. The density of a row follows from where it goes and from how much the
    space around it is stretched. After each update, a layer that would fold space is brought back
    to the nearest one that does not; the code behind the published numbers leaves it folded, and
    then has no density.

    Parameters
    ----------
    epochs : int, default=200
        Passes over the rows.
    batch_size : int, default=64
        Rows in a batch.
    learning_rate : float, default=0.002
        Learning rate of Adam.
    log_det_only : bool, default=False
        Score by the stretching of space alone, as in the code behind the published numbers.
        Training is the same.
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
    Rezende and Mohamed: Variational inference with normalizing flows. ICML 2015.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> X[17] = 9.0
    >>> int(PlanarFlow(epochs=20).fit(X).outlier_score(X).argmax())
    17
    """

    def __init__(
        self,
        *,
        epochs: int = 200,
        batch_size: int = 64,
        learning_rate: float = 2e-3,
        log_det_only: bool = False,
        contamination: Contamination = "auto",
        max_rows: int = 50_000,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.log_det_only = log_det_only
        self.contamination = contamination
        self.max_rows = max_rows
        self.random_state = random_state

    def _own_rules(self) -> Rules:
        return {"log_det_only": (is_flag(self.log_det_only), "True or False")}

    def _build_network(self, n_features_encoded: int) -> Bends:
        return Bends(n_features_encoded, log_det_only=self.log_det_only)

    def _train_network(self, network: Bends, rows: Tensor) -> Iterator[float]:
        trainer = Trainer(
            network.parameters(),
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            weight_decay=WEIGHT_DECAY,
        )

        def loss(batch: Tensor) -> Tensor:
            network.unfold()  # after the update before this one
            return network.negative_log_density(batch).mean()

        for _ in range(self.epochs):
            mean = trainer.epoch(rows, loss)
            network.unfold()
            yield mean
