"""Snapshots of a network that are evaluated together: their interface and shared formulas."""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

# The weights of several snapshots by name; each array has the snapshots as its first axis.
SnapshotArrays = dict[str, NDArray[Any]]
Floats = NDArray[np.float32]
# exp(-40) is lost in the rounding of a sum that contains 1, and is no denormal number.
_SMALLEST_EXPONENT = -40.0
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class LossContributions:
    """Losses of several snapshots, split by encoded feature.

    ``by_feature.sum(1) + remainder == losses`` up to rounding.
    """

    losses: Floats  # (n_snapshots, n_rows)
    by_feature: Floats  # contribution of each feature: (n_snapshots, n_features, n_rows)
    remainder: Floats  # terms that belong to no single feature: (n_snapshots, n_rows)


class StackedSnapshots(Protocol):
    """Several snapshots of one network that are evaluated together; rows are the last axis."""

    n_snapshots: int
    block_rows: int  # rows to evaluate at a time
    explain_block_rows: int  # rows to explain at a time
    n_typical_rows: int  # training rows from which statistics for explanations are computed

    def evaluating(self) -> AbstractContextManager[object]:
        """Return a context in which the other methods may be called from several threads."""
        ...

    def losses(self, columns: Floats) -> Floats:
        """Return losses ``(n_snapshots, n_rows)`` of rows given as ``(n_features, n_rows)``."""
        ...

    def contributions(self, columns: Floats) -> LossContributions:
        """Return each snapshot's losses of rows ``(n_features, n_rows)``, split by feature."""
        ...

    def expect(self, context: Floats, columns: Floats) -> tuple[Floats, Floats]:
        """Return the values expected in `context`, and the distances of `columns` from them.

        `context` holds the same rows as `columns`, with unusual values replaced by typical ones.
        Both results have the shape ``(n_estimates, n_features, n_rows)``; average them over the
        first axis. The distance is half a squared z-score. The distance of a table column is the
        sum over its encoded features.
        """
        ...


def stack_states(states: Sequence[dict[str, NDArray[Any]]]) -> SnapshotArrays:
    """Return the states of several snapshots as one array for each name, snapshots first."""
    return {name: np.stack([state[name] for state in states]) for name in states[0]}


def compute_gaussian_terms(
    x: Floats, mean: Floats, log_variance: Floats, log_weight: float
) -> Floats:
    """Compute ``log_weight * log_variance + (x - mean)**2 / (2 * variance)`` for each value.

    With ``log_weight=1/2`` this is the negative log-density of a Gaussian without the constant
    ``log(2 * pi) / 2``. The authors' code has ``log_weight=1``.
    """
    return log_weight * log_variance + np.square(x - mean) * np.exp(-log_variance) / 2


def compute_importance_weights(losses: Floats, axis: int) -> tuple[Floats, Floats]:
    """Return the importance weighted bounds, and the samples' log-weights.

    `axis` is that of the K Monte Carlo samples, and is removed in the bounds. A bound is
    ``log(K) - logsumexp(-losses)`` over this axis. The log-weights, of the shape of `losses`, are
    the logarithm of ``softmax(-losses)``, at least about -40.
    """
    # The loss of an extreme row may be infinite.
    smallest = np.minimum(losses.min(axis=axis, keepdims=True), _LARGEST)
    log_weights = np.maximum(smallest - losses, _SMALLEST_EXPONENT)
    log_total = np.log(np.exp(log_weights).sum(axis=axis, keepdims=True))
    bounds = math.log(losses.shape[axis]) + smallest - log_total
    return bounds.squeeze(axis), log_weights - log_total
