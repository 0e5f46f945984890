"""Small tables and fast detectors for the tests of pipelines and commands."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv

from altbi import ALTBI, IWAE, OutlierDetector, Schedule
from altbi.io import ColumnSelection, open_table
from altbi.pipeline import Pipeline

FAST = {
    "schedule": Schedule(n0=32, T0=1, T1=2, T2=4),
    "backbone": IWAE(hidden=(8,), latent=2),
}


def fast_detector(**parameters):
    return OutlierDetector(**FAST | parameters)


def fast_altbi(**parameters):
    """Return a fast detector that scores by loss."""
    return ALTBI(**FAST | parameters)


def fast_settings(**parameters):
    return fast_detector(**parameters).settings()


def mixed_table(n_rows, seed=0):
    """Return a table with columns of all kinds and missing values."""
    rng = np.random.default_rng(seed)

    def with_missing(values):
        return pa.array(values, mask=rng.random(n_rows) < 0.03)

    return pa.table(
        {
            "size": with_missing(rng.normal(size=n_rows)),
            "count": with_missing(rng.integers(0, 1000, n_rows)),
            "colour": with_missing(rng.choice(["red", "green", "a, b", 'a "b"'], n_rows)),
            "sold": with_missing(rng.random(n_rows) < 0.3),
            "day": with_missing(
                np.datetime64("2024-01-01", "us") + rng.integers(0, 10**12, n_rows)
            ),
            "invoice": pa.array([f"{i:07}" for i in range(n_rows)]),
        }
    )


def write_csv(table, path):
    pyarrow.csv.write_csv(table, path)


def write_json_lines(table, path):
    path.write_text("".join(json.dumps(row, default=str) + "\n" for row in table.to_pylist()))


def create_pipeline(path, **options):
    """Return the pipeline of a file; `top` is its own option, the others select columns."""
    top = options.pop("top", 200)
    return Pipeline(open_table(path), ColumnSelection(**options), top=top)


class CollectingWriter:
    """A writer that keeps the tables it receives."""

    def __init__(self):
        self.tables = []

    def __call__(self, schema):
        self.schema = schema
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def write(self, table):
        assert table.schema == self.schema
        self.tables.append(table)

    @property
    def table(self):
        return pa.concat_tables(self.tables)
