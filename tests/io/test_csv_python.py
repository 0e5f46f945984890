"""CSV files that Python reads, because Arrow may misread them."""

import itertools

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_bytes import cells, read

from altbi.errors import TableError
from altbi.io import open_table
from altbi.io._csv_dialect import Dialect
from altbi.io._csv_python import _take_chunk, needs_python

SAFE = {
    "no quotes": b"a,b\n1,2\n",
    "no last newline": b"a,b\n1,2",
    "one kind of newline": b"a,b\r\n1,2\r\n",
    "old newlines": b"a,b\r1,2\r",
    "quotes around values": b'"a","b,c"\n"1",2\n',
    "doubled quotes": b'a,b\n"x ""y"" z",2\n"""x""",""\n',
}
UNSAFE = {
    "newline in quotes": b'a,b\n"x\ny",2\n',
    "return in quotes": b'a,b\n"x\ry",2\n',
    "quote inside of a value": b'a,b\nab"c,"open\nx",2\n',
    "quote after a word and a space": b'a,b\nab "c,"open\nx",2\n',
    "open quote": b'a,b\n1,"2\n',
    "spaces before quotes": b'a, "b"\n1,2\n',
    "spaces after quotes": b'a,"b" \n1,2\n',
    "text after a quote": b'a,"b"c"d"\n1,2\n',
    "two kinds of newlines": b"a,b\n1,2\r\n3,4\n",
    "a lone return": b"a,b\n1,2\r3,4\n",
}


def write(tmp_path, data):
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    return str(path)


@pytest.mark.parametrize("data", SAFE.values(), ids=SAFE)
def test_safe_files_are_left_to_arrow(tmp_path, data):
    for size in (0, (1 << 20) - 5, 1 << 20):  # also across the blocks that are examined
        filling = b"x,y" + data[-1:] if data[-1:] == b"\r" else b"x,y\r\n"
        filling = filling if b"\r" in data else b"x,y\n"
        filled = filling * (size // len(filling)) + data
        assert not needs_python(write(tmp_path, filled), Dialect(","))


@pytest.mark.parametrize("data", UNSAFE.values(), ids=UNSAFE)
def test_files_that_arrow_may_misread_are_found(tmp_path, data):
    for n_lines in (0, 262_143, 300_000):
        path = write(tmp_path, b"x,y\n" * n_lines + data + b"x,y\n" * 10)
        assert needs_python(path, Dialect(","))


def test_quotes_of_the_dialect_alone_matter(tmp_path):
    path = write(tmp_path, b"a,b\n'x\ny',2\n")
    assert needs_python(path, Dialect(",", "'"))
    assert not needs_python(path, Dialect(","))
    assert needs_python(write(tmp_path, b"a\n1\n"), Dialect(",", '"', escape=True))


def test_long_texts_in_quotes_keep_their_rows(tmp_path):
    texts = ["\n".join(["the quick brown fox"] * (number % 20)) for number in range(1_000)]
    rows = [
        f"{text} {number}"
        for number, text in zip(range(170_000), itertools.cycle(texts), strict=False)
    ]
    path = write(tmp_path, b"text\n" + "".join(f'"{row}"\n' for row in rows).encode())
    expected = pa.array(rows)

    for _ in range(2):
        source = open_table(path)
        assert read(source).column("text").combine_chunks().equals(expected)


def test_empty_values_after_the_last_are_ignored(open_bytes):
    assert cells(open_bytes(b'a,b\n1,"2\n",,\n3,4,\n')) == {"a": ["1", "3"], "b": ["2\n", "4"]}


def test_marks_of_byte_order_are_no_values(open_bytes):
    source = open_bytes(b"\xef\xbb\xbf1,2\r3,4\n5,6\n", header=False)
    assert cells(source)["x0"] == ["1", "3", "5"]


def test_skipped_titles_in_quotes_count_as_lines(open_bytes):
    source = open_bytes(b'"T\nx"\na,b\n1,1\n1,1\n1,1\n', skip=2)
    assert cells(source) == {"a": ["1"] * 3, "b": ["1"] * 3}


def test_rows_of_delimiters_alone_are_rows(open_bytes):
    assert cells(open_bytes(b"a\n1\n,\n\n2\n")) == {"a": ["1", "", "2"]}


def test_large_rows_are_collected_in_small_chunks():
    rows = itertools.repeat(["x" * (1 << 20)], 1_000)
    assert len(list(_take_chunk(rows))) < 100


def test_spaces_around_quotes_are_no_part_of_values(open_bytes):
    data = b'a,b\n "x, y" , "z"  \n" ""q""",  5\n"\n, ", "w"\n'
    assert cells(open_bytes(data)) == {"a": ["x, y", ' "q"', "\n, "], "b": ["z", "  5", "w"]}


def test_partitions_keep_the_stated_encoding(open_bytes):
    source = open_bytes(b"a,b\n" + b"1,2\n" * 300_000 + b"1,\xe4\n", encoding="utf-8")
    (partition,) = source.partitions(10)
    assert source.notes == []
    with pytest.raises(TableError, match=r"utf-8"):
        read(partition)


CELLS = st.one_of(
    st.text(alphabet='a1,"\r\n ', max_size=5),
    st.sampled_from(["1", '"q"', '"a,b"', '"d""d"', ' "s"', " x ", "", '""', '5"', '"t" ']),
)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=4))
def test_arrow_and_python_find_the_same_rows(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes("\n".join(["a,b", "1,2", *map(",".join, rows), ""]).encode())
    found = [describe(path, is_by_python) for is_by_python in (None, True)]
    assert found[0] == found[1]


def describe(path, is_by_python):
    """Return the rows of a file, or the message of the error."""
    try:
        source = open_table(path)
        source._is_read_by_python = is_by_python
        return cells(source)
    except TableError as error:
        return str(error)


def test_blocks_that_start_between_letters_of_a_newline_keep_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("altbi.io._csv._BLOCK_BYTES", 1_000)
    row = b'"""a"",""b""",1\r\n'
    for n_letters in range(2 * len(row)):
        path = write(tmp_path, b"a,b\r\n" + b"x" * n_letters + b",0\r\n" + row * 200)
        source = open_table(path)
        assert read(source).column("a").to_pylist()[1:] == ['"a","b"'] * 200
        assert not source._is_read_by_python


def test_newlines_of_several_blocks_are_compared(tmp_path):
    path = write(tmp_path, b"x,y\n" * 300_000 + b"x,y\r\n" * 300_000)
    assert needs_python(path, Dialect(","))


def test_spaces_are_delimiters_if_stated(open_bytes):
    data = b'a b c\n1  "x"\n2 y "l\nm"\n"1"  x\n'
    assert cells(open_bytes(data, delimiter="space")) == {
        "a": ["1", "2", "1"],
        "b": ["", "y", ""],
        "c": ["x", "l\nm", "x"],
    }


def test_several_spaces_before_quotes_are_ignored(open_bytes):
    assert cells(open_bytes(b'a,b\n1,  "x"\n2,  "y"\n')) == {"a": ["1", "2"], "b": ["x", "y"]}
    assert open_bytes(b'id,   "amount"\n"a",   "1.5"\n').schema.names == ["id", "amount"]


def test_quote_that_is_open_at_the_end_is_found(tmp_path):
    assert needs_python(write(tmp_path, b'a,b\n1,"2'), Dialect(","))


STRAY_QUOTES = {
    "spaced quotes": (
        b'item, text, n\n5" pipe, "x", 1\na, "y", "2"\nb, "z", "3"\n',
        [['5" pipe', "x", " 1"], ["a", "y", "2"], ["b", "z", "3"]],
    ),
    "spaces inside of quotes": (
        b'item,text,n\n5" pipe,x,1\na,"first , ",2\nb," , last",3\n',
        [['5" pipe', "x", "1"], ["a", "first , ", "2"], ["b", " , last", "3"]],
    ),
    "delimiters in quotes": (
        b'item,text,n\n5" pipe,x,1\na, "first",2\nb, "y,z",3\n',
        [['5" pipe', "x", "1"], ["a", "first", "2"], ["b", "y,z", "3"]],
    ),
    "newlines in quotes": (
        b'item,text,n\n5" pipe,x,1\na,"\n, ""\n ",2\n"" ,7" , 3\n',
        [['5" pipe', "x", "1"], ["a", '\n, "\n ', "2"], ["", '7" ', " 3"]],
    ),
    "doubled quotes in a word": (
        b'a,b\nfoo ""bar"" ,1\n',
        [['foo ""bar"" ', "1"]],
    ),
    "backslashes": (
        b'item,text,n\n5" \\"pipe,x,1\na,"\\"b\\" c, d",2\n',
        [['5" \\"pipe', "x", "1"], ["a", '"b" c, d', "2"]],
    ),
}


@pytest.mark.parametrize(("data", "rows"), STRAY_QUOTES.values(), ids=STRAY_QUOTES)
def test_quotes_in_words_change_no_other_value(open_bytes, data, rows):
    columns = cells(open_bytes(data)).values()
    assert list(map(list, zip(*columns, strict=True))) == rows


def test_text_after_a_quoted_value_raises(error_of):
    for row in (b'"x\n"y "z"', b'"x" "y"', b'"x\n" "y"'):
        assert "is not closed properly" in error_of(b'a,b\n5",2\n1,2\n' + row + b",1\n")
