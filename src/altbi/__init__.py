"""Find the odd rows in tables and embeddings that nobody has labelled, and say why.

Names are imported when they are used: ``import altbi`` alone loads neither torch nor scikit-learn.
"""

import importlib
from typing import TYPE_CHECKING, Any

from altbi.version import __version__

if TYPE_CHECKING:
    from altbi.detectors import ALTBI, ODIM, Detector
    from altbi.encode import TableEncoder
    from altbi.errors import AltbiError
    from altbi.explain import Explanation
    from altbi.schedule import Schedule

__all__ = [
    "ALTBI",
    "ODIM",
    "AltbiError",
    "Detector",
    "Explanation",
    "Schedule",
    "TableEncoder",
    "__version__",
]

_HOMES = {
    "ALTBI": "altbi.detectors",
    "AltbiError": "altbi.errors",
    "Detector": "altbi.detectors",
    "ODIM": "altbi.detectors",
    "Explanation": "altbi.explain",
    "Schedule": "altbi.schedule",
    "TableEncoder": "altbi.encode",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name not in _HOMES:
        raise AttributeError(f"module 'altbi' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
