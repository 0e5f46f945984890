"""Custom networks: any module that maps rows to losses."""

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import final

import torch
from torch import Tensor, nn

from altbi.errors import ParameterError, quote
from altbi.torch._networks import GenerativeModel

_N_CHECKED_ROWS = 64
# Another thread may use the global random state during one check, but hardly during all of them.
_N_RANDOM_CHECKS = 3

# Called with the number of features, it returns a module. A module itself is copied.
ModuleFactory = Callable[[int], nn.Module] | nn.Module


@final
class CustomModel(GenerativeModel):
    """A module that maps rows ``(n_rows, n_features)`` to losses ``(n_rows,)``.

    `backbone` is a class or function that takes the number of features and returns the module, or a
    module, which is copied with its weights. Raise a `ParameterError` if there is no module, or if
    it has no parameters to train.
    """

    def __init__(self, backbone: ModuleFactory, n_features: int) -> None:
        super().__init__()
        self.label = backbone_label(backbone)
        module = deepcopy(backbone) if isinstance(backbone, nn.Module) else backbone(n_features)
        if not isinstance(module, nn.Module):
            raise ParameterError(
                f"backbone: {self.label} returned a {type(module).__name__} for {n_features} "
                "features. Return a torch.nn.Module that maps rows to losses."
            )
        if not any(parameter.requires_grad for parameter in module.parameters()):
            raise ParameterError(
                f"backbone: {self.label} has no parameters to train. Pass a torch.nn.Module with "
                "parameters that require gradients."
            )
        self.module = module

    def initialize_weights(self, generator: torch.Generator) -> None:
        """Do nothing: the module keeps the weights it was built with."""

    def resample_noise(self) -> None:
        """Do nothing: the module keeps its state."""

    def initialize(self, generator: torch.Generator) -> None:
        """Move the module to the generator's device; its weights do not change."""
        self.to(generator.device)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the losses ``(n_rows,)`` of the module.

        Raise a `ParameterError` if the output is not a tensor of this shape.
        """
        losses = self.module(rows)
        if not isinstance(losses, Tensor) or losses.shape != rows.shape[:1]:
            output = f"shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else type(losses)
            raise ParameterError(
                f"backbone: {self.label} returned {output} for rows of shape {tuple(rows.shape)}. "
                f"Return losses of shape ({len(rows)},), one for each row."
            )
        return losses

    @torch.no_grad()
    def check_trained(self, rows: Tensor, untrained: GenerativeModel) -> None:
        """Raise a `ParameterError` if the trained module cannot be scored or saved.

        In evaluation mode, losses must not depend on other rows, on earlier calls or on torch's
        global random state. A new module with the same state must have the same losses. The first
        64 rows are checked. The module is moved to the CPU and stays in evaluation mode.
        `untrained` gets the trained state.
        """
        self.cpu()
        rows = rows[:_N_CHECKED_ROWS].clone()
        self.eval()
        losses = self(rows)
        if all(self._uses_random_state(rows) for _ in range(_N_RANDOM_CHECKS)):
            raise ParameterError(
                f"backbone: {self.label} uses or sets torch's global random state in evaluation "
                "mode. Do so only while self.training is True. Keep noise for scoring in a buffer "
                "that is the same for all rows."
            )
        if not _is_close(self(rows), losses, tolerance=0):
            raise ParameterError(
                f"backbone: {self.label} returns different losses for the same rows in two calls. "
                "In evaluation mode (self.training is False), sample no noise, and change neither "
                "the state of the module nor the rows."
            )
        other_rows = rows.clone()
        other_rows[1::2] = 1 - other_rows[1::2]
        reordered = self(rows.flip(0)).flip(0)
        is_same = _is_close(self(other_rows)[::2], losses[::2], 1e-5)
        if not (is_same and _is_close(reordered, losses)):
            raise ParameterError(
                f"backbone: {self.label} returns losses that depend on the other rows of a batch. "
                "In evaluation mode (self.training is False), use each row alone, without solvers "
                "that adapt their steps to the batch and without separate noise for each row."
            )
        self._check_state(rows, losses, untrained)

    def _uses_random_state(self, rows: Tensor) -> bool:
        """Return whether evaluating rows changes torch's global random state.

        The check itself advances that state by one sample.
        """
        torch.rand(1)  # changes the state, in case the module always sets the same one
        before = torch.get_rng_state()
        self(rows)
        return not torch.equal(torch.get_rng_state(), before)

    def _check_state(self, rows: Tensor, losses: Tensor, untrained: GenerativeModel) -> None:
        """Raise a `ParameterError` if the module cannot be restored from its state dict.

        All tensors of the state must be finite. `untrained` must be able to load the state, and
        must then return the same losses. It keeps the loaded state and is in evaluation mode.
        """
        for name, tensor in self.module.state_dict().items():
            if not tensor.isfinite().all():
                raise ParameterError(
                    f"backbone: {quote(name)} of {self.label} is not finite, and model files hold "
                    "only finite values. Register a constant buffer with persistent=False. If the "
                    "values were trained, lower learning_rate."
                )
        try:
            untrained.load_state_dict(self.state_dict())
        except RuntimeError as cause:
            raise ParameterError(
                f"backbone: a new {self.label} cannot load the trained state ({cause}). "
                "Keep the names and shapes of its state the same in all instances."
            ) from None
        if not _is_close(untrained.eval()(rows), losses):
            raise ParameterError(
                f"backbone: a new {self.label} with the same state returns other losses. "
                "Store everything that is trained in parameters and buffers."
            )


def _is_close(losses: Tensor, others: Tensor, tolerance: float = 1e-3) -> bool:
    """Return whether losses are equal up to a tolerance; two NaN are equal."""
    return torch.allclose(losses, others, rtol=tolerance, atol=tolerance / 10, equal_nan=True)


def backbone_label(backbone: ModuleFactory) -> str:
    """Return the name of a backbone for messages and model files.

    It is the name of the class or function. For a module it is the name of its class, and for a
    partial that of its function.
    """
    named = type(backbone) if isinstance(backbone, nn.Module) else backbone
    named = named.func if isinstance(named, partial) else named
    return str(getattr(named, "__name__", type(named).__name__))
