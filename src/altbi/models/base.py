"""What training asks of a model."""

import abc

from torch import Tensor, nn

__all__ = ["GenerativeModel"]


class GenerativeModel(nn.Module, abc.ABC):
    """A model of rows: called on ``(n_rows, n_features)``, it gives ``(n_rows,)`` losses."""

    @abc.abstractmethod
    def forward(self, rows: Tensor) -> Tensor:
        """Give each row its negative log-likelihood, or a bound of it."""
