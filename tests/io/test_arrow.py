"""Arrow files and streams."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest
from table_bytes import TABLE, ipc_bytes, read

from altbi.errors import TableError
from altbi.io import _arrow, open_table


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_feather_files_are_read(tmp_path, codec):
    pa.feather.write_feather(TABLE, tmp_path / "a.feather", compression=codec)
    source = open_table(tmp_path / "a.feather")
    assert (source.format, source.n_rows) == ("arrow", 3)
    assert read(source).equals(TABLE)


def test_duplicate_arrow_columns_raise(error_of):
    table = pa.table([[1], [2]], names=["a", "a"])
    assert "same name: 'a'" in error_of(ipc_bytes(table))


N_ROWS = 100_000  # each batch is larger than any buffer of a reader


def write_two_batches(path, opener, table):
    with opener(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=N_ROWS)


@pytest.mark.parametrize("opener", [pa.ipc.new_file, pa.ipc.new_stream])
def test_file_cut_while_read_is_an_error(tmp_path, opener):
    """In a child process, because a memory map would end it with SIGBUS."""
    path = tmp_path / "cut.arrow"
    write_two_batches(path, opener, pa.table({"a": np.arange(2.0 * N_ROWS)}))
    code = (
        "import os, sys, altbi\n"
        "path = sys.argv[1]\n"
        "batches = altbi.open_table(path).batches(['a'])\n"
        "first = next(batches)\n"
        "os.truncate(path, 5000)\n"
        "try:\n"
        "    total = sum(sum(batch['a'].to_pylist()) for batch in batches)\n"
        "except altbi.AltbiError as error:\n"
        "    sys.exit(str(error))\n"
    )

    child = subprocess.run(
        [sys.executable, "-c", code, path], check=False, capture_output=True, text=True
    )

    assert child.returncode == 1
    assert child.stderr.startswith(f"{path}: the ")
    assert "cannot be read to the end" in child.stderr or "was changed" in child.stderr
    assert len(child.stderr.splitlines()) == 1


def count_read_bytes():
    """Return the number of bytes that this process has read from files."""
    fields = Path("/proc/self/io").read_text().split()
    return int(fields[fields.index("rchar:") + 1])


def test_only_selected_columns_are_read(tmp_path):
    path = tmp_path / "wide.arrow"
    table = pa.table({"a": np.arange(9.0), "b": ["x" * 10**6] * 9})
    write_two_batches(path, pa.ipc.new_file, table)
    batches = open_table(path).batches(["a"])
    before = count_read_bytes()

    batch = next(batches)

    assert count_read_bytes() - before < 10**6
    assert batch.num_rows == 9


def test_only_selected_columns_are_validated(tmp_path):
    path = tmp_path / "two.arrow"
    table = pa.table({"a": np.arange(3.0), "b": ["x" * 64, "y", "z"]})
    write_two_batches(path, pa.ipc.new_file, table)
    path.write_bytes(path.read_bytes().replace(b"x" * 64, b"\xff" * 64))
    source = open_table(path)

    assert read(source, ["a"]).column("a").to_pylist() == [0.0, 1.0, 2.0]
    with pytest.raises(TableError, match="UTF8"):
        read(source, ["b"])
    assert [batch.num_rows for batch in source.batches([])] == [3]


def test_rows_are_counted_without_the_method_of_pyarrow(tmp_path, monkeypatch):
    path = tmp_path / "two.arrow"
    write_two_batches(path, pa.ipc.new_file, pa.table({"a": np.arange(2.0 * N_ROWS)}))
    monkeypatch.setattr(_arrow, "hasattr", lambda *_: False, raising=False)

    assert open_table(path).n_rows == 2 * N_ROWS


def test_columns_that_cannot_be_read_raise(tmp_path):
    path = tmp_path / "odd.arrow"
    encoded = pa.RunEndEncodedArray.from_arrays(pa.array([3], pa.int32()), pa.array([1.0]))
    write_two_batches(path, pa.ipc.new_file, pa.table({"a": [1, 2, 3], "runs": encoded}))
    source = open_table(path)

    assert read(source, ["a"]).num_rows == 3
    with pytest.raises(TableError, match=f"^{path}: column 'runs' has the type run_end_encoded"):
        read(source)


def test_views_inside_of_lists_are_replaced(tmp_path):
    path = tmp_path / "views.arrow"
    views = {
        "list": pa.array([["x"], None], pa.list_(pa.string_view())),
        "large": pa.array([["x"], None], pa.large_list(pa.string_view())),
        "record": pa.array([{"x": "y"}, None], pa.struct([("x", pa.string_view())])),
        "bytes": pa.array([b"x", None], pa.binary_view()),
    }
    write_two_batches(path, pa.ipc.new_file, pa.table(views))

    table = read(open_table(path))

    assert "view" not in str(table.schema)
    assert table.take([0]).to_pylist() == [
        {"list": ["x"], "large": ["x"], "record": {"x": "y"}, "bytes": b"x"}
    ]
