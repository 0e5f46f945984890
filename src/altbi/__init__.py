"""Find outliers in tables that nobody has labelled, and explain them.

Names are imported when they are used: ``import altbi`` alone does not load scikit-learn.
"""

from typing import TYPE_CHECKING

from altbi._lazy import import_lazily
from altbi._version import __version__

if TYPE_CHECKING:
    from altbi.cells import WrongCells, find_cells
    from altbi.detection import Detection
    from altbi.detectors import ALTBI, ODIM, OutlierDetector
    from altbi.errors import AltbiError
    from altbi.explain import Explanation
    from altbi.io import open_table
    from altbi.model import FittedModel, load
    from altbi.networks import IWAE, Schedule
    from altbi.pipeline import detect

__all__ = [
    "ALTBI",
    "IWAE",
    "ODIM",
    "AltbiError",
    "Detection",
    "Explanation",
    "FittedModel",
    "OutlierDetector",
    "Schedule",
    "WrongCells",
    "__version__",
    "detect",
    "find_cells",
    "load",
    "open_table",
]

_MODULES = {
    "ALTBI": "altbi.detectors",
    "AltbiError": "altbi.errors",
    "Detection": "altbi.detection",
    "Explanation": "altbi.explain",
    "FittedModel": "altbi.model",
    "IWAE": "altbi.networks",
    "ODIM": "altbi.detectors",
    "OutlierDetector": "altbi.detectors",
    "Schedule": "altbi.networks",
    "WrongCells": "altbi.cells",
    "detect": "altbi.pipeline",
    "find_cells": "altbi.cells",
    "load": "altbi.model",
    "open_table": "altbi.io",
}

__getattr__ = import_lazily(__name__, _MODULES)


def __dir__() -> list[str]:
    """Return all names, also of those that are imported at their first use."""
    return sorted({*globals(), *__all__})
