"""Values of Arrow columns as Python values, whatever their dates are."""

from typing import Any

import pyarrow as pa


def list_values(cells: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values of a column as Python values, with None for missing ones.

    Nanoseconds are cut to microseconds. If a column has dates or durations that Python cannot
    hold, or an unknown time zone, all its values become texts. Dates of an unknown zone are in UTC.

    >>> list_values(pa.array([0, 10**7], pa.int32()).cast(pa.date32()))
    ['1970-01-01', '29349-01-26']
    """
    type_ = cells.type
    if pa.types.is_timestamp(type_) and type_.unit == "ns":  # pandas would be used otherwise
        cells = cells.cast(pa.timestamp("us", type_.tz), safe=False)
    try:
        return list(cells.to_pylist())
    except (OverflowError, ValueError, KeyError):
        if pa.types.is_timestamp(cells.type):
            cells = cells.cast(pa.timestamp(cells.type.unit))
        return list(cells.cast(pa.string()).to_pylist())
