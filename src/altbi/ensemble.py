"""The snapshots of a training run as one scorer: all of them in one pass over a block of rows."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from altbi.borrow import compute_alone, one_thread, plain_torch, with_helpers
from altbi.models import Stacked

__all__ = ["LEAST_WIDTH", "Ensemble", "ScoreParts", "in_threads", "loss_ranges", "over_blocks"]

# A range of losses narrower than that is none: a division by it could leave all bounds.
LEAST_WIDTH = 1e-30

Result = TypeVar("Result")
Losses = NDArray[np.float32] | NDArray[np.float64]
Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ScoreParts:
    """Scores taken apart, rows first: ``cells.sum(1) + rest == score`` up to rounding."""

    score: Scores
    cells: NDArray[np.float64]
    rest: Scores


@dataclass(frozen=True, slots=True)
class Ensemble:
    """The snapshots' losses, each brought to a common scale, and their mean.

    Parameters
    ----------
    stacked : Stacked
        The snapshots.
    low, width : ndarray of shape (n_snapshots,)
        What a snapshot's losses are shifted and divided by: their range on the training rows, so
        that a row scores the same in any company, or 0 and 1 for the plain mean.
    """

    stacked: Stacked
    low: NDArray[np.float64]
    width: NDArray[np.float64]

    def score(self, rows: NDArray[np.float32]) -> Scores:
        """Score rows; high means outlier."""
        return self.combine(over_blocks(self.stacked.losses, rows, self.stacked.block_rows))

    def combine(self, losses: Losses) -> Scores:
        """Give the score for losses of shape ``(n_snapshots, n_rows)``."""
        total = np.zeros(losses.shape[1])
        # Snapshot after snapshot: NumPy's own sum takes another order when there is one row only.
        for snapshot, low, width in zip(losses, self.low, self.width, strict=True):
            total += (snapshot.astype(np.float64) - low) / width
        return total / len(losses)

    def parts(self, rows: NDArray[np.float32]) -> ScoreParts:
        """Score rows and say what each cell adds."""

        def block(columns: Tensor) -> Tensor:
            parts = self.stacked.parts(columns)
            width = torch.from_numpy(self.width)[:, None, None]
            cells = (parts.cells.double() / width).mean(0)
            return torch.cat([parts.losses.double(), parts.rest.double(), cells])

        found = over_blocks(block, rows, self.stacked.close_rows)
        losses, rest, cells = np.split(found, np.cumsum([self.stacked.n_snapshots] * 2))
        return ScoreParts(self.combine(losses), cells.T, self.combine(rest))

    def expect(
        self, known: NDArray[np.float32], rows: NDArray[np.float32]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Say what belongs into the cells of known rows, and how far those of `rows` are from it.

        The distance is half the square of the number of deviations, averaged over snapshots.
        """

        def block(columns: Tensor) -> Tensor:
            expected, distance = self.stacked.expect(*columns.chunk(2))
            return torch.cat([expected.double().mean(0), distance.double().mean(0)])

        found = over_blocks(block, np.hstack([known, rows]), self.stacked.close_rows)
        expected, distance = np.split(found, 2)
        return expected.T, distance.T


def loss_ranges(losses: Losses) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lowest loss and width of each snapshot's range; one of (nearly) no width counts as 1."""
    low = losses.min(axis=1).astype(np.float64)
    width = losses.max(axis=1).astype(np.float64) - low
    return low, np.where(width >= LEAST_WIDTH, width, 1.0)


def over_blocks(
    function: Callable[[Tensor], Tensor], rows: NDArray[np.float32], block_rows: int
) -> NDArray[Any]:
    """Apply a function of ``(n_features, n_rows)`` columns to rows, block by block.

    Every block has the same, padded shape and is computed by one thread: the sums inside are then
    taken in the same order for every row, whatever stands beside it and however many threads there
    are, and results are equal to the bit.
    """

    def compute(start: int) -> NDArray[Any]:
        block = rows[start : start + block_rows]
        columns = np.zeros((rows.shape[1], block_rows), dtype=np.float32)
        columns[:, : len(block)] = block.T
        return function(torch.from_numpy(columns)).numpy()[:, : len(block)]

    def enter(start: int) -> None:
        found[:, start : start + block_rows] = compute(start)

    (first,) = in_threads(compute, range(1))
    # One array for all: small results kept among large ones that come and go would spread them
    # over ever more memory.
    found = np.empty((len(first), len(rows)), dtype=first.dtype)
    found[:, :block_rows] = first
    for _ in in_threads(enter, range(block_rows, len(rows), block_rows)):
        pass
    return found


def in_threads(function: Callable[[int], Result], tasks: range) -> Iterator[Result]:
    """Map over tasks in order, on as many threads as torch has, each of which computes alone."""

    def alone(task: int) -> Result:
        # Also within another task: it may have changed the modes, as models of users do.
        with one_thread(), plain_torch(), torch.inference_mode():
            return function(task)

    threads = min(torch.get_num_threads(), len(tasks))
    if threads <= 1:
        yield from map(alone, tasks)
        return
    with with_helpers(), ThreadPoolExecutor(threads, initializer=compute_alone) as pool:
        yield from pool.map(alone, tasks)
