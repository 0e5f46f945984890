"""Passes over a table in partitions: in this process or on a Dask cluster, resumable."""

from altbi.distributed._engines import Dask, Engine, Local
from altbi.distributed._score_batches import SCHEMA, ScoreBatches, score_batches
from altbi.distributed._tls import TLS

__all__ = [
    "SCHEMA",
    "TLS",
    "Dask",
    "Engine",
    "Local",
    "ScoreBatches",
    "score_batches",
]
