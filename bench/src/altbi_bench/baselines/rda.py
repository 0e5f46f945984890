"""RDA: an autoencoder that is trained without the errors it cannot reconstruct."""

import math
from collections.abc import Iterator
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from altbi._parameters import is_count, is_number
from altbi.model._threshold import Contamination
from altbi_bench.baselines.base import Baseline, Linear, Network, Rules, Trainer

__all__ = ["RDA"]

WIDTH = 64
# A code has half as many numbers as a row, and at most this number.
MAX_CODE_SIZE = 8
BLOCK_ROWS = 4096


class Autoencoder(Network):
    """An autoencoder with one hidden layer before and one after the code."""

    def __init__(self, n_features_encoded: int) -> None:
        super().__init__()
        n_codes = min((n_features_encoded + 1) // 2, MAX_CODE_SIZE)
        self.layers = nn.Sequential(
            Linear(n_features_encoded, WIDTH),
            nn.ReLU(),
            Linear(WIDTH, n_codes),
            Linear(n_codes, WIDTH),
            nn.ReLU(),
            Linear(WIDTH, n_features_encoded),
        )

    def errors(self, rows: Tensor) -> Tensor:
        """Return the squared error of each value."""
        return (rows - self.layers(rows)).square()

    def forward(self, rows: Tensor) -> Tensor:
        """Return the mean squared error of each row."""
        return self.errors(rows).mean(-1)

    @torch.no_grad()
    def update_learned_rows(self, learned: Tensor, rows: Tensor, penalty: float) -> None:
        """Set `learned`, in place, to the rows minus the shrunken reconstruction errors."""
        # By blocks, so that memory holds a large table only twice.
        pairs = zip(torch.split(learned, BLOCK_ROWS), torch.split(rows, BLOCK_ROWS), strict=True)
        for block, original in pairs:
            block.copy_(original - shrink_rows(original - self.layers(block), penalty))


def shrink_rows(rows: Tensor, penalty: float) -> Tensor:
    """Shorten each row by the penalty; shorter rows become 0.

    The result r minimises ``0.5 * norm(r - row)**2 + penalty * norm(r)`` for each row.
    """
    length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    # The length of a row of zeros is 0; such a row stays 0.
    shorter = (length - penalty).clamp(min=0)
    return rows * (shorter / length.clamp(min=torch.finfo(rows.dtype).tiny))


@final
class RDA(Baseline):
    """Robust deep autoencoder: outliers are not learned, so their reconstruction is bad.

    The table is the sum of a table that an autoencoder learns and a remainder, which is 0 in most
    rows. Training on the first alternates with updates of the remainder: the reconstruction error
    of a row, shortened by a penalty. The influence of an extreme row is thus bounded.

    Parameters
    ----------
    epochs : int, default=100
        Passes over the rows.
    batch_size : int, default=128
        Rows in a batch.
    learning_rate : float, default=0.001
        Learning rate of Adam.
    penalty : float, default=0.25
        Root mean square error of a row that stays in the learned table, in standard deviations of
        the columns. The paper's lambda is ``penalty * sqrt(n_features_encoded)``. With a very large
        penalty, the method is a plain autoencoder.
    shrink_every : int, default=5
        Passes between two updates of the remainder.
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

    Notes
    -----
    The score of the original method is the length of a row's remainder, which is 0 for most rows
    and unknown for new rows. Here the score is the reconstruction error of the row. Layer sizes,
    epochs and the other settings are ours.

    References
    ----------
    Zhou and Paffenroth: Anomaly detection with robust deep autoencoders. KDD 2017.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> X[17] = 9.0
    >>> int(RDA(epochs=20).fit(X).outlier_score(X).argmax())
    17
    """

    def __init__(
        self,
        *,
        epochs: int = 100,
        batch_size: int = 128,
        learning_rate: float = 1e-3,
        penalty: float = 0.25,
        shrink_every: int = 5,
        contamination: Contamination = "auto",
        max_rows: int = 50_000,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.penalty = penalty
        self.shrink_every = shrink_every
        self.contamination = contamination
        self.max_rows = max_rows
        self.random_state = random_state

    def _own_rules(self) -> Rules:
        return {
            "penalty": (is_number(self.penalty, 0), "a number of at least 0"),
            "shrink_every": (is_count(self.shrink_every), "a whole number of at least 1"),
        }

    def _build_network(self, n_features_encoded: int) -> Autoencoder:
        return Autoencoder(n_features_encoded)

    def _train_network(self, network: Autoencoder, rows: Tensor) -> Iterator[float]:
        trainer = Trainer(
            network.parameters(), learning_rate=self.learning_rate, batch_size=self.batch_size
        )
        penalty = self.penalty * math.sqrt(rows.shape[1])
        learned = rows.clone()
        for epoch in range(self.epochs):
            if epoch and epoch % self.shrink_every == 0:
                network.update_learned_rows(learned, rows, penalty)
            yield trainer.epoch(learned, lambda batch: network.errors(batch).mean())
