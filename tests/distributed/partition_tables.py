"""Helper functions for the tests of distributed pipelines."""

import dataclasses

import pyarrow as pa

from altbi.distributed._pipeline import DistributedPipeline
from altbi.io import ColumnSelection, open_table

N_ROWS, PARTITION_ROWS = 6_000, 1_200
FEATURES = ["size", "count", "colour", "sold", "day"]
SELECTION = ColumnSelection(ids=("invoice",), label="bad")


def create_pipeline(engine, path, selection=SELECTION, **options):
    return DistributedPipeline(open_table(path), selection, engine, **options)


def read_folder(folder):
    source = open_table(folder)
    return pa.Table.from_batches(list(source.batches(source.schema.names)))


def score_with(engine, path, model, folder):
    """Score a table; return the pipeline, the prepared table, the summary and the scores."""
    pipeline = create_pipeline(engine, path)
    prepared = pipeline.prepare(model)
    scored = pipeline.score_into(prepared, folder)
    return pipeline, prepared, scored, read_folder(folder)


def summarize(pipeline, prepared, scored):
    explained = pipeline.explain_top(prepared, scored)
    return dataclasses.replace(pipeline.summarize(prepared, scored, explained), created="")
