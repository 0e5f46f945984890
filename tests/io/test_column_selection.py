"""The selection of features, ids and labels."""

import numpy as np
import pyarrow as pa
import pytest

from altbi.errors import ParameterError, TableError
from altbi.io import (
    ColumnSelection,
    Label,
    open_in_memory,
    parse_labels_column,
    select_columns,
)

NAMES = ["key", "size", "c,d", "bad", "x=y"]


@pytest.fixture(scope="module")
def source():
    return open_in_memory(pa.table({name: ["1", "0"] for name in NAMES}))


def select(source, expected=None, **selection):
    return select_columns(source, ColumnSelection(**selection), expected)


def test_all_columns_are_features_by_default(source):
    assert select(source).features == tuple(NAMES)


def test_ids_labels_and_excluded_columns_are_not_features(source):
    selected = select(source, ids=("key",), label="bad", exclude=("c,d",), keep=True)

    assert selected.features == ("size", "x=y")
    assert selected.to_learn == ["size", "x=y", "bad"]
    assert selected.to_score == ["size", "x=y", "key", "bad", "c,d"]


def test_entries_are_names_or_lists_of_names(source):
    assert select(source, columns=("size, bad", "c,d")).features == ("size", "bad", "c,d")


def test_label_may_name_the_value_of_outliers(source):
    assert select(source, label="bad=fraud").label == Label("bad", "fraud", ())
    assert select(source, label="x=y").label == Label("x=y", None, ())


def test_extra_columns_are_not_features(source):
    source = open_in_memory(pa.table({"x0": [1.0], "y": [0]}))
    source.extra_columns = ("y",)

    assert select(source).features == ("x0",)
    assert select(source, columns=("y",)).features == ("y",)


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"columns": ("c,e",)}, r"--columns names 'c', but no column has it"),
        ({"exclude": ("siz",)}, r"--exclude names 'siz'.*Did you mean 'size'\?"),
        ({"ids": ("?",)}, r"--id names '\?'.*There are 'key', 'size'"),
        ({"label": "key,bad"}, "--label names 'key', 'bad', but expected one"),
        ({"columns": ("size",), "exclude": ("size",)}, "all of 'size' are left out"),
        ({"exclude": tuple(NAMES)}, "every column is left out, but expected at least one"),
    ],
)
def test_invalid_selections_raise(source, selection, message):
    with pytest.raises(ParameterError, match=message):
        select(source, **selection)


def test_expected_columns_are_selected_in_their_order(source):
    assert select(source, ["bad", "size"]).features == ("bad", "size")
    with pytest.raises(TableError, match="'price' of the model are not there; the table has 'key'"):
        select(source, ["price"])
    for selection in ({"exclude": ("size",)}, {"columns": ("bad",)}, {"label": "size"}):
        with pytest.raises(ParameterError, match="'size' cannot be left out"):
            select(source, ["bad", "size"], **selection)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, 0, None]),
        pa.array([1.0, 0.0, None]),
        pa.array([True, False, None]),
        pa.array([" true", "FALSE", ""]),
        pa.array(["1.0", "0", "?"]),
        pa.array(["1", "0", None]).dictionary_encode(),
    ],
    ids=lambda values: str(values.type),
)
def test_labels_of_all_types_are_parsed(values):
    labels = parse_labels_column(Label("bad", None, ("?",)), values)

    np.testing.assert_array_equal(labels, [1, 0, np.nan])


def test_label_value_marks_outliers():
    values = pa.array(["fraud", "fine", "", "?"])

    labels = parse_labels_column(Label("bad", "fraud", ("?",)), values)

    np.testing.assert_array_equal(labels, [1, 0, np.nan, np.nan])


def test_invalid_labels_raise():
    with pytest.raises(TableError, match=r"\['fraud', 'fine'\].*--label bad=VALUE"):
        parse_labels_column(Label("bad", None), pa.array(["fraud", "fine"]))
    with pytest.raises(TableError, match="are of the type list"):
        parse_labels_column(Label("bad", None), pa.array([[1]]))
