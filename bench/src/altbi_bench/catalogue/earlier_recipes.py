"""Descriptions of systems in records of version 0.1.

Detectors were renamed later, and their parameters were grouped into objects. Scores are the same,
so these records stay valid. The list is frozen: new records have the current names.
"""

from collections.abc import Mapping
from typing import Any

__all__ = ["ABLATION", "find_earlier_recipes"]

EarlierRecipe = tuple[str, Mapping[str, Any]]

# Prefix of the names of ablations.
ABLATION = "ALTBI-I, "
REFERENCE = "altbi:ALTBI.reference"
_NOVELTY = "altbi:ALTBI.novelty"
_UNSUPERVISED: dict[str, tuple[EarlierRecipe, ...]] = {
    "ALTBI": (("altbi:ALTBI", {}),),
    "ALTBI-I (paper)": (("altbi:ALTBI.paper", {}),),
    "ALTBI-I (reference)": ((REFERENCE, {}),),
    "ALTBI-I (untruncated)": ((REFERENCE, {"rho": 1}),),
    # At first, losses were the only score, and records did not mention it.
    "ALTBI-G (light)": (
        ("altbi:ALTBI", {"backbone": "glow"}),
        ("altbi:ALTBI", {"backbone": "glow", "score_by": "loss"}),
    ),
    "ALTBI-G (reference)": ((REFERENCE, {"backbone": "glow"}),),
    "ALTBI-G (half reference)": (
        (REFERENCE, {"backbone": "glow", "hidden": [128, 128], "max_batch": 500}),
    ),
    "ODIM": (("altbi:ODIM.reference", {}),),
}
_SEMISUPERVISED: dict[str, tuple[EarlierRecipe, ...]] = {
    "ALTBI": (("altbi:ALTBI", {"keep": 1}),),
    "ALTBI-I (reference)": ((_NOVELTY, {}),),
    "ALTBI-I (untruncated)": ((_NOVELTY, {"rho": 1}),),
    "ALTBI-G (reference)": ((_NOVELTY, {"backbone": "glow"}),),
}


def find_earlier_recipes(name: str, setting: str) -> tuple[EarlierRecipe, ...]:
    """Return the sources and parameters of a system's earlier records.

    The name of an ablation states its parameters.

    >>> find_earlier_recipes("ALTBI-I, gamma 1, rho 1", "unsupervised")
    (('altbi:ALTBI.reference', {'gamma': 1.0, 'rho': 1.0}),)
    """
    if name.startswith(ABLATION):
        pairs = (pair.split(" ") for pair in name.removeprefix(ABLATION).split(", "))
        return ((REFERENCE, {parameter: float(value) for parameter, value in pairs}),)
    unsupervised = _UNSUPERVISED.get(name, ())
    return _SEMISUPERVISED.get(name, unsupervised) if setting == "semisupervised" else unsupervised
