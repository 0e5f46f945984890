"""Interfaces of backbones and of networks in training."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from altbi._parameters import is_count, is_number
from altbi.networks._snapshots import SnapshotArrays, StackedSnapshots

# Replaces losses that are not finite.
WORST_LOSS = 1e30
# Number of quantiles of each column. It is odd, so that the one in the middle is the median.
N_LANDMARKS = 9
# Far more layers than useful; limits the memory that a hostile model file can request.
MAX_LAYERS = 100

Rows = NDArray[np.float32]
Losses = NDArray[Any]
# Shape and type of each weight of a network, by name.
StateShapes = dict[str, tuple[tuple[int, ...], np.dtype[Any]]]
# Maps the losses of a batch to the objective of an update, and to its gradient by the losses.
Objective = Callable[[Losses], tuple[float, Losses]]


class TrainedNetwork(Protocol):
    """Interface of a network in training, which maps encoded rows to losses.

    It is initialized. Its optimizer, and the generator of its noise, belong to it.
    """

    def update(self, rows: Rows, objective: Objective) -> float:
        """Update the weights in place, so that the objective of a batch falls; return its value.

        `rows` has the shape ``(n_rows, n_features_encoded)``. `objective` maps their losses
        ``(n_rows,)`` to a value and its gradient by the losses. The returned value is the one
        before the update.
        """
        ...

    def evaluate_losses(self, rows: Rows) -> Losses:
        """Return the losses ``(n_rows,)`` of encoded rows as scoring computes them."""
        ...

    def resample_noise(self) -> None:
        """Replace the stored noise for scoring by new noise; do nothing if there is none."""
        ...

    def copy_state(self) -> SnapshotArrays:
        """Return a copy of the weights and of all else that scoring needs, by name."""
        ...

    def check_trained(self, rows: Rows) -> None:
        """Raise a `ParameterError` if the trained network cannot be scored or saved."""
        ...


class Backbone(Protocol):
    """Interface of a backbone: the parameters of a network and of its optimizer."""

    # Whether explanations compare rows with landmarks: quantiles of the training rows.
    needs_landmarks: bool
    # Whether the network is the user's own; a model file then holds only its name.
    is_custom: bool

    def validate(self) -> None:
        """Raise a `ParameterError` if a parameter has an invalid value."""
        ...

    def start_training(
        self, n_features: int, generator: np.random.Generator, *, sized_for: int | None = None
    ) -> TrainedNetwork:
        """Return an initialized network for rows of `n_features` encoded features.

        Weights and all later noise come from the generator. Automatic sizes are chosen for
        `sized_for` features, by default `n_features`.
        """
        ...

    def stack(
        self,
        arrays: SnapshotArrays,
        n_features: int,
        *,
        sized_for: int | None = None,
        batch_norm: bool = True,
        landmarks: Rows | None = None,
        feature_columns: NDArray[np.intp] | None = None,
    ) -> StackedSnapshots:
        """Return the snapshots of a network as one object that evaluates them together.

        `arrays` has the state of all snapshots by name, with the snapshots as first axis.
        ``batch_norm=False`` is for networks that were trained under a privacy budget. `landmarks`
        (quantiles of the training rows) and the table column of each encoded feature are only used
        if `needs_landmarks` is True.
        """
        ...

    def describe_state(
        self, n_features: int, *, sized_for: int | None = None, batch_norm: bool = True
    ) -> StateShapes:
        """Return shape and type of each array of a network's state, by name, without snapshots.

        No memory is allocated for them. For the parameters see `stack`.
        """
        ...


def is_positive(value: object) -> bool:
    """Return whether a value is a finite number above 0; other types return False."""
    return is_number(value, 0) and value != 0


def are_layer_sizes(value: object) -> bool:
    """Return whether a value is a tuple or list of 1 to 100 positive integers."""
    if not isinstance(value, tuple | list):
        return False
    return 0 < len(value) <= MAX_LAYERS and all(map(is_count, value))


def select_landmarks(rows: Rows, columns: NDArray[np.int64]) -> Rows:
    """Return `N_LANDMARKS` equally spaced quantiles ``(9, n_features)`` of training rows.

    `columns` is the table column of each encoded feature. Each table column has its own quantiles:
    its features are sorted lexicographically and stay together. The first landmark is the minimum,
    and the last one is the maximum.
    """
    ranks = np.linspace(0, len(rows) - 1, N_LANDMARKS).round().astype(int)
    values = np.empty((N_LANDMARKS, rows.shape[1]), dtype=np.float32)
    for column in np.unique(columns):
        features = columns == column
        order = np.lexsort(rows[:, features].T[::-1])
        values[:, features] = rows[order[ranks]][:, features]
    return values
