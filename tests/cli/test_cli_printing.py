import io
import re
from contextlib import redirect_stdout
from dataclasses import replace

import pyarrow as pa
import pytest

from altbi._demo import Demo
from altbi.cells import WrongCells
from altbi.cli import _printing
from altbi.networks import TrainingStep
from altbi.report import ColumnFact, Metrics, ReasonFact, Summary, TopRow

RED = "[red]markup[/red]"


def create_reason(column, **changes):
    fact = ReasonFact(column=column, value="40", expected="1.25", z_score=12.3, nearest=("1", "2"))
    return replace(fact, **changes)


def create_summary(**changes):
    columns = [
        ColumnFact(name=n, kind="number", content="0 to 9", missing=0.0, n_reasons=1, share=0.5)
        for n in ("size", "weight")
    ]
    row = TopRow(
        number=17,
        ids=("017",),
        score=9.5,
        label=True,
        reasons=(create_reason("size"),),
        values=("40", "2"),
        nearest=(("1", "2"),),
    )
    summary = Summary(
        table="sizes.csv",
        score_by="distance",
        rows=300,
        sample=300,
        threshold=3.0,
        flagged=1,
        threshold_reason="The threshold was given.",
        thresholds=((3.0, 1),),
        bins=((0.0, 10.0, 300),),
        columns=tuple(columns),
        shown_columns=("size", "weight"),
        id_columns=("key",),
        top=(row,),
        history=(TrainingStep(step=0, batch_size=8, kept=1.0, loss=1.0),),
        metrics=Metrics(label="bad", outliers=1, auc=1.0, average_precision=0.5),
        privacy=None,
        notes=("Column 'a' is constant.",),
        command="altbi detect sizes.csv",
        versions={},
        created="2026-01-02T03:04:05Z",
    )
    return replace(summary, **changes)


@pytest.fixture(params=[False, True], ids=["pipe", "terminal"])
def screen(request, monkeypatch):
    class Screen(io.StringIO):
        def isatty(self):
            return request.param

    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    return Screen()


def show(screen, function, *arguments, **options):
    with redirect_stdout(screen):
        function(*arguments, **options)


def read_lines(screen):
    """Return the lines without the escape codes of styles."""
    return re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue()).split("\n")


def words(screen):
    return " ".join(" ".join(read_lines(screen)).split())


def test_summary_names_rows_reasons_and_files(screen):
    show(screen, _printing.print_summary, create_summary(), ["out/scores.csv"], page=True)

    text = words(screen)
    assert text.startswith(
        "sizes.csv: 300 rows, 2 columns; trained on 300 rows. 1 row is flagged as an outlier "
        "(0.33%): the score is above 3. The threshold was given."
    )
    assert "1 known outliers, not used for training): AUC 1.0000, average precision 0.5000" in text
    assert "Rows are counted from 0, without the header. * marks flagged rows. row score" in text
    assert "17 9.5 * size 40 1.25 12.3" in text
    assert "(key 017)" in text
    assert "warnings: - Column 'a' is constant." in text
    assert text.endswith("written: out/scores.csv")
    assert max(map(len, read_lines(screen))) <= 100


def test_only_flagged_rows_are_marked(screen):
    show(screen, _printing.print_summary, create_summary(threshold=20.0, flagged=0), [], page=True)

    text = words(screen)
    assert "0 rows are flagged as outliers (0.00%)" in text
    assert "17 9.5 size" in text


@pytest.mark.parametrize(
    ("page", "end"), [(True, "- Note 7. - and 3 more, in the report"), (False, "- Note 10.")]
)
def test_warnings_are_shortened_only_with_a_page(screen, page, end):
    summary = create_summary(notes=tuple(f"Note {i}." for i in range(11)))

    show(screen, _printing.print_summary, summary, [], page=page)

    assert f"{end} written:" in words(screen)


@pytest.mark.parametrize("hostile", ["\x1b[2J\x9b\r", RED, "[bold", "x" * 300])
def test_texts_of_a_table_have_no_effect(screen, hostile):
    row = create_summary().top[0]
    reason = create_reason(f"a{hostile}", value=hostile, expected=hostile)
    row = replace(row, ids=(hostile,), reasons=(reason,))

    show(
        screen,
        _printing.print_summary,
        create_summary(top=(row,), id_columns=(hostile,), notes=(hostile,)),
        [],
        page=True,
    )

    lines = read_lines(screen)
    assert all(line.isprintable() for line in lines)
    text = words(screen)
    if hostile.startswith("\x1b"):
        assert text.count("\\x1b[2J") >= 4
    if hostile in (RED, "[bold"):
        assert text.count(hostile) >= 3  # markup is printed, not interpreted
    assert max(map(len, lines)) <= 100


def reasons_table(**changes):
    record = {"row": 1, "id_key": "a", "score": 2.0, "outlier": True, "reason": 1}
    record |= {"column": "size", "value": "", "expected": "1", "z_score": 3.0, "contribution": 1.0}
    record |= {"nearest_1": "1", "nearest_2": ""}
    return pa.Table.from_pylist([record | changes, record | {"row": 2, "outlier": False}])


def test_reasons_include_similar_normal_rows(screen):
    show(screen, _printing.print_reasons, reasons_table())

    text = words(screen)
    assert "similar normal rows" in text
    assert "1 2 * size missing 1 3.0" in text
    assert "2 2 size missing 1 3.0" in text
    if not screen.isatty():
        lines = [line.split() for line in screen.getvalue().splitlines()]
        assert ["similar", "normal", "rows:", "this", "row", "most", "similar", "2nd"] in lines
        assert ["size", "missing", "1", "missing"] in lines


def test_reasons_of_losses_have_no_similar_rows(screen):
    show(screen, _printing.print_reasons, reasons_table().drop(["nearest_1", "nearest_2"]))

    assert "similar" not in screen.getvalue()
    assert "1 2 * size missing 1 3.0" in words(screen)


def test_json_has_no_large_fields():
    facts = _printing.summary_to_json(create_summary(), ["scores.csv"])

    assert facts["files"] == ["scores.csv"]
    assert facts["top"][0]["reasons"][0]["nearest"] == ("1", "2")
    assert not {"thresholds", "bins", "history", "shown_columns"} & facts.keys()
    assert not {"values", "nearest"} & facts["top"][0].keys()


def test_demo_compares_with_chance(screen):
    files = ("out/scores.csv",)
    demo = Demo(summary=create_summary(), malignant=10, in_top_ten=6, in_top_twenty=8, files=files)

    show(screen, _printing.print_demo, demo)

    text = words(screen)
    assert "A table of 300 breast biopsies with 2 measurements each: 290 are benign" in text
    assert "6 are malignant (by chance: 0.3); of the first twenty, 8." in text


def test_long_expectations_are_not_cut(screen):
    note = "usually 'Birmingham' where postcode is 'B1 1AA' (31 rows)"

    show(screen, _printing.print_reasons, reasons_table(expected=note))

    assert note in words(screen) or screen.isatty()
    text = re.sub(r"\W", "", words(screen))
    assert all(part in text for part in ("usually", "Birmingham", "postcode", "31"))
    assert max(map(len, read_lines(screen))) <= 100


def wrong_cells(**changes):
    record = {"row": 7, "id_key": "k7", "column": "city", "value": "Birminghm"}
    record |= {"expected": "Birmingham", "note": "looks like 'Birmingham' (31 rows)", "score": 9.26}
    table = pa.Table.from_pylist([record | changes] * 12)
    return WrongCells(table=table, n_rows=500, n_columns=4, notes=("Column 'a' is constant.",))


def test_cells_are_printed_with_notes_and_ids(screen):
    show(screen, _printing.print_cells, "t.csv", wrong_cells(), "t-cells.csv")

    text = words(screen)
    assert "t.csv: 500 rows x 4 columns = 2,000 cells were searched. 12 of them are listed" in text
    assert "7 9.3 city Birminghm Birmingham looks like" in text
    assert "31 rows)" in text
    assert text.count("key k7") == 10
    assert "warnings: - Column 'a' is constant. written: t-cells.csv" in text
    assert max(map(len, read_lines(screen))) <= 100


@pytest.mark.parametrize("hostile", ["\x1b[2J\x9b\r", RED, "[bold", "x" * 300])
def test_texts_of_cells_have_no_effect(screen, hostile):
    found = wrong_cells(value=hostile, expected=hostile, note=hostile, column=hostile)

    show(screen, _printing.print_cells, hostile, found, hostile)

    lines = read_lines(screen)
    assert all(line.isprintable() for line in lines)
    if hostile in (RED, "[bold"):
        assert words(screen).count(hostile) >= 3  # markup is printed, not interpreted
    assert all(len(line) <= 100 for line in lines if "xxx" not in line or len(line) < 290)


def test_no_cells_are_no_table(screen):
    empty = wrong_cells()
    empty = replace(empty, table=empty.table.slice(0, 0))

    show(screen, _printing.print_cells, "t.csv", empty, "t-cells.csv")

    assert "0 of them are listed" in words(screen)
    assert "Rows are counted" not in words(screen)
