"""What to fit: the settings that an estimator, the command line or a model file asks for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal, Protocol, cast

import numpy as np

from altbi._parameters import ParameterObject, check_parameters, is_count, is_number, is_share
from altbi.encoding import ROLE_NAMES, StatedRole
from altbi.errors import ParameterError, quote
from altbi.model._threshold import Contamination, is_contamination
from altbi.networks import (
    IWAE,
    AltbiTraining,
    Backbone,
    OdimTraining,
    Schedule,
    Spread,
    TrainingProcedure,
)

# Network updates in each training step: if the loss is the score, if it only selects reference
# rows, and under a privacy budget. Each update costs privacy, so private training has few.
SCORING_UPDATES, SELECTING_UPDATES, PRIVATE_UPDATES = 5, 2, 1
ODIM_SAMPLES = 50
# Share of outliers under a privacy budget, where "auto" may not estimate one from the scores.
PRIVATE_CONTAMINATION = 0.1

RandomState = int | np.random.RandomState | None


class Privacy(Protocol):
    """Interface of a privacy budget; `altbi.torch.PrivacyBudget` implements it."""

    def validate(self) -> None:
        """Raise a `ParameterError` if a parameter has an invalid value."""
        ...

    def fit(self, table: Any, settings: "FitSettings", seed: int) -> Any:  # noqa: ANN401
        """Fit a model under the budget: yield each training step, and return the model."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceSettings:
    """How reference rows are selected; see `altbi.OutlierDetector` for the attributes."""

    keep: float
    n_reference: int
    n_groups: int
    whiten: bool | Literal["auto"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSettings:
    """The settings of a fit: all that it needs besides the table and labels."""

    detector: str  # name of the estimator with these settings
    parameters: dict[str, Any]  # of that estimator, as the user passed them
    training: TrainingProcedure
    reference: ReferenceSettings | None  # None for scores by loss
    scale_losses: bool  # whether each snapshot's losses are scaled before they are averaged
    privacy: Privacy | None
    contamination: Contamination  # share of outliers that sets the threshold
    threshold: float | None  # None computes it from `contamination`
    max_rows: int  # largest number of rows in the training sample
    random_state: RandomState
    # Roles of columns by name that the user states; all others are inferred.
    column_roles: Mapping[str, StatedRole] = field(default_factory=dict)

    @property
    def uses_labels(self) -> bool:
        """Whether a fit can use labels: not for ODIM, and not under a privacy budget."""
        return isinstance(self.training, AltbiTraining) and self.privacy is None


def outlier_detector_settings(
    *,
    n_reference: int = 1000,
    n_groups: int = 20,
    keep: float = 0.8,
    whiten: bool | Literal["auto"] = "auto",
    column_roles: Mapping[str, StatedRole] | None = None,
    schedule: Schedule | None = None,
    backbone: Backbone | None = None,
    outlier_weight: float = 1.0,
    label_trust: float = 0.75,
    contamination: Contamination = "auto",
    threshold: float | None = None,
    max_rows: int = 200_000,
    random_state: RandomState = 0,
) -> FitSettings:
    """Return the settings of `altbi.OutlierDetector`, which has the same parameters.

    An invalid parameter raises a `ParameterError`.
    """
    parameters = dict(locals())
    _check_values("OutlierDetector", parameters)
    return FitSettings(
        detector="OutlierDetector",
        parameters=parameters,
        training=AltbiTraining(
            schedule=_resolve_schedule(schedule, SELECTING_UPDATES),
            backbone=_resolve_backbone(backbone),
            outlier_weight=outlier_weight,
            label_trust=label_trust,
        ),
        reference=ReferenceSettings(
            keep=keep, n_reference=n_reference, n_groups=n_groups, whiten=whiten
        ),
        scale_losses=True,
        privacy=None,
        column_roles=dict(column_roles or {}),
        **_select_fit_options(parameters),
    )


def altbi_settings(
    *,
    schedule: Schedule | None = None,
    backbone: Backbone | None = None,
    privacy: Privacy | None = None,
    average: Literal["scaled", "plain"] = "scaled",
    outlier_weight: float = 1.0,
    label_trust: float = 0.75,
    contamination: Contamination = "auto",
    threshold: float | None = None,
    max_rows: int = 200_000,
    random_state: RandomState = 0,
) -> FitSettings:
    """Return the settings of `altbi.ALTBI`, which has the same parameters.

    An invalid parameter raises a `ParameterError`. Under a privacy budget, losses are never scaled.
    """
    parameters = dict(locals())
    _check_values("ALTBI", parameters)
    network = _resolve_backbone(backbone)
    if privacy is not None:
        _check_privacy(privacy, network)
    updates = SCORING_UPDATES if privacy is None else PRIVATE_UPDATES
    return FitSettings(
        detector="ALTBI",
        parameters=parameters,
        training=AltbiTraining(
            schedule=_resolve_schedule(schedule, updates),
            backbone=network,
            outlier_weight=outlier_weight,
            label_trust=label_trust,
            may_stop_early=privacy is not None,
        ),
        reference=None,
        scale_losses=average == "scaled" and privacy is None,
        privacy=privacy,
        **_select_fit_options(parameters),
    )


def odim_settings(
    *,
    n_models: int = 10,
    batch_size: int = 64,
    check_every: int = 10,
    patience: int = 100,
    max_updates: int = 10_000,
    spread: Spread = "deviation",
    backbone: IWAE | None = None,
    contamination: Contamination = "auto",
    max_rows: int = 200_000,
    random_state: RandomState = 0,
) -> FitSettings:
    """Return the settings of `altbi.ODIM`, which has the same parameters.

    An invalid parameter raises a `ParameterError`.
    """
    parameters = dict(locals())
    _check_values("ODIM", parameters)
    return FitSettings(
        detector="ODIM",
        parameters=parameters,
        training=OdimTraining(
            backbone=_resolve_backbone(backbone or IWAE(n_samples=ODIM_SAMPLES)),
            n_models=n_models,
            batch_size=batch_size,
            check_every=check_every,
            patience=patience,
            max_updates=max_updates,
            spread=spread,
        ),
        reference=None,
        scale_losses=False,
        privacy=None,
        **_select_fit_options(parameters),
    )


_BUILDERS: Mapping[str, Callable[..., FitSettings]] = {
    "OutlierDetector": outlier_detector_settings,
    "ALTBI": altbi_settings,
    "ODIM": odim_settings,
}


def build_settings(detector: str, parameters: Mapping[str, Any]) -> FitSettings:
    """Return the checked settings of a detector by its name: OutlierDetector, ALTBI or ODIM.

    Parameters that are left out have their default values. Invalid values raise a `ParameterError`,
    unknown parameters a `TypeError`.
    """
    return _BUILDERS[detector](**parameters)


_COUNT = (is_count, "a whole number of at least 1")
_ROWS = (lambda value: is_count(value, 2), "a whole number of at least 2 rows")
# For each parameter: a function that checks its value, and a description of the valid values.
_VALUE_RULES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "n_reference": _ROWS,
    "n_groups": _COUNT,
    "keep": (is_share, "a share in (0, 1]"),
    "whiten": (lambda value: value == "auto" or isinstance(value, bool), "True, False or 'auto'"),
    "column_roles": (
        lambda value: is_role_mapping(value),
        f"a dict from names of columns to roles ({', '.join(ROLE_NAMES)}), or None",
    ),
    "n_models": _COUNT,
    "batch_size": _ROWS,
    "check_every": _COUNT,
    "patience": _COUNT,
    "max_updates": _COUNT,
    "spread": (lambda value: value in ("deviation", "variance"), "'deviation' or 'variance'"),
    "average": (lambda value: value in ("scaled", "plain"), "'scaled' or 'plain'"),
    "outlier_weight": (lambda value: is_number(value, 0), "a number of at least 0"),
    "label_trust": (is_share, "a share in (0, 1]"),
    "contamination": (is_contamination, "a share in (0, 0.5] or 'auto'"),
    "threshold": (lambda value: value is None or is_number(value), "a finite number or None"),
    "max_rows": _ROWS,
    "random_state": (
        lambda value: is_random_state(value),
        "a whole number from 0 to 2**63 - 1, a RandomState or None",
    ),
}


def _select_fit_options(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that all detectors pass to a fit unchanged.

    A parameter that the detector does not have is None, such as the threshold of ODIM.
    """
    names = ("contamination", "threshold", "max_rows", "random_state")
    return {name: parameters.get(name) for name in names}


def _check_values(detector: str, parameters: Mapping[str, Any]) -> None:
    """Raise a `ParameterError` for the first value that is invalid.

    Schedules, budgets, and the backbones of all detectors but ODIM are checked elsewhere.
    """
    rules = {
        name: (_VALUE_RULES[name][0](value), _VALUE_RULES[name][1])
        for name, value in parameters.items()
        if name in _VALUE_RULES
    }
    if detector == "ODIM":
        is_supported = parameters["backbone"] is None or _is_reference_iwae(parameters["backbone"])
        rules["backbone"] = (is_supported, "an IWAE with network='reference', or None")
    check_parameters(detector, parameters, rules)


def _is_reference_iwae(backbone: object) -> bool:
    """Return whether a backbone is an IWAE with ``network="reference"``."""
    return isinstance(backbone, IWAE) and backbone.network == "reference"


def is_random_state(value: object) -> bool:
    """Return whether a value is None, a `RandomState` or an integer from 0 to 2**63 - 1."""
    if is_count(value, 0):
        return int(cast(int, value)) < 2**63
    return value is None or isinstance(value, np.random.RandomState)


def is_role_mapping(value: object) -> bool:
    """Return whether a value is None, or a mapping from names of columns to roles."""
    return value is None or (
        isinstance(value, Mapping)
        and all(isinstance(name, str) and role in ROLE_NAMES for name, role in value.items())
    )


def _resolve_schedule(schedule: Schedule | None, updates: int) -> Schedule:
    """Return a copy of a schedule in which the number `updates` replaces "auto".

    None is ``Schedule()``. Other types and invalid values raise a `ParameterError`.
    """
    schedule = Schedule() if schedule is None else schedule
    if not isinstance(schedule, Schedule):
        raise ParameterError(f"schedule={quote(schedule)}, but expected a Schedule or None.")
    schedule.validate()
    return schedule.resolve_updates(updates)


def _resolve_backbone(backbone: Any) -> Backbone:  # noqa: ANN401 - a backbone or the user's module
    """Return a validated backbone; None is ``IWAE()``.

    A class, function or module of the user's own becomes a `CustomBackbone`. Other types and
    invalid values raise a `ParameterError`.
    """
    if backbone is None:
        backbone = IWAE()
    elif not hasattr(backbone, "describe_state"):  # not a backbone
        if isinstance(backbone, str) or not callable(backbone):
            raise ParameterError(
                f"backbone={quote(backbone)}, but expected an IWAE, a Glow, a CustomBackbone, or a "
                "class, function or nn.Module that maps rows to losses."
            )
        backbone = import_module("altbi.torch").CustomBackbone(backbone)
    backbone.validate()
    return cast(Backbone, backbone)


def _check_privacy(privacy: Privacy, backbone: Backbone) -> None:
    """Raise a `ParameterError` for an invalid budget, or for a backbone that it does not support.

    Only an IWAE with ``network="reference"`` is supported.
    """
    if not (isinstance(privacy, ParameterObject) and hasattr(privacy, "epsilon")):
        raise ParameterError(f"privacy={quote(privacy)}, but expected a PrivacyBudget or None.")
    privacy.validate()
    if not _is_reference_iwae(backbone):
        raise ParameterError(
            f"ALTBI: backbone={quote(backbone, 200)}, but a privacy budget needs an IWAE with "
            "network='reference'. Leave out backbone or privacy."
        )
