"""npy and npz files."""

import datetime as dt
import io

import numpy as np
import pyarrow as pa
import pytest
from table_bytes import PACKS, cells, npy_bytes, npz_bytes, peak_growth, read, zip_pack


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_matrix_has_vectors_as_extra_columns(open_bytes, save, order):
    X = np.random.default_rng(0).normal(size=(70_000, 3))
    X[0] = [np.nan, np.inf, -np.inf]
    y = np.arange(70_000) % 2

    source = open_bytes(npz_bytes(save, X=np.asarray(X, order=order), y=y, names=np.array(["a"])))

    assert (source.format, source.extra_columns, source.n_rows) == ("npz", ("y",), 70_000)
    assert source.schema.names == ["x0", "x1", "x2", "y"]
    assert "'y' is read only if" in source.notes[0]
    assert "'names' (1,) cannot be a column" in source.notes[1]
    table = read(source)
    np.testing.assert_array_equal(np.column_stack(table.columns[:3]), X)
    assert table.column("x0").null_count == 0
    np.testing.assert_array_equal(table.column("y"), y)
    np.testing.assert_array_equal(read(source, ["y"]).column("y"), y)


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_files_are_read(open_bytes, order):
    X = np.asarray(np.arange(12.0).reshape(4, 3), order=order)
    for pack in ("plain", "gzip"):
        source = open_bytes(PACKS[pack](npy_bytes(X)))
        assert (source.format, source.n_rows) == ("npy", 4)
        np.testing.assert_array_equal(np.column_stack(read(source).columns), X)


def test_vector_is_one_column(open_bytes):
    assert cells(open_bytes(npy_bytes(np.array([3, 4])))) == {"x0": [3, 4]}


def test_npz_vectors_are_columns(open_bytes):
    source = open_bytes(npz_bytes(a=np.array([1, 2]), b=np.array(["x", "é"])))
    assert cells(source) == {"a": [1, 2], "b": ["x", "é"]}
    assert (source.extra_columns, source.notes) == ((), [])


@pytest.mark.parametrize(
    ("array", "type_", "first"),
    [
        (np.array([1, 2], "i1"), pa.int8(), 1),
        (np.array([1, 2], ">i4"), pa.int32(), 1),
        (np.array([1, 2], "u8"), pa.uint64(), 1),
        (np.array([1, 2], "f2"), pa.float32(), 1.0),
        (np.array([1, 2], ">f8"), pa.float64(), 1.0),
        (np.array([1, 2], np.longdouble), pa.float64(), 1.0),
        (np.array([True, False]), pa.bool_(), True),
        (np.array(["2020-01-02", "NaT"], "M8[D]"), pa.date32(), dt.date(2020, 1, 2)),
        (np.array(["2020-01-02", "NaT"], "M8[h]"), pa.timestamp("s"), dt.datetime(2020, 1, 2)),
        (np.array(["2020-01-02", "NaT"], ">M8[us]"), pa.timestamp("us"), dt.datetime(2020, 1, 2)),
        (np.array([1, 2], "m8[D]"), pa.duration("s"), dt.timedelta(days=1)),
    ],
)
def test_array_types_are_converted(open_bytes, array, type_, first):
    source = open_bytes(npy_bytes(array))
    assert source.schema.field("x0").type == type_
    column = read(source).column("x0")
    assert column.null_count == (array.dtype.kind == "M")
    assert column[0].as_py() == first


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (npy_bytes(np.array([{}, None])), "Python objects"),
        (npz_bytes(X=np.array([[1, "a"]], object)), "Python objects"),
        (npy_bytes(np.zeros(2, [("a", "f8")])), "values of type"),
        (npy_bytes(np.ones(2, complex)), "values of type complex128"),
        (npy_bytes(np.zeros((2, 2, 2))), "its shape is (2, 2, 2)"),
        (npy_bytes(np.zeros((0, 2))), "no rows or no columns"),
        (npy_bytes(np.zeros((2, 0))), "no rows or no columns"),
        (npz_bytes(A=np.eye(2), B=np.eye(3)), "'A' (2, 2), 'B' (3, 3)"),
        (npz_bytes(a=np.ones(2), b=np.ones(3)), "'a' (2,), 'b' (3,)"),
        (npz_bytes(a=np.ones((2, 2, 2))), "'a' (2, 2, 2)"),
        (npz_bytes(X=np.eye(2), x1=np.ones(2)), "same name: 'x1'"),
        (npy_bytes(np.eye(100))[:-8], "ends after 99 complete rows, but expected 100"),
        (npy_bytes(np.asfortranarray(np.ones((9, 9))))[:-8], "expected 9"),
    ],
)
def test_arrays_that_are_not_tables_raise(error_of, data, words):
    assert words in error_of(data)


def test_array_named_x_is_the_table(open_bytes):
    source = open_bytes(npz_bytes(A=np.eye(2), X=np.ones((3, 1))))
    assert source.schema.names == ["x0"]
    assert "'A' (2, 2) cannot be a column" in source.notes[0]


def npy_that_claims(shape):
    sink = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        sink, {"descr": "<f8", "fortran_order": False, "shape": shape}
    )
    return sink.getvalue()


@pytest.mark.parametrize("shape", [(True, 2), (2, False), (2, -1)])
def test_invalid_array_shapes_raise(error_of, shape):
    assert f"its shape {shape} is invalid" in error_of(npy_that_claims(shape))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2**60, 3), (1, 2**40), (-1, 3), (2**62, 2**62)])
def test_false_array_shapes_raise_in_bounded_memory(error_of, tmp_path, shape):
    error_of(npy_that_claims(shape))
    error_of(zip_pack(npy_that_claims(shape), "X.npy"))
    assert peak_growth(tmp_path / "some.file")[0] < 100
