"""Values of Arrow columns as Python values."""

import datetime

import pyarrow as pa
import pytest

from altbi.table import list_values


def test_ordinary_values_are_python_values():
    day = datetime.date(2024, 2, 29)
    assert list_values(pa.chunked_array([[day], [None]])) == [day, None]
    assert list_values(pa.array([1.5, None])) == [1.5, None]
    first = pa.array([-(2**63) + 1, 1_500], pa.int64()).cast(pa.timestamp("ns"))
    assert list_values(first) == [
        datetime.datetime(1677, 9, 21, 0, 12, 43, 145225),
        datetime.datetime(1970, 1, 1, 0, 0, 0, 1),
    ]


@pytest.mark.parametrize(
    ("integers", "type_", "text"),
    [
        (2**31 - 1, pa.date32(), "2147483647 d"),
        (2**62, pa.date64(), f"{2**62} ms"),
        (2**62, pa.timestamp("us"), f"{2**62} us"),
        (2**62, pa.timestamp("ms", tz="UTC"), f"{2**62} ms"),
        (2**60, pa.duration("s"), f"{2**60} s"),
        (0, pa.timestamp("s", tz="Nowhere/At"), "0 s"),
    ],
)
def test_values_that_python_lacks_are_texts(integers, type_, text):
    width = pa.int32() if type_.bit_width == 32 else pa.int64()
    cells = pa.array([integers, None], width).cast(type_)

    value, missing = list_values(cells)

    assert value == text
    assert missing is None
