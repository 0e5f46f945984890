from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from altbi.errors import TableError
from altbi.io import RowSampler, Source, scan_table
from altbi.table import sample_rows


class Chunks(Source):
    """Record batches as a source."""

    name = "chunks"

    def __init__(self, *batches, format="parquet", loose=False, columns=None):
        self.parts = batches
        self.schema = batches[0].schema if batches else pa.schema(columns)
        self.format = format
        self.loose = loose
        self.notes = []

    def batches(self, columns):
        return (batch.select(list(columns)) for batch in self.parts)


def surveyed(source, limit=10, seed=0, **options):
    names = source.schema.names
    return scan_table(source, names, source.batches(names), limit=limit, seed=seed, **options)


def drawn(n_rows, limit, seed, size):
    sample = RowSampler(limit, seed)
    for first in range(0, n_rows, size):
        sample.add(pa.record_batch({"x": np.arange(first, min(first + size, n_rows))}))
    table, rows = sample.result()
    assert table["x"].to_pylist() == rows.tolist()
    assert sample.seen == n_rows
    return rows.tolist()


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
@pytest.mark.parametrize("limit", [1, 5, 99, 100, 500])
def test_a_sample_in_chunks_is_the_sample_of_the_whole(size, limit):
    assert drawn(100, limit, 3, size) == sample_rows(100, limit, 3).tolist()


def test_every_row_is_equally_likely_and_so_is_every_pair():
    trials, n_rows, limit = 4000, 12, 4
    single, pairs = Counter(), Counter()
    for seed in range(trials):
        rows = drawn(n_rows, limit, seed, size=5)
        single.update(rows)
        pairs.update((a, b) for a in rows for b in rows if a < b)

    expected = trials * limit / n_rows
    spread = np.sqrt(trials * limit / n_rows * (1 - limit / n_rows))
    assert all(abs(single[row] - expected) < 4.5 * spread for row in range(n_rows))
    chance = limit / n_rows * (limit - 1) / (n_rows - 1)
    counts = np.array([pairs[a, b] for a in range(n_rows) for b in range(a + 1, n_rows)])
    chi_square = ((counts - trials * chance) ** 2 / (trials * chance)).sum()
    assert chi_square < 130  # 65 pairs free: the mean is 65, the deviation 11


def test_the_sample_does_not_keep_whole_batches_alive():
    sample = RowSampler(limit=5, seed=0)
    for _ in range(50):
        sample.add(pa.record_batch({"x": np.zeros(10_000)}))

    table, _ = sample.result()

    assert sum(len(part) for part in sample._parts) <= 10
    assert table.nbytes < 1000


def test_types_are_settled_over_all_chunks_and_the_sample_has_them():
    source = Chunks(
        pa.record_batch({"a": ["1", "2"], "b": ["1", "NA"]}),
        pa.record_batch({"a": ["x", "4"], "b": ["2.5", ""]}),
        format="csv",
        loose=True,
    )

    found = surveyed(source)

    assert found.sample.kinds == ("category", "number")
    assert found.sample.levels(0).to_pylist() == ["1", "2", "x", "4"]
    np.testing.assert_array_equal(found.sample.numbers([1])[:, 0], [1, np.nan, 2.5, np.nan])
    assert (found.n_rows, found.sample.n_source_rows, found.sample_rows.tolist()) == (
        4,
        4,
        [0, 1, 2, 3],
    )
    assert [note for note in found.notes if "'a' is read as text" in note]


def test_words_for_missing_are_words_in_json_and_cells_can_be_named_missing():
    batch = pa.record_batch({"a": ["NA", "DE", "?"]})

    assert surveyed(Chunks(batch, format="jsonl", loose=True)).sample.levels(0).null_count == 0
    found = surveyed(Chunks(batch, format="csv", loose=True), missing=["?"])
    assert found.sample.levels(0).to_pylist() == [None, "DE", None]


def test_typed_texts_are_taken_as_they_are():
    found = surveyed(Chunks(pa.record_batch({"a": ["1", "2"]})))

    assert found.sample.kinds == ("category",)


def test_infinity_is_found_outside_the_sample_too():
    values = np.zeros(100)
    values[99] = np.inf
    batches = [pa.record_batch({"a": values[:50]}), pa.record_batch({"a": values[50:]})]

    with pytest.raises(TableError, match=r"'a' contains infinity, first in row 99"):
        surveyed(Chunks(*batches), limit=2)


def test_no_rows_are_refused():
    with pytest.raises(TableError, match="holds no rows"):
        surveyed(Chunks(columns=[("a", pa.float64())]))
