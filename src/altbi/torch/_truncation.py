"""Which rows of a batch count, and what deciding that gives away.

Loss truncation leaves out the largest losses of a batch. The rule by which it does so must not let
one row change the sum of the others' gradients without a bound.
"""

import abc
import math
from typing import final

import torch
from torch import Tensor

__all__ = ["Tracked", "Trimmed", "Truncation", "create_truncation"]

# Share of the joint release of gradient and count that goes to the count.
COUNT_SHARE = 0.02
# How fast the tracked threshold follows, and where it starts: what a row costs per unit before
# anything is learned, for units in [0, 1]. Bounded log-variances keep losses per unit above -6.
_PACE = 0.2
_START = 0.1
_FLOOR = -7.0
# Much noise must not throw it where no loss is: by so much in a step, and within these heights.
_MOST = 1.0
_LEAST_HEIGHT, _MOST_HEIGHT = 0.1, 210.0


class Truncation(abc.ABC):
    """A rule for the rows of a batch that count.

    Attributes
    ----------
    name : str
        Name of the rule in the ledger.
    guaranteed : bool
        Whether adding or removing a row changes the sum of clipped gradients by at most
        `sensitivity` clipping norms.
    sensitivity : float
        The most that one row changes the sum, in clipping norms, where losses are left out.
    count_share : float
        Share of the noise's budget that goes to a count released with the gradient; 0 if there is
        none.
    """

    name: str
    guaranteed: bool = True
    sensitivity: float = 1.0
    count_share: float = 0.0

    @abc.abstractmethod
    def kept(self, losses: Tensor, share: float) -> Tensor:
        """Mark the rows of a batch that count."""

    @abc.abstractmethod
    def observe(self, losses: Tensor, noise: float, expected_rows: float, share: float) -> None:
        """Learn from a batch what the next one needs; `noise` is what a count of rows gets."""


@final
class Tracked(Truncation):
    """Count rows up to a threshold, which follows a noisy count of such rows.

    The threshold comes from earlier releases only, so a row decides about itself alone. The count
    is released together with the gradient: one Gaussian on a vector that is longer by one number.

    Parameters
    ----------
    n_features_encoded : int
        Units of a row; losses grow with them.

    References
    ----------
    Andrew, Thakkar, McMahan, Ramaswamy: Differentially private learning with adaptive clipping.
    NeurIPS 2021.
    """

    name = "tracked"
    count_share = COUNT_SHARE

    def __init__(self, n_features_encoded: int) -> None:
        self.n_features_encoded = n_features_encoded
        self.per_unit = _START

    def kept(self, losses: Tensor, share: float) -> Tensor:
        """Mark the rows whose loss does not exceed the threshold."""
        if share >= 1:
            return torch.ones_like(losses, dtype=torch.bool)
        return self._below(losses)

    def observe(self, losses: Tensor, noise: float, expected_rows: float, share: float) -> None:
        """Move the threshold to where the wanted share of rows lies below it."""
        # Each row adds a half or takes it away: less than a count from 0 to 1 would give away.
        excess = float((self._below(losses).double() - 0.5).sum() + noise)
        below = 0.5 + excess / expected_rows
        step = min(max(_PACE * (share - below), -_MOST), _MOST)
        height = (self.per_unit - _FLOOR) * math.exp(step)
        self.per_unit = _FLOOR + min(max(height, _LEAST_HEIGHT), _MOST_HEIGHT)

    def _below(self, losses: Tensor) -> Tensor:
        return losses.detach() <= self.per_unit * self.n_features_encoded


@final
class Trimmed(Truncation):
    """Count the share of the batch with the smallest losses.

    A row more or less moves at most one other over the border, so the sum changes by at most two
    clipping norms: twice the noise.
    """

    name = "trimmed"
    sensitivity = 2.0

    def kept(self, losses: Tensor, share: float) -> Tensor:
        """Mark the rows with the smallest losses; of equal ones the first."""
        order = torch.sort(losses.detach(), stable=True).indices
        kept = torch.zeros_like(losses, dtype=torch.bool)
        kept[order[: math.ceil(share * len(losses))]] = True
        return kept

    def observe(self, losses: Tensor, noise: float, expected_rows: float, share: float) -> None:
        """Learn nothing: each batch decides for itself."""


def create_truncation(choice: str | type[Truncation], n_features_encoded: int) -> Truncation:
    """Return a new rule by its name, or of a class."""
    if isinstance(choice, type):
        return choice()
    return Tracked(n_features_encoded) if choice == "tracked" else Trimmed()
