"""CSV files."""

import gzip
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_bytes import TEXTS, cells, csv_bytes, read

from altbi.errors import TableError
from altbi.io import open_table
from altbi.io._csv_dialect import detect_dialect


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
    assert cells(open_bytes(b"'x,y',2\n'u,v',3\n")) == {"x,y": ["u,v"], "2": ["3"]}
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
    assert ("Put quotes" in text) == (found > expected)
    assert ("If it is a footer, remove it." in text) == (found < expected)


def test_unclosed_quote_raises_with_its_line(error_of):
    assert "line 3 has a quote that is not closed properly" in error_of(b'a,b\n"1",2\n1,"2\n3,4\n')


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


@pytest.mark.parametrize(
    ("head", "delimiter"),
    [
        ("a;b\n1,5;2,5\n3,5;4,5\n", ";"),
        ("1,5;2,5\n3,5;4,5\n", ";"),
        ("a|b,c,d\nx|y,1,2\nu|v,3,4\n", ","),
        ("text\nhello, you\nhello\nyou\n", ","),
        ("a\tb\n1, 2\t3\n1\t3\n", "\t"),
        ("a,b\n1,2\n1,2\n1,2,3\n", ","),
        ("", ","),
    ],
)
def test_most_consistent_delimiter_is_detected(head, delimiter):
    assert detect_dialect(head).delimiter == delimiter


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


def test_mixed_formats_need_a_choice(tmp_path):
    pq.write_table(pa.table({"p": [1]}), tmp_path / "p.parquet")
    (tmp_path / "a.csv").write_text("a\n1\n")

    with pytest.raises(TableError, match=str(re.escape(str(tmp_path)))):
        open_table(tmp_path)
    assert open_table(tmp_path, format="csv").schema.names == ["a"]
    assert open_table(tmp_path, format="parquet").schema.names == ["p"]


@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_tables_of_other_formats_are_noted(tmp_path, format_):
    if format_ == "csv":
        (tmp_path / "a.csv").write_text("a\n1\n")
        (tmp_path / "b.tsv.gz").write_bytes(gzip.compress(b"a\n1\n"))
    else:
        pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    (tmp_path / "c.md").write_text("about")
    assert open_table(tmp_path).notes == []

    (tmp_path / "sub").mkdir()
    for name in ("may.XLSX", "_old.xlsx", "sub/june.jsonl.gz"):
        (tmp_path / name).write_text("")

    (note,) = open_table(tmp_path).notes
    assert "were read, but not 'may.XLSX', 'sub/june.jsonl.gz'. To read them" in note


# Title lines, newlines and long lines


@pytest.mark.parametrize(
    "title",
    [
        b"Sales 2026\n\n",
        b"Sales 2026;;\n",
        b"# made by hand\n# a;b\n",
        b'"Sales"\n',
        b"\nSales\n\nall shops\n\n",
        b"Sales 2026;;\nMade on 3.2.2026;;\n",
        b"Sales 2026;;\nby region;;\n;;\n",
        b"Account:;12345;\nDay;3.2.2026;\n;;\n",
        b";;\n;by region;\n",
        b"Sales 2026\nMade on 3.2.2026;;\n\n;;\n",
        b";;\n",
    ],
)
def test_title_lines_are_skipped_with_a_note(open_bytes, title):
    rows = b"shop;kind;price\nA;x;1,5\nB;y;2,5\nC;y;3,5\n"

    source = open_bytes(title + rows)

    assert cells(source)["price"] == ["1,5", "2,5", "3,5"]
    (note,) = source.notes
    assert "above the table" in note
    assert "--skip 0" in note


def test_number_of_skipped_lines_can_be_passed(open_bytes, error_of):
    data = b'the "first\nsecond, line, here\na,b\n1,2\n3,4\n5,6\n'
    assert cells(open_bytes(data, skip=2)) == {"a": ["1", "3", "5"], "b": ["2", "4", "6"]}
    assert "pass --skip" in error_of(b"x,y,z\na,b\n1,2\n3,4\n")
    assert cells(open_bytes(b"title\na,b\n1,2\n", skip=1)) == {"a": ["1"], "b": ["2"]}


def test_names_above_numbers_are_no_title(open_bytes):
    assert open_bytes(b"a,,\n1,2,3\n4,5,6\n").schema.names == ["a", "unnamed_2", "unnamed_3"]
    source = open_bytes(b"x,,\ny,z,1\n", header=False)
    assert cells(source) == {"x0": ["x", "y"], "x1": ["", "z"], "x2": ["", "1"]}


@pytest.mark.parametrize(
    ("lines", "first"),
    [
        (b"A;;\nB;;\nC;x;y\nD;z;w\n", "A"),
        (b"A;;\nB;;\nC;x;y\nD;;\nE;1;2\n", "A"),
        (b"name;town;\nC;x;y\nD;1;2\n", "name"),
        (b"name;;\nA;3.2.2026;x\nB;4.2.2026;y\n", "name"),
        (b"name;;;;\nA;B;;;\nx;y;1;2;3\n", "name"),
        (b"a;b;c\nA;;\n;;\nB;x;y\nC;1;2\n", "a"),
    ],
)
def test_sparse_first_rows_are_no_titles(open_bytes, lines, first):
    source = open_bytes(lines)

    assert source.schema.names[0] == first
    assert len(read(source)) == lines.count(b"\n") - 1
    assert not any("above the table in" in note for note in source.notes)


@pytest.mark.parametrize(
    ("lines", "has_note"),
    [
        (b"name;;\n1;2;3\n", True),
        (b"name;town;\n1;2;3\n", False),
        (b"name;\n1;2\n", False),
    ],
)
def test_note_on_sparse_header_names_skip(open_bytes, lines, has_note):
    notes = " ".join(open_bytes(lines).notes)

    assert ("has 1 of 3 names" in notes) == ("--skip" in notes) == has_note


def test_total_does_not_hide_title_lines(open_bytes):
    rows = b"a;b;c\n1;x;2\n3;x;4\nTotal;4;\n;;\n;;\n"

    assert open_bytes(b"Sales 2026;;\n;;\n" + rows).schema.names == ["a", "b", "c"]


def test_without_header_padded_lines_are_rows(open_bytes):
    data = b"x;;\n;;\na;b;c\n1;2;3\n"
    assert cells(open_bytes(data, header=False))["x0"] == ["x", "", "a", "1"]


def test_open_quotes_above_the_table_raise(error_of):
    assert "quote that is not closed properly" in error_of(b'"Sales" of\na,b\n1,2\n3,4\n5,6\n')
    assert "quote that is not closed properly" in error_of(b'"Sales" of\n"x\na,b\n1,2\n3,4\n5,6\n')


def test_late_mixed_newlines_end_lines_with_a_note(open_bytes):
    data = b"a,b\n" + b"1,2\n" * 300_000 + b'3,"x\n"\r\n5,6\r7,8\n'
    source = open_bytes(data)

    table = read(source)

    assert table.num_rows == 300_003
    assert table.slice(300_000).to_pydict() == {"a": ["3", "5", "7"], "b": ["x\n", "6", "8"]}
    assert "newlines of several kinds" in source.notes[0]
    assert len(read(source)) == 300_003


def test_quoted_newlines_of_another_kind_are_kept(open_bytes):
    source = open_bytes(b'a,b\r\n1,"x\ny"\r\n3,4\r\n')
    assert cells(source) == {"a": ["1", "3"], "b": ["x\ny", "4"]}
    assert source.notes == []


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_long_last_line_is_never_dropped(error_of, end):
    data = b"a,b\n1,2\n3," + b"x" * 40_000_000 + end
    assert "line 3 is longer than 16 MiB" in error_of(data)


def test_blank_lines_are_no_rows(open_bytes):
    assert cells(open_bytes(b'a\n1\n\n""\n2\n\n')) == {"a": ["1", "", "2"]}
    assert cells(open_bytes(b"a,b\n\n1,2\n\n3,4\n\n")) == {"a": ["1", "3"], "b": ["2", "4"]}


def test_names_that_differ_in_case_are_columns(open_bytes):
    assert cells(open_bytes(b"a,A,rowid\n1,2,3\n")) == {"a": ["1"], "A": ["2"], "rowid": ["3"]}


def test_too_many_columns_raise(error_of):
    names = b",".join(b"c%d" % number for number in range(300_000))
    assert "300,000 columns, but expected at most 262,144" in error_of(names + b"\n1\n")


def test_files_with_names_like_patterns_are_read(tmp_path):
    for name in ("a[1].csv", "it's.csv", "*.csv"):
        (tmp_path / "a1.csv").write_text("x\nwrong\n")
        (tmp_path / name).write_text("x\nright\n")
        assert cells(open_table(tmp_path / name)) == {"x": ["right"]}


def test_rows_keep_their_order(open_bytes):
    data = b"a,b\n" + b"".join(b"%d,x\n" % number for number in range(400_000))
    assert read(open_bytes(data)).column("a").to_pylist() == list(map(str, range(400_000)))


def test_late_other_encoding_continues_at_its_row(open_bytes):
    data = b"a,b\n" + b"".join(b"%d,x\n" % number for number in range(400_000)) + b"\xe9,y\n"
    source = open_bytes(data)
    assert read(source).column("a").to_pylist() == [*map(str, range(400_000)), "é"]
    assert len(source.notes) == 1


def test_partitions_know_the_encoding(open_bytes):
    source = open_bytes(b"a,b\n" + b"x,y\n" * 300_000 + b"\xe9,y\n")
    (only,) = source.partitions(1)
    assert "read as cp1252" in only.notes[0]


@pytest.mark.slow
def test_quoted_lines_like_rows_are_values(tmp_path):
    # Blocks of the file start in the middle of quoted values.
    values = ["x\n" + "1,2\n" * (number % 7) for number in range(1_500_000)]
    path = tmp_path / "quoted.csv"
    with path.open("w", newline="") as file:
        file.write("a,b\n")
        file.writelines(f'{number},"{value}"\n' for number, value in enumerate(values))

    table = read(open_table(path))

    assert table.column("b").to_pylist() == values
    assert table.column("a")[-1].as_py() == "1499999"


def test_thousands_of_columns_are_read_by_python(open_bytes):
    names = [f"c{number}" for number in range(5_000)]
    row = ",".join(map(str, range(5_000)))
    source = open_bytes(f"{','.join(names)}\n{row}\n{row}\n".encode())

    (batch,) = source.batches(["c4999", "c0"])

    assert batch.to_pydict() == {"c4999": ["4999"] * 2, "c0": ["0"] * 2}
    assert sum(map(len, source.batches([]))) == 2


def test_many_lines_can_be_skipped(open_bytes, error_of):
    source = open_bytes(b"title\n" * 100_000 + b"a,b\n1,2\n3,4\n", skip=100_000)
    assert cells(source) == {"a": ["1", "3"], "b": ["2", "4"]}
    assert "lines to skip have more than 1 MiB" in error_of(b"title\n" * 300_000, skip=290_000)


def test_python_reads_on_below_skipped_lines(open_bytes, error_of):
    start = b'a "title\nb\nx,y\n1,2\n3,4\n'
    source = open_bytes(start + b"5,6\r7,8\n", skip=2)
    assert cells(source) == {"x": ["1", "3", "5", "7"], "y": ["2", "4", "6", "8"]}
    assert "line 6 has 3 cells" in error_of(start + b"5,6,7\n", skip=2)


def test_header_of_a_file_without_rows_is_checked(tmp_path):
    with pytest.raises(TableError, match=r"b\.csv: its columns are 'a', 'x'"):
        open_folder(tmp_path, a="a,b\n1,2\n", b="a,x\n")


@pytest.mark.slow
def test_rows_of_parallel_reads_keep_their_order(tmp_path):
    path = tmp_path / "long.csv"
    with path.open("w") as file:
        file.write("a,b\n")
        file.writelines(f"{number},{'x' * 40}\n" for number in range(2_000_000))
    expected = pa.array(range(2_000_000)).cast(pa.string())
    assert read(open_table(path), ["a"]).column("a").combine_chunks().equals(expected)


def test_stated_number_of_lines_is_exact(open_bytes, error_of):
    rows = b"shop,kind,price\nA,x,1\nB,y,2\nC,y,3\n"
    assert open_bytes(b"Sales,,\n" + rows, skip=0).schema.names[0] == "Sales"
    assert "line 2 has 3 cells, but expected 1" in error_of(b"Sales\n" + rows, skip=0)
    assert open_bytes(b"Sales\n" + rows, skip=1).notes == []


def test_first_line_states_the_delimiter(open_bytes):
    data = b"sep=;\r\nSales\r\n\r\na;b\r\n1,5;x\r\n2,5;y\r\n"
    source = open_bytes(data)
    assert cells(source) == {"a": ["1,5", "2,5"], "b": ["x", "y"]}
    assert "states the delimiter: sep=;" in source.notes[0]
    assert "above the table" in source.notes[1]
    assert open_bytes(b"sep=;\na|b\n1|2\n", delimiter="|").schema.names == ["a", "b"]
    assert open_bytes(b"sep=;\n1\n2\n", skip=0).schema.names == ["sep=;"]


def test_spaced_quotes_are_read_beside_other_newlines(open_bytes):
    source = open_bytes(b"a,b\n" + b'1, "x"\n' * 250_000 + b"3,z\r4,w\n")
    assert set(read(source).column("b").to_pylist()) == {"x", "z", "w"}


def test_backslashes_escape_quotes_and_backslashes_inside_of_quotes(open_bytes):
    data = b'p,q\n"say \\"hi\\" now",2\n\\\\host\\x,1\n"a\\\\b\\n",3\n"\\"\nx\\"",4\n'
    assert cells(open_bytes(data)) == {
        "p": ['say "hi" now', "\\\\host\\x", "a\\b\\n", '"\nx"'],
        "q": ["2", "1", "3", "4"],
    }


def test_long_values_in_the_first_rows_are_read(open_bytes):
    assert cells(open_bytes(b"a\n" + b"x" * 200_000 + b"\n1\n")) == {"a": ["x" * 200_000, "1"]}


def test_many_blank_lines_above_the_table_raise(error_of, open_bytes):
    assert "first 1,000 lines are blank" in error_of(b"\n" * 1_200 + b"a,b\n1,2\n")
    assert cells(open_bytes(b"\n" * 900 + b"a,b\n1,2\n")) == {"a": ["1"], "b": ["2"]}


def test_delimiter_must_split_half_of_the_records():
    assert detect_dialect("a;b\n1;2\nx\ny\n").delimiter == ";"
    assert detect_dialect("a;b\nx\ny\n").delimiter == ","


def test_commas_are_decimal_if_nine_in_ten_stand_between_digits():
    assert detect_dialect("1,5;a\n" * 6 + "u,v;a\n" * 4).delimiter == ","
    assert detect_dialect("1,5;a\n" * 19 + "u,v;a\n").delimiter == ";"


def test_folder_without_header_has_none_in_any_file(tmp_path):
    source = open_folder(tmp_path, a="1,2\n3,4\n", b="x,y\n")
    assert cells(source) == {"x0": ["1", "3", "x"], "x1": ["2", "4", "y"]}


COMMAS_IN_VALUES = {
    "names without a header": "Smith, John;1,5;2,5\nDoe, Jane;3,5;4,5\nFoo, Bar;7,5;8,5\n",
    "names in the header": "Zeit;Temp, innen;Temp, aussen\n00:01;1,5;2,5\n00:02;3,5;4,5\n",
    "names beside numbers": "Nachname, Vorname;Alter\nSmith, John;15\nDoe, Jane;35\n",
}
COMMAS_AS_DELIMITERS = {
    "names in quotes": '"Smith, John",1;2,x\n"Doe, Jane",3;4,y\n',
    "spaces after commas": "1, foo, a;b\n2, bar, c;d\n",
    "spaces after commas in all columns": "id, tags\n1, a;b\n2, c;d\n",
    "numbers on both sides": "1, 2;3\n4, 5;6\n",
}


@pytest.mark.parametrize("head", COMMAS_IN_VALUES.values(), ids=COMMAS_IN_VALUES)
def test_commas_before_spaces_may_be_letters(open_bytes, head):
    assert detect_dialect(head).delimiter == ";"
    assert detect_dialect(head.replace(";", "\t")).delimiter == "\t"
    assert not any("--delimiter" in note for note in open_bytes(head.encode()).notes)


@pytest.mark.parametrize("head", COMMAS_AS_DELIMITERS.values(), ids=COMMAS_AS_DELIMITERS)
def test_commas_before_spaces_are_mostly_delimiters(head):
    assert detect_dialect(head).delimiter == ","


def test_equally_consistent_delimiters_add_a_note(open_bytes):
    data = b"Smith,John;Bonn\nDoe,Jane;Ulm\n"

    source = open_bytes(data)

    assert source.schema.names == ["Smith", "John;Bonn"]
    assert source.notes == [
        f"The lines of {source.name} can be split at ',' and at ';' alike. They are split at ','. "
        "If this is wrong, pass --delimiter."
    ]
    assert "at tab and at |" in open_bytes(b"a\tb|u\nc\td|v\n").notes[0].replace("'", "")
    assert open_bytes(data, delimiter=",").notes == []
    assert open_bytes(b'a,b\n"x;y",1\n"u;v",2\n').notes == []


QUOTED_BY_APOSTROPHES = {
    "a delimiter": (b"id,comment\n1,good\n2,'not, sure'\n3,bad\n4,bad\n", "not, sure"),
    "half of a column": (b"id,comment\n1,'good'\n2,'fine'\n3,bad\n", "fine"),
    "half of the filled values": (b"id,comment\n1,'a'\n2,'b'\n3,\n4,\n5,c\n", "b"),
}
WITH_APOSTROPHES = {
    "a single value": (b"id,comment\n1,good\n2,'not sure'\n3,bad\n", "'not sure'"),
    "another delimiter": (b"id,comment\n1,good\n2,'not; sure'\n3,bad\n", "'not; sure'"),
    "words": (b"id,comment\n1,rock 'n' roll\n2,the dogs'\n3,it's\n", "the dogs'"),
    "less than half": (b"id,comment\n1,'good'\n2,'fine'\n3,bad\n4,\n5,x\n", "'fine'"),
    "words of two columns": (b"id,comment,n\n1,a,2\n'til,dogs',3\nx,cats,4\n", "dogs'"),
    "words at both ends": (b"id,comment\n1,'tis\n2,'twas the dogs'\n3,a\n4,b\n", "'twas the dogs'"),
}


@pytest.mark.parametrize(
    ("data", "value"), QUOTED_BY_APOSTROPHES.values(), ids=QUOTED_BY_APOSTROPHES
)
def test_apostrophes_that_quote_add_a_note(open_bytes, data, value):
    source = open_bytes(data)

    assert cells(source)["comment"][1] == value
    (note,) = source.notes
    assert f"Apostrophes around values of {source.name} are read as quotes" in note
    assert cells(open_bytes(data, delimiter=","))["comment"][1] == value


@pytest.mark.parametrize(("data", "value"), WITH_APOSTROPHES.values(), ids=WITH_APOSTROPHES)
def test_apostrophes_around_few_values_are_letters(open_bytes, data, value):
    source = open_bytes(data)

    assert cells(source)["comment"][1] == value
    assert source.notes == []


def test_late_double_quotes_follow_an_apostrophe(open_bytes):
    data = b"id,comment\n1,good\n2,'not sure'\n3,bad\n" + b"4,x\n" * 300_000 + b'60000,"a, b"\n'
    assert read(open_bytes(data)).column("comment")[-1].as_py() == "a, b"


LATE = b"a,b\n" + b"1,foo\n" * 300_000 + b"2,M\xfcnchen\n"


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("first", [b"a,b\n", b'a,b\n1,"x\ny"\n'])  # Arrow or Python reads the rows
def test_late_other_encodings_are_found_in_all_files(open_bytes, error_of, pack, first):
    data = LATE.replace(b"a,b\n", first)
    source = open_bytes(pack(data))
    assert source.notes == []
    table = read(source)
    assert (table.num_rows, table["b"][-1].as_py()) == (data.count(b",") - 1, "München")
    assert "is not UTF-8 (byte 0xfc in line 30000" in source.notes[0]
    assert "cannot be read as utf-8" in error_of(pack(data), encoding="utf-8")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_partitions_of_compressed_files_know_the_encoding(open_bytes, pack):
    (only,) = open_bytes(pack(LATE)).partitions(10)
    assert "read as cp1252" in only.notes[0]
    assert read(only).column("b")[-1].as_py() == "München"


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_python_decides_about_files_that_are_valid(open_bytes, pack):
    source = open_bytes(pack(b"a,b\n1,2\n"))
    source._adapt("invalid UTF8")
    assert source._is_read_by_python is True
    assert cells(source) == {"a": ["1"], "b": ["2"]}
