"""Type inference for columns of texts."""

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from altbi.errors import TableError
from altbi.io._text_formats import MISSING_TEXTS, TEXT, MissingTexts, parse_texts
from altbi.io._type_inference import ExpectedType, TypeInference

MISSING = MissingTexts(MISSING_TEXTS)


def infer(*chunks, expected=None, written="", missing=MISSING):
    """Return the inference of a column in chunks, and the parsed values of all chunks."""
    inference, row = TypeInference("c", expected and ExpectedType(expected, written), missing), 0
    for chunk in chunks:
        inference.add(pa.array(chunk, pa.string()), row)
        row += len(chunk)
    texts = pa.array([text for chunk in chunks for text in chunk], pa.string())
    return inference, parse_texts(inference.infer(), texts, missing).to_pylist()


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
        (["31.12.24", "01.02.25"], "date", [(2024, 12, 31), (2025, 2, 1)]),
        (["01/02/2024", "03/04/2024"], "category", ["01/02/2024", "03/04/2024"]),
        (["1.234,5", "258,15"], "number", [1234.5, 258.15]),
        (["1,234.5", "12", "1,000,000"], "number", [1234.5, 12, 1e6]),
        (["1,234", "12"], "category", ["1,234", "12"]),
        (["1.234,5", "1,234.5"], "category", ["1.234,5", "1,234.5"]),
        (["12,34.5"], "category", ["12,34.5"]),
        (["97%", "-2.5 %", "0", "NA"], "number", [97, -2.5, 0, None]),
        (["97,5 %", "3%"], "number", [97.5, 3]),
        (["97%", "1.234,5%"], "number", [97, 1234.5]),
        (["97%", "1.234,5%", "1.5"], "category", ["97%", "1.234,5%", "1.5"]),
        (["97%%", "3%"], "category", ["97%%", "3%"]),
        (["97%", "% 3"], "category", ["97%", "% 3"]),
        (["12 kg", " a "], "category", ["12 kg", " a "]),
        (["2024-02-30"], "category", ["2024-02-30"]),
        (["2024-2-9", "2024-12-31 10:30"], "date", [(2024, 2, 9), (2024, 12, 31, 10, 30)]),
        (["31.12.2024", "1.2.2024 8:30"], "date", [(2024, 12, 31), (2024, 2, 1, 8, 30)]),
        (["12/31/2024 3:36 PM", "1/2/2024"], "date", [(2024, 12, 31, 15, 36), (2024, 1, 2)]),
        (["1/31/2024 3 PM", "1/31/2024 3:36"], "category", ["1/31/2024 3 PM", "1/31/2024 3:36"]),
        (["31-Dec-24", "1-Feb-69"], "date", [(2024, 12, 31), (1969, 2, 1)]),
        (["Dec 31, 2024"], "date", [(2024, 12, 31)]),
        (["31-12-2024", "1-2-2024"], "date", [(2024, 12, 31), (2024, 2, 1)]),
        (["5-", "12"], "number", [-5, 12]),
        (["(5)", "12"], "number", [-5, 12]),
        (["(1,200.00)", "12.5"], "number", [-1200, 12.5]),
        (["1 234,5", "258,15"], "number", [1234.5, 258.15]),
        (["1'234.5", "12"], "number", [1234.5, 12]),
        (["$1,234.50", "-$5", "12"], "number", [1234.5, -5, 12]),
        (["1.234,50 €", "12,5 €"], "number", [1234.5, 12.5]),
        (["12 kr", "1", "-"], "number", [12, 1, None]),
        (["0x1f", "1_000"], "category", ["0x1f", "1_000"]),
    ],
)  # fmt: skip
def test_first_format_that_parses_all_texts_is_inferred(texts, kind, values):
    inference, read = infer(texts)

    if kind == "date":
        read = [moment.replace(tzinfo=None) for moment in read]
        read = [getattr(m, "to_pydatetime", lambda m=m: m)() for m in read]
        values = [datetime.datetime(*value) for value in values]
    assert inference.infer().kind == kind
    assert read == values


@pytest.mark.parametrize("index", [0, 1, 2])
def test_one_word_in_any_chunk_makes_text(index):
    chunks = [["1", "2"], ["3", "4"], ["5", "6"]]
    chunks[index] = [chunks[index][0], "soon"]

    inference, values = infer(*chunks)

    assert inference.infer() is TEXT
    assert values == [text for chunk in chunks for text in chunk]
    (note,) = inference.notes(pa.array(values))
    assert f"row {2 * index + 1} (counted from 0) holds 'soon'" in note


def test_columns_of_words_have_no_notes():
    inference, values = infer(["red", "12", "blue"])

    assert list(inference.notes(pa.array(values))) == []


def test_ambiguous_day_and_month_add_a_note():
    inference, values = infer(["01/02/2024"], ["03/04/2024"])
    (note,) = inference.notes(pa.array(values))
    assert "read as text, because day and month" in note

    inference, _ = infer(["01/02/2024"], ["13/04/2024"])
    assert inference.infer().description == "dates as day/month/year"
    assert list(inference.notes(pa.array(["01/02/2024"]))) == [
        "Column 'c' is read as dates as day/month/year."
    ]


@pytest.mark.parametrize(
    ("texts", "example"),
    [
        (["2024-01-02", "2024-11-30", "soon"], ": 'soon' is not written like '2024-01-02'"),
        (["soon", "1/12/2024", "13/1/2024"], ": 'soon' is not written like '1/12/2024'"),
        (["2024-01-02", "3.4.2024", "2024-01-05"], ": '3.4.2024' is not written like '2024-01-02'"),
        (["2024-01-02", "2024-02-30"], ""),
    ],
)
def test_text_among_dates_adds_a_note(texts, example):
    inference, values = infer(texts)

    assert inference.infer() is TEXT
    assert list(inference.notes(pa.array(values))) == [
        f"Column 'c' is read as text, though most of its cells look like dates{example}. Write all "
        "dates in one format, and pass --missing VALUE for texts that mean a missing value."
    ]


def test_possible_thousands_separators_add_a_note():
    for expected in (None, "number"):
        inference, values = infer(["950"], ["1.800", "2.000"], expected=expected)
        assert values == [950, 1.8, 2.0]
        (note,) = inference.notes(pa.array(["950"]))
        assert "points may be thousands separators, as in '1.800'" in note

    for surely in (["950", "1.8"], ["0.125", "1.800"], ["950", "951"]):
        inference, _ = infer(["1.800"] if "." in "".join(surely) else ["1"], surely)
        assert list(inference.notes(pa.array(surely))) == []


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
def test_ambiguous_texts_are_parsed_as_at_the_fit(texts, kind, written, values):
    inference, read = infer(texts, expected=kind, written=written)

    assert read == values
    assert list(inference.notes(pa.array(texts))) == []


def test_another_format_than_at_the_fit_adds_a_note():
    inference, read = infer(["1.800"], ["950,5"], expected="number", written="numbers")

    assert read == [1800, 950.5]
    assert list(inference.notes(pa.array(["1.800"]))) == [
        "Column 'c' is read as numbers with points between thousands, because not all of its cells "
        "are numbers, as where the model was fitted."
    ]


@pytest.mark.parametrize(("text", "kind"), [("05/04/2024", "date"), ("1,800", "number")])
def test_ambiguous_texts_raise_without_the_fitted_format(text, kind):
    with pytest.raises(TableError, match=f"'c': the model expects a {kind}, but .*; write"):
        infer([text], expected=kind)


def test_groups_of_thousands_never_begin_with_zero():
    assert infer(["0,125", "1,800"])[1] == [0.125, 1.8]


@pytest.mark.parametrize(
    ("expected", "chunks", "row", "text"),
    [
        ("number", [["1", "2"], ["3", "n.a.", "soon", "x"]], 4, "'soon'"),
        ("date", [["2024-01-01T00:00:00Z"], ["2024-01-01T00:00:00Z", "soon"]], 2, "'soon'"),
        ("boolean", [["true", "0", "maybe"]], 2, "'maybe'"),
        ("boolean", [["true", "n.a."]], 1, "'n.a.'"),
    ],
)
def test_unexpected_texts_raise_with_their_row(expected, chunks, row, text):
    with pytest.raises(TableError) as refusal:
        infer(*chunks, expected=expected)

    assert f"holds {text} in row {row} (counted from 0)" in str(refusal.value)
    assert f"expects a {expected}" in str(refusal.value)


def test_expected_categories_stay_text():
    assert infer(["1", "02"], expected="category")[1] == ["1", "02"]


def test_numbers_and_booleans_are_compatible():
    assert infer(["true"], expected="number")[1] == [True]
    assert infer(["1.0"], expected="boolean")[1] == [1.0]


def test_infinity_raises_only_among_numbers():
    with pytest.raises(TableError, match=r"'c' contains infinity, first in row 3"):
        infer(["1", "2"], ["3", "inf", "-inf"])

    assert infer(["1", "inf"], ["word"])[1] == ["1", "inf", "word"]


@pytest.mark.slow
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_numbers_are_parsed_exactly(values):
    _, read = infer([repr(value) for value in values])

    assert np.array_equal(np.array(read).view(np.int64), np.array(values).view(np.int64))


def test_numbers_that_look_like_codes_add_a_note():
    inference, _ = infer(["00305", "12"])
    assert "begin with 0 as codes do" in next(inference.notes(pa.array(["00305", "12"])))

    inference, _ = infer(["0.5", "0", "10"])
    assert list(inference.notes(pa.array(["0.5", "0", "10"]))) == []


def test_ambiguous_commas_add_a_note():
    inference, values = infer(["1,234", "12"])

    (note,) = inference.notes(pa.array(values))
    assert "decimal or thousands separators" in note


def list_notes(*texts, **options):
    """Return the notes about a column of texts."""
    inference, _ = infer(texts, **options)
    sample = [None if text in MISSING_TEXTS else text for text in texts]
    return list(inference.notes(pa.array(sample, pa.string())))


def test_placeholders_are_counted_in_a_note():
    inference, values = infer(["1", "-"], ["-", "3"], ["unknown", "NA"])

    assert values == [1, None, None, 3, None, None]
    assert list(inference.notes(pa.array(["1", "-"]))) == [
        "Column 'c': some texts count as missing, because all other cells are numbers or dates: "
        "'-' (2 rows), 'unknown' (1 row). If one is a value, replace it by a number or a date."
    ]


def test_placeholders_are_values_among_texts():
    assert infer(["1", "unknown", "x"])[1] == ["1", "unknown", "x"]
    assert infer(["true", "unknown"])[1] == ["true", "unknown"]
    assert infer(["-", "unknown"])[1] == ["-", "unknown"]
    assert list_notes("-", "unknown") == []


def test_model_decides_whether_texts_are_values():
    assert infer(["-"], expected="number")[1] == [None]
    assert infer(["-"], expected="category")[1] == ["-"]
    assert infer(["(5)"], expected="number")[1] == [-5]
    assert len(list_notes("-", "5", expected="number", written="numbers")) == 1


def test_texts_with_nan_are_numbers_in_every_format():
    inference, values = infer(["nan"], ["1", "x"[:0]], missing=MissingTexts(()))

    assert values[1:] == [1, None]
    assert inference.state.placeholders == (("", 1),)


def test_states_know_values_of_all_partitions():
    merged, _ = infer(["1"])

    merged.merge(infer(["-"])[0].state, 1)

    assert merged.infer().kind == "number"


def test_declared_missing_texts_are_not_inferred():
    assert infer(["-99", "1.5", " -99"], missing=MissingTexts(("-99",)))[1] == [None, 1.5, None]


def test_amounts_in_one_currency_add_a_note():
    assert list_notes("$58.90", "(1.5)", "12") == [
        "Column 'c' is read as amounts in $. Numbers in parentheses are negative."
    ]
    assert list_notes("1.234,50 €", "1,5") == [
        "Column 'c' is read as amounts in € with points between thousands."
    ]


@pytest.mark.parametrize("chunks", [(["$5", "5 €", "1 £"],), (["$5"], ["5 €"], ["7"])])
@pytest.mark.parametrize("options", [{}, {"expected": "number", "written": "amounts in $"}])
def test_several_currencies_are_not_mixed(chunks, options):
    problem = "its amounts are in several currencies, such as '$' and '€'; convert them to one"
    if options:
        with pytest.raises(TableError, match="expects a number, but its amounts are in several"):
            infer(*chunks, **options)
        return

    inference, values = infer(*chunks)

    assert values == [text for chunk in chunks for text in chunk]
    assert list(inference.notes(pa.array(values))) == [
        f"Column 'c' is read as text, because {problem}."
    ]


def test_amount_with_two_currencies_is_text():
    assert infer(["$5 €", "$5", "5 €"])[1] == ["$5 €", "$5", "5 €"]


def test_currency_of_the_model_is_expected():
    written = "amounts in $"

    assert list_notes("$5", expected="number", written=written) == []
    assert list_notes("5", expected="number", written=written) == []
    assert infer(["1.234"], expected="number", written=written)[1] == [1.234]
    assert list_notes("5 €", expected="number", written=written) == [
        "Column 'c' is read as amounts in €, because not all of its cells are amounts in $, as "
        "where the model was fitted."
    ]


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (["1,234 €", "12 €"], "commas in its numbers"),
        (["1,234%", "12%"], "commas in its numbers"),
        (["1.234 €", "12 €"], "points in its amounts"),
        (["(1)", "(2)"], "all of its numbers are in parentheses"),
        (["1-2-2024", "3-4-2024"], "day and month"),
        (["1/2/24", "3/4/24"], "day, month and year"),
        (["24-01-13", "24-01-14"], "day, month and year"),
    ],
)
def test_ambiguous_texts_add_a_note(texts, problem):
    inference, values = infer(texts)

    assert values == texts
    (note,) = inference.notes(pa.array(texts))
    assert f"is read as text, because the {problem}" in note or f"because {problem}" in note


@pytest.mark.parametrize("texts", [["1.23 €", "1.234 €"], ["1.234 €", "0.125 €"], ["$5", "$12"]])
def test_clear_amounts_are_numbers(texts):
    assert infer(texts)[0].infer().kind == "number"


def test_times_of_day_are_seconds_since_midnight():
    _, values = infer(["3:36 p.m.", "12:05 AM", "?"])
    assert values == [datetime.time(15, 36), datetime.time(0, 5), None]
    assert list_notes("15:36", "15:36:07") == ["Column 'c' is read as times of day."]
    assert infer(["15:36", "3:36 PM"])[0].infer() is TEXT


def test_years_of_two_digits_add_a_note():
    assert list_notes("31.12.24") == [
        "Column 'c' is read as dates as day.month.year with two-digit years. Their years are 1969 "
        "to 2068."
    ]


def test_possible_thousands_points_of_percentages_add_a_note():
    (first, second) = list_notes("1.234%", "12%")
    assert first == "Column 'c' is read as percentages."
    assert "points may be thousands separators, as in '1.234%'" in second
