import re
from dataclasses import replace

from example_summary import create_reason, create_row, create_summary

from altbi.report import DuplicateGroup, Duplicates, render
from altbi.report._similar_rows import group_similar_rows

KINDS = {"age": "number", "city": "category", "day": "date"}


def build_rows(*reasons_of_rows):
    """Return rows with reasons, each given as name, value and z-score."""
    return [
        create_row(
            index,
            10.0 - index,
            ("age",),
            reasons=tuple(
                create_reason(name, 0, value=value, z_score=z) for name, value, z in reasons
            ),
        )
        for index, reasons in enumerate(reasons_of_rows)
    ]


def list_groups(rows):
    return [
        [entry.index, *(other.index for other in entry.similar)]
        for entry in group_similar_rows(rows, KINDS)
    ]


def test_rows_with_the_same_leading_reasons_are_one_group():
    rows = build_rows(
        [("age", "999", 10.0)], [("city", "Rome", 9.0)], [("age", "999", 11.0)], [("age", "9", 8.0)]
    )

    assert list_groups(rows) == [[0, 2], [1], [3]]


def test_reasons_below_half_the_largest_do_not_count():
    small = [[("age", "999", 10.0), ("city", city, 4.9)] for city in ("Rome", "Oslo")]
    large = [[("age", "999", 10.0), ("city", city, 5.0)] for city in ("Rome", "Oslo")]

    assert list_groups(build_rows(*small)) == [[0, 1]]
    assert list_groups(build_rows(*large)) == [[0], [1]]


def test_order_of_leading_reasons_does_not_count():
    reasons = [("age", "999", 10.0), ("city", "Rome", 9.0)]

    assert list_groups(build_rows(reasons, reasons[::-1])) == [[0, 1]]


def test_similar_numbers_and_times_of_a_day_are_the_same():
    rows = build_rows(
        [("age", "1000.1", 9.0)],
        [("age", "1004", 9.0)],
        [("age", "1006", 9.0)],
        [("day", "1900-01-01", 9.0)],
        [("day", "1900-01-01 12:30:00", 9.0)],
        [("city", "1000.1", 9.0)],
        [("city", "1004", 9.0)],
    )

    assert list_groups(rows) == [[0, 1], [2], [3, 4], [5], [6]]


def test_rows_without_reasons_stay_alone():
    assert list_groups(build_rows([], [])) == [[0], [1]]


def test_page_folds_similar_rows_and_keeps_all():
    rows = build_rows(*([[("age", "999", 10.0)]] * 50), [("city", "Rome", 9.0)])

    page = render(replace(create_summary(), top=tuple(rows)))

    assert page.count("<summary>and 49 similar rows</summary>") == 1
    numbers = re.findall(r'<span class="row">row (\d+)</span>', page)
    assert sorted(map(int, numbers)) == list(range(1000, 1051))
    folded = page[page.index("and 49 similar rows") : page.index("</details></td></tr>")]
    assert folded.count('<tbody class="top-row') == 49


def test_page_escapes_and_counts_duplicates():
    group = DuplicateGroup(
        kind="same row but one column",
        column="<b>amount",
        rows=tuple(range(9)),
        ids=(("<i>7",),) * 9,
        values=("<script>alert(1)",) * 9,
    )
    duplicates = Duplicates(groups=(group,) * 60, sentences=("All of <u>them.",))

    page = render(create_summary(duplicates=duplicates))

    assert not any(text in page for text in ("<b>amount", "<i>7", "<script>alert(1)", "<u>them"))
    assert "&lt;b&gt;amount" in page
    assert "&lt;script&gt;alert(1)" in page
    assert "and 3 more" in page
    assert "The first 50 of 60 groups are shown." in page
    assert "Duplicates</h2>" not in render(create_summary())
