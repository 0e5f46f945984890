"""CSV files."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_bytes import TEXTS, cells, csv_bytes, read

from altbi.errors import TableError
from altbi.io import open_table


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_are_detected(open_bytes, delimiter):
    assert read(open_bytes(csv_bytes(TEXTS, delimiter))).equals(TEXTS)


def test_one_column_is_a_table(open_bytes):
    assert cells(open_bytes(b"name\nhello\nyou, there\nyou\n", delimiter="tab")) == {
        "name": ["hello", "you, there", "you"]
    }
    assert cells(open_bytes(b"name\nhello\nyou\n")) == {"name": ["hello", "you"]}


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("end", [True, False])
def test_all_newline_styles_are_read(open_bytes, newline, end):
    lines = [b"", b"a,b", b"1,2", b"", b'"x' + newline + b'y",4']
    data = newline.join(lines) + newline * end
    assert cells(open_bytes(data)) == {"a": ["1", f"x{newline.decode()}y"], "b": ["2", "4"]}


def test_apostrophes_quote_only_if_used_consistently(open_bytes):
    assert cells(open_bytes(b"a,b\n'x,y',2\n'it''s',3\n")) == {
        "a": ["x,y", "it's"],
        "b": ["2", "3"],
    }
    assert cells(open_bytes(b"a,b\n'tis,2\n'x',3\n")) == {"a": ["'tis", "'x'"], "b": ["2", "3"]}


def test_backslashes_escape_only_before_inner_quotes(open_bytes):
    assert cells(open_bytes(b'a,b\n"x \\"y\\", z",2\n')) == {"a": ['x "y", z'], "b": ["2"]}
    assert cells(open_bytes(b'a,b\n"C:\\dir\\",2\n')) == {"a": ["C:\\dir\\"], "b": ["2"]}


def test_quote_inside_a_value_is_a_letter(open_bytes):
    assert cells(open_bytes(b'a,b\n5" pipe,2\n6" pipe,3\n')) == {
        "a": ['5" pipe', '6" pipe'],
        "b": ["2", "3"],
    }


def test_values_are_read_as_written(open_bytes):
    source = open_bytes(b"a,b,c\n007, NA ,\nnull,1e5,true\n")
    assert cells(source) == {"a": ["007", "null"], "b": [" NA ", "1e5"], "c": ["", "true"]}
    assert read(source).column("c").null_count == 0


PLAIN_CELLS = st.text(alphabet='ab,;"\n\r é', max_size=6)


@settings(max_examples=50)
@given(st.lists(st.tuples(PLAIN_CELLS, PLAIN_CELLS), min_size=1, max_size=6))
def test_quoted_values_round_trip(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    table = pa.table({"a": [a for a, _ in rows], "b": [b for _, b in rows]})
    path.write_bytes(csv_bytes(table))
    assert read(open_table(path)).equals(table)


@pytest.mark.parametrize(
    ("data", "line", "found", "expected"),
    [
        (b"a,b\n1,2\n1,2,3\n", 3, 3, 2),
        (b"a,b\n1\n", 2, 1, 2),
        (b'\n\na,b\n"1\n\n2",3\n1,2\n1,2,3\n1,2,3,4\n', 8, 3, 2),
        (b"a,b\r\n1,2\r\n\r\n1,2,3\r\n", 4, 3, 2),
        (b"a,b\n" + b"1,2\n" * 1_200_000 + b"1,2,3\n", 1_200_002, 3, 2),
    ],
)
def test_ragged_lines_raise_with_their_number(error_of, data, line, found, expected):
    text = error_of(data)
    assert f"line {line} has {found} cells, but expected {expected}" in text
    assert "--delimiter" in text


def test_unclosed_quote_raises_with_its_line(error_of):
    assert "opens in line 3 or later is never closed" in error_of(b'a,b\n"1",2\n1,"2\n3,4\n')


# Folders of CSV files


def open_folder(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text)
    return open_table(folder)


def test_folder_is_read_in_the_order_of_names(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "z.tsv").write_text("a;b\n9;z\n")
    (tmp_path / "_hidden.csv").write_text("junk")

    source = open_folder(tmp_path, b="a;b\n2;x\n", a="a;b\n1,5;y\n", c="a;b\n")

    assert cells(source) == {"a": ["1,5", "2", "9"], "b": ["y", "x", "z"]}
    names = [path.rpartition("/")[2] for path in source.paths]
    assert names == ["a.csv", "b.csv", "c.csv", "z.tsv"]
    assert [cells(file)["b"] for file in source.partitions(1)] == [["y"], ["x"], [], ["z"]]


def test_file_with_other_columns_is_named(tmp_path):
    with pytest.raises(TableError, match=r"c\.csv: its columns are 'a', 'x', but expected"):
        open_folder(tmp_path, a="a,b\n1,2\n", b="a,b\n1,2\n", c="a,x\n1,2\n")


def test_files_without_header_have_equal_widths(tmp_path):
    source = open_folder(tmp_path, a="1,2\n", b="3,4\n")

    assert cells(source) == {"x0": ["1", "3"], "x1": ["2", "4"]}
    with pytest.raises(TableError, match=r"c\.csv: its columns are 'x0', 'x1', 'x2'"):
        open_folder(tmp_path, c="3,4,5\n")


def test_files_without_rows_are_skipped(tmp_path):
    source = open_folder(tmp_path, a="", b="a,b\n", c="a,b\n1,2\n")

    assert cells(source) == {"a": ["1"], "b": ["2"]}
    (tmp_path / "c.csv").unlink()
    with pytest.raises(TableError, match="none of its 2 CSV files holds a row"):
        open_table(tmp_path)
