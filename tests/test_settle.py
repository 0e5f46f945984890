import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from altbi.errors import TableError
from altbi.io._text_formats import MISSING_WORDS, NUMBER, TEXT_FORMATS, TEXT, first_refused
from altbi.io._type_inference import ExpectedType, TypeInference, present_texts, parse_texts

ABSENT = pa.array(MISSING_WORDS, pa.string())


def settle(*chunks, wanted=None, written=""):
    """Settle a column that comes in chunks; gives the settler and the values of all chunks."""
    settler, row = TypeInference("c", wanted and ExpectedType(wanted, written)), 0
    for chunk in chunks:
        settler.add(present_texts(pa.array(chunk, pa.string()), ABSENT), row)
        row += len(chunk)
    whole = present_texts(pa.array([t for chunk in chunks for t in chunk], pa.string()), ABSENT)
    return settler, parse_texts(settler.settled(), whole).to_pylist()


@pytest.mark.parametrize(
    ("texts", "kind", "values"),
    [
        (["1", "2.5", " 3 ", "-1e3"], "number", [1, 2.5, 3, -1000]),
        (["1", "NA", "", " "], "number", [1, None, None, None]),
        (["", "NULL"], "number", [None, None]),
        (["0", "1"], "number", [0, 1]),
        (["true", "FALSE", "NaN"], "boolean", [True, False, None]),
        (["2024-02-29", "2024-03-01"], "date", [(2024, 2, 29), (2024, 3, 1)]),
        (["2024-02-29T23:59:01Z"], "date", [(2024, 2, 29, 23, 59, 1)]),
        (["2024-02-29T23:59:01+02:00"], "date", [(2024, 2, 29, 21, 59, 1)]),
        (["2024-02-29 10:00:01.123456789"], "date", [(2024, 2, 29, 10, 0, 1, 123456)]),
        (["1,5", "2", "1234,25"], "number", [1.5, 2, 1234.25]),
        (["31.12.2024", "1.2.2024"], "date", [(2024, 12, 31), (2024, 2, 1)]),
        (["12/31/2024", "02/01/2024"], "date", [(2024, 12, 31), (2024, 2, 1)]),
        (["31/12/2024 8:30", "1/2/2024 9:05"], "date", [(2024, 12, 31, 8, 30), (2024, 2, 1, 9, 5)]),
        (["2024/12/31 10:30:59"], "date", [(2024, 12, 31, 10, 30, 59)]),
        (["31.02.2024"], "category", ["31.02.2024"]),
        (["31.12.24"], "category", ["31.12.24"]),
        (["01/02/2024", "03/04/2024"], "category", ["01/02/2024", "03/04/2024"]),
        (["1.234,5", "258,15"], "number", [1234.5, 258.15]),
        (["1,234.5", "12", "1,000,000"], "number", [1234.5, 12, 1e6]),
        (["1,234", "12"], "category", ["1,234", "12"]),
        (["1.234,5", "1,234.5"], "category", ["1.234,5", "1,234.5"]),
        (["12,34.5"], "category", ["12,34.5"]),
        (["97%", "-2.5 %", "0", "NA"], "number", [97, -2.5, 0, None]),
        (["97,5 %", "3%"], "number", [97.5, 3]),
        (["97%", "1.234,5%"], "category", ["97%", "1.234,5%"]),
        (["97%%", "3%"], "category", ["97%%", "3%"]),
        (["97%", "% 3"], "category", ["97%", "% 3"]),
        (["12 kg", " a "], "category", ["12 kg", " a "]),
        (["2024-02-30"], "category", ["2024-02-30"]),
        (["0x1f", "1_000"], "category", ["0x1f", "1_000"]),
    ],
)  # fmt: skip
def test_a_column_of_texts_is_read_as_what_all_of_them_can_be(texts, kind, values):
    settler, read = settle(texts)

    if kind == "date":
        read = [moment.replace(tzinfo=None) for moment in read]
        read = [getattr(m, "to_pydatetime", lambda m=m: m)() for m in read]
        values = [datetime.datetime(*value) for value in values]
    assert settler.settled().kind == kind
    assert read == values


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_text_in_any_chunk_makes_the_whole_column_text(place):
    chunks = [["1", "2"], ["3", "4"], ["5", "6"]]
    chunks[place] = [chunks[place][0], "n.a."]

    settler, values = settle(*chunks)

    assert settler.settled() is TEXT
    assert values == [text for chunk in chunks for text in chunk]
    (note,) = settler.notes(pa.array(values))
    assert f"row {2 * place + 1} (counted from 0) holds 'n.a.'" in note


def test_columns_of_words_are_nothing_to_note():
    settler, values = settle(["red", "12", "blue"])

    assert list(settler.notes(pa.array(values))) == []


def test_dates_whose_day_and_month_cannot_be_told_apart_are_noted():
    settler, values = settle(["01/02/2024"], ["03/04/2024"])
    (note,) = settler.notes(pa.array(values))
    assert "read as text, because day and month" in note

    settler, _ = settle(["01/02/2024"], ["13/04/2024"])
    assert settler.settled().said == "dates as day/month/year"
    assert list(settler.notes(pa.array(["01/02/2024"]))) == [
        "Column 'c' is read as dates as day/month/year."
    ]


@pytest.mark.parametrize(
    ("texts", "beside"),
    [
        (["2024-01-02", "2024-11-30", "unknown"], ": 'unknown' stands beside '2024-01-02'"),
        (["n.a.", "1/12/2024", "13/1/2024"], ": 'n.a.' stands beside '1/12/2024'"),
        (["2024-01-02", "3.4.2024", "2024-01-05"], ": '3.4.2024' stands beside '2024-01-02'"),
        (["2024-01-02", "2024-02-30"], ""),
    ],
)
def test_what_keeps_dates_from_being_dates_is_noted(texts, beside):
    settler, values = settle(texts)

    assert settler.settled() is TEXT
    assert list(settler.notes(pa.array(values))) == [
        f"Column 'c' is read as text, though most of its cells look like dates{beside}. Write all "
        "dates in one way, and name with --missing what means that there is none."
    ]


def test_points_that_may_stand_between_thousands_are_noted():
    for wanted in (None, "number"):
        settler, values = settle(["950"], ["1.800", "2.000"], wanted=wanted)
        assert values == [950, 1.8, 2.0]
        (note,) = settler.notes(pa.array(["950"]))
        assert "points may stand between thousands, as in '1.800'" in note

    for surely in (["950", "1.8"], ["0.125", "1.800"], ["950", "951"]):
        settler, _ = settle(["1.800"] if "." in "".join(surely) else ["1"], surely)
        assert list(settler.notes(pa.array(surely))) == []


DAY_FIRST, POINTED = "dates as day/month/year", "numbers with points between thousands"


@pytest.mark.parametrize(
    ("texts", "kind", "written", "values"),
    [
        (["05/04/2024"], "date", DAY_FIRST, [datetime.datetime(2024, 4, 5)]),
        (["05/04/2024"], "date", "dates as month/day/year", [datetime.datetime(2024, 5, 4)]),
        (["05/04/2024 8:30"], "date", DAY_FIRST, [datetime.datetime(2024, 4, 5, 8, 30)]),
        (["1.800"], "number", POINTED, [1800]),
        (["1.800"], "number", "numbers", [1.8]),
        (["1,800"], "number", "numbers with a decimal comma", [1.8]),
        (["1,800"], "number", "numbers with commas between thousands", [1800]),
    ],
)
def test_what_can_be_read_in_two_ways_is_read_as_where_the_model_was_fitted(
    texts, kind, written, values
):
    settler, read = settle(texts, wanted=kind, written=written)

    assert read == values
    assert list(settler.notes(pa.array(texts))) == []


def test_a_column_that_is_written_otherwise_than_for_the_model_is_read_and_noted():
    settler, read = settle(["1.800"], ["950,5"], wanted="number", written="numbers")

    assert read == [1800, 950.5]
    assert list(settler.notes(pa.array(["1.800"]))) == [
        "Column 'c' is read as numbers with points between thousands, because not all of its cells "
        "are numbers, as where the model was fitted."
    ]


@pytest.mark.parametrize(("text", "kind"), [("05/04/2024", "date"), ("1,800", "number")])
def test_what_can_be_read_in_two_ways_is_refused_if_the_model_does_not_say_how(text, kind):
    with pytest.raises(TableError, match=f"'c': the model expects a {kind}, but .*; write"):
        settle([text], wanted=kind)


def test_no_thousands_begin_with_0():
    assert settle(["0,125", "1,800"])[1] == [0.125, 1.8]


@pytest.mark.parametrize(
    ("wanted", "chunks", "row", "text"),
    [
        ("number", [["1", "2"], ["3", "n.a.", "x"]], 3, "'n.a.'"),
        ("date", [["2024-01-01T00:00:00Z"], ["2024-01-01T00:00:00Z", "soon"]], 2, "'soon'"),
        ("boolean", [["true", "0", "maybe"]], 2, "'maybe'"),
    ],
)
def test_what_a_model_does_not_expect_is_refused_with_its_row(wanted, chunks, row, text):
    with pytest.raises(TableError) as refusal:
        settle(*chunks, wanted=wanted)

    assert f"holds {text} in row {row} (counted from 0)" in str(refusal.value)
    assert f"expects a {wanted}" in str(refusal.value)


def test_a_model_that_expects_categories_gets_the_texts_of_numbers():
    assert settle(["1", "02"], wanted="category")[1] == ["1", "02"]


def test_a_model_that_expects_numbers_takes_booleans_and_the_other_way_round():
    assert settle(["true"], wanted="number")[1] == [True]
    assert settle(["1.0"], wanted="boolean")[1] == [1.0]


def test_infinity_is_refused_where_it_is_a_number_and_a_word_elsewhere():
    with pytest.raises(TableError, match=r"'c' contains infinity, first in row 3"):
        settle(["1", "2"], ["3", "inf", "-inf"])

    assert settle(["1", "inf"], ["word"])[1] == ["1", "inf", "word"]


@given(st.lists(st.sampled_from(["1", "2.5", "x", "true"]), min_size=1), st.data())
def test_the_first_refused_text_is_found(texts, data):
    refused = [i for i, text in enumerate(texts) if text in ("x", "true")]
    if refused:
        assert first_refused(NUMBER, pa.array(texts)) == refused[0]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_numbers_are_read_to_the_bit(values):
    _, read = settle([repr(value) for value in values])

    assert np.array_equal(np.array(read).view(np.int64), np.array(values).view(np.int64))


def test_every_reading_leaves_missing_cells_missing():
    nothing = pa.nulls(3, pa.string())

    assert [reading.parse(nothing).null_count for reading in TEXT_FORMATS] == [3] * len(TEXT_FORMATS)


def test_numbers_that_look_like_codes_are_noted():
    settler, _ = settle(["00305", "12"])
    assert "begin with 0 as codes do" in next(settler.notes(pa.array(["00305", "12"])))

    settler, _ = settle(["0.5", "0", "10"])
    assert list(settler.notes(pa.array(["0.5", "0", "10"]))) == []


def test_commas_that_may_mean_two_things_are_noted():
    settler, values = settle(["1,234", "12"])

    (note,) = settler.notes(pa.array(values))
    assert "decimal or stand between thousands" in note
