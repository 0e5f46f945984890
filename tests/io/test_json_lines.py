"""JSON lines files."""

import gzip
import json
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from table_bytes import cells, read

from altbi.errors import TableError
from altbi.io import ExpectedType, open_table, scan_table


@pytest.mark.parametrize(
    ("lines", "type_", "values"),
    [
        (["1", "null", "-3"], pa.int64(), [1, None, -3]),
        (["1", "2.5"], pa.float64(), [1.0, 2.5]),
        (["9223372036854775808", "1"], pa.string(), ["9223372036854775808", "1"]),
        (["-9223372036854775809", "1.5"], pa.string(), ["-9223372036854775809", "1.5"]),
        (["9007199254740991", "1.5"], pa.float64(), [2.0**53 - 1, 1.5]),
        (["9007199254740993", "1.5"], pa.string(), ["9007199254740993", "1.5"]),
        (["1e20", "9007199254740993.0"], pa.float64(), [1e20, 2.0**53]),
        (["-9223372036854775808"], pa.int64(), [-(2**63)]),
        (["true", "null"], pa.bool_(), [True, None]),
        (['"2020-01-01"', '"2020-01-02T03:04:05"'], pa.string(), None),
        (["null", "null"], pa.string(), [None, None]),
        (["1.5", '"x"', "true", "null", "{}"], pa.string(), ["1.5", "x", "true", None, "{}"]),
        (["true", "1"], pa.string(), ["true", "1"]),
        (["12345678901234567890", '""'], pa.string(), ["12345678901234567890", ""]),
        (["1e400", "-Infinity"], pa.float64(), [np.inf, -np.inf]),
        (['"a\\tb\\u00e9"', '"{[{["'], pa.string(), ["a\tbé", "{[{["]),
    ],
)
def test_json_types_are_inferred(open_bytes, lines, type_, values):
    source = open_bytes("".join(f'{{"a": {value}}}\n' for value in lines).encode())
    assert source.schema.field("a").type == type_
    expected = [json.loads(line) for line in lines] if values is None else values
    assert read(source).column("a").to_pylist() == expected


def test_json_nan_is_a_number(open_bytes):
    source = open_bytes(b'{"a": NaN}\n{"a": 1}\n')
    np.testing.assert_array_equal(read(source).column("a").to_numpy(), [np.nan, 1])


@pytest.mark.slow
@pytest.mark.parametrize("last", ['{"a": 1.0}', '{"c": {"e": "x"}}', '{"b": 7}'])
def test_last_line_changes_the_schema(open_bytes, last):
    n_lines = 200_000
    first = '{"a": 1, "b": "2020-01-01", "c": {"d": true}}\n'
    source = open_bytes((first * n_lines + last).encode())

    table = read(source)

    assert source.n_rows == len(table) == n_lines + 1
    assert table.column("b")[:3].to_pylist() == ["2020-01-01"] * 3
    assert pc.unique(table.column("c.d").slice(0, n_lines)).to_pylist() == [True]
    if "1.0" in last:
        assert table.schema.field("a").type == pa.float64()
    elif "e" in last:
        assert table.column_names == ["a", "b", "c.d", "c.e"]
        assert table.column("c.e").null_count == n_lines
    else:
        assert table.column("b")[-1].as_py() == "7"


def test_objects_are_flattened_and_blank_lines_skipped(open_bytes):
    source = open_bytes(b'\n{"b": {"x": 1}, "a": 2}\r\n \n{"a": 3, "b": null}\n{"b": {"y": "z"}}')
    assert cells(source) == {"b.x": [1, None, None], "b.y": [None, None, "z"], "a": [2, 3, None]}
    assert source.n_rows == 3


def test_duplicate_keys_have_the_first_value(open_bytes):
    assert cells(open_bytes(b'{"a": 1, "a": 2}\n')) == {"a": [1]}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"a": 1}\n\n{"a": \n', "line 3 is no JSON"),
        (b'{\n"a": 1\n}\n', "line 1 is no JSON"),
        (b'{"a": 1} {"a": 2}\n', "line 1 is no JSON"),
        (b'{"a": 1}\n[1]\n', "line 2 holds no object"),
        (b'{"a": 1}\nnull\n', "line 2 holds no object"),
        (b'{"a": {"b": 1}, "a.b": 1}\n', "same name: 'a.b'"),
        (b"{}\n{}\n", "no columns"),
        (b'{"a": "\\ud800"}\n', "half a letter"),
        (b'{"\\ud800": 1}\n', "half a letter"),
        (b'{"a":' * 130 + b"1" + b"}" * 130, "nested too deep"),
        (b'{"a":' * 200_000 + b"1" + b"}" * 200_000, "nested too deep"),
        (b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested too deep"),
    ],
)
def test_invalid_json_lines_raise_with_their_number(error_of, data, words):
    assert words in error_of(data)


@pytest.mark.parametrize("text", ["[1]", '["1"]', '[{"b":[0],"é":"x\\n"},[]]', "[NaN,true,null]"])
def test_json_lists_keep_their_types(open_bytes, text):
    assert cells(open_bytes(f'{{"a": {text}}}\n'.encode())) == {"a": [text]}


def test_objects_among_plain_values_are_text(open_bytes):
    source = open_bytes(b'{"a": 1}\n{"a": {"b": 2}}\n')

    assert cells(source) == {"a": ["1", '{"b":2}']}
    assert source.notes == [
        "Column 'a' holds values of several types; they are read like the cells of a CSV file."
    ]


def test_objects_without_keys_join_others(open_bytes):
    assert cells(open_bytes(b'{"a": {}}\n{"a": {"b": 2}}\n{}\n')) == {"a.b": [None, 2, None]}
    assert cells(open_bytes(b'{"a": {"b": 2}}\n{"a": {}}\n')) == {"a.b": [2, None]}
    assert cells(open_bytes(b'{"a": {}}\n')) == {"a": ["{}"]}


def test_arrays_of_objects_are_tables(open_bytes):
    assert cells(open_bytes(b'[{"a": 1},\n {"a": 2, "b": "x"}]', format="jsonl")) == {
        "a": [1, 2],
        "b": [None, "x"],
    }


def test_keys_that_differ_in_case_are_columns(open_bytes):
    assert cells(open_bytes(b'{"a": 1, "A": 2, "a/b": 3, "~": 4, "": {"0": 5}}\n')) == {
        "a": [1],
        "A": [2],
        "a/b": [3],
        "~": [4],
        ".0": [5],
    }


def test_late_columns_are_sorted_behind_the_first(open_bytes):
    lines = [b'{"b": 1, "c": {"x": 1}}'] * 3_000 + [b'{"d": 1, "a": 2, "c": {"k": 3}}']
    assert open_bytes(b"\n".join(lines)).schema.names == ["b", "c.x", "c.k", "a", "d"]


def test_table_is_converted_again_after_pickling(open_bytes):
    source = pickle.loads(pickle.dumps(open_bytes(b'{"a": 1}\n{"a": 2}\n')))
    assert cells(source) == {"a": [1, 2]}


def test_json_lists_are_text_with_a_note(tmp_path):
    (tmp_path / "t").write_text(
        '{"a": 1, "b": {"c": ["x", "y"]}}\n{"a": 2}\n{"a": 3, "b": {"c": []}}\n'
    )

    source = open_table(tmp_path / "t")
    (batch,) = source.batches(["a", "b.c"])

    assert batch.to_pydict() == {"a": [1, 2, 3], "b.c": ['["x","y"]', None, "[]"]}
    assert source.notes == ["Column 'b.c' holds lists; they are read as text."]


@pytest.mark.parametrize("large", [2**63 + 1, 10**20 + 1])
def test_large_integers_leave_other_columns_alone(open_bytes, large):
    ids = [9007199254740993, 2**63 - 1]

    source = open_bytes(
        b'{"id": %d, "a": %d, "b": 1.5}\n{"id": %d, "a": 1, "b": 2}' % (ids[0], large, ids[1])
    )

    assert cells(source) == {"id": ids, "a": [str(large), "1"], "b": [1.5, 2.0]}
    assert source.notes == [
        "Column 'a' holds integers that numbers would round; they are read like the cells of a CSV "
        "file."
    ]
    assert scan(source)[0] == [float(large), 1.0]
    assert "some of its integers" in scan(source)[1][0]


NOT_STRICT = ['{"b": [1,],"a":1 , }', '{"b": nan, "a": -INF}', '{"b": {"x": "", }, "a": "\\", ]"}']


@pytest.mark.parametrize("line", NOT_STRICT)
@pytest.mark.parametrize("n_before", [0, 2000])
def test_what_duckdb_accepts_is_accepted_everywhere(open_bytes, error_of, line, n_before):
    lines = '{"b": 1, "a": 2}\n' * n_before + f"{line}\n"

    source = open_bytes(lines.encode())

    assert source.schema.names[0].startswith("b")
    assert source.n_rows == n_before + 1
    assert f"line {n_before + 2} is no JSON" in error_of(f"{lines}{{,}}\n".encode())


def test_trailing_commas_change_no_value(open_bytes):
    source = open_bytes(b'{"a": 1,}\n{"a": -inf, "b": [1, 2,],}\n')
    assert cells(source) == {"a": [1.0, -np.inf], "b": [None, "[1,2]"]}


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_byte_order_marks_are_skipped(open_bytes, pack):
    assert cells(open_bytes(pack(b'\xef\xbb\xbf{"a": "\xc3\xa9"}\n'))) == {"a": ["é"]}
    assert cells(open_bytes(pack(b'\xef\xbb\xbf[{"a": 1}]\n'))) == {"a": [1]}


def test_mark_of_utf8_excludes_other_encodings(error_of):
    assert "byte 0xe9 in line 2" in error_of(b'\xef\xbb\xbf{"a": 1}\n{"a": "\xe9"}\n')


# The invalid byte is behind the megabyte from which the encoding is detected.
LATE = b'{"a": "e"}\n' * 100_000 + b'{"a": "\xe9"}\n'


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_late_invalid_utf8_is_cp1252(open_bytes, pack):
    source = open_bytes(pack(LATE))
    assert cells(source)["a"][-1] == "é"
    (note,) = source.notes
    assert "not UTF-8 (byte 0xe9 in line 100001), read as cp1252" in note


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_stated_encodings_of_json_are_used(open_bytes, error_of, pack):
    assert "byte 0xe9 in line 100001 cannot be read as utf-8" in error_of(
        pack(LATE), encoding="utf-8"
    )
    assert cells(open_bytes(pack(LATE), encoding="cp850"))["a"][-1] == "Ú"
    assert cells(open_bytes(pack(b'{"a": "\xc3\xa9"}\n'), encoding="cp1252")) == {"a": ["Ã©"]}


def test_too_long_objects_are_refused(open_bytes, error_of):
    assert open_bytes(b'{"a": "%s"}\n' % (b"x" * (15 << 20))).n_rows == 1
    line = b'{"a": "%s"}\n' % (b"x" * (33 << 20))
    assert "an object is longer than 16 MiB" in error_of(b'{"a": ""}\n' + line)


def test_too_many_keys_in_a_line_are_refused_without_duckdb(error_of, monkeypatch):
    monkeypatch.setattr("altbi.io._json_lines._join_structures", None)
    line = b"{" + b", ".join(b'"k%d": 1' % number for number in range(300_000)) + b"}\n"
    assert "300,000 columns, but expected at most" in error_of(line, format="jsonl")


POINTED = "numbers with points between thousands and a decimal comma"


def scan(source, written=None):
    """Return the values of column a, parsed as a model expects them, or as inferred."""
    expected = None if written is None else {"a": ExpectedType("number", written)}
    found = scan_table(source, ["a"], source.batches(["a"]), limit=9, seed=0, expected=expected)
    return found.sample.numbers([0])[:, 0].tolist(), found.notes


@pytest.mark.parametrize("number", ["1.234", "-999.125", "12.345", "999.500", "1234.567", "0.125"])
@pytest.mark.parametrize("other", ['"7"', "null", "9007199254740993", '"n.a."'])
def test_json_numbers_have_the_same_value_in_all_files(open_bytes, number, other):
    source = open_bytes(b'{"a": %b}\n{"a": %b}\n' % (number.encode(), other.encode()))

    for written in (None, "numbers"):
        assert scan(source, written)[0][0] == float(number)
    if source.schema.field("a").type == pa.string():
        with pytest.raises(TableError, match="expects numbers with points between thousands"):
            scan(source, POINTED)
    else:
        assert scan(source, POINTED)[0][0] == float(number)


def test_json_numbers_beside_decimal_commas_are_never_thousands(open_bytes):
    source = open_bytes(b'{"a": 1.234}\n{"a": "1,5"}\n')
    assert cells(source) == {"a": ["1.2340", "1,5"]}
    with pytest.raises(TableError, match=r"'1\.2340' in row 0 .* decimal comma, as where it was f"):
        scan(source, "numbers with a decimal comma")


def test_json_texts_like_numbers_stay_as_they_are(open_bytes):
    source = open_bytes(b'{"a": "1.234", "b": 1.2345}\n{"a": 5, "b": "x"}\n')
    assert cells(source) == {"a": ["1.234", "5"], "b": ["1.2345", "x"]}


def test_objects_and_lists_beside_numbers_are_compact_json(open_bytes):
    source = open_bytes(b'{"a": 1.234}\n{"a": {"b": 1.234}}\n{"a": [1.234]}\n{"a": null}\n{}\n')
    assert cells(source) == {"a": ["1.2340", '{"b":1.234}', "[1.234]", None, None]}
