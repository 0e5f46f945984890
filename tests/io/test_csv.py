"""CSV files."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_bytes import TEXTS, cells, csv_bytes, read

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
