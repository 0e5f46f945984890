"""Tables: the ways in, the kinds of columns, the refusals, and the training sample."""

import datetime as dt
import decimal
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from altbi.errors import ParameterError, TableError
from altbi.table import ArrowTable, Matrix, as_table, is_frame, row_keys, sample_rows

UNTIMED = settings(deadline=None)  # a busy machine is no failure
NUMBERS = {"a": [1.0, 2.5, -3.0], "b": [4, 5, 6]}
MOMENT = dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC)


class Streamer:
    """Something that offers Arrow's stream and nothing else."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


FRAMES = {
    "pandas": pd.DataFrame(NUMBERS),
    "polars": pl.DataFrame(NUMBERS),
    "table": pa.table(NUMBERS),
    "batch": pa.RecordBatch.from_pydict(NUMBERS),
    "stream": Streamer(pa.table(NUMBERS)),
}


def one_column(array):
    return as_table(pa.table({"c": array}))


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_every_frame_gives_the_same_table(frame):
    table = as_table(frame)
    assert is_frame(frame)
    assert (table.names, table.kinds, len(table)) == (("a", "b"), ("number", "number"), 3)
    np.testing.assert_array_equal(table.numbers([1, 0]), [[4, 1], [5, 2.5], [6, -3]])


@pytest.mark.parametrize("array", [np.ones((2, 2)), [[1, 2]], np.ones(3), np.float64(1)])
def test_arrays_and_lists_are_no_frames(array):
    assert not is_frame(array)


def test_a_table_passes_through():
    table = as_table(np.ones((2, 2)))
    assert as_table(table) is table
    assert is_frame(table)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u8", "i8", "?", "O"])
def test_arrays_of_every_type_of_number(dtype):
    table = as_table(np.array([[0, 1], [1, 1]], dtype=dtype))
    assert table.names == ("x0", "x1")
    assert set(table.kinds) == {"boolean" if dtype == "?" else "number"}
    numbers = table.numbers([0, 1])
    assert numbers.dtype == np.float64
    np.testing.assert_array_equal(numbers, [[0, 1], [1, 1]])


def test_read_only_and_strided_arrays():
    values = np.arange(24.0).reshape(4, 6)[::2, ::3]
    values.flags.writeable = False
    np.testing.assert_array_equal(as_table(values).numbers([0, 1]), [[0, 3], [12, 15]])


def test_hidden_cells_of_a_masked_array_stay_hidden():
    masked = np.ma.MaskedArray([[1, 2], [3, 4]], mask=[[False, True], [False, False]])
    np.testing.assert_array_equal(as_table(masked).numbers([0, 1]), [[1, np.nan], [3, 4]])


def test_slices_of_an_array_share_its_memory():
    values = np.arange(6.0).reshape(3, 2)
    assert np.shares_memory(as_table(values).slice(1, 3).numbers([0, 1]), values)


@pytest.mark.parametrize("X", [np.arange(12.0).reshape(6, 2), pa.table({"a": range(6)})])
def test_slice_and_take(X):
    table = as_table(X)
    whole = table.numbers([0])
    np.testing.assert_array_equal(table.slice(2, 4).numbers([0]), whole[2:4])
    np.testing.assert_array_equal(table.take(np.array([4, 0])).numbers([0]), whole[[4, 0]])
    assert table.slice(2, 4).names == table.names
    assert len(table.slice(4, 99)) == 2


@pytest.mark.parametrize(
    ("array", "kind", "expected"),
    [
        (pa.array([1, None], pa.uint8()), "number", 1),
        (pa.array([1.5, None], pa.float16()), "number", 1.5),
        (pa.array([decimal.Decimal("2.5"), None], pa.decimal256(40, 2)), "number", 2.5),
        (pa.array([1500, None], pa.duration("ms")), "number", 1.5),
        (pa.array([True, None]), "boolean", 1),
        (pa.array([dt.date(1970, 1, 3), None], pa.date32()), "date", 2 * 86_400),
        (pa.array([dt.date(1970, 1, 3), None], pa.date64()), "date", 2 * 86_400),
        (pa.array([dt.time(0, 1), None], pa.time32("s")), "date", 60),
        (pa.array([dt.time(0, 1), None], pa.time64("ns")), "date", 60),
        (pa.array([MOMENT, None], pa.timestamp("s")), "date", MOMENT.timestamp()),
        (pa.array([MOMENT, None], pa.timestamp("ns", "Asia/Tokyo")), "date", MOMENT.timestamp()),
        (pa.array([float("nan"), None]), "number", np.nan),
        (pa.nulls(2), "number", np.nan),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_scalar_types(array, kind, expected):
    table = one_column(array)
    assert table.kinds == (kind,)
    np.testing.assert_array_equal(table.numbers([0]), [[expected], [np.nan]])


CATEGORIES = pa.array(["u", None, "v"])
DICTIONARIES = [part.dictionary_encode() for part in (CATEGORIES[:2], CATEGORIES[2:])]


@pytest.mark.parametrize(
    "X",
    [
        pa.table({"c": CATEGORIES.cast(pa.large_string())}),
        pa.table({"c": CATEGORIES.cast(pa.string_view())}),
        pa.table({"c": CATEGORIES.dictionary_encode()}),
        pa.table({"c": pa.chunked_array([["u"], [None, "v"]])}),
        pa.table({"c": pa.chunked_array(DICTIONARIES)}),
        pd.DataFrame({"c": ["u", None, "v"]}),
        pd.DataFrame({"c": pd.Categorical(["u", None, "v"])}),
        pl.DataFrame({"c": ["u", None, "v"]}),
        pl.DataFrame({"c": pl.Series(["u", None, "v"], dtype=pl.Categorical)}),
        pl.DataFrame({"c": pl.Series(["u", None, "v"], dtype=pl.Enum(["v", "u"]))}),
    ],
)
def test_texts_in_every_layout(X):
    table = as_table(X)
    assert table.kinds == ("category",)
    assert isinstance(table.categories(0), pa.LargeStringArray)
    assert table.categories(0).to_pylist() == ["u", None, "v"]
    assert table.take(np.array([2, 0])).categories(0).to_pylist() == ["v", "u"]
    assert table.slice(1, 3).categories(0).to_pylist() == [None, "v"]


def test_a_categorical_of_numbers_is_a_category_of_their_text():
    table = as_table(pd.DataFrame({"c": pd.Categorical([10, 20, None])}))
    assert table.categories(0).to_pylist() == ["10", "20", None]


def test_pandas_index_is_no_column_and_names_become_text():
    frame = pd.DataFrame({3: [1, 2], ("a", 1): [3, 4]}, index=pd.Index([7, 8], name="id"))
    assert as_table(frame).names == ("3", "('a', 1)")


@pytest.mark.parametrize(
    ("X", "parts"),
    [
        (pa.table({"deep": [[1], [2]]}), ["'deep'", "list", "Drop the column"]),
        (pa.table({"raw": [b"x"]}), ["'raw'", "binary", "numbers or text"]),
        (pa.table({"d": pa.array([b"x"]).dictionary_encode()}), ["'d'", "dictionary"]),
        (pd.DataFrame({"ok": [1, 2], "mix": [1, "a"]}), ["'mix'", "object", "Drop the column"]),
        (pd.DataFrame({"big": [2**70, 1]}), ["'big'"]),
        (pl.DataFrame({"o": pl.Series([object()], dtype=pl.Object)}), ["'o'"]),
        (pd.DataFrame([[1, 2, 3]], columns=["a", "b", "a"]), ["['a']", "more than once"]),
        (pa.table([[1], [2]], names=["a", "a"]), ["['a']", "Rename"]),
        (pd.DataFrame({"a": []}), ["0 row(s)", "at least one"]),
        (pd.DataFrame(index=[1, 2]), ["0 column(s)"]),
        (np.empty((0, 3)), ["0 row(s) and 3 column(s)"]),
        (np.empty((3, 0)), ["0 column(s)"]),
        (np.ones(3), ["1 dimension(s)", "reshape"]),
        (pl.Series([1, 2]), ["Series", "cannot be read"]),
        (pl.LazyFrame({"a": [1]}), ["LazyFrame", "data frame"]),
        (np.array([["a", "b"]]), ["<U1", "data frame"]),
        (np.array([[1, "a"]], dtype=object), ["Column 1", "data frame"]),
        (np.array([[1j]]), ["complex128"]),
    ],
)
def test_refusals_say_what_and_what_to_do(X, parts):
    with pytest.raises(TableError) as caught:
        as_table(X)
    assert [part for part in parts if part not in str(caught.value)] == []


def test_names_are_for_arrays():
    assert as_table(np.ones((1, 2)), names=["u", "v"]).names == ("u", "v")
    with pytest.raises(TableError, match="more than once"):
        as_table(np.ones((1, 2)), names=["u", "u"])
    with pytest.raises(ParameterError, match="expected 2, one for each"):
        as_table(np.ones((1, 2)), names=["u"])
    with pytest.raises(ParameterError, match="arrays only"):
        as_table(pa.table(NUMBERS), names=["u", "v"])


def test_an_array_has_no_levels():
    with pytest.raises(TableError, match="'x0' holds numbers"):
        Matrix(np.ones((1, 1))).categories(0)


def test_arrow_slices_are_views():
    source = pa.table({"a": np.arange(100.0)})
    part = ArrowTable(source).slice(10, 20)._table.column(0).chunk(0)
    assert part.buffers()[1].address == source.column(0).chunk(0).buffers()[1].address


def test_neither_pandas_nor_polars_is_imported():
    code = (
        "import sys, numpy, altbi.encoding, altbi.table; altbi.table.as_table(numpy.ones((2, 2))); "
        "sys.exit(bool({'pandas', 'polars'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@UNTIMED
@given(st.integers(0, 200), st.integers(0, 200), st.integers(0, 200), st.integers(-(2**70), 2**70))
def test_keys_do_not_depend_on_the_chunks(a, b, c, seed):
    first, middle, last = sorted((a, b, c))
    chunks = [row_keys(first, middle, seed), row_keys(middle, last, seed)]
    np.testing.assert_array_equal(np.concatenate(chunks), row_keys(first, last, seed))


def test_a_reader_of_chunks_keeps_the_same_sample():
    kept = np.empty((0, 2), dtype=np.uint64)
    for start in range(0, 1000, 70):
        rows = np.arange(start, min(start + 70, 1000), dtype=np.uint64)
        keys = row_keys(start, start + len(rows), seed=5)
        kept = np.vstack([kept, np.column_stack([keys, rows])])
        kept = kept[np.argsort(kept[:, 0])][:50]
    np.testing.assert_array_equal(np.sort(kept[:, 1]), sample_rows(1000, 50, seed=5))


def test_the_sample_has_the_right_size_and_order():
    rows = sample_rows(10_000, 300, seed=1)
    assert rows.dtype == np.int64
    assert len(rows) == 300
    assert (np.diff(rows) > 0).all()
    np.testing.assert_array_equal(sample_rows(7, 7, seed=1), range(7))
    with pytest.raises(ParameterError, match="at least 1"):
        sample_rows(5, 0, seed=0)


def test_keys_are_splitmix64():
    """The stream of seed s is splitmix64 started at mix(s + golden): fixed for all time."""
    golden, word = 0x9E3779B97F4A7C15, 2**64 - 1

    def mixed(z):
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & word
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & word
        return z ^ (z >> 31)

    state = mixed((3 + golden) & word)
    expected = [mixed((state + (row + 1) * golden) & word) for row in range(4)]
    assert row_keys(0, 4, seed=3).tolist() == expected
    assert mixed(golden) == 0xE220A8397B1DCDAF  # the published first output for seed 0


def test_samples_are_uniform_over_rows_and_seeds():
    n_rows, limit, n_seeds = 200, 20, 4000
    counts = np.zeros(n_rows)
    for seed in range(n_seeds):
        counts[sample_rows(n_rows, limit, seed)] += 1
    share = limit / n_rows
    z = (counts - n_seeds * share) / np.sqrt(n_seeds * share * (1 - share))
    chi_square = (z**2).sum() * (1 - 1 / n_rows)
    # 199 degrees of freedom: deviation 20; the seeds are fixed, so this cannot flicker.
    assert abs(chi_square - (n_rows - 1)) < 4 * np.sqrt(2 * (n_rows - 1))


def test_pairs_of_rows_are_drawn_independently():
    n_seeds, limit, n_rows = 4000, 50, 100
    drawn = np.zeros((n_seeds, n_rows))
    for seed in range(n_seeds):
        drawn[seed, sample_rows(n_rows, limit, seed)] = 1
    together = np.corrcoef(drawn.T)[np.triu_indices(n_rows, 1)]
    assert abs(together.mean() + 1 / (n_rows - 1)) < 1e-3  # a fixed size makes it slightly negative
    assert np.abs(together).max() < 6 / np.sqrt(n_seeds)


@pytest.mark.parametrize("step", [1, 2, 2**32])
def test_neighbouring_seeds_give_unrelated_samples(step):
    overlaps = []
    for seed in range(200):
        one, two = sample_rows(1000, 100, seed), sample_rows(1000, 100, seed + step)
        overlaps.append([len(np.intersect1d(one + shift, two)) for shift in (-1, 0, 1)])
    # Two independent samples share 10 rows, give or take 2.85; the mean of 200 is known to 0.2.
    np.testing.assert_allclose(np.mean(overlaps, axis=0), 10, atol=1)
    assert np.max(overlaps) < 30
