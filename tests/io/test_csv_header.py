"""Title lines and column names of CSV files."""

import pytest

from altbi.io._csv_header import describe_header, find_header, name_columns


def test_header_may_lack_a_fifth_of_the_names():
    names = [*"abcdefgh", "", ""]
    rows = [[str(number)] * 10 for number in range(5)]

    assert find_header([["Report", *[""] * 9], names, *rows], None) == 1
    assert find_header([["Report", *[""] * 9], [*names[:7], *[""] * 3], *rows], None) == 0


@pytest.mark.parametrize(("n_titles", "index"), [(49, 49), (50, 0)])
def test_fifty_short_lines_are_no_titles(n_titles, index):
    rows = [["shop", "price"], *[["a", "1"]] * 100]

    assert find_header([["title"]] * n_titles + rows, None) == index


@pytest.mark.parametrize(("name", "n_notes"), [("# comment", 1), (" #a", 1), ("a#", 0)])
def test_header_like_a_comment_is_noted(name, n_notes):
    records = [[name, "b"], ["1", "2"]]

    notes = list(describe_header(records, 0, name_columns(records[0], None, "x.csv"), "x.csv"))

    assert len(notes) == n_notes
    for note in notes:
        assert "The line of x.csv that was read as names of columns begins with '#'." in note
        assert "to --skip" in note
    columns = name_columns(records[0], False, "x.csv")
    assert list(describe_header(records, 0, columns, "x.csv")) == []
