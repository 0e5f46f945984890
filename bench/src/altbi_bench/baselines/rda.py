"""RDA: an autoencoder that is trained on the table without what it cannot rebuild."""

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
# A code has half as many numbers as a row, but never more than these.
LONGEST_CODE = 8
BLOCK_ROWS = 4096


class Autoencoder(Network):
    """An autoencoder with one hidden layer before and one after the code."""

    def __init__(self, n_features_encoded: int) -> None:
        super().__init__()
        n_codes = min((n_features_encoded + 1) // 2, LONGEST_CODE)
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
    def drop_rest(self, learned: Tensor, rows: Tensor, penalty: float) -> None:
        """Make `learned`, in place, the rows without the rest that its rebuilt rows leave over."""
        # Block by block: a large table is held twice, and no more.
        pairs = zip(torch.split(learned, BLOCK_ROWS), torch.split(rows, BLOCK_ROWS), strict=True)
        for part, whole in pairs:
            part.copy_(whole - shrunk(whole - self.layers(part), penalty))


def shrunk(rows: Tensor, penalty: float) -> Tensor:
    """Shorten each row by the penalty; a row that is no longer than it becomes zero.

    No other rows have a smaller sum of half the squared distance to these rows, and of the penalty
    times all lengths.
    """
    length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    # A row of zeros would divide by zero; whatever it is divided by, it stays a row of zeros.
    rest = (length - penalty).clamp(min=0)
    return rows * (rest / length.clamp(min=torch.finfo(rows.dtype).tiny))


@final
class RDA(Baseline):
    """Robust deep autoencoder: outliers are not learned, and so not rebuilt.

    The table is taken apart into a part that an autoencoder learns, and a rest that is zero in
    most rows. Passes over the first part alternate with a new choice of the rest: what the
    autoencoder rebuilds badly in a row leaves, as far as it is longer than a penalty. A wild row
    thus has a bounded say in what is learned.

    Parameters
    ----------
    epochs : int, default=100
        Passes over the rows.
    batch_size : int, default=128
        Rows in a batch.
    learning_rate : float, default=0.001
        Learning rate of Adam.
    penalty : float, default=0.25
        Length of an error that stays in the part to learn, as the root of its mean square over
        columns, in their deviations; the paper's lambda is this times the root of the number of
        columns. Where it is very large nothing leaves: a plain autoencoder.
    shrink_every : int, default=5
        Passes between two choices of the rest.
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
    The method's own score is the length of a row's rest, which is 0 for most rows and not known
    for new ones. Here it is the row's error under the autoencoder, which was trained without the
    rest. Widths, epochs and the other settings are ours.

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
                network.drop_rest(learned, rows, penalty)
            yield trainer.epoch(learned, lambda batch: network.errors(batch).mean())
