"""The interface of networks written in PyTorch."""

import abc

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
        """Initialize the allocated weights in place by a random generator.

        The network keeps the generator and takes all later noise from it.
        """

    @abc.abstractmethod
    def resample_noise(self) -> None:
        """Replace the stored noise for scoring by new noise; do nothing if there is none."""

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
