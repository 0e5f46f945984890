"""GOAD: a classifier that predicts which random transformation was applied to a row."""

from collections.abc import Iterator
from typing import final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from altbi.model._threshold import Contamination
from altbi_bench.baselines.base import Baseline, Network, Rules, Trainer, is_flag

__all__ = ["GOAD"]

TRANSFORMATIONS = 256
TRANSFORMED_WIDTH = 32
WIDTH = 8
NEGATIVE_SLOPE = 0.2
# Margin of the triplet loss.
MARGIN = 1.0
TRIPLET_WEIGHT = 0.1
BETAS = (0.5, 0.999)


@final
class Recogniser(Network):
    """Random transformations, a linear map of their outputs, and a centre for each."""

    # A row needs 256 KB: one distance for each pair of transformation and centre.
    block_rows = 64

    matrices: Tensor
    centres: Tensor

    def __init__(self, n_features_encoded: int) -> None:
        super().__init__()
        self.map = nn.Linear(TRANSFORMED_WIDTH, WIDTH, bias=False)
        self.head = nn.Linear(WIDTH, TRANSFORMATIONS)
        self.register_buffer(
            "matrices", torch.randn(n_features_encoded, TRANSFORMATIONS, TRANSFORMED_WIDTH)
        )
        self.register_buffer("centres", torch.zeros(TRANSFORMATIONS, WIDTH))

    def embed(self, rows: Tensor) -> Tensor:
        """Return the mapped transformed rows, ``(n_rows, n_transformations, width)``."""
        # Both are linear, so their product is computed first; it is smaller than transformed rows.
        products = (self.matrices @ self.map.weight.T).flatten(1)
        embedded = (rows @ products).view(len(rows), TRANSFORMATIONS, WIDTH)
        # Without a nonlinearity, the centres of standardised rows would all be 0.
        return functional.leaky_relu(embedded, NEGATIVE_SLOPE)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the cross-entropy of the true transformations, by distance to the centres."""
        closeness = closeness_to(self.centres, self.embed(rows))
        own = closeness.diagonal(dim1=1, dim2=2)
        return (closeness.logsumexp(-1) - own).sum(-1)

    @torch.no_grad()
    def update_centres(self, rows: Tensor) -> None:
        """Set each centre to the mean of its transformation's outputs."""
        sums = [self.embed(block).sum(0) for block in torch.split(rows, self.block_rows)]
        self.centres.copy_(torch.stack(sums).sum(0) / len(rows))


def closeness_to(centres: Tensor, embedded: Tensor) -> Tensor:
    """Return minus the squared distance to each centre, up to a constant."""
    flat = embedded.flatten(0, 1)
    closeness = torch.addmm(-centres.square().sum(-1), flat, centres.T, alpha=2)
    return closeness.view(*embedded.shape[:2], len(centres))


def triplet_loss(embedded: Tensor, centres: Tensor) -> Tensor:
    """Compute the mean triplet loss of the own centre and the nearest other centre."""
    with torch.no_grad():
        closeness = closeness_to(centres, embedded)
        closeness.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
        nearest = closeness.argmax(-1)
    own = (embedded - centres).square().sum(-1)
    other = (embedded - functional.embedding(nearest, centres)).square().sum(-1)
    return (own + MARGIN - other).relu().mean()


@final
class GOAD(Baseline):
    """Classification-based detection: transformations of outliers are hard to recognise.

    Each row is transformed by 256 random matrices. A small network maps each transformed row close
    to the centre of its transformation, and far from the other centres. The score of a row is the
    cross-entropy of its transformations, by distance to the centres.

    Parameters
    ----------
    epochs : int, default=1
        Passes over the rows: one, as in the published numbers. The authors of the method train
        longer, which changes scores much and is not always better.
    batch_size : int, default=64
        Rows in a batch.
    learning_rate : float, default=0.001
        Learning rate of Adam.
    running_centres : bool, default=False
        Score with centres averaged over the batches of the last epoch, while the network changes,
        as in the code behind the published numbers; otherwise with those of the final network.
    contamination : float in (0, 0.5] or "auto", default='auto'
        Share of outliers that sets the threshold; "auto" estimates it from the scores.
    max_rows : int, default=50000
        Rows in the training sample, drawn uniformly from larger tables.
    random_state : int, RandomState or None, default=0
        Seed of sample, transformations, weights and batches.

    Attributes
    ----------
    offset_ : float
        Threshold: rows with ``score_samples`` below it are outliers.
    history_ : list of float
        Mean loss of each epoch.

    References
    ----------
    Bergman and Hoshen: Classification-based anomaly detection for general data. ICLR 2020.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> X[17] = 9.0
    >>> int(GOAD().fit(X).outlier_score(X).argmax())
    17
    """

    def __init__(
        self,
        *,
        epochs: int = 1,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        running_centres: bool = False,
        contamination: Contamination = "auto",
        max_rows: int = 50_000,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.running_centres = running_centres
        self.contamination = contamination
        self.max_rows = max_rows
        self.random_state = random_state

    def _own_rules(self) -> Rules:
        return {"running_centres": (is_flag(self.running_centres), "True or False")}

    def _build_network(self, n_features_encoded: int) -> Recogniser:
        return Recogniser(n_features_encoded)

    def _train_network(self, network: Recogniser, rows: Tensor) -> Iterator[float]:
        trainer = Trainer(
            network.parameters(),
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            betas=BETAS,
        )
        numbers = torch.arange(TRANSFORMATIONS)
        batch_centres: list[Tensor] = []

        def loss(batch: Tensor) -> Tensor:
            embedded = network.embed(batch)
            centres = embedded.mean(0)
            batch_centres.append(centres.detach())
            logits = network.head(embedded).flatten(0, 1)
            recognition = functional.cross_entropy(logits, numbers.repeat(len(batch)))
            return recognition + TRIPLET_WEIGHT * triplet_loss(embedded, centres)

        for _ in range(self.epochs):
            batch_centres.clear()
            yield trainer.epoch(rows, loss)
        if self.running_centres:
            network.centres.copy_(torch.stack(batch_centres).mean(0))
        else:
            network.update_centres(rows)
