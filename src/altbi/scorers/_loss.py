"""Score rows by their mean loss over the snapshots of a trained network."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from altbi._threads import map_blocks
from altbi.encoding import TableEncoder
from altbi.networks import SnapshotArrays, StackedSnapshots
from altbi.table import Table

# A range of losses smaller than this counts as 1, so that dividing by it stays finite.
LEAST_WIDTH = 1e-30
# A contribution is usual if it does not exceed this quantile over the training rows.
USUAL_QUANTILE = 0.9

Losses = NDArray[np.float32] | NDArray[np.float64]
Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ScoreContributions:
    """Scores split by encoded feature.

    ``by_feature.sum(1) + remainder == score`` up to rounding.
    """

    score: Scores
    by_feature: NDArray[np.float64]
    remainder: Scores


@dataclass(frozen=True, slots=True)
class TypicalRows:
    """Statistics of the training rows with which explanations of losses are compared."""

    # Value that is subtracted from each column's contribution, of shape (n_columns,). For columns
    # with one encoded feature it is the mean contribution over all such columns. A column with
    # several features, such as a categorical one, has its own mean.
    baseline: NDArray[np.float64]
    usual: NDArray[np.float64]  # 0.9 quantile of each feature's contribution over training rows
    neutral: NDArray[np.float64]  # median of each encoded feature


@dataclass(frozen=True, slots=True)
class LossScorer:
    """Scorer by the mean over snapshots of ``(loss - low) / width``.

    `low` and `width`, of shape ``(n_snapshots,)``, are the minimum and the range of the losses of
    training rows, or 0 and 1 for the plain mean.
    """

    kind: ClassVar[Literal["loss"]] = "loss"

    stacked: StackedSnapshots
    low: NDArray[np.float64]
    width: NDArray[np.float64]
    arrays: SnapshotArrays  # the snapshots' weights, for model files
    # Quantiles of each table column, which explanations of networks other than the IWAE need.
    landmarks: NDArray[np.float32] | None = None
    typical: TypicalRows | None = None  # for explanations

    def encode(self, table: Table, encoder: TableEncoder) -> NDArray[np.float32]:
        """Return a table's rows as encoded features ``(n_rows, n_features_encoded)``."""
        return encoder.transform(table)

    def score_table(self, table: Table, encoder: TableEncoder) -> Scores:
        """Return the scores ``(n_rows,)`` of a table; high means outlier."""
        return self.score(self.encode(table, encoder))

    def score(self, rows: NDArray[np.float32]) -> Scores:
        """Return the scores ``(n_rows,)`` of rows ``(n_rows, n_features_encoded)``.

        High means outlier. Blocks of rows are evaluated in parallel threads.
        """
        return self.combine(compute_losses(self.stacked, rows))

    def combine(self, losses: Losses) -> Scores:
        """Return scores ``(n_rows,)`` for losses ``(n_snapshots, n_rows)``.

        They are the mean over snapshots of ``(loss - low) / width``.
        """
        total = np.zeros(losses.shape[1])
        # A loop, because the order of `np.sum` depends on the number of rows.
        for snapshot, low, width in zip(losses, self.low, self.width, strict=True):
            total += (snapshot.astype(np.float64) - low) / width
        return total / len(losses)

    def contributions(self, rows: NDArray[np.float32]) -> ScoreContributions:
        """Return the scores of encoded rows, split by encoded feature.

        The remainder holds the terms of the losses that belong to no single feature, and the shift
        by `low`. The scores have the bits of `score`, so that a row at the threshold is flagged
        in scores and explanations alike. A contribution that overflows counts as 0, and as part of
        the remainder.
        """
        by_feature, remainder = self.split_losses(rows)
        scores = self.score(rows)
        is_finite = np.isfinite(by_feature).all(axis=1) & np.isfinite(remainder)
        if not is_finite.all():
            by_feature = np.where(np.isfinite(by_feature), by_feature, 0)
            remainder = np.where(is_finite, remainder, scores - by_feature.sum(axis=1))
        return ScoreContributions(scores, by_feature, remainder)

    def split_losses(self, rows: NDArray[np.float32]) -> tuple[NDArray[np.float64], Scores]:
        """Return contributions ``(n_rows, n_features_encoded)`` and remainders ``(n_rows,)``.

        A row's contributions and its remainder, means over the snapshots, add up to its score.
        """

        def compute(columns: NDArray[np.float32]) -> NDArray[np.float64]:
            """Return remainders ``(n_snapshots, n)`` of a block above its contributions ``(d, n)``.

            Contributions are scaled and averaged over snapshots, remainders are not.
            """
            split = self.stacked.contributions(columns)
            by_feature = np.zeros(columns.shape)
            for contributions, width in zip(split.by_feature, self.width, strict=True):
                by_feature += contributions / width
            by_feature /= len(self.width)
            return np.concatenate([split.remainder, by_feature])

        with self.stacked.evaluating():
            results = map_blocks(compute, rows, self.stacked.explain_block_rows)
        remainder, by_feature = np.split(results, [self.stacked.n_snapshots])
        return by_feature.T, self.combine(remainder)

    def expect(
        self, context: NDArray[np.float32], rows: NDArray[np.float32]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the values that the network expects in a context, and the distances from them.

        `context` has the rows with unusual values replaced by typical ones, and `rows` the rows
        themselves. Distances are half the squared z-scores of `rows`, averaged over snapshots. All
        arrays have the shape ``(n_rows, n_features_encoded)``.
        """

        def compute(columns: NDArray[np.float32]) -> NDArray[np.float64]:
            """Return expected values ``(d, n)`` of a block above distances ``(d, n)``.

            `columns` has context and rows ``(2 * d, n)``. Results are averaged over snapshots.
            """
            estimates = self.stacked.expect(*np.split(columns, 2))
            return np.concatenate([array.mean(axis=0, dtype=np.float64) for array in estimates])

        both = np.hstack([context, rows])
        with self.stacked.evaluating():
            results = map_blocks(compute, both, self.stacked.explain_block_rows)
        expected, distance = np.split(results, 2)
        return expected.T, distance.T


def compute_losses(stacked: StackedSnapshots, rows: NDArray[np.float32]) -> Losses:
    """Return the losses ``(n_snapshots, n_rows)`` of encoded rows, computed in parallel threads."""
    with stacked.evaluating():
        return map_blocks(stacked.losses, rows, stacked.block_rows)


def compute_loss_ranges(losses: Losses) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return minimum and range ``(n_snapshots,)`` of losses ``(n_snapshots, n_rows)``.

    A range below `LEAST_WIDTH` becomes 1.
    """
    low = losses.min(axis=1).astype(np.float64)
    width = losses.max(axis=1).astype(np.float64) - low
    return low, np.where(width >= LEAST_WIDTH, width, 1.0)


def fit_typical_rows(
    scorer: LossScorer, encoder: TableEncoder, rows: NDArray[np.float32]
) -> TypicalRows:
    """Compute the statistics of training rows with which explanations are compared.

    Only an evenly spaced sample of at most ``scorer.stacked.n_typical_rows`` rows is used.
    """
    sample = rows[:: -(-len(rows) // scorer.stacked.n_typical_rows)]
    by_feature, _ = scorer.split_losses(sample)
    baseline = encoder.sum_by_column(by_feature).mean(axis=0)
    has_one_feature = np.bincount(encoder.feature_columns) == 1
    if has_one_feature.any():
        baseline[has_one_feature] = baseline[has_one_feature].mean()
    usual = np.quantile(by_feature, USUAL_QUANTILE, axis=0)
    return TypicalRows(baseline, usual, np.median(sample, axis=0).astype(np.float64))
