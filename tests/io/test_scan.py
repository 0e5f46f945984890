"""The first pass: types, missing values and the sample."""

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from altbi.errors import TableError
from altbi.io import (
    ColumnParser,
    RowSampler,
    Source,
    TableScan,
    largest_sample_key,
    scan_table,
)
from altbi.table import sample_rows


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


def sample_in_chunks(n_rows, limit, seed, size):
    sampler = RowSampler(limit, seed)
    for first in range(0, n_rows, size):
        sampler.add(pa.record_batch({"x": np.arange(first, min(first + size, n_rows))}))
    table, rows = sampler.result()
    assert table["x"].to_pylist() == rows.tolist()
    assert sampler.next_row == n_rows
    return rows.tolist()


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
@pytest.mark.parametrize("limit", [1, 5, 99, 100, 500])
def test_sample_does_not_depend_on_chunks(size, limit):
    assert sample_in_chunks(100, limit, 3, size) == sample_rows(100, limit, 3).tolist()


def test_rows_and_pairs_are_sampled_uniformly():
    trials, n_rows, limit = 3000, 12, 4
    single, pairs = Counter(), Counter()
    for seed in range(trials):
        rows = sample_in_chunks(n_rows, limit, seed, size=5)
        single.update(rows)
        pairs.update((a, b) for a in rows for b in rows if a < b)

    expected = trials * limit / n_rows
    spread = np.sqrt(trials * limit / n_rows * (1 - limit / n_rows))
    assert all(abs(single[row] - expected) < 4.5 * spread for row in range(n_rows))
    chance = limit / n_rows * (limit - 1) / (n_rows - 1)
    counts = np.array([pairs[a, b] for a in range(n_rows) for b in range(a + 1, n_rows)])
    chi_square = ((counts - trials * chance) ** 2 / (trials * chance)).sum()
    assert chi_square < 130  # 65 degrees of freedom: mean 65, standard deviation 11


def test_sampler_frees_the_batches():
    sampler = RowSampler(limit=5, seed=0)
    for _ in range(50):
        sampler.add(pa.record_batch({"x": np.zeros(10_000)}))

    table, _ = sampler.result()

    assert sum(len(batch) for batch in sampler._batches) <= 10
    assert table.nbytes < 1000


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


@given(st.integers(1, 400), st.integers(1, 120), st.integers(0, 5), st.integers(1, 90))
def test_samples_of_partitions_are_the_full_sample(n_rows, limit, seed, size):
    max_key, found = largest_sample_key(n_rows, limit, seed), []
    for first in range(0, n_rows, size):
        sampler = RowSampler(limit, seed, first_row=first, max_key=max_key)
        sampler.add(pa.record_batch({"n": np.arange(first, min(first + size, n_rows))}))
        found += sampler.result()[1].tolist()

    assert found == sample_rows(n_rows, limit, seed).tolist()


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
