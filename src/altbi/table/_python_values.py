"""Values of Arrow columns as Python values, whatever their dates are."""

from typing import Any

import pyarrow as pa


def list_values(cells: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values of a column as Python objects, with None for missing ones.

    Nanoseconds are cut to microseconds. If a column has dates or times that Python does not
    support, such as dates after 9999, all its values are texts: a number of seconds, or of another
    unit.

    >>> list_values(pa.array([0, 10**7], pa.int32()).cast(pa.date32()))
    ['0 d', '10000000 d']
    """
    type_ = cells.type
    if pa.types.is_temporal(type_) and getattr(type_, "unit", None) == "ns":
        # Without pandas, pyarrow does not convert nanoseconds to Python.
        cells = cells.cast(_replace_nanoseconds(type_), safe=False)
    try:
        return list(cells.to_pylist())
    except (OverflowError, ValueError):
        unit = "d" if pa.types.is_date32(type_) else getattr(cells.type, "unit", "ms")
        integers = cells.cast(pa.int32() if type_.bit_width == 32 else pa.int64()).to_pylist()
        return [None if value is None else f"{value} {unit}" for value in integers]


def _replace_nanoseconds(type_: pa.DataType) -> pa.DataType:
    """Return the type of dates, times or durations with microseconds as its unit."""
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", type_.tz)
    return pa.duration("us") if pa.types.is_duration(type_) else pa.time64("us")
