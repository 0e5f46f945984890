"""The cases of `oddities.py`: tables as they come from spreadsheets, databases and programs."""

import bz2
import gzip
import lzma

from altbi_bench.archives import build_workbook, compress, zip_files
from table_cases import Case, Column, Value

LATE_ROW, MILLION = 900_000, 1_000_000
TITLE_NOTE = r"title|skip|above|before the"


def number(*values: Value) -> Column:
    """Return a column of numbers, given its values."""
    return Column("number", dict(enumerate(values)))


def text(*values: Value) -> Column:
    """Return a column of texts, given its values."""
    return Column("category", dict(enumerate(values)))


def date(*values: Value) -> Column:
    """Return a column of dates or times, given its values as ISO texts."""
    return Column("date", dict(enumerate(values)))


ITEMS = ("bolt", "nut", "screw", "washer", "hook")
CSV = "item,price\nbolt,1.5\nnut,0.25\nscrew,12.75\nwasher,3.0\nhook,7.5\n"
COLUMNS = {"item": text(*ITEMS), "price": number(1.5, 0.25, 12.75, 3.0, 7.5)}
AMOUNTS = number(1234.5, 12.0, 1_000_000.25, 999.0, 35_250.0)
DAYS = date("2024-12-31", "2024-01-15", "2023-07-04", "2022-02-28", "2024-03-20")


def table_case(
    title: str,
    content: str | bytes,
    columns: dict[str, Column] = COLUMNS,
    file: str = "table.csv",
    **details: object,
) -> Case:
    """Return a case whose right answer is a table with the rows of its first column.

    Text is written as UTF-8. `details` are further attributes of the case.
    """
    data = content.encode() if isinstance(content, str) else content
    n_rows = len(next(iter(columns.values())).values)
    options = {"n_rows": n_rows, "columns": columns, "content": lambda: data, **details}
    return Case(title=title, file=file, **options)  # type: ignore[arg-type]


def error_case(title: str, content: str | bytes, error: str, **details: object) -> Case:
    """Return a case whose right answer is an error that matches a pattern."""
    data = content.encode() if isinstance(content, str) else content
    options = {"file": "table.csv", "content": lambda: data, "error": error, **details}
    return Case(title=title, **options)  # type: ignore[arg-type]


def cell_case(title: str, name: str, column: Column, *cells: str) -> Case:
    """Return a case of the column `item` and a column of these cells; commas are in quotes."""
    rows = (
        f'{item},"{cell}"' if "," in cell else f"{item},{cell}"
        for item, cell in zip(ITEMS, cells, strict=True)
    )
    content = "\n".join((f"item,{name}", *rows, ""))
    return table_case(title, content, {"item": text(*ITEMS), name: column})


def list_number_cases() -> list[Case]:
    """Return delimiters, and numbers as people write them."""
    quoted = 'item,price\nbolt,"1,5"\nnut,"0,25"\nscrew,"12,75"\nwasher,"3,0"\nhook,"7,5"\n'
    english = ("1,234.50", "12.00", "1,000,000.25", "999.00", "35,250.00")
    german = ("1.234,50", "12,00", "1.000.000,25", "999,00", "35.250,00")
    percent = number((12.5, 0.125), (97.0, 0.97), (3.0, 0.03), (50.0, 0.5), (8.25, 0.0825))
    counts = ("1,234", "5,678", "9,012", "3,456", "7,890")
    losses = ("(1,250.00)", "900.00", "75.50", "(3.25)", "12.00")

    def amounts(title: str, cells: tuple[str, ...], pattern: str = "{}") -> Case:
        return cell_case(title, "amount", AMOUNTS, *map(pattern.format, cells))

    return [
        table_case("semicolons, decimal commas", CSV.replace(",", ";").replace(".", ",")),
        table_case("tabs", CSV.replace(",", "\t"), file="table.tsv"),
        table_case("vertical bars", CSV.replace(",", "|")),
        table_case("decimal commas in quotes", quoted),
        amounts("commas between thousands", english),
        amounts("points between thousands", german),
        amounts("apostrophes between thousands", tuple(c.replace(",", "'") for c in english)),
        amounts("spaces between thousands", tuple(c.replace(".", "\u00a0") for c in german)),
        amounts("money: $ 1,234.50", english, "$ {}"),
        amounts("money: 1.234,50 €", german, "{} €"),
        cell_case("losses in brackets", "profit", number(-1250.0, 900, 75.5, -3.25, 12), *losses),
        cell_case("percentages", "share", percent, "12.5%", "97%", "3 %", "50%", "8.25%"),
        cell_case("1,234: decimal or thousands?", "count", text(*counts), *counts),
    ]


def list_date_cases() -> list[Case]:
    """Return dates and times as they are written in some countries."""
    ambiguous = ("01/02/2024", "03/04/2024", "12/11/2023", "05/06/2022", "07/08/2024")
    times = ("3:36 p.m.", "11:05 a.m.", "12:15 a.m.", "9:00 p.m.", "12:30 p.m.")
    zoned = [f"2024-03-0{day}T0{day}:30:00+02:00" for day in range(1, 6)]
    shifted = ("2024-02-29T23:30", *(f"2024-03-0{day}T0{day - 2}:30" for day in range(2, 6)))
    # fmt: off
    return [
        cell_case("dates: 31.12.2024", "day", DAYS,
                  "31.12.2024", "15.1.2024", "04.07.2023", "28.02.2022", "20.3.2024"),
        cell_case("dates: 12/31/2024", "day", DAYS,
                  "12/31/2024", "1/15/2024", "07/04/2023", "02/28/2022", "3/20/2024"),
        cell_case("dates: 31.12.24", "day", DAYS,
                  "31.12.24", "15.01.24", "04.07.23", "28.02.22", "20.03.24"),
        cell_case("dates: 31-Dec-2024", "day", DAYS,
                  "31-Dec-2024", "15-Jan-2024", "04-Jul-2023", "28-Feb-2022", "20-Mar-2024"),
        cell_case("01/02/2024: day or month first?", "day", text(*ambiguous), *ambiguous),
        cell_case("times: 3:36 p.m.", "time",
                  date("15:36", "11:05", "00:15", "21:00", "12:30"), *times),
        cell_case("times with an offset", "time", date(*shifted), *zoned),
    ]
    # fmt: on


def list_line_cases() -> list[Case]:
    """Return lines that are no rows, rows of other lengths, and newlines."""
    lines = CSV.splitlines(keepends=True)
    title = "Sales report 2024\nRegion: North\n\n"
    comments = "# exported by till 3\n# prices in euro\n"
    commented = "".join((*lines[:3], "# below: new\n", *lines[3:]))
    total = {"item": text(*ITEMS, "Total"), "price": number(1.5, 0.25, 12.75, 3.0, 7.5, 25.0)}
    mixed = "".join(line.replace("\n", "\r\n"[index % 2 :]) for index, line in enumerate(lines))
    quoted = 'id,note\n1,"all, or none"\n2,"two\nlines"\n3,"say ""hi"""\n'
    notes = {"id": number(1, 2, 3), "note": text("all, or none", "two\nlines", 'say "hi"')}
    delimited = lines[0] + "".join(line.replace("\n", ",\n") for line in lines[1:])
    short = "item,price,size\nbolt,1.5,1\nnut,0.25\nhook,7.5,2\n"
    about_total = {"note": "total", "must_report": True}
    return [
        table_case("title lines above the header", title + CSV, note=TITLE_NOTE),
        table_case("sep=; above the header", "sep=;\n" + CSV.replace(",", ";"), note="sep="),
        table_case("comments above the header", comments + CSV, note="comment|" + TITLE_NOTE),
        error_case("a comment between rows", commented, "line 4", note="comment"),
        table_case("total row at the end", CSV + "Total,25.0\n", total, **about_total),
        table_case("quoted newlines and commas", quoted, notes),
        table_case("blank lines between rows", CSV.replace("\n", "\n\n")),
        table_case("mixed newlines", mixed),
        table_case("carriage returns as newlines", CSV.replace("\n", "\r")),
        error_case("a short row", short, "line 3"),
        error_case("a long row", CSV.replace("0.25", "0.25,9"), "line 3"),
        table_case("a delimiter after each row", delimited),
    ]


def list_name_cases() -> list[Case]:
    """Return files without names of columns, and with unusual ones."""
    first, *lines = CSV.splitlines(keepends=True)
    plain = {"*0": COLUMNS["item"], "*1": COLUMNS["price"]}
    years = {"item": COLUMNS["item"], "2024": COLUMNS["price"]}
    empty = {"item": COLUMNS["item"], "*": COLUMNS["price"], "size": number(1, 1, 1, 1, 1)}
    unnamed = "item,,size\n" + "".join(line.replace("\n", ",1\n") for line in lines)
    return [
        table_case("no header", "".join(lines), plain, note="header|first line"),
        table_case("years as names", first.replace("price", "2024") + "".join(lines), years),
        error_case("duplicate names", "price,price\n1,2\n3,4\n5,6\n", "price", note="price"),
        table_case("empty names", unnamed, empty),
    ]


def list_value_cases() -> list[Case]:
    """Return words for missing values, codes, long cells, and types that change late."""
    codes = ("007", "012", "000", "311", "042")
    prices = number(1.5, None, 12.75, None, 7.5)
    long = text("x" * 3_000_000, "short", "also short")
    long_csv = f"id,note\n1,{long.values[0]}\n2,short\n3,also short\n"
    late = {
        "amount": Column("number", {0: 17, LATE_ROW: 0.5, MILLION - 1: 17}),
        "status": Column("category", {0: "17", LATE_ROW: "closed", MILLION - 1: "17"}),
    }

    def write_late() -> bytes:
        before, after = LATE_ROW, MILLION - LATE_ROW - 1
        return b"amount,status\n" + b"17,17\n" * before + b"0.5,closed\n" + b"17,17\n" * after

    return [
        cell_case("missing: n/a, NULL", "price", prices, "1.5", "n/a", "12.75", "NULL", "7.5"),
        cell_case("missing: -, ?", "price", prices, "1.5", "-", "12.75", "?", "7.5"),
        cell_case("missing: unknown", "price", prices, "1.5", "unknown", "12.75", "unknown", "7.5"),
        cell_case("codes with leading zeros", "code", text(*codes), *codes),
        table_case("a cell of 3 MB", long_csv, {"id": number(1, 2, 3), "note": long}),
        Case(
            title="types that change in row 900,001",
            file="table.csv",
            content=write_late,
            columns=late,
            n_rows=MILLION,
            is_large=True,
        ),
    ]


def list_encoding_cases() -> list[Case]:
    """Return encodings and compressed files."""
    accents = CSV.replace("bolt", "Öse zu 5 €").replace("price", "Größe")
    columns = {"item": text("Öse zu 5 €", *ITEMS[1:]), "Größe": COLUMNS["price"]}
    packed = CSV.encode()
    return [
        table_case("UTF-8 with byte order mark", accents.encode("utf-8-sig"), columns),
        table_case("cp1252", accents.encode("cp1252"), columns),
        table_case("UTF-16", accents.encode("utf-16"), columns),
        table_case("gzip", gzip.compress(packed), file="table.csv.gz"),
        table_case("bz2", bz2.compress(packed), file="table.csv.bz2"),
        table_case("zstd", compress(packed, "zstd"), file="table.csv.zst"),
        table_case("xz", lzma.compress(packed), file="table.csv.xz"),
        table_case("zip", zip_files({"table.csv": packed}), file="table.csv.zip"),
        error_case(
            "zip of two tables",
            zip_files({"a.csv": packed, "b.csv": packed}),
            r"a\.csv.*b\.csv|2 files|several|multiple",
            file="tables.zip",
        ),
    ]


def list_other_cases() -> list[Case]:
    """Return workbooks, JSON lines, files without rows, and file names that are patterns."""
    cells = [line.split(",") for line in CSV.splitlines()]
    sheet = [cells[0], *([item, float(price)] for item, price in cells[1:])]
    nested = (
        f'{{"id": {row}, "size": {{"width": {row / 2}, "height": 10}}, "tags": ["a", "b"]}}\n'
        for row in (1, 2, 3)
    )
    tags = ('["a", "b"]', '["a","b"]', "[a, b]")
    flat = {
        "id": number(1, 2, 3),
        "size.width": number(0.5, 1.0, 1.5),
        "size.height": number(10, 10, 10),
        "tags": text(tags, tags, tags),
    }
    changing = '{"id": 1, "code": 7}\n{"code": "x7", "id": 2}\n{"id": 2.5, "size": 3}\n'
    united = {
        "id": number(1, 2, 2.5),
        "code": text("7", "x7", None),
        "size": number(None, None, 3),
    }
    no_rows = {"columns": {"item": text(), "price": text()}, "error": "no rows"}
    neighbours = dict.fromkeys(("a1.csv", "its.csv", "b.csv"), b"item,price\nother,9\n")
    return [
        table_case("Excel", build_workbook(sheet), file="table.xlsx"),
        table_case("nested JSON lines", "".join(nested), flat, "table.jsonl"),
        table_case("JSON lines with other keys", changing, united, "table.jsonl"),
        error_case("an empty file", "", "no rows|no columns|empty"),
        table_case("a header only", "item,price\n", **no_rows),
        *(
            table_case(f"the name {name} beside others", CSV, file=name, neighbours=neighbours)
            for name in ("a[1].csv", "it's.csv", "*.csv")
        ),
    ]


def list_cases() -> list[Case]:
    """Return all cases."""
    return [
        *list_number_cases(),
        *list_date_cases(),
        *list_line_cases(),
        *list_name_cases(),
        *list_value_cases(),
        *list_encoding_cases(),
        *list_other_cases(),
    ]
