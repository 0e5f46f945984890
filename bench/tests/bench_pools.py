"""Small pools of tables for tests."""

import numpy as np

from altbi_bench.catalogue.pools import PoolTable


def build_rows(n_rows=60, n_features=3, seed=0):
    """Return rows and labels; the last five rows are far from the others."""
    X = np.random.default_rng(seed).normal(size=(n_rows, n_features))
    y = np.zeros(n_rows, dtype=np.int64)
    y[-5:] = 1
    X[-5:] += 8
    return X, y


def build_table(name, pool="oddbench", half="confirm", **shape):
    """Return a table of a pool that is not read from a file."""
    return PoolTable(pool, name, half, lambda: build_rows(**shape))


def build_record(system, table, value, *, pool="oddbench", half="confirm", seed=0):
    """Return the record of a run; its average precision is half its AUC. None: it failed."""
    record = {"pool": pool, "half": half, "table": table, "system": system, "seed": seed}
    if value is None:
        return record | {"error": "no"}
    return record | {"auc": value, "ap": value / 2, "seconds": 1.0}
