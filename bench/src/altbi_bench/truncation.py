"""The truncation rule of the paper's private training, which does not guarantee its budget."""

import math
from typing import final

import torch
from torch import Tensor

from altbi.torch._private_training import Truncation

__all__ = ["Previous"]


@final
class Previous(Truncation):
    """Count rows whose loss is at most a quantile of the previous batch's losses.

    This is the paper's rule. The quantile is never released and has no noise. One row of the
    previous batch can move it past many losses of this batch, so that the noise is too small and
    epsilon is not guaranteed.

    Examples
    --------
    >>> from altbi import ALTBI
    >>> from altbi.torch import PrivacyBudget
    >>> detector = ALTBI(privacy=PrivacyBudget(epsilon=10, bounds=(0, 1), truncation=Previous))
    """

    name = "previous"
    guaranteed = False

    def __init__(self) -> None:
        self.threshold = math.inf

    def select(self, losses: Tensor, share: float) -> Tensor:
        """Return which rows count: those whose loss is at most the threshold."""
        if share >= 1:
            return torch.ones_like(losses, dtype=torch.bool)
        return losses.detach() <= self.threshold

    def observe(self, losses: Tensor, noise: float, expected_rows: float, share: float) -> None:
        """Set the threshold to a quantile of the batch; in the warm-up, to its largest loss."""
        if len(losses):
            self.threshold = float(torch.quantile(losses.detach(), share))
