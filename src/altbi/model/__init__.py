"""Fitted models: fit, score, explain, save and load."""

from os import PathLike
from typing import Any

from altbi.model._fit import fit_model, iter_fit
from altbi.model._fitted_model import FittedModel, TrainingTable
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


def load(path: str | PathLike[str], *, backbone: Any = None) -> FittedModel:  # noqa: ANN401
    """Read a fitted model from a file.

    Parameters
    ----------
    path : str or path
        The file.
    backbone : class, function or nn.Module, optional
        Your own network, if the model was fitted with one. A file only holds its name, and nothing
        is imported by that name.

    Returns
    -------
    FittedModel
        The model.

    Raises
    ------
    ModelFileError
        If the file is damaged, of another program, or of another version.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import altbi
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     altbi.OutlierDetector().fit(X).save(Path(folder, "model.altbi"))
    ...     model = altbi.load(Path(folder, "model.altbi"))
    >>> model.score(X).shape
    (200,)
    """
    return FittedModel.load(path, backbone=backbone)
