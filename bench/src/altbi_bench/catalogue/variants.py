"""Variants of ALTBI-I with one parameter changed: the systems of the paper's ablations."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from altbi_bench.catalogue.earlier_recipes import ABLATION
from altbi_bench.catalogue.suggestions import unknown_name_error
from altbi_bench.catalogue.systems import SYSTEMS, Recipe, System

__all__ = [
    "ALL_SYSTEMS",
    "BASE",
    "MAX_FEATURES",
    "NEITHER",
    "PANELS",
    "VARIANTS",
    "Panel",
    "find_panels",
]

# The system that all variants are derived from: it produced the paper's numbers.
BASE = SYSTEMS["ALTBI-I (reference)"]
# Parameters that belong to the network; the others belong to the schedule.
NETWORK = ("n_samples", "learning_rate")
# One table is wider (InternetAds, 1,555 columns) and takes as long as ten others.
MAX_FEATURES = 200


@final
@dataclass(frozen=True, slots=True)
class Panel:
    """One parameter and its values.

    Parameters
    ----------
    name : str
        Name in the paper.
    parameter : str
        Name in `altbi.Schedule` or `altbi.IWAE`.
    default : float
        Value in `BASE`.
    values : tuple of float
        All values that are run, including the default.
    table : str or None
        Table in the paper; None if there is only a figure without numbers.
    max_features : int
        Largest number of columns of the tables it is run on.
    logarithmic : bool
        Whether the axis of the figure is logarithmic.
    record_name : str
        Name in records and in the paper's numbers, if it differs.
    note : str
        Remark about its table.
    """

    name: str
    parameter: str
    default: float
    values: tuple[float, ...]
    table: str | None
    max_features: int = MAX_FEATURES
    logarithmic: bool = False
    record_name: str = ""
    note: str = ""

    def find_system(self, value: float) -> System:
        """Return the system with this value."""
        return BASE if value == self.default else VARIANTS[self.system_name(value)]

    def system_name(self, value: float) -> str:
        """Return the name of the system with this value."""
        return _format_name({self.record_name or self.parameter: value})


# The paper's values; it has no numbers for n0.
PANELS = {
    panel.parameter: panel
    for panel in (
        Panel("rho", "rho", 0.92, (0.9, 0.92, 0.94, 0.96, 0.98, 1), "B.6"),
        Panel(
            "gamma",
            "gamma",
            1.03,
            (1, 1.01, 1.02, 1.03, 1.04, 1.05, 1.07, 1.1),
            "B.7",
            note="from 1.05 on, batches stop growing at the 5,000 rows of the sample",
        ),
        # The decoder runs on K times as many rows, so that a wide table would take hours.
        Panel(
            "K",
            "n_samples",
            2,
            (1, 2, 5, 10, 20, 50, 70, 100),
            "B.8",
            max_features=10,
            logarithmic=True,
            record_name="draws",
        ),
        Panel(
            "learning rate",
            "learning_rate",
            1e-3,
            (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 1e-1),
            "B.9",
            logarithmic=True,
        ),
        Panel("n0", "n0", 128, (16, 32, 64, 128, 256, 512, 1024), None, logarithmic=True),
    )
}


def _format_name(changes: Mapping[str, Any]) -> str:
    return ABLATION + ", ".join(f"{name} {value:g}" for name, value in changes.items())


def _variant(name: str, changes: Mapping[str, Any]) -> System:
    network = {key: value for key, value in changes.items() if key in NETWORK}
    schedule = {key: value for key, value in changes.items() if key not in NETWORK}
    parameters = {
        **({"backbone": {"class": "altbi:IWAE", **network}} if network else {}),
        **({"schedule": {"class": "altbi:Schedule", **schedule}} if schedule else {}),
    }
    recipe = Recipe(BASE.recipe.source, parameters)
    return System(name, None, recipe, smoke=BASE.smoke, on_request=True)


_WITHOUT_BOTH = {"gamma": 1, "rho": 1}
# Without growing batches and without truncation.
NEITHER = _variant(_format_name(_WITHOUT_BOTH), _WITHOUT_BOTH)
VARIANTS = {
    system.name: system
    for system in (
        NEITHER,
        *(
            _variant(panel.system_name(value), {panel.parameter: value})
            for panel in PANELS.values()
            for value in panel.values
            if value != panel.default
        ),
    )
}

# All systems that records can have.
ALL_SYSTEMS = {**SYSTEMS, **VARIANTS}


def find_panels(names: list[str] | None) -> list[Panel]:
    """Return panels by parameter; without names, all."""
    if unknown := [name for name in names or () if name not in PANELS]:
        raise unknown_name_error("setting", unknown, PANELS, f"Expected: {', '.join(PANELS)}")
    return [panel for panel in PANELS.values() if names is None or panel.parameter in names]
