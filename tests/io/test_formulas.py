"""Texts that a spreadsheet would run as formulas, quoted in CSV."""

import io
import re

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from altbi.errors import TableError
from altbi.io import open_stream_writer, quote_names, unquote_formulas
from altbi.io._formulas import quote_formulas

FORMULAS = [
    *(
        '=cmd|"/c calc"!A1',
        "=",
        "@SUM(A1)",
        "+1+2",
        "-1+2",
        "-A1",
        "- item",
        "+cmd|' /c x'!A",
        "-x",
    ),
    *("\t=1", "\r=1", "\n=1", "\x00=1", "\uff1d1", "\uff0bx", "\uff0dx", "\uff20x"),
    *("-2-3", "-1e5e", "--1", "-(1)", "+49-30-12", "-5\n", "-5 EUR"),
]
PLAIN = [
    *("", "a", "a=1", "5", "1e5", "'", "''", "'a", "'-5", " =1"),
    *("-", "+", "-5", "+3.2", "-1e5", "-.5", "-1E-05", "-5.", "-1,234.50", "-1.234,50", "+49 30 1"),
    *("-5 %", "-5%", "-$5", "-5 €", "-€ 1'000", "-1\u202f000\xa0€"),
]


@pytest.mark.parametrize("text", FORMULAS)
def test_formulas_get_an_apostrophe(text):
    assert quote_names([text]) == [f"'{text}"]


@pytest.mark.parametrize("text", PLAIN)
def test_plain_texts_and_numbers_stay(text):
    assert quote_names([text]) == [text]


def test_quoted_formulas_are_quoted_again():
    assert quote_names(["'=1", "''=1", "'-x"]) == ["''=1", "'''=1", "''-x"]


@given(st.lists(st.text("'=+-@\t\r\n\x001e.,% a€\uff1d", max_size=6), min_size=1))
def test_quoting_is_undone_exactly(texts):
    table = pa.table({"=x": texts})

    quoted = quote_formulas(table)

    assert quoted.column_names == ["'=x"]
    assert not [t for t in quoted["'=x"].to_pylist() if re.match(r"[=@\t\r\n\x00\uff1d]", t)]
    assert unquote_formulas(quoted) == table


TYPES = [
    *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(2)),
    *(pa.dictionary("int8", "string"), pa.dictionary("int32", "binary")),
]


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_all_types_of_text_are_quoted(type_):
    values = pa.array(["=1", "ab", None])
    values = values.dictionary_encode() if pa.types.is_dictionary(type_) else values.cast("binary")
    table = pa.table({"+a": values.cast(type_), "n": [-1, -2, -3]})

    assert write_csv(table) == b'"\'+a","n"\n"\'=1",-1\n"ab",-2\n,-3\n'
    assert write_csv(table, raw=True) == b'"+a","n"\n"=1",-1\n"ab",-2\n,-3\n'


@pytest.mark.parametrize("format_", ["jsonl", "parquet", "arrow"])
def test_other_formats_have_no_quotes(format_):
    table = pa.table({"=a": ["=1"]})

    file = write(table, format_)

    read = {
        "jsonl": lambda: file.getvalue() == b'{"=a": "=1"}\n',
        "parquet": lambda: pa.parquet.read_table(file) == table,
        "arrow": lambda: pa.ipc.open_file(file.getvalue()).read_all() == table,
    }
    assert read[format_]()


def test_bytes_that_are_not_text_raise():
    with pytest.raises(TableError, match="does not support a column"):
        write_csv(pa.table({"b": [b"=\xff"]}))


def write(table, format_, **options):
    file = io.BytesIO()
    with open_stream_writer(file, format_, table.schema, **options) as writer:
        writer.write(table)
    return file


def write_csv(table, **options):
    return write(table, "csv", **options).getvalue()
