"""ICL: telling which part of a row belongs to the rest of it."""

import math
from collections.abc import Iterator
from typing import Literal, final

import numpy as np
import torch
from torch import Tensor, nn

from altbi._parameters import is_number
from altbi.errors import TableError
from altbi.model._threshold import Contamination
from altbi_bench.baselines.base import Baseline, Network, Rules, Trainer

__all__ = ["ICL"]

WIDTH = 200
SLOPE = 0.2
TEMPERATURE = 0.1
# Tables up to this width are narrow: their windows are short, and training goes on for longer.
NARROW = 40
LEAST_UNITS = 3
# Outputs that are all 0 have no direction, and stay 0.
LEAST_SQUARE = 1e-24
# Pairs whose gradient is taken at once, in about 1.5 GB.
PAIRS_AT_ONCE = 2**16


def window_length(n_features_encoded: int) -> int:
    """Return the length of a window; there are at most 151 windows."""
    if n_features_encoded <= NARROW:
        return 2
    return 10 if n_features_encoded <= 160 else n_features_encoded - 150


@final
class Pairs(Network):
    """Two maps, one of a row's windows and one of what is left: each pair is to come together."""

    block_rows = 64

    others: Tensor

    def __init__(self, n_features_encoded: int) -> None:
        super().__init__()
        self.length = window_length(n_features_encoded)
        self.n_windows = n_features_encoded - self.length + 1
        units = torch.arange(n_features_encoded - self.length)
        starts = torch.arange(self.n_windows)[:, None]
        self.register_buffer("others", units + self.length * (units >= starts))
        # Whatever stands at a window's place has one mean and one spread: a channel is a place.
        self.rest = nn.Sequential(
            nn.Linear(n_features_encoded - self.length, WIDTH),
            nn.Tanh(),
            nn.BatchNorm1d(self.n_windows),
            nn.Linear(WIDTH, 2 * WIDTH),
            nn.LeakyReLU(SLOPE, inplace=True),
            nn.BatchNorm1d(self.n_windows),
            nn.Linear(2 * WIDTH, WIDTH),
            nn.LeakyReLU(SLOPE, inplace=True),
        )
        self.window = nn.Sequential(
            nn.Linear(self.length, WIDTH // 4),
            nn.LeakyReLU(SLOPE, inplace=True),
            nn.BatchNorm1d(self.n_windows),
            nn.Linear(WIDTH // 4, WIDTH // 2),
            nn.LeakyReLU(SLOPE, inplace=True),
            nn.Linear(WIDTH // 2, WIDTH),
            nn.LeakyReLU(SLOPE, inplace=True),
        )

    def forward(self, rows: Tensor) -> Tensor:
        """Return the mean cross-entropy of matching windows with the rest of a row."""
        rest = self.rest(rows[:, self.others])
        windows = self.window(rows.unfold(1, self.length, 1))
        likeness = cosines(unit_length(rest), unit_length(windows)) / TEMPERATURE
        own = likeness.diagonal(dim1=1, dim2=2)
        return (likeness.logsumexp(-1) - own).mean(-1)


def unit_length(outputs: Tensor) -> Tensor:
    """Normalise each output of a network to length 1 over the windows of a row."""
    return outputs * one_over_length(outputs, dim=1)


def cosines(rest: Tensor, windows: Tensor) -> Tensor:
    """Compare each rest of a row with each of its windows."""
    # There are fewer products than outputs: the lengths are cheaper taken out at the end.
    products = rest @ windows.mT
    return products * one_over_length(rest, dim=2) * one_over_length(windows, dim=2).mT


def one_over_length(outputs: Tensor, dim: int) -> Tensor:
    """Return the inverse length along a dimension, which is kept."""
    # torch's own norm is many times slower along any dimension but the last.
    return outputs.square().sum(dim, keepdim=True).clamp(min=LEAST_SQUARE).rsqrt()


def loss_in_parts(network: Pairs, batch: Tensor) -> Tensor:
    """Compute the mean score of a batch, with gradients by chunks to bound memory."""
    n_parts = math.ceil(len(batch) * network.n_windows / PAIRS_AT_ONCE)
    parameters = list(network.parameters())
    total = torch.zeros(())
    for part in torch.tensor_split(batch, n_parts):
        loss = network(part).sum() / len(batch)
        gradients = torch.autograd.grad(loss, parameters)
        total = total + loss.detach()
        # Adds nothing but its gradient, so that what the part was computed with can go.
        for parameter, gradient in zip(parameters, gradients, strict=True):
            total = total + ((parameter - parameter.detach()) * gradient).sum()
    return total


@final
class ICL(Baseline):
    """Internal contrastive learning: in outliers the parts do not belong together.

    A window is a few neighbouring columns. One network sees a window, another the rest of the row,
    and both are trained so that each rest picks its own window among all windows of the row. The
    score of a row is how badly this succeeds. Columns keep their order; at least three are needed.

    The cost of a row grows with the square of the number of windows, which is 151 at most.
    Batches of more than 65,536 windows are normalised in parts, so that they take about 1.5 GB.

    Parameters
    ----------
    epochs : int, default=2000
        Most passes over the rows.
    batch_size : int, default=3000
        Rows in a batch; in most tables that is all of them, so that an epoch is one update.
    learning_rate : float, default=0.001
        Learning rate of Adam.
    stop_loss : float or "auto", default='auto'
        Training ends after an epoch with a lower mean loss; "auto" is 0.001 for up to 40 encoded
        columns and 0.01 for more.
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
    Shenkar and Wolf: Anomaly detection for tabular data with internal contrastive learning. ICLR
    2022.

    Examples
    --------
    >>> phases = np.random.default_rng(0).uniform(0, 2 * np.pi, size=(200, 1))
    >>> X = np.sin(phases + np.arange(5))
    >>> X[17] = [1, -1, -1, 1, 1]
    >>> int(ICL(epochs=20).fit(X).outlier_score(X).argmax())
    17
    """

    def __init__(
        self,
        *,
        epochs: int = 2000,
        batch_size: int = 3000,
        learning_rate: float = 1e-3,
        stop_loss: float | Literal["auto"] = "auto",
        contamination: Contamination = "auto",
        max_rows: int = 50_000,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.stop_loss = stop_loss
        self.contamination = contamination
        self.max_rows = max_rows
        self.random_state = random_state

    def _own_rules(self) -> Rules:
        is_auto = isinstance(self.stop_loss, str) and self.stop_loss == "auto"
        is_loss = is_auto or is_number(self.stop_loss, 0)
        return {"stop_loss": (is_loss, "'auto' or a number of at least 0")}

    def _build_network(self, n_features_encoded: int) -> Pairs:
        if n_features_encoded < LEAST_UNITS:
            raise TableError(
                f"ICL: the table has {n_features_encoded} encoded column(s), but expected at least "
                f"{LEAST_UNITS}: a window of 2, and a rest to compare it with. Add columns, or use "
                "another detector."
            )
        return Pairs(n_features_encoded)

    def _train_network(self, network: Pairs, rows: Tensor) -> Iterator[float]:
        trainer = Trainer(
            network.parameters(), learning_rate=self.learning_rate, batch_size=self.batch_size
        )
        stop_loss = self._stop_loss(rows.shape[1])
        for _ in range(self.epochs):
            mean = trainer.epoch(rows, lambda batch: loss_in_parts(network, batch))
            yield mean
            if mean < stop_loss:
                return

    def _stop_loss(self, n_features_encoded: int) -> float:
        if self.stop_loss != "auto":
            return self.stop_loss
        return 1e-3 if n_features_encoded <= NARROW else 1e-2
