"""A model that someone else wrote: any module that maps rows to losses."""

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import final

import torch
from torch import Tensor, nn

from altbi.errors import ParameterError
from altbi.networks import GenerativeModel

__all__ = ["CustomModel", "ModuleFactory", "backbone_label"]

_CHECKED_ROWS = 64
# Another thread may draw while we look whether the module does; hardly so every time.
_LOOKS = 3

# Called with the number of features, it returns a module. A module itself is copied.
ModuleFactory = Callable[[int], nn.Module] | nn.Module


@final
class CustomModel(GenerativeModel):
    """A module that maps rows ``(n_rows, n_features)`` to losses ``(n_rows,)``.

    Parameters
    ----------
    backbone : callable or nn.Module
        A class or a function that is called with the number of features and gives the module; or
        a module, of which a copy is taken with the weights it has.
    n_features : int
        Columns of the rows.

    Examples
    --------
    >>> class Centre(nn.Module):
    ...     def __init__(self, n_features):
    ...         super().__init__()
    ...         self.centre = nn.Parameter(torch.zeros(n_features))
    ...
    ...     def forward(self, rows):
    ...         return (rows - self.centre).square().sum(1)
    >>> CustomModel(Centre, n_features=2)(torch.ones(3, 2)).tolist()
    [2.0, 2.0, 2.0]
    """

    def __init__(self, backbone: ModuleFactory, n_features: int) -> None:
        super().__init__()
        self.label = backbone_label(backbone)
        module = deepcopy(backbone) if isinstance(backbone, nn.Module) else backbone(n_features)
        if not isinstance(module, nn.Module):
            raise ParameterError(
                f"backbone: {self.label} gave a {type(module).__name__} for {n_features} features, "
                "but expected a torch.nn.Module that maps rows to losses."
            )
        if not any(parameter.requires_grad for parameter in module.parameters()):
            raise ParameterError(
                f"backbone: {self.label} has no parameters to train, but expected a "
                "torch.nn.Module that learns."
            )
        self.module = module

    def start(self, generator: torch.Generator) -> None:
        """Leave the module as it was made."""

    def redraw(self) -> None:
        """Leave the module as it is."""

    def initialize(self, generator: torch.Generator) -> None:
        """Move the module to the generator's device, with the weights that it has."""
        self.to(generator.device)

    def forward(self, rows: Tensor) -> Tensor:
        """Give each row its loss, or say what else the module gave."""
        losses = self.module(rows)
        if not isinstance(losses, Tensor) or losses.shape != rows.shape[:1]:
            found = f"shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else type(losses)
            raise ParameterError(
                f"backbone: {self.label} gave {found} for rows of shape {tuple(rows.shape)}, but "
                f"expected losses of shape ({len(rows)},), one for each row."
            )
        return losses

    @torch.no_grad()
    def check_trained(self, rows: Tensor, untrained: GenerativeModel) -> None:
        """Raise an error if a row's loss depends on other rows, or is lost by saving."""
        self.cpu()
        rows = rows[:_CHECKED_ROWS].clone()
        self.eval()
        losses = self(rows)
        if all(self._draws(rows) for _ in range(_LOOKS)):
            raise ParameterError(
                f"backbone: {self.label} draws from torch's global random state, or sets it, in "
                "evaluation mode. Expected that it does so only while self.training is True; noise "
                "for scores can be kept in a buffer, the same for all rows."
            )
        if not _same(self(rows), losses, tolerance=0):
            raise ParameterError(
                f"backbone: {self.label} gives a row another loss in another call. Expected that "
                "in evaluation mode (when self.training is False) it draws no noise, changes "
                "nothing of its own, and leaves the rows as they are."
            )
        company = rows.clone()
        company[1::2] = 1 - company[1::2]
        elsewhere = self(rows.flip(0)).flip(0)
        if not (_same(self(company)[::2], losses[::2], 1e-5) and _same(elsewhere, losses)):
            raise ParameterError(
                f"backbone: {self.label} gives a row another loss in other company. Expected that "
                "in evaluation mode (when self.training is False) it looks at no other row (as "
                "solvers that adapt their steps do), and has no noise of its own for each row."
            )
        self._check_state(rows, losses, untrained)

    def _draws(self, rows: Tensor) -> bool:
        torch.rand(1)  # away from where a module that sets the state has left it
        before = torch.get_rng_state()
        self(rows)
        return not torch.equal(torch.get_rng_state(), before)

    def _check_state(self, rows: Tensor, losses: Tensor, fresh: GenerativeModel) -> None:
        """Refuse a module of which a file would not hold all."""
        for name, tensor in self.module.state_dict().items():
            if not tensor.isfinite().all():
                raise ParameterError(
                    f"backbone: {name!r} of {self.label} is not finite, and no model file holds "
                    "such numbers. A buffer that is always the same can be registered with "
                    "persistent=False; if it was learned, lower learning_rate."
                )
        try:
            fresh.load_state_dict(self.state_dict())
        except RuntimeError as cause:
            raise ParameterError(
                f"backbone: a new {self.label} cannot take what this one learned ({cause}). "
                "Expected that names and shapes of its state are always the same."
            ) from None
        if not _same(fresh.eval()(rows), losses):
            raise ParameterError(
                f"backbone: a new {self.label} with the same state gives other losses. Expected "
                "that all it learns are parameters and buffers."
            )


def _same(losses: Tensor, others: Tensor, tolerance: float = 1e-3) -> bool:
    return torch.allclose(losses, others, rtol=tolerance, atol=tolerance / 10, equal_nan=True)


def backbone_label(backbone: ModuleFactory) -> str:
    """Name a backbone, for people to read."""
    named = type(backbone) if isinstance(backbone, nn.Module) else backbone
    named = named.func if isinstance(named, partial) else named
    return str(getattr(named, "__name__", type(named).__name__))
