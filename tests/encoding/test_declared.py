import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from example_tables import make_table

from altbi.encoding import TableEncoder, declare_column, declare_columns
from altbi.errors import ParameterError

NAMES = ("size", "open", "day", "colour")
KINDS = ("number", "boolean", "date", "category")
BOUNDS = {"size": [0, 10], "day": ["2020-01-01", dt.date(2020, 1, 3)], "colour": ["red", "blue"]}


def test_declared_bounds_set_the_encoding():
    encoder = TableEncoder.from_columns(declare_columns(NAMES, KINDS, BOUNDS))
    table = make_table(
        size=[5.0, None],
        open=[True, False],
        day=pa.array([dt.datetime(2020, 1, 2), dt.datetime(2020, 1, 5)], pa.timestamp("us")),
        colour=["blue", "green"],
    )

    features = encoder.transform(table)

    expected = [[0.5, 0.25, 0.5, 0, 0.25, 0], [0.5, 0, 2, 0, 0, 0.25]]
    np.testing.assert_array_equal(features, np.float32(expected))
    assert encoder.describe_problems() == []
    assert encoder.drift(table).missing == {}
    assert TableEncoder.from_json(encoder.to_json()).columns == encoder.columns


def test_pair_of_numbers_bounds_all_columns():
    columns = declare_columns(("a", "b"), ("number", "boolean"), (-2, 2))
    assert [(column.low, column.high) for column in columns] == [(-2.0, 2.0), (0.0, 1.0)]


def test_estimated_bounds_may_be_seconds_or_empty():
    assert declare_column("day", "date", (0.0, 60.0)).high == 60.0
    assert declare_column("colour", "category", ()).categories == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight": [0, 1]}, "no column 'weight'. Expected some of: 'size'"),
        ({"size": [1, 0]}, "'size': .* number column. Expected two finite numbers, the smaller"),
        ({"size": [0, float("inf")]}, "two finite numbers"),
        ({"size": [0, 1, 2]}, "two finite numbers"),
        ({"size": 3}, "two finite numbers"),
        ({"size": [False, True]}, "two finite numbers"),
        ({"size": ["a", "b"]}, "two finite numbers"),
        ({"day": ["soon", "later"]}, "'day': .* date column. Expected two dates"),
        ({"day": [0, 1]}, "two dates"),
        ({"colour": ["red", "red"]}, "'colour': .* category column. Expected .* that all differ"),
        ({"colour": []}, "a list of its categories"),
        ({"colour": "red"}, "a list of its categories"),
        ({"colour": [1, 2]}, "a list of its categories"),
        ({"open": ["yes", "no"]}, "'open': .* boolean column. Expected False and True"),
        ({"open": [0.2, 0.9]}, "False and True"),
    ],
)
def test_invalid_bounds_are_rejected(changes, message):
    with pytest.raises(ParameterError, match=message):
        declare_columns(NAMES, KINDS, BOUNDS | changes)


def test_incomplete_bounds_are_rejected():
    with pytest.raises(ParameterError, match="column 'colour' has no bounds"):
        declare_columns(("size", "colour"), ("number", "category"), {"size": [0, 1]})
    with pytest.raises(ParameterError, match="'colour' holds a category, but bounds are two"):
        declare_columns(("size", "colour"), ("number", "category"), (0, 1))
