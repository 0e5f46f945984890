"""Loss truncation under a privacy budget: rules that select the rows of a batch that count.

Loss truncation leaves out the largest losses of a batch. Under a privacy budget, the rule must
bound how much one row can change the sum of the clipped gradients.
"""

import abc
import math
from typing import final

import torch
from torch import Tensor

# Share of the joint release of gradient and count that is spent on the count.
COUNT_SHARE = 0.02
# Learning rate of the tracked threshold, and its initial value: the loss per encoded feature of an
# untrained network for values in [0, 1].
_TRACKING_RATE = 0.2
_INITIAL_THRESHOLD = 0.1
# Losses per encoded feature are above -6, because log-variances are at least -6.
_LOWEST_LOSS = -7.0
# Limits that keep noise from moving the threshold out of the range of losses. The first one is for
# a change of the log-distance from the lowest loss, the others for that distance.
_MAX_CHANGE = 1.0
_MIN_DISTANCE, _MAX_DISTANCE = 0.1, 210.0


class Truncation(abc.ABC):
    """A rule that selects the rows of a batch that count.

    Attributes
    ----------
    name : str
        Name of the rule in the ledger.
    guaranteed : bool
        Whether adding or removing a row changes the sum of clipped gradients by at most
        `sensitivity` clipping norms.
    sensitivity : float
        Largest change of the sum by one row, in clipping norms, in steps that truncate losses.
    count_share : float
        Share of the noise budget that is spent on a count released with the gradient. 0 means that
        there is no count.
    """

    name: str
    guaranteed: bool = True
    sensitivity: float = 1.0
    count_share: float = 0.0

    @abc.abstractmethod
    def select(self, losses: Tensor, share: float) -> Tensor:
        """Return a mask of the rows of a batch whose gradients count.

        `share` is the share of the rows that should count; 1 selects all rows.
        """

    @abc.abstractmethod
    def observe(self, losses: Tensor, noise: float, expected_rows: float, share: float) -> None:
        """Update the rule after a batch, in place.

        `noise` is to be added to a count of rows. `expected_rows` is the public expected batch
        size, and `share` is the share of rows that should count.
        """


@final
class Tracked(Truncation):
    """Select rows up to a threshold that follows noisy counts of such rows.

    The threshold depends on earlier releases only, so a row cannot change whether another row
    counts. The count is released together with the gradient, as one more value of the same vector.

    Parameters
    ----------
    n_features_encoded : int
        Encoded features of a row, with which losses grow.

    References
    ----------
    Andrew, Thakkar, McMahan, Ramaswamy: Differentially private learning with adaptive clipping.
    NeurIPS 2021.
    """

    name = "tracked"
    count_share = COUNT_SHARE

    def __init__(self, n_features_encoded: int) -> None:
        self.n_features_encoded = n_features_encoded
        self.per_feature = _INITIAL_THRESHOLD

    def select(self, losses: Tensor, share: float) -> Tensor:
        """Return a mask of the rows up to the threshold; all rows for a share of 1."""
        if share >= 1:
            return torch.ones_like(losses, dtype=torch.bool)
        return self._is_below(losses)

    def observe(self, losses: Tensor, noise: float, expected_rows: float, share: float) -> None:
        """Move the threshold towards the quantile `share` of the losses, in place.

        Only the noisy number of rows up to the threshold is used. The change and the threshold are
        limited.
        """
        # Rows count as 1/2 or -1/2, because 0 or 1 would double the sensitivity.
        excess = float((self._is_below(losses).double() - 0.5).sum() + noise)
        share_below = 0.5 + excess / expected_rows
        change = min(max(_TRACKING_RATE * (share - share_below), -_MAX_CHANGE), _MAX_CHANGE)
        distance = (self.per_feature - _LOWEST_LOSS) * math.exp(change)
        self.per_feature = _LOWEST_LOSS + min(max(distance, _MIN_DISTANCE), _MAX_DISTANCE)

    def _is_below(self, losses: Tensor) -> Tensor:
        """Return a mask of the losses up to the threshold times the number of features."""
        return losses.detach() <= self.per_feature * self.n_features_encoded


@final
class Trimmed(Truncation):
    """Select the share of the batch with the smallest losses.

    Adding or removing a row changes whether at most one other row counts. The sum changes by at
    most two clipping norms, which needs twice the noise.
    """

    name = "trimmed"
    sensitivity = 2.0

    def select(self, losses: Tensor, share: float) -> Tensor:
        """Return a mask of the share of rows with the smallest losses, rounded up.

        Of equal losses, the first ones are selected.
        """
        order = torch.sort(losses.detach(), stable=True).indices
        is_kept = torch.zeros_like(losses, dtype=torch.bool)
        is_kept[order[: math.ceil(share * len(losses))]] = True
        return is_kept

    def observe(self, losses: Tensor, noise: float, expected_rows: float, share: float) -> None:
        """Do nothing: the rule depends on the current batch only."""


def create_truncation(choice: str | type[Truncation], n_features_encoded: int) -> Truncation:
    """Create a rule from its name, "tracked" or "trimmed", or from its class.

    A class is created without arguments. Only "tracked" uses `n_features_encoded`.
    """
    if isinstance(choice, type):
        return choice()
    return Tracked(n_features_encoded) if choice == "tracked" else Trimmed()
