"""The first pass: types, missing values and the sample."""

import json

import numpy as np
import pyarrow as pa
import pytest

from altbi.errors import ParameterError, TableError
from altbi.io import (
    ColumnParser,
    ColumnSelection,
    ExpectedType,
    Label,
    Source,
    TableScan,
    open_in_memory,
    parse_labels_column,
    scan_table,
    select_columns,
)


class Chunks(Source):
    """Record batches as a source."""

    name = "chunks"

    def __init__(self, *batches, format="parquet", is_untyped=False, columns=None):
        self.record_batches = batches
        self.schema = batches[0].schema if batches else pa.schema(columns)
        self.format = format
        self.is_untyped = is_untyped
        self.notes = []

    def batches(self, columns):
        return (batch.select(list(columns)) for batch in self.record_batches)


def scan(source, limit=10, seed=0, **options):
    names = source.schema.names
    return scan_table(source, names, source.batches(names), limit=limit, seed=seed, **options)


@pytest.mark.parametrize(("format", "kind"), [("csv", "number"), ("excel", "category")])
def test_columns_of_csv_files_share_a_decimal_mark(format, kind):
    rows = pa.record_batch({"a": ["23,507"], "b": ["1013,25"]})

    found = scan(Chunks(rows, format=format, is_untyped=True))

    assert found.sample.kinds == (kind, "number")
    assert ("as column 'b' is" in " ".join(found.notes)) == (kind == "number")


def test_types_are_inferred_over_all_chunks():
    source = Chunks(
        pa.record_batch({"a": ["1", "2"], "b": ["1", "NA"]}),
        pa.record_batch({"a": ["x", "4"], "b": ["2.5", ""]}),
        format="csv",
        is_untyped=True,
    )

    found = scan(source)

    assert found.sample.kinds == ("category", "number")
    assert found.sample.categories(0).to_pylist() == ["1", "2", "x", "4"]
    np.testing.assert_array_equal(found.sample.numbers([1])[:, 0], [1, np.nan, 2.5, np.nan])
    assert (found.n_rows, found.sample.n_source_rows, found.sample_rows.tolist()) == (
        4,
        4,
        [0, 1, 2, 3],
    )
    assert [note for note in found.notes if "'a' is read as text" in note]


def test_missing_words_depend_on_format_and_options():
    batch = pa.record_batch({"a": ["NA", "DE", "?"]})

    assert scan(Chunks(batch, format="jsonl", is_untyped=True)).sample.categories(0).null_count == 0
    found = scan(Chunks(batch, format="csv", is_untyped=True), missing=["?"])
    assert found.sample.categories(0).to_pylist() == [None, "DE", None]


def test_typed_texts_are_not_parsed():
    found = scan(Chunks(pa.record_batch({"a": ["1", "2"]})))

    assert found.sample.kinds == ("category",)


def test_infinity_outside_the_sample_raises():
    values = np.zeros(100)
    values[99] = np.inf
    batches = [pa.record_batch({"a": values[:50]}), pa.record_batch({"a": values[50:]})]

    with pytest.raises(TableError, match=r"'a' contains infinity, first in row 99"):
        scan(Chunks(*batches), limit=2)


def test_table_without_rows_raises():
    with pytest.raises(TableError, match="holds no rows"):
        scan(Chunks(columns=[("a", pa.float64())]))


def test_scans_of_partitions_can_be_merged():
    batches = [pa.record_batch({"a": texts}) for texts in (["1", "2"], ["x", "3"], ["4", "5"])]
    source = Chunks(*batches, format="csv", is_untyped=True)
    merged = TableScan(source, ["a"])
    for batch in batches:
        scan_of_one = TableScan(source, ["a"])
        scan_of_one.add(batch)
        assert merged.merge(scan_of_one.state, len(batch))

    result = merged.result(pa.Table.from_batches(batches), np.arange(6))

    assert (result.n_rows, result.notes) == (6, scan(source).notes)
    assert result.parser.state == scan(source).parser.state
    assert "row 2 (counted from 0) holds 'x'" in result.notes[0]


def test_partitions_that_do_not_fit_change_nothing():
    texts = [{"a": ["1"], "b": ["2"]}, {"a": ["1,5"], "b": ["x"]}]
    source = Chunks(*map(pa.record_batch, texts), format="csv", is_untyped=True)
    merged = TableScan(source, ["a", "b"], expected={"b": ExpectedType("number")})
    merged.add(pa.record_batch(texts[0]))
    before = merged.state
    other = TableScan(source, ["a", "b"])
    other.add(pa.record_batch(texts[1]))

    assert not merged.merge(other.state, 1)

    assert merged.state == before
    assert merged.n_rows == 1


def test_total_in_the_last_row_is_reported():
    rows = [{"a": ["x", "y"], "b": ["1", "2"]}, {"a": ["z", "Total"], "b": ["3", "6"]}]
    source = Chunks(*map(pa.record_batch, rows), format="csv", is_untyped=True)
    (note,) = scan(source).notes
    assert note == (
        "Row 3 (counted from 0) seems to be a total of the rows above it ('Total'). Remove it from "
        "the file if so."
    )

    merged = TableScan(source, ["a", "b"])
    for batch in source.record_batches:
        part = TableScan(source, ["a", "b"])
        part.add(batch)
        merged.merge(part.state, 2)
    merged.merge(TableScan(source, ["a", "b"]).state, 0)
    sample = pa.Table.from_batches(source.record_batches)
    assert merged.result(sample, np.arange(4)).notes == (note,)

    turned = Chunks(*reversed(source.record_batches), format="csv", is_untyped=True)
    assert scan(turned).notes == ()


def test_amounts_of_money_survive_conversion_of_the_parser():
    batch = pa.record_batch({"a": ["$1,234.50", "$5", "-"]})
    parser = scan(Chunks(batch, format="csv", is_untyped=True)).parser

    restored = ColumnParser.from_state(json.loads(json.dumps(parser.state)))

    np.testing.assert_array_equal(restored.parse(batch, 0).numbers([0])[:, 0], [1234.5, 5, np.nan])


def test_parser_is_restored_from_its_state():
    batch = pa.record_batch({"a": ["1,5", "?"], "b": ["x", "y"]})
    parser = scan(Chunks(batch, format="csv", is_untyped=True), missing=["?"]).parser

    restored = ColumnParser.from_state(json.loads(json.dumps(parser.state)))

    table = restored.parse(batch, first_row=7, names=["u", "v"])
    assert (table.names, table.kinds, table.first_row) == (("u", "v"), ("number", "category"), 7)
    np.testing.assert_array_equal(table.numbers([0])[:, 0], [1.5, np.nan])


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
