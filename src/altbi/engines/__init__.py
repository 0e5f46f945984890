"""Where work runs: this process, processes of this machine, or a Dask cluster.

What scores record batches is imported when it is used, because it brings pyarrow and torch along.
"""

import importlib
from typing import TYPE_CHECKING, Any

from altbi.engines.base import Engine, Local
from altbi.engines.dask import Dask
from altbi.engines.processes import Processes

if TYPE_CHECKING:
    from altbi.engines.batches import ScoreBatches, score_batch, score_batches

__all__ = [
    "Dask",
    "Engine",
    "Local",
    "Processes",
    "ScoreBatches",
    "score_batch",
    "score_batches",
]

_BATCHES = ("ScoreBatches", "score_batch", "score_batches")


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name not in _BATCHES:
        raise AttributeError(f"module 'altbi.engines' has no attribute {name!r}")
    return getattr(importlib.import_module("altbi.engines.batches"), name)
