"""The privacy budget of a fit."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Literal

from altbi._parameters import ParameterObject, check_parameters, is_number
from altbi.encoding import Bounds
from altbi.errors import import_extra
from altbi.model._fitted_model import FittedModel
from altbi.model._settings import FitSettings
from altbi.networks import TrainingStep, is_positive
from altbi.table import Table

if TYPE_CHECKING:  # it loads PyTorch, which scoring does not need
    from altbi.torch._private_training import Truncation


class PrivacyBudget(ParameterObject):
    """A budget of differential privacy for a fit of `altbi.ALTBI`.

    The gradient of each row is clipped, and noise is added to their sum. The model file holds no
    rows, and everything in it is covered by the budget. `FittedModel.ledger` lists the releases.
    The noise cannot be reproduced, so two fits differ. Requires the extra "privacy".

    Parameters
    ----------
    epsilon : float
        The budget; smaller values protect rows better.
    delta : float in (0, 1), default=1e-06
        Probability with which the guarantee of epsilon may fail. It should be smaller than one
        divided by the number of rows.
    bounds : pair, dict, "estimate" or None, default=None
        The bounds ``(low, high)`` of all columns, or a dict with the bounds or the categories of
        each column. "estimate" spends a tenth of the budget on them. With None, `fit` raises a
        `ParameterError`.
    clip : float, default=1.0
        Norm to which the gradient of each row is clipped.
    noise : float or "auto", default='auto'
        Standard deviation of the noise, as a multiple of the largest change by one row. "auto" is
        the smallest noise with which the complete training stays within the budget. With a number,
        training stops before the budget is exceeded.
    truncation : {"tracked", "trimmed"}, default='tracked'
        Losses that are left out. "tracked": losses above a threshold that follows noisy counts.
        "trimmed": the largest losses of the batch, which needs twice the noise.

    Examples
    --------
    >>> from altbi import ALTBI
    >>> from altbi.torch import PrivacyBudget
    >>> ALTBI(privacy=PrivacyBudget(epsilon=3.0, bounds=(0, 1))).privacy
    PrivacyBudget(epsilon=3.0, bounds=(0, 1))
    """

    def __init__(
        self,
        epsilon: float,
        *,
        delta: float = 1e-6,
        bounds: Bounds | Literal["estimate"] | None = None,
        clip: float = 1.0,
        noise: float | Literal["auto"] = "auto",
        truncation: Literal["tracked", "trimmed"] | type[Truncation] = "tracked",
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.clip = clip
        self.noise = noise
        self.truncation = truncation

    def validate(self) -> None:
        """Raise a `ParameterError` if a parameter has an invalid value."""
        rules = {
            "epsilon": (is_positive(self.epsilon), "a number above 0"),
            "delta": (
                is_number(self.delta, 0, 1) and 0 < self.delta < 1,
                "a number between 0 and 1",
            ),
            "bounds": (
                _are_bounds(self.bounds),
                "(low, high), a dict of bounds and categories by column, 'estimate' or None",
            ),
            "clip": (is_positive(self.clip), "a number above 0"),
            "noise": (
                self.noise == "auto" or is_positive(self.noise),
                "a number above 0, or 'auto'",
            ),
            "truncation": (_is_truncation(self.truncation), "'tracked' or 'trimmed'"),
        }
        check_parameters("PrivacyBudget", self.get_params(), rules)

    def fit(
        self, table: Table, settings: FitSettings, seed: int
    ) -> Generator[TrainingStep, None, FittedModel]:
        """Fit a model under the budget: yield after each training step, and return the model.

        Raises a `ParameterError` if bounds are missing or the table has too many rows.

        Parameters
        ----------
        table : Table
            The table.
        settings : FitSettings
            Settings with this budget.
        seed : int
            Seed of the initial weights and of the noise for scoring. Batches and privacy noise come
            from a secret source that cannot be reproduced.

        Returns
        -------
        generator
            Yields the training steps and returns the model.
        """
        import_extra("torch", extra="privacy")
        from altbi.torch._private_fit import fit_privately

        return fit_privately(self, table, settings, seed)


def _is_truncation(value: object) -> bool:
    """Return whether a value is "tracked", "trimmed" or a subclass of `Truncation`."""
    if isinstance(value, type):
        from altbi.torch._private_training import Truncation

        return issubclass(value, Truncation)
    return value in ("tracked", "trimmed")


def _are_bounds(value: object) -> bool:
    """Return whether a value has the type of bounds; their contents are checked by `fit`.

    Accepted are None, "estimate", any tuple or list, and mappings with text keys.
    """
    if isinstance(value, Mapping):
        return all(isinstance(name, str) for name in value)
    if isinstance(value, str):
        return value == "estimate"
    return value is None or isinstance(value, tuple | list)
