"""Type inference for columns of texts."""

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from altbi.errors import TableError
from altbi.io._expected_type import ExpectedType
from altbi.io._text_formats import MISSING_TEXTS, TEXT, MissingTexts, parse_texts
from altbi.io._type_inference import TypeInference, share_decimal_mark

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
    ("texts", "row", "what"),
    [
        (["1341,99", "5,5", "Summe"], 2, "numbers with a decimal comma"),
        (["[EUR]", "1341,99", "5,5"], 0, "numbers with a decimal comma"),
        (
            ["[EUR]", "1.341,99 €", "5,5 €"],
            0,
            "amounts of money with points between thousands and a decimal comma",
        ),
        (["2024-01-01", "1,5", "2,5", "3,5", "soon"], 0, "numbers with a decimal comma"),
        (["5%", "6 %", "soon"], 2, "percentages"),
        (["true", "false", "-", "maybe", "true"], 2, "booleans"),
        (["2024-01-02", "2024-11-30", "soon"], 2, "dates"),
        (["soon", "1/12/2024", "13/1/2024"], 0, "dates as day/month/year"),
        (["15:36", "soon", "15:37"], 1, "times of day"),
    ],
)
def test_first_other_text_is_named_in_all_formats(texts, row, what):
    notes = [
        f"Column 'c' is read as text, because row {row} (counted from 0) holds {texts[row]!r}, "
        f"though most of its cells are {what}. Fix the value, or pass --missing VALUE to treat it "
        "as missing."
    ]
    for chunks in ((texts,), (texts[:1], texts[1:]), (texts[:2], texts[2:])):
        inference, _ = infer(*chunks)
        assert inference.infer() is TEXT
        assert list(inference.notes(pa.array(texts))) == notes


@pytest.mark.parametrize(
    ("texts", "first", "second", "what"),
    [
        (["03/04/2026", "01/20/2026", "03/05/2026", "28/02/2026"], 1, 3, "dates"),
        (["2024-01-02", "3.4.2024", "2024-01-05"], 0, 1, "dates"),
        (["1.234,5", "1,234.5"], 0, 1, "numbers"),
        (["7", "1.5", "2.5", "1,5"], 1, 3, "numbers"),
    ],
)
def test_mixed_formats_are_named_with_a_row_each(texts, first, second, what):
    assert list_notes(*texts) == [
        f"Column 'c' is read as text, because its {what} are written in several ways: row {first} "
        f"(counted from 0) holds {texts[first]!r}, and row {second} holds {texts[second]!r}. Write "
        "all of them in one format."
    ]


def test_dates_that_do_not_exist_add_a_note():
    assert list_notes("2024-01-02", "2024-02-30") == [
        "Column 'c' is read as text, though most of its cells look like dates. Write all dates in "
        "one format, and pass --missing VALUE for texts that mean a missing value."
    ]


def test_possible_thousands_separators_add_a_note():
    inference, values = infer(["950"], ["1.800", "2.000"])
    assert values == [950, 1.8, 2.0]
    (note,) = inference.notes(pa.array(["950"]))
    assert "points may be thousands separators, as in '1.800'" in note

    for surely in (["950", "1.8"], ["0.125", "1.800"], ["950", "951"]):
        inference, _ = infer(["1.800"] if "." in "".join(surely) else ["1"], surely)
        assert list(inference.notes(pa.array(surely))) == []


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
    assert f"expects {expected}s such as" in str(refusal.value)


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


@pytest.mark.parametrize(
    "text", ["#NV", "#N/V", "#NULL!", "#WERT!", "#BEZUG!", "#VALEUR!", "#NOM?"]
)
def test_errors_of_excel_are_missing_values(text):
    assert infer(["1,5", text])[1] == [1.5, None]
    assert infer([text, "31.12.2024"])[1] == [None, datetime.datetime(2024, 12, 31)]
    assert infer([text, "red"])[1] == [text, "red"]


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
        "Column 'c' is read as amounts in € with points between thousands and a decimal comma."
    ]


@pytest.mark.parametrize("chunks", [(["$5", "5 €", "1 £"],), (["$5"], ["5 €"], ["7"])])
def test_several_currencies_are_not_mixed(chunks):
    problem = "its amounts are in several currencies, such as '$' and '€'; convert them to one"

    inference, values = infer(*chunks)

    assert values == [text for chunk in chunks for text in chunk]
    assert list(inference.notes(pa.array(values))) == [
        f"Column 'c' is read as text, because {problem}."
    ]


@pytest.mark.parametrize(
    ("texts", "name"),
    [(["5 €", "EUR 7"], "€"), (["GBP 5", "£7"], "GBP"), (["US$5", "USD 7"], "US$")],
)
def test_symbols_and_codes_are_one_currency(texts, name):
    inference, values = infer(texts[:1], texts[1:], ["1"])

    assert values == [5, 7, 1]
    assert inference.infer().description == f"amounts in {name}"
    assert list_notes(texts[1], expected="number", written=f"amounts in {name}") == []
    with pytest.raises(TableError, match=r"'¥5' in row 0"):
        infer(["¥5"], expected="number", written=f"amounts in {name}")


def test_amount_with_two_currencies_is_text():
    assert infer(["$5 €", "$5", "5 €"])[1] == ["$5 €", "$5", "5 €"]


def test_currency_of_the_model_is_expected():
    written = "amounts in $"

    assert list_notes("$5", expected="number", written=written) == []
    assert list_notes("5", expected="number", written=written) == []
    assert infer(["1.234"], expected="number", written=written)[1] == [1.234]


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


def test_missing_percent_signs_add_a_sentence():
    assert list_notes("97%", "0", "5 %") == ["Column 'c' is read as percentages."]
    assert list_notes("97%", "0.5") == [
        "Column 'c' is read as percentages. Some of them have no percent sign; the sign changes no "
        "value, and 97% is 97."
    ]


def test_possible_thousands_points_of_percentages_add_a_note():
    (first, second) = list_notes("1.234%", "12%")
    assert first == "Column 'c' is read as percentages."
    assert "points may be thousands separators, as in '1.234%'" in second


def share(*columns, **written):
    """Return the inferences of columns "0", "1", ... after they have shared a decimal mark.

    `written` is the format that a model expects of a column.
    """
    inferences = []
    for name, texts in enumerate(columns):
        types = ExpectedType("number", written["last"]) if written and name else None
        inferences.append(TypeInference(str(name), types, MISSING))
        inferences[-1].add(pa.array(texts), 0)
    share_decimal_mark(inferences)
    return inferences


POINTS_AND_COMMA = "with points between thousands and a decimal comma"


@pytest.mark.parametrize(
    ("clear", "ambiguous", "value", "description"),
    [
        (["1013,25"], "23,507", 23.507, "numbers with a decimal comma"),
        (["2.233,60 €"], "2.229", 2229, f"numbers {POINTS_AND_COMMA}"),
        (["1.234.567"], "2.229 €", 2229, f"amounts in € {POINTS_AND_COMMA}"),
        (["5,5 %"], "2.229%", 2229, f"percentages {POINTS_AND_COMMA}"),
        (["1013.25"], "23,507", 23507, "numbers with commas between thousands"),
        (["1013.25"], "2.229", 2.229, "numbers"),
        (["$1,013.25"], "2.229 €", 2.229, "amounts in €"),
    ],
)
def test_clear_columns_decide_the_decimal_mark(clear, ambiguous, value, description):
    inference = share([ambiguous, "7"], ["5"], clear, ["x"])[0]

    assert inference.infer().description == description
    texts = pa.array([ambiguous])
    assert parse_texts(inference.infer(), texts, MISSING).to_pylist() == [value]
    mark = "comma" if "comma" in description.replace("commas", "") else "point"
    assert list(inference.notes(texts))[-1] == (
        "Column '0' could be read with a decimal point or a decimal comma. It is read with a "
        f"decimal {mark}, as column '2' is."
    )


def test_clear_columns_change_only_ambiguous_ones():
    inferences = share(["1013,25"], ["5", "7"], ["0", "1"], ["1", "x"], ["01/02/2024", "3/4/2024"])

    descriptions = [each.infer().description for each in inferences]
    assert descriptions == ["numbers with a decimal comma", "numbers", "numbers", "text", "text"]
    assert len(list(inferences[1].notes(pa.array(["5"])))) == 0


def test_columns_with_different_decimal_marks_decide_nothing():
    assert share(["23,507"], ["1013,25"], ["1013.25"])[0].infer() is TEXT
    assert share(["23,507"], ["1,5", "2"], ["$5.5", "€5.5"])[0].infer().kind == "number"
    assert share(["23,507"], ["5"], ["x"])[0].infer() is TEXT


def test_columns_of_models_decide_nothing():
    assert share(["23,507"], ["1013,25"], last="numbers with a decimal comma")[0].infer() is TEXT
