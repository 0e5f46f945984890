"""Tables: conversion of inputs, kinds of columns, and errors."""

import datetime as dt
import decimal
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from altbi.errors import ParameterError, TableError
from altbi.table import ArrowTable, Matrix, as_table, is_frame

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
def test_all_frames_convert_to_the_same_table(frame):
    table = as_table(frame)
    assert is_frame(frame)
    assert (table.names, table.kinds, len(table)) == (("a", "b"), ("number", "number"), 3)
    np.testing.assert_array_equal(table.numbers([1, 0]), [[4, 1], [5, 2.5], [6, -3]])


@pytest.mark.parametrize("array", [np.ones((2, 2)), [[1, 2]], np.ones(3), np.float64(1)])
def test_arrays_and_lists_are_not_frames(array):
    assert not is_frame(array)


def test_tables_are_returned_unchanged():
    table = as_table(np.ones((2, 2)))
    assert as_table(table) is table
    assert is_frame(table)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u8", "i8", "?", "O"])
def test_arrays_of_all_number_types_convert(dtype):
    table = as_table(np.array([[0, 1], [1, 1]], dtype=dtype))
    assert table.names == ("x0", "x1")
    assert set(table.kinds) == {"boolean" if dtype == "?" else "number"}
    numbers = table.numbers([0, 1])
    assert numbers.dtype == np.float64
    np.testing.assert_array_equal(numbers, [[0, 1], [1, 1]])


def test_read_only_strided_arrays_convert():
    values = np.arange(24.0).reshape(4, 6)[::2, ::3]
    values.flags.writeable = False
    np.testing.assert_array_equal(as_table(values).numbers([0, 1]), [[0, 3], [12, 15]])


def test_masked_values_are_missing():
    masked = np.ma.MaskedArray([[1, 2], [3, 4]], mask=[[False, True], [False, False]])
    np.testing.assert_array_equal(as_table(masked).numbers([0, 1]), [[1, np.nan], [3, 4]])


def test_slices_of_an_array_share_its_memory():
    values = np.arange(6.0).reshape(3, 2)
    assert np.shares_memory(as_table(values).slice(1, 3).numbers([0, 1]), values)


@pytest.mark.parametrize("X", [np.arange(12.0).reshape(6, 2), pa.table({"a": range(6)})])
def test_slice_and_take_select_rows(X):
    table = as_table(X)
    values = table.numbers([0])
    np.testing.assert_array_equal(table.slice(2, 4).numbers([0]), values[2:4])
    np.testing.assert_array_equal(table.take(np.array([4, 0])).numbers([0]), values[[4, 0]])
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
def test_arrow_types_become_seconds_and_numbers(array, kind, expected):
    table = one_column(array)
    assert table.kinds == (kind,)
    np.testing.assert_array_equal(table.numbers([0]), [[expected], [np.nan]])


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_moments_in_all_units_are_equal_bits(unit):
    moments = pa.array([1727392337464, 1787014484757, -1606717115061], pa.timestamp("ms"))

    numbers = one_column(moments.cast(pa.timestamp(unit))).numbers([0])[:, 0]

    assert numbers.tolist() == [1727392337.464, 1787014484.757, -1606717115.061]


def test_nanoseconds_are_left_out():
    for value in (1_787_014_484_757_553_000, 1_787_014_484_757_553_999):
        numbers = one_column(pa.array([value], pa.timestamp("ns"))).numbers([0])
        assert numbers.tolist() == [[1787014484.757553]]


CATEGORIES = pa.array(["u", None, "v"])
DICTIONARIES = [chunk.dictionary_encode() for chunk in (CATEGORIES[:2], CATEGORIES[2:])]


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
def test_all_text_layouts_become_categories(X):
    table = as_table(X)
    assert table.kinds == ("category",)
    assert isinstance(table.categories(0), pa.LargeStringArray)
    assert table.categories(0).to_pylist() == ["u", None, "v"]
    assert table.take(np.array([2, 0])).categories(0).to_pylist() == ["v", "u"]
    assert table.slice(1, 3).categories(0).to_pylist() == [None, "v"]


def test_categorical_numbers_become_texts():
    table = as_table(pd.DataFrame({"c": pd.Categorical([10, 20, None])}))
    assert table.categories(0).to_pylist() == ["10", "20", None]


def test_pandas_index_is_not_a_column():
    frame = pd.DataFrame({3: [1, 2], ("a", 1): [3, 4]}, index=pd.Index([7, 8], name="id"))
    assert as_table(frame).names == ("3", "('a', 1)")


@pytest.mark.parametrize(
    ("X", "words"),
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
def test_errors_name_the_problem_and_a_fix(X, words):
    with pytest.raises(TableError) as caught:
        as_table(X)
    assert [word for word in words if word not in str(caught.value)] == []


def strings(offsets, data, large=False):
    """Return texts with these offsets into `data`, which may be invalid."""
    buffer = np.array(offsets, np.int64 if large else np.int32).tobytes()
    type_ = pa.large_string() if large else pa.string()
    buffers = [None, pa.py_buffer(buffer), pa.py_buffer(data)]
    return pa.Array.from_buffers(type_, len(offsets) - 1, buffers)


BAD_UTF8 = strings([0, 2, 4], b"ok\xff\xfe")
INDICES = pa.array([0, 1, 0], pa.int32())
INVALID = {
    "utf-8": BAD_UTF8,
    "large utf-8": strings([0, 2, 4], b"ok\xff\xfe", large=True),
    "category": pa.DictionaryArray.from_arrays(INDICES, BAD_UTF8),
    "no category": pa.DictionaryArray.from_arrays(INDICES, pa.array(["a"]), safe=False),
    "end": strings([0, 10**6, 4], b"abcd"),
    "negative": strings([0, -5, 4], b"abcd"),
    "null count": pa.Array.from_buffers(
        pa.float64(), 2, [pa.py_buffer(b"\1"), pa.py_buffer(bytes(16))], null_count=2
    ),
}


@pytest.mark.parametrize("convert", [lambda table: table, Streamer, pa.Table.to_batches])
@pytest.mark.parametrize("values", INVALID.values(), ids=INVALID)
def test_invalid_arrow_values_name_their_column(convert, values):
    """Without the check, some of them end the process."""
    table = convert(pa.table({"ok": range(len(values)), "bad": values}))
    with pytest.raises(TableError, match=r"^Column 'bad' \(.*\) holds values that are not valid"):
        as_table(table[0] if isinstance(table, list) else table)


def test_values_of_pandas_arrow_columns_are_validated():
    series = pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([BAD_UTF8])))
    with pytest.raises(TableError, match=r"^Column 'bad' .* not valid"):
        as_table(pd.DataFrame({"bad": series}))


def test_invalid_column_names_of_pandas_raise():
    frame = pd.DataFrame([[1, 2]], columns=pd.Index(["\ud800", 1], dtype=object))
    with pytest.raises(TableError, match="A column name is not valid text"):
        as_table(frame)


def test_types_and_names_are_shortened_in_messages():
    deep = pa.table(
        {"x" * 1000: pa.array([], pa.struct([(str(n), pa.int8()) for n in range(999)]))}
    )
    with pytest.raises(TableError) as caught:
        as_table(deep)
    assert len(str(caught.value)) < 400


def test_names_are_only_for_arrays():
    assert as_table(np.ones((1, 2)), names=["u", "v"]).names == ("u", "v")
    with pytest.raises(TableError, match="more than once"):
        as_table(np.ones((1, 2)), names=["u", "u"])
    with pytest.raises(ParameterError, match="expected 2, one for each"):
        as_table(np.ones((1, 2)), names=["u"])
    with pytest.raises(ParameterError, match="arrays only"):
        as_table(pa.table(NUMBERS), names=["u", "v"])


def test_array_has_no_categories():
    with pytest.raises(TableError, match="'x0' holds numbers"):
        Matrix(np.ones((1, 1))).categories(0)


def test_arrow_slices_are_views():
    source = pa.table({"a": np.arange(100.0)})
    chunk = ArrowTable(source).slice(10, 20)._table.column(0).chunk(0)
    assert chunk.buffers()[1].address == source.column(0).chunk(0).buffers()[1].address


@pytest.mark.slow
def test_neither_pandas_nor_polars_is_imported():
    code = (
        "import sys, numpy, altbi.encoding, altbi.table; altbi.table.as_table(numpy.ones((2, 2))); "
        "sys.exit(bool({'pandas', 'polars'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("table", [pa.table({"a": range(9)}), np.zeros((9, 1))])
def test_slices_keep_their_row_numbers(table):
    table = as_table(table)
    table.first_row = 100

    assert table.slice(2, 8).slice(3, 5).first_row == 105
