"""What to fit: the settings that an estimator, the command line or a model file asks for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

import numpy as np

from altbi._parameters import ParameterObject, check_parameters, is_count, is_number, is_share
from altbi.errors import ParameterError, import_extra
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
Rules = dict[str, tuple[bool, str]]


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
    """The settings of a fit: all that it needs besides the table and labels.

    Attributes
    ----------
    detector : str
        Name of the estimator with these settings.
    parameters : dict
        The parameters of that estimator, as the user passed them.
    training : TrainingProcedure
        How the network is trained.
    reference : ReferenceSettings or None
        How reference rows are selected, for scores by distance. None for scores by loss.
    scale_losses : bool
        Whether each snapshot's losses are scaled to their range before they are averaged.
    privacy : Privacy or None
        A privacy budget.
    contamination : float or "auto"
        Share of outliers that sets the threshold.
    threshold : float or None
        The declared threshold. None computes it from `contamination`.
    max_rows : int
        Largest number of rows in the training sample.
    random_state : int, RandomState or None
        Seed of the fit.
    """

    detector: str
    parameters: dict[str, Any]
    training: TrainingProcedure
    reference: ReferenceSettings | None
    scale_losses: bool
    privacy: Privacy | None
    contamination: Contamination
    threshold: float | None
    max_rows: int
    random_state: RandomState

    @property
    def uses_labels(self) -> bool:
        """Whether a fit can use labels: not for ODIM, and not under a privacy budget."""
        return isinstance(self.training, AltbiTraining) and self.privacy is None


def outlier_detector_settings(
    *,
    n_reference: int = 1000,
    n_groups: int = 5,
    keep: float = 0.8,
    whiten: bool | Literal["auto"] = "auto",
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
    least = 2 * n_groups if is_count(n_groups) else 2
    rules = {
        "n_reference": (
            is_count(n_reference, least),
            f"a whole number of at least {least}, two for each group",
        ),
        "n_groups": (is_count(n_groups), "a whole number of at least 1"),
        "keep": (is_share(keep), "a share in (0, 1]"),
        "whiten": (whiten == "auto" or isinstance(whiten, bool), "True, False or 'auto'"),
        **_build_label_rules(outlier_weight, label_trust),
        **_build_common_rules(contamination, threshold, max_rows, random_state),
    }
    check_parameters("OutlierDetector", parameters, rules)
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
    rules = {
        "average": (average in ("scaled", "plain"), "'scaled' or 'plain'"),
        **_build_label_rules(outlier_weight, label_trust),
        **_build_common_rules(contamination, threshold, max_rows, random_state),
    }
    check_parameters("ALTBI", parameters, rules)
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
    count = "a whole number of at least 1"
    rules = {
        "n_models": (is_count(n_models), count),
        "batch_size": (is_count(batch_size, 2), "a whole number of at least 2 rows"),
        "check_every": (is_count(check_every), count),
        "patience": (is_count(patience), count),
        "max_updates": (is_count(max_updates), count),
        "spread": (spread in ("deviation", "variance"), "'deviation' or 'variance'"),
        "backbone": (
            backbone is None or (isinstance(backbone, IWAE) and backbone.network == "reference"),
            "an IWAE with network='reference', or None",
        ),
        **_build_common_rules(contamination, None, max_rows, random_state),
    }
    check_parameters("ODIM", {**parameters, "threshold": None}, rules)
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
    """Return the settings of a detector by its name.

    Parameters
    ----------
    detector : {"OutlierDetector", "ALTBI", "ODIM"}
        The detector.
    parameters : mapping
        Its parameters; those that are left out have their default values.

    Returns
    -------
    FitSettings
        The checked settings.

    Raises
    ------
    ParameterError
        If a parameter has an invalid value.
    """
    return _BUILDERS[detector](**parameters)


def _select_fit_options(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that all detectors pass to a fit unchanged.

    A parameter that the detector does not have is None, such as the threshold of ODIM.
    """
    names = ("contamination", "threshold", "max_rows", "random_state")
    return {name: parameters.get(name) for name in names}


def _build_label_rules(outlier_weight: object, label_trust: object) -> Rules:
    """Return the rules of `check_parameters` for parameters about labels."""
    return {
        "outlier_weight": (is_number(outlier_weight, 0), "a number of at least 0"),
        "label_trust": (is_share(label_trust), "a share in (0, 1]"),
    }


def _build_common_rules(
    contamination: object, threshold: object, max_rows: object, random_state: object
) -> Rules:
    """Return the rules of `check_parameters` for parameters that all detectors have."""
    return {
        "contamination": (is_contamination(contamination), "a share in (0, 0.5] or 'auto'"),
        "threshold": (threshold is None or is_number(threshold), "a finite number or None"),
        "max_rows": (is_count(max_rows, 2), "a whole number of at least 2 rows"),
        "random_state": (
            is_random_state(random_state),
            "a whole number from 0 to 2**63 - 1, a RandomState or None",
        ),
    }


def is_random_state(value: object) -> bool:
    """Return whether a value is None, a `RandomState` or an integer from 0 to 2**63 - 1."""
    if is_count(value, 0):
        return int(cast(int, value)) < 2**63
    return value is None or isinstance(value, np.random.RandomState)


def _resolve_schedule(schedule: Schedule | None, updates: int) -> Schedule:
    """Return a copy of a schedule in which `updates` replaces "auto"; None is ``Schedule()``.

    Other types and invalid values raise a `ParameterError`.
    """
    schedule = Schedule() if schedule is None else schedule
    if not isinstance(schedule, Schedule):
        raise ParameterError(f"schedule={schedule!r}, but expected a Schedule or None.")
    schedule.validate()
    return schedule.resolve_updates(updates)


def _resolve_backbone(backbone: Any) -> Backbone:  # noqa: ANN401 - a backbone or the user's module
    """Return a validated backbone; None is ``IWAE()``.

    A class, function or module of the user's own becomes a `CustomBackbone`. Other types and
    invalid values raise a `ParameterError`.
    """
    if backbone is None:
        backbone = IWAE()
    elif not isinstance(backbone, ParameterObject):
        if isinstance(backbone, str) or not callable(backbone):
            raise ParameterError(
                f"backbone={backbone!r}, but expected an IWAE, a Glow, a CustomBackbone, or a "
                "class, function or nn.Module that maps rows to losses."
            )
        backbone = import_extra("altbi.torch", extra="torch").CustomBackbone(backbone)
    backbone.validate()
    return cast(Backbone, backbone)


def _check_privacy(privacy: Privacy, backbone: Backbone) -> None:
    """Raise a `ParameterError` for an invalid budget, or for a backbone that it does not support.

    Only an IWAE with ``network="reference"`` is supported.
    """
    if not isinstance(privacy, ParameterObject):
        raise ParameterError(f"privacy={privacy!r}, but expected a PrivacyBudget or None.")
    privacy.validate()
    if not isinstance(backbone, IWAE) or backbone.network != "reference":
        raise ParameterError(
            f"ALTBI: backbone={backbone!r}, but a privacy budget needs an IWAE with "
            "network='reference'. Leave out backbone or privacy."
        )
