"""Arrays as tables: conversion to numbers and to Arrow, and errors."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from altbi.errors import TableError
from altbi.table import as_arrow_table, as_table, to_arrow

RECORDS = np.zeros(3, dtype=[("a", "f8"), ("b", "i4")])
HIDDEN = [[False, True], [False, False]]


@pytest.mark.parametrize("convert", [as_table, as_arrow_table])
@pytest.mark.parametrize(
    ("X", "words"),
    [
        (np.ones((2, 2), complex), "holds complex128"),
        (np.ma.MaskedArray(np.ones((2, 2), complex), HIDDEN), "holds complex128"),
        (np.array([[1, 2j]], dtype=object), "1"),
        (RECORDS, "holds [('a', '<f8'), ('b', '<i4')]"),
        (RECORDS[:, None], "holds [('a'"),
        (np.zeros((2, 2), "V8"), "holds |V8"),
        (np.array([[b"x"]]), "holds |S1"),
        (np.ones((2, 2, 2)), "3 dimension(s)"),
        (np.ones(2), "1 dimension(s)"),
        (5, "0 dimension(s)"),
        (None, "0 dimension(s)"),
        ({"a": [1]}, "dict with 0 dimension(s)"),
        ([[1, 2], [3]], "list cannot be read as an array"),
        (np.array([[1, 10**400]], dtype=object), "too large"),
        (np.array([["1"], [1.5j]], dtype=object), "0"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_arrays_that_are_not_tables_raise(convert, X, words):
    with pytest.raises(TableError) as caught:
        convert(X)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_masked_objects_are_missing_numbers():
    masked = np.ma.MaskedArray(np.array([[1, "x"], ["2", None]], dtype=object), HIDDEN)
    np.testing.assert_array_equal(as_table(masked).numbers([0, 1]), [[1, np.nan], [2, np.nan]])


def test_masked_values_are_null_in_arrow():
    masked = np.ma.MaskedArray([[1, 2], [3, 4]], HIDDEN)
    assert as_arrow_table(masked).to_pydict() == {"x0": [1, 3], "x1": [None, 4]}


def test_columns_of_objects_have_their_own_types():
    table = as_arrow_table(np.array([[1, "x"], [2, None]], dtype=object))
    assert table.schema.types == [pa.int64(), pa.string()]
    assert table.to_pydict() == {"x0": [1, 2], "x1": ["x", None]}


def test_dates_and_texts_become_arrow_columns():
    days = as_arrow_table(np.array([["2020-01-02"]], "M8[h]"))
    assert days.to_pylist() == [{"x0": dt.datetime(2020, 1, 2)}]
    assert as_arrow_table(np.array([["a", "b"]])).to_pylist() == [{"x0": "a", "x1": "b"}]
    assert to_arrow(np.ones(2, np.longdouble)).type == pa.float64()
