"""The first pass: types, missing values and the sample."""

import json

import numpy as np
import pyarrow as pa
import pytest

from altbi.errors import TableError
from altbi.io import (
    ColumnParser,
    Source,
    TableScan,
    scan_table,
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


def test_parser_is_restored_from_its_state():
    batch = pa.record_batch({"a": ["1,5", "?"], "b": ["x", "y"]})
    parser = scan(Chunks(batch, format="csv", is_untyped=True), missing=["?"]).parser

    restored = ColumnParser.from_state(json.loads(json.dumps(parser.state)))

    table = restored.parse(batch, first_row=7, names=["u", "v"])
    assert (table.names, table.kinds, table.first_row) == (("u", "v"), ("number", "category"), 7)
    np.testing.assert_array_equal(table.numbers([0])[:, 0], [1.5, np.nan])
