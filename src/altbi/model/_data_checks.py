"""What is worth knowing about a table before one believes its scores, one sentence each."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from altbi.io import ScanResult
from altbi.model._fitted_model import FittedModel

__all__ = ["check_data"]

# A counter shows in a few rows already; fewer could be chance.
_LEAST_ROWS = 10


def check_data(found: ScanResult, model: FittedModel) -> Iterator[str]:
    """Say what the training sample shows: types, gaps, constants, rare levels, copies, counters."""
    encoder = model.encoder
    if model.ledger is not None:
        yield from found.notes
        yield from model.ledger.find_problems(model.training_table.n_rows)
        return  # all else would tell of the rows what no budget covers
    units = encoder.transform(found.sample)
    yield from found.notes
    yield from encoder.describe_changes()
    yield from encoder.find_problems(units)
    yield from _copies(units)
    yield from _counters(found)


def _copies(units: NDArray[np.float32]) -> Iterator[str]:
    """Count rows that the model cannot tell from an earlier one."""
    copies = len(units) - len({hash(row.tobytes()) for row in units})
    if copies:
        yield (
            f"{copies} of {len(units)} rows of the training sample ({copies / len(units):.2%}) "
            "look the same to the model as other rows in it: copies, or alike but for rare levels."
        )


def _counters(found: ScanResult) -> Iterator[str]:
    """Name the columns that only count the rows."""
    sample, rows = found.sample, found.sample_rows
    if len(rows) < _LEAST_ROWS:
        return
    for number, name in enumerate(sample.names):
        if sample.kinds[number] == "number" and _counts(sample.numbers([number])[:, 0], rows):
            yield (
                f"Column {name!r} rises by the same step from row to row: a counter says nothing "
                "about a row. Leave it out (--exclude), or let it name the rows (--id)."
            )


def _counts(values: NDArray[np.float64], rows: NDArray[np.int64]) -> bool:
    step = (values[1] - values[0]) / (rows[1] - rows[0])
    return bool(step != 0 and (values == values[0] + (rows - rows[0]) * step).all())
