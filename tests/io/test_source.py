"""Reading ahead, tables in memory, and lists of names."""

import gzip
import io
import os
import pickle
import re
import subprocess
import sys
import threading
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from table_bytes import (
    PACKS,
    TABLE,
    TEXTS,
    cells,
    csv_bytes,
    ipc_bytes,
    jsonl_bytes,
    npy_bytes,
    npz_bytes,
    parquet_bytes,
    read,
    zip_pack,
)

from altbi.errors import ParameterError, TableError
from altbi.io import _source, open_in_memory, open_table, prefetch
from altbi.io._arrow import ArrowSource
from altbi.io._converted import ConvertedSource
from altbi.io._csv import CsvSource
from altbi.io._numpy import NumpySource
from altbi.io._source import BATCH_ROWS

TIMEOUT = 30


def test_prefetch_computes_the_next_item_early():
    made = threading.Event()

    def items():
        yield "first"
        made.set()
        yield "second"

    found = prefetch(items())
    assert next(found) == "first"
    assert made.wait(TIMEOUT)
    assert list(found) == ["second"]


def test_prefetch_yields_items_that_are_none():
    assert list(prefetch([1, None, 2, None])) == [1, None, 2, None]


def test_prefetch_raises_after_the_items_before():
    def items():
        yield 1
        yield 2
        raise OSError("the disk is gone")

    seen = []
    with pytest.raises(OSError, match="the disk is gone"):
        seen.extend(prefetch(items()))
    found = prefetch(items())
    assert [next(found), next(found)] == [1, 2]
    found.close()


def test_prefetch_stops_with_its_consumer():
    closed = []

    def items():
        try:
            yield from range(10)
        finally:
            closed.append(threading.current_thread())

    source = items()
    for item in prefetch(source):
        if item == 3:
            break
    source.close()
    assert closed


@pytest.mark.parametrize("table", [np.eye(2), pd.DataFrame({"x0": [1.0, 0], "x1": [0.0, 1]})])
def test_tables_in_memory_are_sources(table):
    source = open_in_memory(table)

    (batch,) = source.batches(["x1", "x0"])

    assert (source.n_rows, source.schema.names) == (2, ["x0", "x1"])
    assert batch.to_pydict() == {"x1": [0.0, 1.0], "x0": [1.0, 0.0]}


def test_vector_is_not_a_table_in_memory():
    with pytest.raises(TableError, match="is a ndarray with 1 dimension"):
        open_in_memory(np.ones(3))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (np.ones((2, 2), complex), "complex128"),
        (np.ones((2, 2, 2)), "3 dimension"),
        (np.empty((0, 2)), "^the table: it holds no rows"),
        (np.empty((2, 0)), "^the table: it holds no columns"),
        (pa.table({"a": [1]}).slice(1), "^the table: it holds no rows"),
        (pa.table({"a": [1]}).select([]), "^the table: it holds no columns"),
        (pa.table([[1], [2]], names=["a", "a"]), "^the table: several columns .* 'a'"),
        (np.array([[1, 2j]], dtype=object), "'x1' of the array"),
    ],
    ids=str,
)
def test_invalid_tables_in_memory_raise(table, words):
    with pytest.raises(TableError, match=words):
        open_in_memory(table)


def test_too_many_columns_are_refused(monkeypatch, error_of):
    monkeypatch.setattr(_source, "MAX_COLUMNS", 4)
    message = "it holds 5 columns, but at most 4 are supported"
    for data in (ipc_bytes(TABLE), ipc_bytes(TABLE, pa.ipc.new_file), jsonl_bytes(TABLE)):
        assert message in error_of(data)
    sink = pa.BufferOutputStream()
    pq.write_table(TABLE, sink)
    assert message in error_of(sink.getvalue().to_pybytes())
    with pytest.raises(TableError, match=message):
        open_in_memory(TABLE)


def test_unions_in_memory_can_be_left_out():
    union = pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])])
    source = open_in_memory(pa.table({"a": [1, 2], "either": union}))

    assert read(source, ["a"]).num_rows == 2
    with pytest.raises(TableError, match=r"^the table: column 'either' has the type sparse_union"):
        read(source)


FORMATS = {
    "csv": (CsvSource, csv_bytes(TEXTS), TEXTS),
    "jsonl": (ConvertedSource, jsonl_bytes(TABLE), TABLE),
    "stream": (ArrowSource, ipc_bytes(TABLE), TABLE),
    "file": (ArrowSource, ipc_bytes(TABLE, pa.ipc.new_file), TABLE),
    "npy": (NumpySource, npy_bytes(np.eye(2)), pa.table({"x0": [1.0, 0.0], "x1": [0.0, 1.0]})),
}


@pytest.mark.parametrize("pack", PACKS)
@pytest.mark.parametrize("format", FORMATS)
def test_every_format_is_read_with_every_compression(open_bytes, format, pack):
    kind, data, table = FORMATS[format]

    source = open_bytes(PACKS[pack](data), name="that table")

    assert type(source) is (NumpySource if (format, pack) == ("npy", "zip") else kind)
    assert source.name == "that table"
    assert source.schema.equals(table.schema)
    assert read(source).equals(table)
    assert read(source).equals(table)
    assert source.notes == []


@pytest.mark.parametrize("data", [entry[1] for entry in FORMATS.values()], ids=list(FORMATS))
def test_columns_are_selected_in_any_order(open_bytes, data):
    source = open_bytes(data)
    names = source.schema.names[:2][::-1]
    assert read(source, names).equals(read(source).select(names))
    assert sum(batch.num_rows for batch in source.batches([])) == len(read(source))


def test_sources_know_format_types_and_rows(open_bytes):
    assert (open_bytes(b"a\n1\n").is_untyped, open_bytes(b"a\n1\n").format) == (True, "csv")
    lines = open_bytes(b'{"a": 1}\n')
    assert (lines.is_untyped, lines.format, lines.n_rows) == (True, "jsonl", 1)
    assert open_bytes(ipc_bytes(TABLE)).n_rows is None
    assert not open_bytes(ipc_bytes(TABLE)).is_untyped


@pytest.mark.parametrize("pack", ["gzip", "bz2", "zstd", "lz4", "xz"])
def test_concatenated_compressed_streams_are_all_read(open_bytes, pack):
    parts = PACKS[pack](b"a,b\n1,2\n") + PACKS[pack](b"3,4\n")
    assert cells(open_bytes(parts)) == {"a": ["1", "3"], "b": ["2", "4"]}


@pytest.mark.parametrize("pack", ["gzip", "bz2", "zstd", "lz4", "xz", "zip"])
@pytest.mark.parametrize("format", ["csv", "jsonl", "stream"])
def test_truncated_compressed_files_raise(error_of, format, pack):
    letters = np.random.default_rng(0).integers(97, 123, size=(4000, 30), dtype=np.uint8)
    table = pa.table({"t": [row.tobytes().decode() for row in letters]})
    writer = {"csv": csv_bytes, "jsonl": jsonl_bytes, "stream": ipc_bytes}[format]
    packed = PACKS[pack](writer(table))
    assert "copy or write the file again" in error_of(packed[: len(packed) * 2 // 3])


def test_macos_members_of_a_zip_are_ignored(open_bytes):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("folder/", b"")
        archive.writestr("folder/a.csv", b"a\nx\n")
        archive.writestr("__MACOSX/folder/._a.csv", b"\0\1")
    assert cells(open_bytes(sink.getvalue())) == {"a": ["x"]}


def test_zip_members_are_never_extracted(open_bytes, tmp_path):
    data = zip_pack(b"a\nx\n", "../../escaped.csv")
    assert cells(open_bytes(data)) == {"a": ["x"]}
    assert [path.name for path in tmp_path.iterdir()] == ["some.file"]
    assert not (tmp_path.parent.parent / "escaped.csv").exists()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "holds no rows"),
        (b"\n\r\n\n", "holds no rows"),
        (b"a,b\n", "holds no rows, only the line with the names"),
        (b'"a\nb",c\n\n\n', "holds no rows, only the line with the names"),
        (b"\0\1\2\3" * 50, "zero bytes"),
        (b"[\n{}]", "no columns"),
        (pickle.dumps([1]), "pickle"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1", "the workbook cannot be read"),
        (zip_pack(b"", "xl/workbook.xml"), "save the sheet as CSV"),
        (gzip.compress(gzip.compress(b"a\n1\n", mtime=0), mtime=0), "compressed twice"),
        (npz_bytes(a=np.ones(3))[:-30], "zip file"),
        (ipc_bytes(TABLE.slice(0, 0)), "holds no rows"),
        (ipc_bytes(TABLE, pa.ipc.new_file)[:-20], "Arrow data"),
        (b"ARROW1\0\0", "Arrow data"),
        (b"PAR1", "Parquet"),
        (b"PAR1" + b"\7" * 50 + b"PAR1", "Parquet"),
        (b"\xff\xff\xff\xff\x10\0\0\0" + b"\7" * 50, "Arrow data"),
        (b"\x93NUMPY", "not a complete NumPy array"),
        (b"\x93NUMPY\x01\x00\x06\x00{'a':}", "not a complete NumPy array"),
    ],
)
def test_files_that_are_not_tables_raise(error_of, data, words):
    assert words in error_of(data)


DAMAGED = {name: data for name, (_, data, _) in FORMATS.items()} | {
    "parquet": parquet_bytes(TABLE),
    "npz": npz_bytes(X=np.eye(3), y=np.arange(3)),
    "zip": zip_pack(csv_bytes(TEXTS)),
    "zstd": PACKS["zstd"](csv_bytes(TEXTS)),
}


@pytest.mark.slow
@pytest.mark.parametrize("data", DAMAGED.values(), ids=list(DAMAGED))
def test_damaged_files_raise_only_table_errors(open_bytes, data):
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(150):
        damaged = bytearray(data)
        for place in rng.integers(len(data), size=2):
            damaged[place] = rng.choice([0, 255, 34, 123, 10])
        try:
            read(open_bytes(bytes(damaged[: rng.integers(1, 2 * len(data))])))
        except TableError:
            refused += 1
    assert refused > 20


def test_zip_with_several_files_raises(error_of):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("a.csv", b"a\nx\n")
        archive.writestr("b.csv", b"a\nx\n")
    assert "holds 2 files" in error_of(sink.getvalue())


def test_encrypted_zip_members_raise(error_of):
    data = bytearray(zip_pack(b"a\nx\n"))
    for magic, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        data[data.index(magic) + place] |= 1
    assert "encrypted" in error_of(bytes(data))


def test_compressed_parquet_raises(error_of):
    sink = pa.BufferOutputStream()
    pq.write_table(TABLE, sink)
    assert "Unpack it" in error_of(gzip.compress(sink.getvalue().to_pybytes()))


def test_operating_system_errors_are_not_changed(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing\.csv"):
        open_table(tmp_path / "missing.csv")
    with pytest.raises(IsADirectoryError):
        open_table(tmp_path, format="arrow")


def test_pipes_raise():
    read_end, write_end = os.pipe()
    os.close(write_end)
    try:
        with pytest.raises(TableError, match="cannot be read twice"):
            open_table(f"/dev/fd/{read_end}")
    finally:
        os.close(read_end)


def test_control_characters_in_names_are_escaped(tmp_path):
    path = tmp_path / "a\x1b[2J.csv"
    path.write_bytes(b"")
    with pytest.raises(TableError, match=r"a\\x1b\[2J\.csv: it holds no rows"):
        open_table(path)


@pytest.mark.parametrize(
    "options",
    [
        {"format": "xlsx"},
        {"encoding": "no-such"},
        {"encoding": "rot13"},
        {"delimiter": "ab"},
        {"delimiter": '"'},
        {"delimiter": "é"},
    ],
)
def test_invalid_options_raise(open_bytes, options):
    with pytest.raises(ParameterError, match=f"{next(iter(options))}="):
        open_bytes(b"a,b\n1,2\n", **options)


@pytest.mark.parametrize("options", [{"delimiter": ","}, {"header": True}, {"encoding": "utf-8"}])
def test_options_of_other_formats_raise(open_bytes, options):
    with pytest.raises(ParameterError, match="Leave it out"):
        open_bytes(npy_bytes(np.eye(2)), **options)


def test_format_can_be_passed(open_bytes, error_of):
    assert cells(open_bytes(b"{a,b}\n1,2\n", format="csv")) == {"{a": ["1"], "b}": ["2"]}
    assert "Parquet" in error_of(b"a,b\n1,2\n", format="parquet")
    assert "npz" in error_of(b"a,b\n1,2\n", format="npz")


def test_opening_imports_only_the_reader_it_needs(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"a\n1\n")
    code = (
        "import sys; from altbi.io import open_table\n"
        "list(open_table(sys.argv[1]).batches(['a']))\n"
        "readers = {f'altbi.io._{name}' for name in ('json_lines', 'parquet', 'arrow', 'numpy')}\n"
        "print((readers | {'torch', 'pandas', 'polars', 'sklearn'}) & set(sys.modules))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "a.csv")]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


@pytest.mark.slow
def test_batches_are_bounded(open_bytes):
    n_rows = 2 * BATCH_ROWS + 1
    for data in (b"a\n" + b"x\n" * n_rows, b'{"a":1}\n' * n_rows):
        assert len(read(open_bytes(data))) == n_rows
    wide = np.zeros((700, 10_000))
    assert len(list(open_bytes(npy_bytes(wide)).batches(["x0"]))) == 4
    table = pa.table({"t": ["x" * 1000] * 50_000})
    assert len(read(open_bytes(ipc_bytes(table, pa.ipc.new_file)))) == 50_000
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    assert len(read(open_bytes(sink.getvalue().to_pybytes()))) == 50_000


def test_folder_paths_may_be_relative(tmp_path, monkeypatch):
    (tmp_path / "data" / "b=1").mkdir(parents=True)
    pq.write_table(pa.table({"a": [7]}), tmp_path / "data" / "b=1" / "a.parquet")
    monkeypatch.chdir(tmp_path / "data")
    for path in (".", "../data/", "../data/../data"):
        source = open_table(path)
        assert (source.name, cells(source)) == (path, {"a": [7], "b": [1]})


@pytest.mark.parametrize("hidden", [".old", "_old"])
def test_hidden_folders_are_not_read(tmp_path, hidden):
    for name, value in (("part", 1), (hidden, 2), (f"part/{hidden}", 3)):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"a": [value]}), tmp_path / name / "a.parquet")

    assert cells(open_table(tmp_path)) == {"a": [1]}


def test_folders_that_are_not_one_table_raise(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a\n1\n")
    with pytest.raises(TableError, match=r"no file that ends with \.parquet or \.csv"):
        open_table(tmp_path)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": ["x"]}), tmp_path / "b.parquet")
    with pytest.raises(TableError, match="not one table"):
        open_table(tmp_path)
    (tmp_path / "b.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(TableError, match=r"b\.parquet: .*damaged or incomplete"):
        open_table(tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("https://example.com/a.csv", "it is a web address, but expected a file. Download it"),
        ("s3://bucket/a.parquet", "it is a web address"),
        ("*.csv", "no file has this name, and patterns are not expanded. Pass the folder"),
        ("a[0-9].csv", "no file has this name, and patterns are not expanded"),
    ],
)
def test_addresses_and_patterns_are_no_files(tmp_path, monkeypatch, name, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a1.csv").write_text("a\n1\n")

    with pytest.raises(TableError, match=re.escape(f"{name}: {message}")):
        open_table(name)
    with pytest.raises(FileNotFoundError):
        open_table("absent.csv")


@pytest.mark.parametrize(
    "text",
    [
        '{"data": [{"a": 1}, {"a": 2}]}',
        '\n{"data":\n [{"a": 1}, {"a": 2}]\n}\n',
        '{"n": 2, "data": [{"a": 1}, {"a": 2}], "meta": {"b": []}, "tags": ["x"], "more": []}\n',
        '{"meta": {}, "data": [' + '{"a": 1}, ' * 200_000 + '{"a": 2}]}',
        '{"meta": {},\n "data": [\n' + '{"a": 1},\n ' * 200_000 + '{"a": 2}]}\n',
    ],
    ids=["one key", "several lines", "other keys", "long line", "many lines"],
)
def test_rows_inside_one_json_object_are_refused(tmp_path, text):
    path = tmp_path / "t.json"
    path.write_text(text)

    with pytest.raises(TableError, match="one JSON object, whose key 'data' has the rows"):
        open_table(path)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": [{"c": 1}], "b": 1}',
        '{"a": [{"c": 1}, {"c": 2}], "b": [{"d": 1}]}',
        '{"a": [{"c": 1}, 2], "b": 1}',
        '{"a": [1, 2]}',
        '{"a": 1}',
        '{"a": [{"b": 1}]}\n{"a": [{"b": 2}]}\n',
    ],
)
def test_other_json_lines_are_read(tmp_path, text):
    path = tmp_path / "t.json"
    path.write_text(text)

    assert open_table(path).schema.names[0] == "a"
