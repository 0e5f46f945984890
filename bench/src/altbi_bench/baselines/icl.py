"""ICL: a classifier that matches windows of columns with the rest of a row."""

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
NEGATIVE_SLOPE = 0.2
TEMPERATURE = 0.1
# Up to this number of features, windows are short and training takes longer.
MAX_NARROW_FEATURES = 40
MIN_FEATURES = 3
# Smallest squared length that is divided by.
MIN_SQUARE = 1e-24
# Windows whose gradients are computed at once; they need about 1.5 GB.
PAIRS_AT_ONCE = 2**16


def window_length(n_features_encoded: int) -> int:
    """Return the length of a window; there are at most 151 windows."""
    if n_features_encoded <= MAX_NARROW_FEATURES:
        return 2
    return 10 if n_features_encoded <= 160 else n_features_encoded - 150


@final
class WindowMatcher(Network):
    """Two networks, of the windows of a row and of its other columns; pairs get similar outputs."""

    block_rows = 64

    others: Tensor

    def __init__(self, n_features_encoded: int) -> None:
        super().__init__()
        self.length = window_length(n_features_encoded)
        self.n_windows = n_features_encoded - self.length + 1
        features = torch.arange(n_features_encoded - self.length)
        starts = torch.arange(self.n_windows)[:, None]
        self.register_buffer("others", features + self.length * (features >= starts))
        # Normalisation is by window: the channels are the windows.
        self.rest = nn.Sequential(
            nn.Linear(n_features_encoded - self.length, WIDTH),
            nn.Tanh(),
            nn.BatchNorm1d(self.n_windows),
            nn.Linear(WIDTH, 2 * WIDTH),
            nn.LeakyReLU(NEGATIVE_SLOPE, inplace=True),
            nn.BatchNorm1d(self.n_windows),
            nn.Linear(2 * WIDTH, WIDTH),
            nn.LeakyReLU(NEGATIVE_SLOPE, inplace=True),
        )
        self.window = nn.Sequential(
            nn.Linear(self.length, WIDTH // 4),
            nn.LeakyReLU(NEGATIVE_SLOPE, inplace=True),
            nn.BatchNorm1d(self.n_windows),
            nn.Linear(WIDTH // 4, WIDTH // 2),
            nn.LeakyReLU(NEGATIVE_SLOPE, inplace=True),
            nn.Linear(WIDTH // 2, WIDTH),
            nn.LeakyReLU(NEGATIVE_SLOPE, inplace=True),
        )

    def forward(self, rows: Tensor) -> Tensor:
        """Return the mean cross-entropy of matching windows with the rest of a row."""
        rest = self.rest(rows[:, self.others])
        windows = self.window(rows.unfold(1, self.length, 1))
        similarity = (
            compute_cosines(normalize_over_windows(rest), normalize_over_windows(windows))
            / TEMPERATURE
        )
        own = similarity.diagonal(dim1=1, dim2=2)
        return (similarity.logsumexp(-1) - own).mean(-1)


def normalize_over_windows(outputs: Tensor) -> Tensor:
    """Normalise each output of a network to length 1 over the windows of a row."""
    return outputs * inverse_length(outputs, dim=1)


def compute_cosines(rest: Tensor, windows: Tensor) -> Tensor:
    """Compute the cosine of each rest of a row with each of its windows."""
    # Dividing by the lengths at the end is faster: there are fewer products than outputs.
    products = rest @ windows.mT
    return products * inverse_length(rest, dim=2) * inverse_length(windows, dim=2).mT


def inverse_length(outputs: Tensor, dim: int) -> Tensor:
    """Return the inverse length along a dimension, which is kept."""
    # torch's own norm is many times slower along any dimension but the last.
    return outputs.square().sum(dim, keepdim=True).clamp(min=MIN_SQUARE).rsqrt()


def compute_chunked_loss(network: WindowMatcher, batch: Tensor) -> Tensor:
    """Compute the mean score of a batch, and its gradients in chunks to bound memory."""
    n_chunks = math.ceil(len(batch) * network.n_windows / PAIRS_AT_ONCE)
    parameters = list(network.parameters())
    total = torch.zeros(())
    for chunk in torch.tensor_split(batch, n_chunks):
        loss = network(chunk).sum() / len(batch)
        gradients = torch.autograd.grad(loss, parameters)
        total = total + loss.detach()
        # Adds 0 with this gradient, so that the chunk's intermediate values can be freed.
        for parameter, gradient in zip(parameters, gradients, strict=True):
            total = total + ((parameter - parameter.detach()) * gradient).sum()
    return total


@final
class ICL(Baseline):
    """Internal contrastive learning: windows of outliers do not match the rest of the row.

    A window is a few neighbouring columns. One network maps windows, another the rest of the row.
    Both are trained so that each rest matches its own window among all windows of the row. The
    score of a row is the mean cross-entropy of this classification. Columns keep their order; at
    least three are needed.

    The cost of a row grows with the square of the number of windows, which is at most 151.
    Batches of more than 65,536 windows are normalised in chunks, so that they need about 1.5 GB.

    Parameters
    ----------
    epochs : int, default=2000
        Largest number of passes over the rows.
    batch_size : int, default=3000
        Rows in a batch. Most tables have fewer rows, so that an epoch is one update.
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

    def _build_network(self, n_features_encoded: int) -> WindowMatcher:
        if n_features_encoded < MIN_FEATURES:
            raise TableError(
                f"ICL: the table has {n_features_encoded} encoded column(s), but expected at least "
                f"{MIN_FEATURES}: a window of 2, and a rest to compare it with. Add columns, or "
                "use another detector."
            )
        return WindowMatcher(n_features_encoded)

    def _train_network(self, network: WindowMatcher, rows: Tensor) -> Iterator[float]:
        trainer = Trainer(
            network.parameters(), learning_rate=self.learning_rate, batch_size=self.batch_size
        )
        stop_loss = self._stop_loss(rows.shape[1])
        for _ in range(self.epochs):
            mean = trainer.epoch(rows, lambda batch: compute_chunked_loss(network, batch))
            yield mean
            if mean < stop_loss:
                return

    def _stop_loss(self, n_features_encoded: int) -> float:
        if self.stop_loss != "auto":
            return self.stop_loss
        return 1e-3 if n_features_encoded <= MAX_NARROW_FEATURES else 1e-2
