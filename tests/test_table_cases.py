"""Tests of the benchmark of oddities: all its small files, and how results are judged."""

import pytest

import oddities
import table_cases
from oddities import OURS, PANDAS
from table_case_list import date, list_cases, number, table_case, text
from table_cases import Found, judge

SMALL = [case for case in list_cases() if not case.is_large]
CASE = table_case("two rows", "", {"day": date("2024-12-31", None), "size": number((1, 2), 3)})
RIGHT = Found(["day", "size"], ["date", "number"], 2, [[1735603200.0, None], [2.0, 3.0]])


@pytest.fixture(scope="module")
def judgements(tmp_path_factory):
    return oddities.judge_cases(SMALL, tmp_path_factory.mktemp("cases"), old=None)


@pytest.mark.parametrize("number_of_case", range(len(SMALL)), ids=[case.title for case in SMALL])
def test_no_file_is_read_wrong_silently(judgements, number_of_case):
    judgement = judgements[OURS][number_of_case]

    assert judgement.result in ("right", "reported", "refused"), judgement.happened


def test_titles_are_unique():
    assert len({case.title for case in list_cases()}) == len(list_cases()) >= 40


def test_cases_have_all_results_by_pandas(judgements):
    results = {each.result for each in judgements[PANDAS]}

    assert results >= {"right", "refused", "wrong silently"}


def changed(**changes):
    """Return what a reader found, with some attributes changed."""
    values = {name: getattr(RIGHT, name) for name in Found.__slots__}
    return Found(**values | changes)


def test_right_table_is_right_or_reported():
    assert judge(CASE, RIGHT).result == "right"
    assert judge(CASE, changed(notes=["Column 'day' is ..."])).result == "reported"


@pytest.mark.parametrize(
    ("changes", "happened"),
    [
        ({"names": ["day", "width"]}, "the columns are 'day', 'width'"),
        ({"names": ["day"]}, "the columns are 'day'"),
        ({"kinds": ["category", "number"]}, "'day' is text"),
        ({"n_rows": 3}, "3 rows"),
        ({"values": [[0.0, None], [2.0, 3.0]]}, "'day' is 0.0 in row 0"),
        ({"values": [[1735603200.0, None], [3.0, 3.0]]}, "'size' is 3.0 in row 0"),
        ({"values": [[1735603200.0, None], [2.0, None]]}, "'size' is None in row 1"),
    ],
)
def test_difference_without_note_is_silent(changes, happened):
    judgement = judge(CASE, changed(**changes))

    assert judgement == table_cases.Judgement("wrong silently", happened)


def test_note_about_column_reports_its_difference():
    kinds = ["category", "number"]

    about_day = judge(CASE, changed(kinds=kinds, notes=["Column 'day' is read as text."]))
    about_size = judge(CASE, changed(kinds=kinds, notes=["Column 'size' is read as numbers."]))

    assert (about_day.result, about_size.result) == ("reported", "wrong silently")


def test_required_note_must_be_there():
    case = table_case("total", "", {"x": number(1)}, note="total", must_report=True)
    found = Found(["x"], ["number"], 1, [[1.0]])

    results = [judge(case, found).result]
    for note in ("Row 0 seems to be a total.", "Column 'x' is read as percentages."):
        found.notes = [note]
        results.append(judge(case, found).result)

    assert results == ["wrong silently", "reported", "wrong silently"]


def test_generated_name_may_be_any():
    case = table_case("no name", "", {"*": text("a")})

    assert judge(case, Found(["x0"], ["category"], 1, [["a"]])).result == "right"


def test_error_is_right_only_where_expected():
    case = table_cases.Case(title="ragged", file="x", content=bytes, error="line 3")

    assert judge(case, Found(error="a.csv, line 3: ...")).result == "right"
    assert judge(case, Found(error="a.csv: something")).result == "refused"
    assert judge(case, RIGHT).result == "wrong silently"
    assert judge(CASE, Found(error="a.csv, line 3: ...")).result == "refused"
    assert judge(CASE, Found(error="KeyError: 3", is_foreign=True)).result == "foreign error"


def test_tables_have_all_cases_and_counts(judgements):
    output = oddities.format_tables(SMALL, judgements)

    first, counts = (part.splitlines() for part in output.split("\n\n"))
    assert len(first) == len(SMALL) + 2
    totals = [list(map(int, row.strip("| ").split(" | ")[1:])) for row in counts[2:]]
    assert list(map(sum, zip(*totals, strict=True))) == [len(SMALL)] * 2
