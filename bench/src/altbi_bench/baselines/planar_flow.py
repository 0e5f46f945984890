"""Planar flow: a density of rows by invertible layers; outliers have a low density."""

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
# A layer is invertible if the dot product of its `across` and `along` is above -1. Otherwise it
# maps several rows to one, and there is no density.
MIN_PRODUCT = -1 + 1e-3


@final
class PlanarLayers(Network):
    """Planar layers: each maps x to ``x + along * tanh(across @ x + shift)``."""

    def __init__(self, n_features_encoded: int, *, log_det_only: bool) -> None:
        super().__init__()
        self.across = nn.Parameter(0.01 * torch.randn(LAYERS, n_features_encoded))
        self.along = nn.Parameter(0.01 * torch.randn(LAYERS, n_features_encoded))
        self.shift = nn.Parameter(0.01 * torch.randn(LAYERS))
        self.log_det_only = log_det_only

    def transform(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows after the last layer, and the logarithm of the determinant."""
        products = self.along @ self.across.T
        # Rows are columns here: otherwise such narrow products may round a row differently at
        # another position.
        columns = rows.T.contiguous()
        start = torch.addmm(self.shift[:, None], self.across, columns)
        # The input of a layer depends on the layers before it. After each iteration one more layer
        # is exact. Computing all layers in each iteration takes fewer, larger operations.
        earlier = products.triu(1).T
        moves = start.tanh()
        for _ in range(LAYERS - 1):
            moves = torch.addmm(start, earlier, moves).tanh()
        derivatives = (1 - moves.square()) * products.diagonal()[:, None]
        return torch.addmm(columns, self.along.T, moves).T, derivatives.log1p().sum(0)

    def negative_log_density(self, rows: Tensor) -> Tensor:
        """Return the negative log-density of each row."""
        transformed, log_det = self.transform(rows)
        constant = 0.5 * rows.shape[1] * math.log(2 * math.pi)
        return 0.5 * transformed.square().sum(-1) + constant - log_det

    def forward(self, rows: Tensor) -> Tensor:
        """Return the negative log-density, or only its determinant term."""
        return -self.transform(rows)[1] if self.log_det_only else self.negative_log_density(rows)

    @torch.no_grad()
    def project_to_invertible(self) -> None:
        """Project the layers onto the nearest invertible ones."""
        missing = (MIN_PRODUCT - (self.along * self.across).sum(1)).relu()
        if missing.any():
            lengths = self.across.square().sum(1).clamp(min=1e-12)
            self.along.addcmul_((missing / lengths)[:, None], self.across)


@final
class PlanarFlow(Baseline):
    """Normalising flow of planar layers: outliers have a low density.

    Ten planar layers are trained to transform the rows to a standard normal distribution. The
    density of a row follows from its transformed values and the determinant of the transformation.
    After each update, layers that are not invertible are projected to the nearest invertible ones.
    The code behind the published numbers does not do this, and then has no density.

    Parameters
    ----------
    epochs : int, default=200
        Passes over the rows.
    batch_size : int, default=64
        Rows in a batch.
    learning_rate : float, default=0.002
        Learning rate of Adam.
    log_det_only : bool, default=False
        Score by the determinant alone, as in the code behind the published numbers. Training is the
        same.
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

    def _build_network(self, n_features_encoded: int) -> PlanarLayers:
        return PlanarLayers(n_features_encoded, log_det_only=self.log_det_only)

    def _train_network(self, network: PlanarLayers, rows: Tensor) -> Iterator[float]:
        trainer = Trainer(
            network.parameters(),
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            weight_decay=WEIGHT_DECAY,
        )

        def loss(batch: Tensor) -> Tensor:
            network.project_to_invertible()  # after the previous update
            return network.negative_log_density(batch).mean()

        for _ in range(self.epochs):
            mean = trainer.epoch(rows, loss)
            network.project_to_invertible()
            yield mean
