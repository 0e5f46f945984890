"""Passes over a table in partitions: in this process or on a Dask cluster, resumable."""

from altbi.distributed._batches import ScoreBatches, score_batches
from altbi.distributed._dask import Dask
from altbi.distributed._engine import Engine, Local
from altbi.distributed._pipeline import DistributedPipeline

__all__ = ["Dask", "DistributedPipeline", "Engine", "Local", "ScoreBatches", "score_batches"]
