"""Small tables for the tests of the encoder."""

import datetime as dt

import pyarrow as pa
from hypothesis import assume
from hypothesis import strategies as st

from altbi.table import as_table

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
VALUES = {
    "number": (FLOATS, pa.float64()),
    "boolean": (st.booleans(), pa.bool_()),
    "date": (st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1)), pa.timestamp("us")),
    "category": (st.text("abcé€", max_size=2), pa.string()),
}
MIXED_DAYS = [dt.datetime(2020, 1, 1), dt.datetime(2022, 1, 1), None, None]


def make_table(**columns):
    return as_table(pa.table(columns))


MIXED = make_table(
    size=[1.0, None, 3.0, 2.0],
    flag=pa.array([True, False, None, True]),
    day=pa.array(MIXED_DAYS, pa.timestamp("s")),
    colour=["red", "red", None, "blue"],
    still=[7, 7, 7, 7],
    void=pa.nulls(4),
)


@st.composite
def tables(draw, has_missing=True):
    """A strategy for tables with columns of all kinds, and at least one value."""
    n_rows = draw(st.integers(1, 12))
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=5))
    columns = {}
    for number, kind in enumerate(kinds):
        values, type_ = VALUES[kind]
        values = st.none() | values if has_missing and draw(st.booleans()) else values
        column = draw(st.lists(values, min_size=n_rows, max_size=n_rows))
        columns[f"c{number}"] = pa.array(column, type_)
    assume(any(column.null_count < n_rows for column in columns.values()))
    return as_table(pa.table(columns))
