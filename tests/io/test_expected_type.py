"""Text columns that a fitted model reads: no cell changes the value of another."""

import datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from altbi.errors import TableError
from altbi.io._expected_type import ExpectedType
from altbi.io._text_batches import try_parse
from altbi.io._text_formats import MISSING_TEXTS, MissingTexts, parse_texts
from altbi.io._type_inference import TypeInference
from altbi.table import as_table

MISSING = MissingTexts(MISSING_TEXTS)


def infer(*chunks, expected, written=""):
    """Return the inference of a column in chunks, and the parsed values of all chunks."""
    inference, row = TypeInference("c", ExpectedType(expected, written), MISSING), 0
    for chunk in chunks:
        inference.add(pa.array(chunk, pa.string()), row)
        row += len(chunk)
    texts = pa.array([text for chunk in chunks for text in chunk], pa.string())
    return inference, parse_texts(inference.infer(), texts, MISSING)


DAY_FIRST = "dates as day/month/year"
POINTED = "numbers with points between thousands and a decimal comma"


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

    assert read.to_pylist() == values
    assert list(inference.notes(pa.array(texts))) == []


@pytest.mark.parametrize(
    ("kind", "written", "texts", "row"),
    [
        ("number", "numbers", ["1.800", "950,5"], 1),
        ("number", "numbers", ["1.234,5"], 0),
        ("number", "numbers with a decimal comma", ["1.234,5", "1,234.5"], 1),
        ("number", "numbers", ["5%"], 0),
        ("number", "numbers with a decimal comma", ["1,5", "1.5"], 1),
        ("number", POINTED, ["1.500", "0.5"], 1),
        ("number", "percentages", ["5%", "5,5%"], 1),
        ("number", "amounts in $", ["$5", "7", "5 €"], 2),
        ("number", "amounts in $", ["€5"], 0),
        ("date", DAY_FIRST, ["05/04/2024", "12/25/2024"], 1),
        ("date", DAY_FIRST, ["2024-04-05"], 0),
        ("date", "dates", ["2024-04-05", "15:36"], 1),
        ("date", "times of day", ["15:36", "2024-04-05"], 1),
        ("boolean", "booleans", ["true", "1,5"], 1),
    ],
)
def test_another_format_than_at_the_fit_raises(kind, written, texts, row):
    with pytest.raises(TableError) as refusal:
        infer(texts, expected=kind, written=written)

    plain = {
        "numbers": "numbers such as 1234.5",
        "dates": "dates such as 2024-12-31",
        "booleans": "booleans such as true or 0",
    }
    assert str(refusal.value) == (
        f"column 'c' holds {texts[row]!r} in row {row} (counted from 0), but the model expects "
        f"{plain.get(written, written)}, as where it was fitted. Fix the value, pass --missing "
        "VALUE to treat it as missing, or fit a model on this table."
    )


COMMA = "numbers with a decimal comma"


def test_descriptions_of_older_models_are_completed():
    older = "numbers with points between thousands"

    inference, values = infer(["1.800"], expected="number", written=older)

    assert values.to_pylist() == [1800]
    assert list(inference.notes(pa.array(["1.800"]))) == []
    with pytest.raises(TableError, match=f"expects {POINTED}, as"):
        infer(["1.8"], expected="number", written=older)


@pytest.mark.parametrize(
    ("written", "texts", "values"),
    [
        (
            COMMA,
            ["950,10", "1.316,45", "1 316,45", "1'316", "1.316.450"],
            [950.1, 1316.45, 1316.45, 1316, 1316450],
        ),
        ("numbers", ["2", "1,318.67", "1 318.67", "1'318.67"], [2, 1318.67, 1318.67, 1318.67]),
        ("amounts in $", ["$1,318.67", "$2.318"], [1318.67, 2.318]),
        ("amounts in € with a decimal comma", ["1.318,67 €", "2 318,-"], [1318.67, 2318]),
        ("percentages", ["1,318.5 %"], [1318.5]),
        (POINTED, ["2.318,5", "1 318,67"], [2318.5, 1318.67]),
        ("numbers with commas between thousands", ["1 318.67"], [1318.67]),
    ],
)
def test_clear_separators_of_thousands_are_read(written, texts, values):
    assert infer(texts, expected="number", written=written)[1].to_pylist() == values


@pytest.mark.parametrize(
    ("written", "text", "name"),
    [
        ("numbers", "1,318", "comma"),
        ("", "1,318", "comma"),
        ("amounts in $", "$1,318", "comma"),
        (COMMA, "1.318", "point"),
        ("percentages with a decimal comma", "1.318 %", "point"),
    ],
)
def test_refusals_of_ambiguous_numbers_are_explained(written, text, name):
    why = f"The {name} may be a decimal mark or a separator of thousands. Fix the value"
    with pytest.raises(TableError, match=why):
        infer(["5", text], expected="number", written=written)
    with pytest.raises(TableError, match=r"fitted\. Fix|format\. Fix"):
        infer(["5", "x"], expected="number", written=written)


@pytest.mark.parametrize("text", ["0,123", "012,345", "1,23", "1234,567"])
def test_refusals_of_clear_numbers_are_not_explained(text):
    assert ExpectedType("number", "numbers").explain_refusal(text) == ""


@pytest.mark.parametrize(
    ("kind", "text", "what"),
    [
        *(("number", text, "numbers such as 1234.5") for text in ("1,800", "1.234,5", "5%", "$5")),
        ("date", "05/04/2024", "dates such as 2024-12-31"),
        ("date", "24-01-13", "dates such as 2024-12-31"),
        ("boolean", "yes", "booleans such as true or 0"),
    ],
)
def test_ambiguous_texts_raise_without_the_fitted_format(kind, text, what):
    for written in ("", "words of another version"):
        with pytest.raises(TableError, match=r"'c' holds .* in row 0 .*, but the model expects"):
            infer([text], expected=kind, written=written)
    with pytest.raises(TableError, match=f"but the model expects {what}, all in one format\\."):
        infer([text], expected=kind)


@pytest.mark.parametrize(
    ("kind", "text", "value", "n_notes"),
    [
        ("number", "1.800", 1.8, 0),
        ("number", "(5)", -5, 1),
        ("date", "2024-2-9", datetime.datetime(2024, 2, 9), 1),
        ("date", "9.2.2024", datetime.datetime(2024, 2, 9), 1),
        ("date", "9.2.2024 3 PM", datetime.datetime(2024, 2, 9, 15), 1),
        ("date", "Feb 9, 2024", datetime.datetime(2024, 2, 9), 1),
        ("date", "3 PM", datetime.time(15), 1),
    ],
)
def test_clear_texts_need_no_fitted_format(kind, text, value, n_notes):
    inference, values = infer([text], expected=kind)

    assert values.to_pylist() == [value]
    assert len(list(inference.notes(pa.array([text])))) == n_notes


@pytest.mark.parametrize(
    ("kind", "written", "texts", "values"),
    [
        ("date", "dates", ["2024-2-9", "2024-12-31"], [(2024, 2, 9), (2024, 12, 31)]),
        ("number", POINTED, ["true", "1", "0"], [1, 1, 0]),
        ("number", "percentages", ["97%", "3"], [97, 3]),
        ("number", "amounts in $", ["$5", "7.5"], [5, 7.5]),
        ("boolean", "booleans", ["1", "2.5"], [1, 2.5]),
    ],
)
def test_formats_that_never_disagree_are_read(kind, written, texts, values):
    _, read = infer(texts, expected=kind, written=written)

    moments = [datetime.datetime(*value) if kind == "date" else value for value in values]
    assert read.to_pylist() == moments


@pytest.mark.parametrize(
    ("kind", "written"), [("number", POINTED), ("boolean", "booleans"), ("number", "numbers")]
)
def test_fitted_format_is_preferred(kind, written):
    assert infer(["1", "0"], expected=kind, written=written)[0].infer().description == written


def test_numbers_in_parentheses_are_plain_numbers():
    inference, values = infer(["(5)", "7-", "1.5"], expected="number", written="numbers")

    assert values.to_pylist() == [-5, -7, 1.5]
    assert list(inference.notes(pa.array(["(5)"]))) == [
        "Column 'c' is read as numbers with signs such as 5- or (5). Numbers in parentheses are "
        "negative."
    ]


# Cells that other cells of a column might give another meaning.
POOLS = {
    "number": [
        *("1.500", "0.5", "1.234", "1,5", "1,234", "1.234,5", "1,234.5", "950", "1", "0", "-2"),
        *("1 234", "1'234", "5-", "(5)", "5%", "1.234%", "1,5 %", "$5", "€5", "$1.234", "$1,234"),
        *("1.316,45", "1.316.450", "1,316,450", "1 316,45", "1'316.45", "$1,316.45", "5,-", "5.-"),
        *("1.316,45 €", "EUR 5", "USD 5", "-,95", "-.95", "1.316,- €"),
        *("1e3", "true", "false", "-", "n.a.", "NA", "nan", "", "soon"),
    ],
    "date": [
        *("2024-02-03", "2024-02-03 10:30", "2026-08-18T00:54:44.757553", "2024-2-3"),
        *("2024-02-03 8", "2024-02-03T10:30:59.1234567", "2024-02-03T10:30Z", "1600-01-01"),
        "2024/02/03",
        *("01/02/2024", "25/12/2024", "12/25/2024", "01/02/2024 3 PM", "01-02-2024", "01.02.2024"),
        *("01/02/03", "25/12/24", "01-02-03", "01.02.03", "1-Feb-03", "Feb 1, 2003", "15:36"),
        *("3 PM", "-", "NA", "soon"),
    ],
}  # fmt: skip
POOLS["boolean"] = POOLS["number"]
WRITTEN = {
    "number": [
        *("", "numbers", "numbers with signs such as 5- or (5)", "numbers with a decimal comma"),
        *("numbers with commas between thousands", POINTED),
        "numbers with spaces between thousands",
        *("numbers with spaces between thousands and a decimal comma", "amounts in EUR"),
        *("percentages", "percentages with a decimal comma", "amounts in $", "amounts in €"),
        "amounts in $ with commas between thousands",
        "amounts in $ with points between thousands",
    ],
    "boolean": ["", "booleans"],
    "date": [
        *("", "dates", DAY_FIRST, "dates as month/day/year", "dates as day-month-year"),
        *("dates as day.month.year", "dates as day/month/year with two-digit years"),
        *("dates as year-month-day", "dates as year-month-day with two-digit years"),
        *("dates as day, month name, year", "times of day"),
    ],
}  # fmt: skip


@st.composite
def fitted_columns(draw):
    """Return the kind and the format at the fit, and the texts of a column."""
    kind = draw(st.sampled_from(sorted(WRITTEN)))
    written = draw(st.sampled_from(WRITTEN[kind]))
    accepted = [text for text in POOLS[kind] if read_fitted(kind, written, [text]) is not None]
    texts = st.lists(st.sampled_from(accepted), min_size=1, max_size=6)
    return kind, written, draw(texts), draw(st.integers(0, 6))


def read_fitted(kind, written, *chunks):
    """Return the values of a column as a model reads them, as bytes; None if it is refused."""
    try:
        _, values = infer(*filter(None, chunks), expected=kind, written=written)
    except TableError:
        return None
    return [value.tobytes() for value in as_table(pa.table({"c": values})).numbers([0])]


@settings(max_examples=400)
@given(fitted_columns())
def test_values_depend_on_the_cell_alone(fitted):
    kind, written, texts, cut = fitted

    together = read_fitted(kind, written, texts[:cut], texts[cut:])

    assert together == read_fitted(kind, written, texts)
    if together is not None:
        assert together == [read_fitted(kind, written, [text])[0] for text in texts]


@pytest.mark.parametrize("kind", sorted(WRITTEN))
def test_no_candidates_parse_a_text_differently(kind):
    for written in WRITTEN[kind]:
        for text in POOLS[kind]:
            formats = TypeInference("c", ExpectedType(kind, written)).formats
            parsed = (try_parse(each, pa.array([text])) for each in formats)
            values = [as_table(pa.table({"c": each})).numbers([0]) for each in parsed if each]
            assert len({each.tobytes() for each in values}) <= 1
