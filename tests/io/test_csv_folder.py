import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from altbi.errors import TableError
from altbi.io import open_table


def write_folder(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text)
    return open_table(folder)


def read_values(source):
    batches = list(source.batches(source.schema.names))
    return pa.Table.from_batches(batches, source.schema).to_pydict()


def test_files_are_read_in_order_of_names(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "z.tsv").write_text("a;b\n9;z\n")
    (tmp_path / "_hidden.csv").write_text("junk")
    source = write_folder(tmp_path, b="a;b\n2;x\n", a="a;b\n1,5;y\n", c="a;b\n")

    assert read_values(source) == {"a": ["1,5", "2", "9"], "b": ["y", "x", "z"]}
    assert [path.rpartition("/")[2] for path in source.paths] == [
        "a.csv", "b.csv", "c.csv", "z.tsv"
    ]  # fmt: skip


def test_other_headers_are_errors(tmp_path):
    with pytest.raises(TableError, match=r"c\.csv: .*'a', 'x'"):
        write_folder(tmp_path, a="a,b\n1,2\n", b="a,b\n1,2\n", c="a,x\n1,2\n")


def test_files_without_header_need_equal_widths(tmp_path):
    assert read_values(write_folder(tmp_path, a="1,2\n", b="3,4\n")) == {
        "x0": ["1", "3"], "x1": ["2", "4"]
    }  # fmt: skip
    with pytest.raises(TableError, match=r"c\.csv: .*'x0', 'x1', 'x2'"):
        write_folder(tmp_path, c="3,4,5\n")


def test_files_without_rows_are_skipped(tmp_path):
    assert read_values(write_folder(tmp_path, a="", b="a,b\n", c="a,b\n1,2\n")) == {
        "a": ["1"], "b": ["2"]
    }  # fmt: skip
    (tmp_path / "c.csv").unlink()
    with pytest.raises(TableError, match="2 CSV files"):
        open_table(tmp_path)


def test_mixed_formats_need_a_choice(tmp_path):
    pq.write_table(pa.table({"p": [1]}), tmp_path / "p.parquet")
    (tmp_path / "a.csv").write_text("a\n1\n")

    with pytest.raises(TableError, match=str(re.escape(str(tmp_path)))):
        open_table(tmp_path)
    assert open_table(tmp_path, format="csv").schema.names == ["a"]
    assert open_table(tmp_path, format="parquet").schema.names == ["p"]
