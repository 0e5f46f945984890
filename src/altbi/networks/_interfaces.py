"""What training and scoring ask of a model."""

import abc
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

__all__ = ["GenerativeModel", "LossContributions", "StackedSnapshots", "allocate"]


class GenerativeModel(nn.Module, abc.ABC):
    """A model of rows: called on ``(n_rows, n_features)``, it gives ``(n_rows,)`` losses.

    In evaluation a row's loss must be its own: the same in any company, and in every call.
    """

    @abc.abstractmethod
    def forward(self, rows: Tensor) -> Tensor:
        """Give each row its negative log-likelihood, or a bound of it."""

    @abc.abstractmethod
    def start(self, generator: torch.Generator) -> None:
        """Initialise the weights, and draw all noise from this generator."""

    @abc.abstractmethod
    def redraw(self) -> None:
        """Replace the noise used for scoring, if there is any."""

    def initialize(self, generator: torch.Generator) -> None:
        """Allocate the weights on the generator's device, and initialise them."""
        allocate(self, generator.device)
        self.start(generator)

    def check_trained(self, rows: Tensor, untrained: "GenerativeModel") -> None:
        """Raise an error if the trained network cannot be scored or saved."""


def allocate(model: nn.Module, device: torch.device) -> None:
    """Give a model that has shapes alone its memory, with anything in it.

    torch's own `to_empty` would import a library of symbolic mathematics first.
    """
    state = {
        name: torch.empty(shape.shape, dtype=shape.dtype, device=device)
        for name, shape in model.state_dict().items()
    }
    model.load_state_dict(state, assign=True)


@dataclass(frozen=True, slots=True)
class LossContributions:
    """Losses of several snapshots, taken apart: ``cells.sum(1) + rest == losses``.

    `losses` and `rest`, what belongs to no cell, have the shape ``(n_snapshots, n_rows)``, `cells`
    has ``(n_snapshots, n_features, n_rows)``.
    """

    losses: Tensor
    cells: Tensor
    rest: Tensor


class StackedSnapshots(Protocol):
    """Several snapshots of one model, evaluated together; rows are the last axis.

    Attributes
    ----------
    n_snapshots : int
        How many there are.
    block_rows : int
        Rows to evaluate at a time.
    close_rows : int
        Rows to take apart at a time.
    typical_rows : int
        Rows that suffice to learn what is usual, and can be taken apart in reasonable time.
    """

    n_snapshots: int
    block_rows: int
    close_rows: int
    typical_rows: int

    def losses(self, columns: Tensor) -> Tensor:
        """Losses ``(n_snapshots, n_rows)`` of rows given as ``(n_features, n_rows)``."""
        ...

    def contributions(self, columns: Tensor) -> LossContributions:
        """Take the losses apart."""
        ...

    def expect(self, known: Tensor, cells: Tensor) -> tuple[Tensor, Tensor]:
        """Say what belongs into the cells of known rows, and how far other cells are from it.

        Both have the shape ``(n_looks, n_features, n_rows)``, to be averaged over the first axis;
        the distance is half the square of the number of deviations, and that of a table column is
        the sum over its features.
        """
        ...
