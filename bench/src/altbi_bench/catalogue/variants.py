"""ALTBI-I with one setting changed at a time: the paper's ablations as systems of their own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from altbi_bench.catalogue.suggestions import no_such
from altbi_bench.catalogue.systems import SYSTEMS, Recipe, System

__all__ = [
    "BASE",
    "KNOWN",
    "MOST_FEATURES",
    "NEITHER",
    "PANELS",
    "VARIANTS",
    "Panel",
    "find_panels",
]

# What all variants are changed from: what produced the paper's numbers.
BASE = SYSTEMS["ALTBI-I (reference)"]

NEITHER = {"gamma": 1, "rho": 1}
# One table is wider (InternetAds, 1,555 columns): its network takes as long as those of ten others.
MOST_FEATURES = 200


@final
@dataclass(frozen=True, slots=True)
class Panel:
    """One setting and the values that it is given.

    Parameters
    ----------
    name : str
        What the paper calls it.
    parameter : str
        What the detector calls it.
    default : float
        Its value in `BASE`.
    values : tuple of float
        All values, the default among them, in order.
    table : str or None
        The paper's table of it; None where there is only a figure without numbers.
    most_features : int
        Columns of the widest table it is run on.
    logarithmic : bool
        Whether its values are drawn on a logarithmic axis.
    note : str
        What a reader of its table should know.
    """

    name: str
    parameter: str
    default: float
    values: tuple[float, ...]
    table: str | None
    most_features: int = MOST_FEATURES
    logarithmic: bool = False
    note: str = ""

    def system(self, value: float) -> System:
        """Take the system that has the value."""
        return BASE if value == self.default else VARIANTS[_title({self.parameter: value})]


# The paper's values; of n0 it prints none.
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
            note="from 1.05 on the sample of 5,000 rows ends the growth of the batch",
        ),
        # The decoder works on K times as many rows: a wide table would take hours.
        Panel(
            "K",
            "draws",
            2,
            (1, 2, 5, 10, 20, 50, 70, 100),
            "B.8",
            most_features=10,
            logarithmic=True,
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


def _title(changes: Mapping[str, Any]) -> str:
    return "ALTBI-I, " + ", ".join(f"{name} {value:g}" for name, value in changes.items())


def _variant(changes: Mapping[str, Any]) -> System:
    recipe = Recipe(BASE.recipe.source, changes)
    return System(_title(changes), None, recipe, smoke=BASE.smoke, aside=True)


VARIANTS = {
    system.name: system
    for system in (
        _variant(NEITHER),
        *(
            _variant({panel.parameter: value})
            for panel in PANELS.values()
            for value in panel.values
            if value != panel.default
        ),
    )
}

# All that a line can be about.
KNOWN = {**SYSTEMS, **VARIANTS}


def find_panels(names: list[str] | None) -> list[Panel]:
    """Take panels by the detector's name of the setting; without names all."""
    if unknown := [name for name in names or () if name not in PANELS]:
        raise no_such("setting", unknown, PANELS, f"Expected: {', '.join(PANELS)}")
    return [panel for panel in PANELS.values() if names is None or panel.parameter in names]
