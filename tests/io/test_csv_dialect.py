"""CSV dialects and headers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_bytes import cells

from altbi.io._csv_dialect import Dialect, detect_dialect


@pytest.mark.parametrize(
    ("head", "delimiter"),
    [
        (b"a;b\n1,5;2,5\n3,5;4,5\n", ";"),
        (b"1,5;2,5\n3,5;4,5\n", ";"),
        (b"a|b,c,d\nx|y,1,2\nu|v,3,4\n", ","),
        (b"text\nhello, you\nhello\nyou\n", ","),
        (b"a\tb\n1, 2\t3\n1\t3\n", "\t"),
        (b"a,b\n1,2\n1,2\n1,2,3\n", ","),
        (b"", ","),
    ],
)
def test_most_consistent_delimiter_is_detected(head, delimiter):
    assert detect_dialect(head).delimiter == delimiter


@settings(max_examples=50)
@given(st.text(alphabet='a,"\n', max_size=12), st.text(alphabet='a,"\n', max_size=12))
def test_record_ends_do_not_depend_on_later_text(start, rest):
    dialect = Dialect(",")
    data = f'"{start}'.encode()
    end = dialect.find_end(data)
    assert end == 0 or end <= dialect.find_end(data + rest.encode() + b"\n")
    assert data[end - 1 : end] in (b"", b"\n")


def test_first_line_of_numbers_is_a_row(open_bytes):
    source = open_bytes(b"1.5,,NA\n2,3,4\n")
    assert cells(source) == {"x0": ["1.5", "2"], "x1": ["", "3"], "x2": ["NA", "4"]}
    assert "numbers only" in source.notes[0]
    assert cells(open_bytes(b"1,2\n3,4\n", header=True)) == {"1": ["3"], "2": ["4"]}


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("shop0,105.12,2026-01-01", "'105.12', '2026-01-01'"),
        ("a,31.12.2026 8:30,b", "'31.12.2026 8:30'"),
        ("region,2023,2024", "'2023', '2024'"),
        ("a,1,2,3,4,5,6", "'1', '2', '3', '4', '5', …"),
    ],
)
def test_ambiguous_first_line_adds_a_note(open_bytes, line, values):
    content = f"{line}\n{line}\n".encode()

    (note,) = open_bytes(content).notes
    assert f"was read as names of columns, among them {values}. If it is a row, pass --no-h" in note
    assert open_bytes(content, header=True).notes == []
    assert open_bytes(content, header=False).notes == []


def test_first_line_of_words_is_the_header(open_bytes):
    assert cells(open_bytes(b"a,2\n3,4\n")) == {"a": ["3"], "2": ["4"]}
    source = open_bytes(b"a,b\nc,d\n", header=False)
    assert cells(source) == {"x0": ["a", "c"], "x1": ["b", "d"]}
    assert source.notes == []


def test_counted_columns_are_a_header(open_bytes):
    source = open_bytes(b",0,1\n0,7,8\n")
    assert cells(source) == {"unnamed_1": ["0"], "0": ["7"], "1": ["8"]}
    assert "counts 0, 1, 2" in source.notes[0]


def test_columns_without_a_name_get_one(open_bytes):
    source = open_bytes(b"a,, \n1,2,3\n")
    assert source.schema.names == ["a", "unnamed_2", "unnamed_3"]
    assert "unnamed_2, unnamed_3" in source.notes[0]


def test_duplicate_column_names_raise(error_of):
    assert "'a\\x07'" in error_of(b"a\x07,b,a\x07\n1,2,3\n")
    assert "'unnamed_1'" in error_of(b",unnamed_1\n1,2\n")
    assert "(7 in all)" in error_of(b"a,b,c,d,e,f,g,a,b,c,d,e,f,g\n" + b"1," * 13 + b"1\n")
