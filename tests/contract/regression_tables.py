"""Three small tables whose scores are stored."""

import numpy as np
import pyarrow as pa

__all__ = ["TABLES"]


def make_numbers():
    """Return a table of numbers with correlated columns and two outliers."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(150, 2)) @ rng.normal(size=(2, 5)) + 0.1 * rng.normal(size=(150, 5))
    X[3] += 4
    X[7, 2] = -9
    return X


def make_mixed():
    """Return a table with numbers, categories, booleans, dates and missing values."""
    rng = np.random.default_rng(2)
    n = 160
    return pa.table(
        {
            "amount": pa.array(rng.lognormal(size=n), mask=rng.random(n) < 0.1),
            "city": rng.choice(["Rome", "Oslo", "Lima"], n, p=[0.6, 0.3, 0.1]),
            "paid": rng.random(n) < 0.8,
            "day": pa.array(rng.integers(0, 10**9, n), pa.timestamp("s")),
        }
    )


def make_wide():
    """Return a table that is wide enough for whitened distances."""
    rng = np.random.default_rng(3)
    return rng.normal(size=(140, 6)) @ rng.normal(size=(6, 110)) + rng.normal(size=(140, 110))


TABLES = {"numbers": make_numbers, "mixed": make_mixed, "wide": make_wide}
