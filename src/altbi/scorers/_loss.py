"""Scoring by loss: the mean loss of a row over the snapshots of a trained network."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from altbi.encoding import TableEncoder
from altbi.networks import SnapshotArrays, StackedSnapshots, map_blocks
from altbi.table import Table

__all__ = [
    "LEAST_WIDTH",
    "LossScorer",
    "ScoreContributions",
    "TypicalRows",
    "compute_loss_ranges",
    "fit_typical_rows",
]

# A range of losses narrower than this counts as 1, so that a division by it stays finite.
LEAST_WIDTH = 1e-30
# Quantile of the training rows' terms up to which a term is usual.
USUAL_QUANTILE = 0.9

Losses = NDArray[np.float32] | NDArray[np.float64]
Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ScoreContributions:
    """Scores split by encoded feature: ``cells.sum(1) + rest == score`` up to rounding."""

    score: Scores
    cells: NDArray[np.float64]
    rest: Scores


@dataclass(frozen=True, slots=True)
class TypicalRows:
    """Statistics of the training rows that explanations of losses are measured against.

    Attributes
    ----------
    baseline : ndarray of shape (n_columns,)
        Value that is subtracted from each column's contribution. For columns of one encoded feature
        it is the mean contribution over all such columns. A column of several features, such as a
        category, has its own mean.
    usual : ndarray of shape (n_features_encoded,)
        The 0.9 quantile of each feature's contribution over the training rows.
    neutral : ndarray of shape (n_features_encoded,)
        The median of each encoded feature.
    """

    baseline: NDArray[np.float64]
    usual: NDArray[np.float64]
    neutral: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LossScorer:
    """The mean loss of a row over several snapshots, each brought to a common scale.

    Attributes
    ----------
    stacked : StackedSnapshots
        The snapshots.
    low, width : ndarray of shape (n_snapshots,)
        Each snapshot's losses are shifted by `low` and divided by `width`: their range on the
        training rows, or 0 and 1 for the plain mean.
    arrays : dict
        The snapshots' weights, for model files.
    landmarks : ndarray or None
        Typical values of the encoded features, for networks other than the IWAE.
    typical : TypicalRows or None
        Statistics of the training rows, for explanations.
    """

    kind: ClassVar[Literal["loss"]] = "loss"

    stacked: StackedSnapshots
    low: NDArray[np.float64]
    width: NDArray[np.float64]
    arrays: SnapshotArrays
    landmarks: NDArray[np.float32] | None = None
    typical: TypicalRows | None = None

    def encode(self, table: Table, encoder: TableEncoder) -> NDArray[np.float32]:
        """Return the rows of a table as this scorer needs them."""
        return encoder.transform(table)

    def score(self, rows: NDArray[np.float32]) -> Scores:
        """Return the scores of encoded rows; high means outlier."""
        return self.combine(map_blocks(self.stacked.losses, rows, self.stacked.block_rows))

    def combine(self, losses: Losses) -> Scores:
        """Return the scores for losses of shape ``(n_snapshots, n_rows)``."""
        total = np.zeros(losses.shape[1])
        # Snapshot after snapshot: NumPy's sum takes another order when there is only one row.
        for snapshot, low, width in zip(losses, self.low, self.width, strict=True):
            total += (snapshot.astype(np.float64) - low) / width
        return total / len(losses)

    def contributions(self, rows: NDArray[np.float32]) -> ScoreContributions:
        """Return the scores of encoded rows, split by encoded feature."""

        def block(columns: Tensor) -> Tensor:
            found = self.stacked.contributions(columns)
            width = torch.from_numpy(self.width)[:, None, None]
            cells = (found.cells.double() / width).mean(0)
            return torch.cat([found.losses.double(), found.rest.double(), cells])

        found = map_blocks(block, rows, self.stacked.close_rows)
        losses, rest, cells = np.split(found, np.cumsum([self.stacked.n_snapshots] * 2))
        return ScoreContributions(self.combine(losses), cells.T, self.combine(rest))

    def expect(
        self, known: NDArray[np.float32], rows: NDArray[np.float32]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return what the network expects in known rows, and how far `rows` are from it.

        The distance is half the square of the number of standard deviations, averaged over
        snapshots.
        """

        def block(columns: Tensor) -> Tensor:
            expected, distance = self.stacked.expect(*columns.chunk(2))
            return torch.cat([expected.double().mean(0), distance.double().mean(0)])

        found = map_blocks(block, np.hstack([known, rows]), self.stacked.close_rows)
        expected, distance = np.split(found, 2)
        return expected.T, distance.T


def compute_loss_ranges(losses: Losses) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the lowest loss and the range of each snapshot; a range of (nearly) 0 counts as 1."""
    low = losses.min(axis=1).astype(np.float64)
    width = losses.max(axis=1).astype(np.float64) - low
    return low, np.where(width >= LEAST_WIDTH, width, 1.0)


def fit_typical_rows(
    scorer: LossScorer, encoder: TableEncoder, rows: NDArray[np.float32]
) -> TypicalRows:
    """Return the statistics of training rows that explanations are measured against."""
    some = rows[:: -(-len(rows) // scorer.stacked.typical_rows)]
    cells = scorer.contributions(some).cells
    baseline = encoder.sum_by_column(cells).mean(axis=0)
    single = np.bincount(encoder.feature_columns) == 1
    if single.any():
        baseline[single] = baseline[single].mean()
    usual = np.quantile(cells, USUAL_QUANTILE, axis=0)
    return TypicalRows(baseline, usual, np.median(some, axis=0).astype(np.float64))
