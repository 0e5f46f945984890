"""Fitted models: fit, score, explain, save and load. Names are imported when they are used."""

from typing import TYPE_CHECKING

from altbi._lazy import import_lazily

if TYPE_CHECKING:
    from altbi.model._file import TrainingTable
    from altbi.model._fit import iter_fit
    from altbi.model._fitted_model import FittedModel, load
    from altbi.model._settings import FitSettings, build_settings

__all__ = [
    "FitSettings",
    "FittedModel",
    "TrainingTable",
    "build_settings",
    "iter_fit",
    "load",
]

__getattr__ = import_lazily(
    __name__,
    {
        "FitSettings": "altbi.model._settings",
        "FittedModel": "altbi.model._fitted_model",
        "TrainingTable": "altbi.model._file",
        "build_settings": "altbi.model._settings",
        "iter_fit": "altbi.model._fit",
        "load": "altbi.model._fitted_model",
    },
)
