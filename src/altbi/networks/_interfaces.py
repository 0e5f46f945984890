"""Interfaces that training and scoring require of a network."""

import abc
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn


class GenerativeModel(nn.Module, abc.ABC):
    """A network that maps rows ``(n_rows, n_features)`` to losses ``(n_rows,)``.

    In evaluation mode the loss of a row depends on that row only and is the same in every call.
    """

    @abc.abstractmethod
    def forward(self, rows: Tensor) -> Tensor:
        """Return the loss ``(n_rows,)`` of rows: the negative log-likelihood, or a bound of it."""

    @abc.abstractmethod
    def initialize_weights(self, generator: torch.Generator) -> None:
        """Initialize the allocated weights by a generator, in place.

        The network keeps the generator and takes all later noise from it.
        """

    @abc.abstractmethod
    def resample_noise(self) -> None:
        """Sample the stored noise for scoring again; do nothing if the network has none."""

    def initialize(self, generator: torch.Generator) -> None:
        """Allocate the weights on the generator's device, and initialize them in place."""
        allocate(self, generator.device)
        self.initialize_weights(generator)

    def check_trained(self, rows: Tensor, untrained: "GenerativeModel") -> None:
        """Raise an error if the trained network cannot be scored or saved.

        `untrained` is a second network of the same kind. By default, nothing is checked.
        """


def allocate(model: nn.Module, device: torch.device) -> None:
    """Replace all weights and buffers of a network by uninitialized ones on a device.

    ``Module.to_empty`` would do the same, but imports sympy first.
    """
    state = {
        name: torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
        for name, tensor in model.state_dict().items()
    }
    model.load_state_dict(state, assign=True)


@dataclass(frozen=True, slots=True)
class LossContributions:
    """Losses of several snapshots, split by encoded feature.

    ``by_feature.sum(1) + remainder == losses`` up to rounding.

    Attributes
    ----------
    losses, remainder : Tensor of shape (n_snapshots, n_rows)
        The losses, and the terms that belong to no single feature.
    by_feature : Tensor of shape (n_snapshots, n_features, n_rows)
        The contribution of each encoded feature.
    """

    losses: Tensor
    by_feature: Tensor
    remainder: Tensor


class StackedSnapshots(Protocol):
    """Several snapshots of one network that are evaluated together; rows are the last axis.

    Attributes
    ----------
    n_snapshots : int
        Number of snapshots.
    block_rows : int
        Number of rows to evaluate at a time.
    explain_block_rows : int
        Number of rows to explain at a time.
    n_typical_rows : int
        Number of training rows from which statistics for explanations are computed.
    """

    n_snapshots: int
    block_rows: int
    explain_block_rows: int
    n_typical_rows: int

    def losses(self, columns: Tensor) -> Tensor:
        """Return losses ``(n_snapshots, n_rows)`` of rows given as ``(n_features, n_rows)``."""
        ...

    def contributions(self, columns: Tensor) -> LossContributions:
        """Return the losses of rows ``(n_features, n_rows)``, split by encoded feature."""
        ...

    def expect(self, context: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Return the values expected in `context`, and the distances of `columns` from them.

        `context` holds the same rows as `columns`, with unusual values replaced by typical ones.
        Both results have the shape ``(n_estimates, n_features, n_rows)``; average them over the
        first axis. The distance is half a squared z-score. The distance of a table column is the
        sum over its encoded features.
        """
        ...
