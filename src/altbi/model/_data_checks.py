"""Data checks: what to know about a table before using its scores."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from altbi.io import ScanResult
from altbi.model._fitted_model import FittedModel

# In fewer rows, equal steps could be a coincidence.
MIN_COUNTER_ROWS = 10


def check_data(found: ScanResult, model: FittedModel) -> Iterator[str]:
    """Yield warnings about the training sample.

    They concern types, missing values, constants, rare categories, duplicates and row counters.
    Under a privacy budget only the warnings of the first pass and of the privacy ledger are given,
    which reveal nothing about rows.
    """
    yield from found.notes
    if model.ledger is not None:
        yield from model.ledger.check(model.training_table.n_rows)
        return
    features = model.encoder.transform(found.sample)
    yield from model.encoder.describe_changes()
    yield from model.encoder.check_sample(features)
    yield from _check_duplicates(features)
    yield from _check_counters(found)


def _check_duplicates(features: NDArray[np.float32]) -> Iterator[str]:
    """Yield one warning if several rows have the same encoded features; none otherwise.

    Rows are compared by their hash values.
    """
    n_rows = len(features)
    n_duplicates = n_rows - len({hash(row.tobytes()) for row in features})
    if n_duplicates:
        yield (
            f"{n_duplicates} of {n_rows} rows of the training sample ({n_duplicates / n_rows:.2%}) "
            "are duplicates, or differ from other rows only in rare categories."
        )


def _check_counters(found: ScanResult) -> Iterator[str]:
    """Yield a warning for each number column that only numbers the rows.

    Samples of fewer than 10 rows yield none.
    """
    sample, rows = found.sample, found.sample_rows
    if len(rows) < MIN_COUNTER_ROWS:
        return
    for number, name in enumerate(sample.names):
        if sample.kinds[number] == "number" and _is_counter(sample.numbers([number])[:, 0], rows):
            yield (
                f"Column {name!r} rises by the same step from row to row, so it only numbers the "
                "rows. Exclude it (--exclude), or use it as row id (--id)."
            )


def _is_counter(values: NDArray[np.float64], rows: NDArray[np.int64]) -> bool:
    """Return whether values rise or fall by the same step from row to row of the table.

    `rows` holds the row numbers of the values. Constants and columns with missing values return
    False.
    """
    step = (values[1] - values[0]) / (rows[1] - rows[0])
    return bool(step != 0 and (values == values[0] + (rows - rows[0]) * step).all())
