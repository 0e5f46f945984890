"""Inference batch by batch: the same result as trying each format on all texts at once."""

import pickle
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from altbi.errors import TableError
from altbi.io._text_batches import (
    InferenceState,
    TextBatch,
    find_total,
    find_unparsable,
    first_infinite,
    try_parse,
)
from altbi.io._text_formats import (
    MISSING_TEXTS,
    NUMBER,
    PLACEHOLDERS,
    TEXT,
    TEXT_FORMATS,
    MissingTexts,
    parse_texts,
)
from altbi.io._type_inference import TypeInference

# Each group has texts that often occur together, so that formats survive some batches.
GROUPS = (
    ["1", "0", "12", "950", "7"],
    ["1.5", "-2.25", "1e5", ".5", "5.", "007", "+3"],
    ["1.234", "2.000", "12.500"],
    ["1,5", "2,25", "-0,5"],
    ["1,234", "12,345", "1,234.5", "12,34,567"],
    ["1.234,5", "1.234.567", "258,15"],
    ["1 234", "1\u202f234,5", "12 345.5", "1'234", "1\u2019234,5"],
    ["5-", "(5)", "- 5", "\u22125", "(1,200.00)", "(.5)"],
    ["5%", "2.5 %", "2,5%", "(5%)", "1.234%"],
    ["$5", "$ 1,234.50", "-$5", "5 USD", "$(5)"],
    ["5 €", "1.234,50 €", "€-5", "12 kr.", "kr 5", "1,234 €"],
    ["true", "FALSE", "1", "0"],
    ["2024-02-29", "2024-12-31 10:30", "2024-12-31T10:30:59.123456", "2024-12-31 10"],
    ["2024-12-31 10:30:59.1234567", "1600-01-01", "2024-1-5", "2024-1-5 3:04 PM"],
    ["2024-12-31T10:30Z", "2024-12-31T10:30:59.1234567+02:00"],
    ["01/02/2024", "12/31/2024", "31/12/2024 8:30", "1/2/2024 8:30 pm"],
    ["01-02-24", "31-12-24", "24-12-31", "1-Feb-24", "Feb 1, 2024"],
    ["31.12.2024", "1.2.2024", "31.12.24", "30.02.2024", "31. März 2024"],
    ["15:36", "15:36:07", "3:36 p.m.", "3 PM", "25:00"],
    ["red", "A12", "12 kg", "1/2", "x"],
)
RARE = [
    "inf",
    "-inf",
    "1e400",
    "nan",
    "-",
    "n.a.",
    "unknown",
    ".",
    "",
    " ",
    "NA",
    None,
    " 3 ",
    "(",
    "€",
]
CELLS = st.one_of(
    *(st.lists(st.sampled_from(group), min_size=1, max_size=6) for group in GROUPS),
    st.lists(st.sampled_from(RARE), min_size=1, max_size=2),
)
COLUMNS = st.lists(CELLS, min_size=1, max_size=4).map(
    lambda runs: [text for run in runs for text in run]
)
MISSING_LISTS = st.sampled_from(
    [MissingTexts(MISSING_TEXTS), MissingTexts(()), MissingTexts(("5", ""))]
)


FORMATS = TEXT_FORMATS[: TEXT_FORMATS.index(TEXT) + 1]


def parse_all(format_, texts, missing):
    """Return the texts of a column parsed with one format at once, or None."""
    absent = {*missing.texts, *(PLACEHOLDERS if format_.has_placeholders else ())}
    trimmed = [None if text is None else text.strip(" ") for text in texts]
    kept = [None if text in absent else text for text in trimmed]
    return try_parse(format_, pa.array(kept, pa.string()))


def infer_simply(texts, missing):
    """Return the state after all texts at once, in the simplest way."""
    parsed = {each: parse_all(each, texts, missing) for each in FORMATS}
    formats = tuple(i for i, each in enumerate(FORMATS) if parsed[each] is not None)
    return formats, parsed


def check_details(state, texts, parsed, missing):
    """Check the details of a state, given the values of the formats that parse all texts."""
    formats = [each for each in FORMATS if parsed[each] is not None]
    rows = range(len(texts))
    ruled_out = {i: (row, text) for row, text, indices in state.ruled_out for i in indices}
    assert len(ruled_out) + len(formats) == len(FORMATS)
    for index in range(0, len(FORMATS), 7):
        refused = (row for row in rows if parse_all(FORMATS[index], [texts[row]], missing) is None)
        first = next(refused, None)
        assert ruled_out.get(index) == (None if first is None else (first, texts[first]))
    if not any(each.has_placeholders for each in formats):
        return
    trimmed = ["" if text is None else text.strip(" ") for text in texts]
    words = Counter(
        text
        for text, given in zip(trimmed, texts, strict=True)
        if given is not None and text in PLACEHOLDERS and text not in missing.texts
    )
    assert dict(state.placeholders) == words
    if formats[0].kind == "number":
        infinite = pc.index(pc.is_inf(parsed[formats[0]]), True).as_py()
        assert state.infinite == (None if infinite < 0 else infinite)
    if formats[0].is_money:
        symbols = [
            letter for text in trimmed for letter in ("$", "€", "USD", "kr") if letter in text
        ]
        names = list(dict.fromkeys(symbols))
        if {"$", "USD"} <= set(names):  # the same currency
            names.remove("USD" if names.index("USD") > names.index("$") else "$")
        assert state.currencies == tuple(names[:2])


def infer_in_chunks(texts, cuts, missing, expected=None):
    """Return the inference of texts that are added in chunks, which end at `cuts`."""
    inference = TypeInference("c", expected, missing)
    ends = sorted({*cuts, len(texts)})
    for start, end in zip([0, *ends], ends, strict=False):
        if start < end:
            inference.add(pa.array(texts, pa.string())[start:end], start)
    return inference


def describe(inference, texts, missing):
    """Return everything that users see of an inference: format and notes, or the error."""
    kept = [None if (text or "").strip() in missing.texts else text for text in texts]
    try:
        format_ = inference.infer()
        return format_.description, list(inference.notes(pa.array(kept, pa.string())))
    except TableError as error:
        return str(error)


@settings(max_examples=200)
@example(["2024-12-31 10"], set(), MissingTexts(()))
@example(["$5", "5 €"], {1}, MissingTexts(()))
@given(COLUMNS, st.sets(st.integers(0, 24)), MISSING_LISTS)
def test_formats_are_those_that_parse_everything(texts, cuts, missing):
    inference = infer_in_chunks(texts, cuts, missing)

    formats, parsed = infer_simply(texts, missing)
    assert inference.state.formats == formats
    check_details(inference.state, texts, parsed, missing)


@settings(max_examples=150)
@given(COLUMNS, st.sets(st.integers(0, 24)), st.integers(0, 24), MISSING_LISTS)
def test_cuts_and_merges_change_nothing(texts, cuts, middle, missing):
    together = infer_in_chunks(texts, (), missing)

    apiece = infer_in_chunks(texts, cuts, missing)
    merged = TypeInference("c", None, missing)
    for start, end in ((0, middle), (middle, len(texts))):
        if texts[start:end]:
            state = infer_in_chunks(texts[start:end], cuts, missing).state
            merged.merge(pickle.loads(pickle.dumps(state)), start)

    expected = describe(together, texts, missing)
    assert describe(apiece, texts, missing) == expected
    assert describe(merged, texts, missing) == expected


@settings(max_examples=150)
@given(COLUMNS, MISSING_LISTS)
def test_values_do_not_depend_on_other_rows(texts, missing):
    try:
        format_ = infer_in_chunks(texts, (), missing).infer()
    except TableError:
        assume(False)
    column = pa.array(texts, pa.string())

    together = parse_texts(format_, column, missing).to_pylist()

    alone = [
        parse_texts(format_, column[row : row + 1], missing)[0].as_py() for row in range(len(texts))
    ]
    # NaN and None are both missing values of a column of numbers.
    assert [None if value != value else value for value in together] == [
        None if value != value else value for value in alone
    ]


@given(st.lists(st.sampled_from(["1", "2.5", "x", "true"]), min_size=1))
def test_find_unparsable_returns_the_first_text(texts):
    refused = [i for i, text in enumerate(texts) if text in ("x", "true")]

    expected = refused[0] if refused else len(texts) - 1
    assert find_unparsable(NUMBER, pa.array(texts)) == expected


@pytest.mark.parametrize("text", ["Total", " TOTAL: ", "grand total", "Summe", "Total général"])
def test_words_for_totals_are_found(text):
    assert find_total(pa.array(["1", text])) == (1, text)


@pytest.mark.parametrize("texts", [["Total", "1"], ["1", "Total sales"], ["x", None], []])
def test_other_last_texts_are_no_totals(texts):
    assert find_total(pa.array(texts, pa.string())) is None


def test_slices_are_searched_for_letters():
    texts = pa.array(["1.5", "2", None, "3:4"])[1:3]

    assert not TextBatch(texts, MissingTexts(())).contains(".:")
    assert TextBatch(texts, MissingTexts(())).contains(".2")
    assert not TextBatch(pa.nulls(2, pa.string()), MissingTexts(())).contains(".")


def test_rows_of_merged_states_are_shifted():
    first = InferenceState(formats=(0, 1), total=(0, "Sum"))
    second = InferenceState(
        formats=(1, 2), ruled_out=((3, "x", (0, 5)),), infinite=0, total=(4, "Total")
    )

    merged = first.append(second, 10)

    assert merged == InferenceState(
        formats=(1,), ruled_out=((13, "x", (0,)),), infinite=10, total=(14, "Total")
    )
    assert merged.append(second, 15).ruled_out == ((13, "x", (0,)),)
    assert merged.append(InferenceState(formats=(1,), infinite=2), 15).infinite == 10


def test_only_floating_point_columns_are_infinite():
    assert first_infinite(pa.array([1.0, float("inf")]), 5) == 6
    assert first_infinite(pa.array([1.0, None]), 5) is None
    assert first_infinite(pa.array(["inf"]), 5) is None
