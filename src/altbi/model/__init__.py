"""Fitted models: fit, score, explain, save and load.

Names are imported when they are used, because most of them load torch and some need none of it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from altbi.model._fit import fit_model, iter_fit
    from altbi.model._fitted_model import FittedModel, load
    from altbi.model._header import TrainingTable
    from altbi.model._settings import FitSettings, build_settings

__all__ = [
    "FitSettings",
    "FittedModel",
    "TrainingTable",
    "build_settings",
    "fit_model",
    "iter_fit",
    "load",
]

_MODULES = {
    "FitSettings": "_settings",
    "FittedModel": "_fitted_model",
    "TrainingTable": "_header",
    "build_settings": "_settings",
    "fit_model": "_fit",
    "iter_fit": "_fit",
    "load": "_fitted_model",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name not in _MODULES:
        raise AttributeError(f"module 'altbi.model' has no attribute {name!r}")
    return getattr(importlib.import_module(f"altbi.model.{_MODULES[name]}"), name)
