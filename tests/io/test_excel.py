"""Excel workbooks: sheets, headers, types of cells, and hostile files."""

import datetime as dt
import json
import os
import random
import subprocess
import sys

import pyarrow as pa
import pytest
from workbook_bytes import (
    DATE,
    DURATION,
    MOMENT,
    PERCENT,
    SHEET,
    TIME,
    make_ods,
    make_sheet,
    make_xlsx,
)

from altbi.errors import MissingExtraError, TableError
from altbi.io import ExpectedType, _excel, _excel_notes, scan_table
from altbi.io._excel import open_excel, read_workbook
from altbi.io._files import CompressedFile

pytest.importorskip("python_calamine")


@pytest.fixture
def save(tmp_path):
    """Return a function that saves a workbook, given as bytes or as sheets."""

    def save_book(book, **options):
        path = tmp_path / "book.xlsx"
        path.write_bytes(book if isinstance(book, bytes) else make_xlsx(book, **options))
        return CompressedFile(str(path), "book.xlsx")

    return save_book


@pytest.fixture
def read(save):
    """Return a function that reads a workbook in this process: columns by name, and notes."""

    def read_book(book, header=None, **options):
        table, notes = read_workbook(save(book, **options), header)
        return table.to_pydict(), notes

    return read_book


def test_workbook_becomes_a_source(save):
    source = open_excel(save({"Data": [["name", "size"], ["x", 1.5], ["y", None]]}))

    assert (source.name, source.format, source.is_untyped, source.n_rows) == (
        "book.xlsx",
        "excel",
        True,
        2,
    )
    assert source.schema == pa.schema({"name": pa.string(), "size": pa.float64()})
    assert [batch.to_pydict() for batch in source.batches(["size"])] == [{"size": [1.5, None]}]
    assert source.notes == []


def test_types_come_from_cells(save):
    cells = [True, 2, 2.5, "x", (DATE, 45000), (MOMENT, 45000.5), (TIME, 0.65), (DURATION, 1.5)]
    table, _ = read_workbook(
        save({"Data": [list("abcdefgh"), cells, [None] * 7 + [(DURATION, 2)]]}), None
    )

    moment = pa.timestamp("us")
    assert table.schema.types[:4] == [pa.bool_(), pa.float64(), pa.float64(), pa.string()]
    assert table.schema.types[4:] == [moment, moment, pa.time64("us"), pa.duration("us")]
    assert table.slice(0, 1).to_pylist()[0] == {
        "a": True,
        "b": 2,
        "c": 2.5,
        "d": "x",
        "e": dt.datetime(2023, 3, 15),
        "f": dt.datetime(2023, 3, 15, 12),
        "g": dt.time(15, 36),
        "h": dt.timedelta(days=1.5),
    }


def test_cells_shown_as_percentages_are_fractions(read):
    rows = [["a", "b"], [(PERCENT, 0.5), "50%"], [(PERCENT, 1), "100%"]]

    assert read({"Data": rows})[0] == {"a": [0.5, 1], "b": ["50%", "100%"]}


def test_mixed_columns_become_text(read):
    rows = [
        ["a", "b", "c"],
        [0.1, (DATE, 45000), True],
        ["n.a.", (MOMENT, 45000.25), 1e300],
        [2, "x", " "],
    ]

    assert read({"Data": rows})[0] == {
        "a": ["0.1", "n.a.", "2"],
        "b": ["2023-03-15", "2023-03-15T06:00:00", "x"],
        "c": ["true", "1e+300", None],
    }


def test_types_of_mixed_columns_are_inferred(save):
    rows = [["a", "b", "c"], [0.5, "1,5", "NA"], ["n.a.", "2,5", "DE"]]
    source = open_excel(save({"Data": rows}))

    names = ["a", "b", "c"]
    found = scan_table(source, names, source.batches(names), limit=9, seed=0)

    assert found.sample.kinds == ("number", "number", "category")
    assert found.sample.categories(2).to_pylist() == [None, "DE"]
    assert found.sample.numbers([1])[:, 0].tolist() == [1.5, 2.5]
    assert ["'n.a.' (1 row)" in note for note in found.notes] == [True, False]


@pytest.mark.parametrize("number", [1.234, -999.125, 999.5, 12.345, 1234.567, 0.125, 12.0])
def test_numbers_beside_texts_keep_their_values(save, number):
    source = open_excel(save({"Data": [["a"], [number], ["n.a."]]}))

    def read(written):
        expected = {"a": ExpectedType("number", written)}
        found = scan_table(source, ["a"], source.batches(["a"]), limit=9, seed=0, expected=expected)
        return found.sample.numbers([0])[0, 0]

    assert read("numbers") == number
    if number != 12:
        with pytest.raises(TableError, match="expects numbers with points between thousands"):
            read("numbers with points between thousands")


def test_types_do_not_depend_on_chunks(read, monkeypatch):
    rows = [
        ["a", "b", "c", "d"],
        [None, 1, "x", True],
        [(DATE, 45000), 2.5, None, 1.5],
        ["soon", None, 3, None],
    ]
    expected = read({"Data": rows})[0]

    for n_rows in (1, 2):
        monkeypatch.setattr(_excel, "BATCH_ROWS", n_rows)
        assert read({"Data": rows})[0] == expected


def test_first_sheet_with_data_is_read(read):
    book = {"Cover": [], "Hidden": [["x"], [1]], "Data": [["a"], [1]], "Other": [["b"], [2]]}

    columns, notes = read(book, hidden=["Hidden"])

    assert columns == {"a": [1]}
    assert notes == [
        "Of the sheets of book.xlsx, 'Data' was read, but not 'Cover', 'Hidden', 'Other'. Save "
        "another sheet as CSV to read it."
    ]


@pytest.mark.parametrize(
    ("first", "name"),
    [
        ([["Made by hand"], ["Ask Anna"]] * 20, "a"),
        ([["Maker", "Anna"], ["Year", 2026], ["Version", 3]], "a"),
        ([["Sales", "all", "shops"], [], ["Ask Anna"]], "a"),
        ([["n", "m"], *[["x", "y"]] * 19], "n"),
        ([["n"], *[[3]] * 20], "n"),
        ([["n", "m", "k"], ["x", "y", "z"]], "n"),
    ],
)
def test_sheet_of_notes_is_no_table(read, first, name):
    columns, _ = read({"Info": first, "Data": [["a", "b", "c"], [1, 2, 3]]})

    assert next(iter(columns)) == name


def test_sheet_of_notes_is_read_alone(read):
    assert read({"Info": [["Made by hand"], ["Ask Anna"]]})[0] == {"Made by hand": ["Ask Anna"]}


def test_labelled_values_above_the_table_are_titles(read):
    titles = [["Account:", "A 1"], ["Day", (DATE, 45000)], ["Sales"]]

    columns, notes = read({"Data": [*titles, ["x", "y", "z"], [1, 2, 3]]})

    assert columns == {"x": [1], "y": [2], "z": [3]}
    assert "were skipped: 'Account:', 'A 1', 'Day', …" in notes[0]


def test_titles_above_the_table_are_reported(read):
    rows = [
        ["Sales 2024"],
        [],
        [None, "by region"],
        ["name", "size", "kind"],
        ["x", 1, "y"],
        ["z", None, None],
    ]

    columns, notes = read({"Data": rows})

    assert columns == {"name": ["x", "z"], "size": [1, None], "kind": ["y", None]}
    assert notes == [
        "Lines above the table in book.xlsx, sheet 'Data' were skipped: 'Sales 2024', 'by region'."
    ]


NOT_TITLES = {
    "a sparse row of numbers": [[1.5, None, None], [1, 2, 3], [4, 5, 6]],
    "a percentage above texts": [["1.5 %", None, None], ["x", "y", "z"]],
    "a decimal comma above texts": [["1,5", None], ["x", "y"]],
    "a header with one name": [["name", None, None], ["x", 1, 2], ["y", 3, 4]],
    "a header with a few names": [["name", None, None, "size", None], ["v", "w", "x", "y", "z"]],
    "a date above texts": [[(DATE, 45000), None], ["x", "y"]],
    "texts of one column": [["name"], ["x"], ["y"]],
    "two names in a wide header": [["name", "town", None], ["x", "y", "z"], ["x", 2, 3]],
    "two columns": [["name", 2024], ["x", "y"], ["z", 2]],
}


@pytest.mark.parametrize("rows", NOT_TITLES.values(), ids=NOT_TITLES)
def test_other_first_rows_are_no_titles(read, rows):
    columns, notes = read({"Data": rows})

    names = [*columns]
    n_rows = len(rows) - (names[0] != "x0")
    assert names[0] in ("x0", "name", "2023-03-15")
    assert len(columns[names[0]]) == n_rows
    assert not any("were skipped" in note for note in notes)


@pytest.mark.parametrize("titles", [[["Sales"]], [["Sales"], [None, "by region"], [" 2024 Q1"]]])
def test_titles_are_skipped_as_in_csv_files(read, titles):
    table = [["name", "size"], ["x", 1], ["y", 2]]

    columns, notes = read({"Data": [*titles, *table]})

    assert columns == {"name": ["x", "y"], "size": [1, 2]}
    assert "were skipped: 'Sales'" in notes[0]


def test_without_header_all_lines_are_rows(read):
    columns, _ = read({"Data": [["title"], ["x", 1]]}, header=False)

    assert columns == {"x0": ["title", "x"], "x1": [None, 1]}


def test_numbers_in_the_first_line_are_a_row(read):
    columns, notes = read({"Data": [[1.5, 2], [3, 4]]})

    assert columns == {"x0": [1.5, 3], "x1": [2, 4]}
    assert "holds numbers only, so it was read as a row" in notes[0]


def test_empty_columns_and_lines_are_left_out(read):
    rows = [[None, "a", None, None, "empty"], [], [None, 1, None, "x"], [None, 2, " "]]

    assert read({"Data": rows})[0] == {"a": [1, 2], "unnamed_2": ["x", None], "empty": [None, None]}


def test_errors_are_counted_as_missing(read):
    rows = [["a", "b"], [1, "#N/A"], ["#DIV/0!", 2], [3, 't="e"']]

    columns, notes = read({"First": [], "Data & more": rows})

    assert columns == {"a": [1, None, 3], "b": [None, "2", 't="e"']}
    assert notes[-1] == (
        "Errors such as #N/A in book.xlsx, sheet 'Data & more' count as missing: 2 in all."
    )


def test_errors_between_pieces_are_counted(read, monkeypatch):
    rows = [["a"], *[["#N/A"] for _ in range(20)], [1]]

    for n_bytes in (1, 7, 100):
        monkeypatch.setattr(_excel_notes, "_PIECE_BYTES", n_bytes)
        assert "20 in all" in read({"Data": rows})[1][0]


FORMULA = "<f>A2+B2</f>"
FORMULAS = {
    "no value": (f'<c r="C2">{FORMULA}</c>', 1),
    "no value of a shared formula": ('<c r="C2" s="1"><f t="shared" si="0"/></c>', 1),
    "an empty value": (f'<c r="C2">{FORMULA}<v></v></c>', 1),
    "an empty element": (f'<c r="C2">{FORMULA}<v/></c>', 1),
    "a prefix": (f'<x:c r="C2">{FORMULA.replace("f>", "x:f>")}</x:c>', 1),
    "a stored value": (f'<c r="C2">{FORMULA}<v>8</v></c>', 0),
    "a stored empty text": (f'<c r="C2" t="str">{FORMULA}<v></v></c>', 0),
    "a stored error": (f'<c r="C2" t="e">{FORMULA}<v>#N/A</v></c>', 0),
    "no formula": ('<c r="C2" s="1"/><c r="D2"><v>5</v></c>', 0),
}


@pytest.mark.parametrize("n_bytes", [1 << 20, 1, 7])
@pytest.mark.parametrize(("cell", "n_formulas"), FORMULAS.values(), ids=FORMULAS)
def test_formulas_without_a_result_are_counted(read, monkeypatch, cell, n_formulas, n_bytes):
    monkeypatch.setattr(_excel_notes, "_PIECE_BYTES", n_bytes)
    sheet = make_sheet([["a", "b", "sum"], [1, 2], [3, 5, 8]])
    sheet = sheet.replace("<worksheet ", f'<worksheet xmlns:x="{SHEET}" ')

    columns, notes = read(
        {"Data": sheet.replace('</c></row><row r="3"', f'</c>{cell}</row><row r="3"')}
    )

    assert columns["sum"][1] == 8
    expected = [
        "Formulas without a stored result in book.xlsx, sheet 'Data' count as missing: 1 in all. "
        "Open the workbook in Excel or LibreOffice and save it to store the results."
    ]
    assert [note for note in notes if "ormulas" in note] == expected * n_formulas


def test_opendocument_spreadsheets_are_read(read):
    assert read(make_ods([["a", "b"], ["x", 1.5], ["y", 2]]))[0] == {"a": ["x", "y"], "b": [1.5, 2]}


@pytest.mark.parametrize(
    ("book", "problem"),
    [
        ({"Data": []}, "no visible sheet holds data"),
        ({"Data": [[" "], ["#N/A"]]}, "no visible sheet holds data"),
        ({"Data": [["a", "b"]]}, "sheet 'Data': it holds no rows, only the line with the names"),
        ({"Data": [["a", 1]], "Other": [[2]]}, "read one of the sheets 'Other', save it as CSV"),
        ({"Data": [["a", "a"], [1, 2]]}, "several columns have the same name: 'a'"),
        (b"", "the workbook cannot be read"),
        (b"a,b\n1,2\n", "the workbook cannot be read"),
        (b"PK\x03\x04 and more", "the workbook cannot be read"),
        (make_xlsx({"Data": [["a"], [1]]})[:-40], "the workbook cannot be read"),
        ({"Data": "<worksheet><sheetData><row"}, "the workbook cannot be read"),
    ],
)  # fmt: skip
def test_unreadable_workbooks_raise(read, book, problem):
    with pytest.raises(TableError, match=rf"^book\.xlsx.*{problem}"):
        read(book)


def test_child_reports_why_it_refuses(save):
    with pytest.raises(TableError, match=r"^book\.xlsx, sheet 'Data': it holds no rows"):
        open_excel(save({"Data": [["a"]]}))


def test_encrypted_workbooks_raise(save, monkeypatch):
    import python_calamine

    class Encrypted:
        @staticmethod
        def from_filelike(file):
            raise python_calamine.PasswordError

    monkeypatch.setattr(python_calamine, "CalamineWorkbook", Encrypted)

    with pytest.raises(TableError, match="is encrypted"):
        read_workbook(save({"Data": [["a"], [1]]}), None)


def test_missing_extra_is_named(save, monkeypatch):
    monkeypatch.setattr(_excel.importlib.util, "find_spec", lambda name: None)

    with pytest.raises(MissingExtraError) as refusal:
        open_excel(save({"Data": [["a"], [1]]}))

    assert str(refusal.value) == (
        "book.xlsx: reading Excel workbooks needs python-calamine. Install it with pip install "
        "'altbi[excel]', or save the sheet as CSV."
    )


@pytest.mark.parametrize("limit", ["MAX_UNPACKED_BYTES", "MAX_MEMBERS"])
def test_zip_bombs_are_not_opened(save, monkeypatch, limit):
    monkeypatch.setattr(_excel, limit, 5)
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: pytest.fail("opened"))

    with pytest.raises(TableError, match=r"^book.xlsx: the workbook unpacks to 0 MiB in 6 files"):
        open_excel(save({"Data": [["a"], [1]]}))


@pytest.mark.parametrize("column", ["GR", "XFD"])  # the 200th and the last
def test_sheet_that_demands_all_memory_raises(save, column):
    far = make_sheet([["a"]]).replace(
        "</sheetData>", f'<row r="1048576"><c r="{column}1048576"><v>1</v></c></row></sheetData>'
    )

    with pytest.raises(TableError, match=r"seems damaged, or needs more than \d GiB of memory"):
        open_excel(save({"Data": far}))


def run_in_child(monkeypatch, save, code):
    """Return what some code, which replaces that of the child process, writes."""
    monkeypatch.setattr(_excel, "CHILD", f"import sys; {code}; sys.exit({_excel._REFUSED})")
    with pytest.raises(TableError) as refusal:
        open_excel(save({"Data": [["a"], [1]]}))
    return str(refusal.value)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limits")
def test_child_limits_memory_time_and_core_files(save, monkeypatch):
    code = (
        "import resource as r; from altbi.io import _excel; _excel._limit_child(); "
        "print(*(r.getrlimit(each) for each in (r.RLIMIT_AS, r.RLIMIT_CPU, r.RLIMIT_CORE)))"
    )

    n_bytes = _excel._compute_max_bytes()
    assert run_in_child(monkeypatch, save, code) == f"{(n_bytes, n_bytes)} (600, 600) (0, 0)\n"


@pytest.mark.parametrize(("installed", "used"), [(1, 2), (6, 3), (64, 4)])
def test_child_may_use_half_of_the_memory(monkeypatch, installed, used):
    sizes = {"SC_PHYS_PAGES": installed << 18, "SC_PAGE_SIZE": 1 << 12}
    monkeypatch.setattr(os, "sysconf", sizes.get)
    assert _excel._compute_max_bytes() == used << 30


def test_child_limits_itself_before_it_reads(monkeypatch):
    calls = []
    monkeypatch.setattr(_excel, "_limit_child", lambda: calls.append("limit"))
    monkeypatch.setattr(sys, "argv", ["", "no JSON"])

    with pytest.raises(json.JSONDecodeError):
        _excel.run_child()

    assert calls == ["limit"]


def test_child_does_not_read_standard_input(save, monkeypatch):
    reader, writer = os.pipe()
    os.write(writer, b"secret")
    os.close(writer)
    kept = os.dup(0)
    os.dup2(reader, 0)
    try:
        assert run_in_child(monkeypatch, save, "sys.stdout.write(sys.stdin.read())") == ""
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(reader)


def test_modules_in_the_working_directory_are_not_run(save, tmp_path, monkeypatch):
    for name in ("json", "pyarrow", "python_calamine", "altbi"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')")
    monkeypatch.chdir(tmp_path)

    assert open_excel(save({"Data": [["a"], [1]]})).n_rows == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_changed_bytes_give_tables_or_our_errors(save, seed):
    generator = random.Random(seed)
    book = bytearray(
        make_xlsx({"Data": [["a", "b"], [1, "x"], [True, (DATE, 45000)], ["#N/A", 2]]})
    )
    for _ in range(generator.randint(1, 4)):
        book[generator.randrange(len(book))] = generator.randrange(256)

    try:
        message = open_excel(save(bytes(book))).name
    except TableError as error:
        message = str(error)

    assert message.startswith("book.xlsx")
