"""Text formats: missing texts, currencies, and formats as plain values."""

import json

import pyarrow as pa
import pytest

from altbi.io._text_formats import (
    BOOLEAN,
    MISSING_TEXTS,
    NUMBER,
    PLACEHOLDERS,
    TEXT,
    TEXT_FORMATS,
    MissingTexts,
    decode_format,
    encode_format,
    parse_texts,
    split_currency,
    with_currency,
)

MONEY = next(each for each in TEXT_FORMATS if each.is_money)
MISSING = MissingTexts(MISSING_TEXTS)


def parse(format_, texts, missing=MISSING):
    return parse_texts(format_, pa.array(texts, pa.string()), missing).to_pylist()


def test_every_format_keeps_missing_values():
    nothing = pa.nulls(3, pa.string())

    assert [each.parse(nothing).null_count for each in TEXT_FORMATS] == [3] * len(TEXT_FORMATS)


def test_placeholders_depend_on_the_kind():
    texts = ["1", " n.a. ", "NA", None]

    assert parse(NUMBER, texts) == [1, None, None, None]
    assert parse(TEXT, texts) == ["1", " n.a. ", None, None]
    with pytest.raises(pa.ArrowInvalid):
        parse(BOOLEAN, texts)
    assert parse(BOOLEAN, ["1", " NA "]) == [True, None]


def test_declared_missing_texts_are_never_values():
    assert parse(NUMBER, ["5", "7"], MissingTexts(("5",))) == [None, 7]
    assert parse(BOOLEAN, ["1", "0"], MissingTexts(("0",))) == [True, None]


@pytest.mark.parametrize(
    "format_",
    [each for each in TEXT_FORMATS if each is not TEXT],
    ids=lambda each: each.description,
)
def test_no_format_parses_a_placeholder(format_):
    for word in PLACEHOLDERS:
        with pytest.raises(pa.ArrowInvalid):
            format_.parse(pa.array([word]))


def test_formats_survive_conversion_to_plain_values():
    for format_ in TEXT_FORMATS:
        assert decode_format(*json.loads(json.dumps(encode_format(format_)))) is format_
    dollars = with_currency(MONEY, "$")

    restored = decode_format(*json.loads(json.dumps(encode_format(dollars))))

    assert (restored.description, restored.currency) == ("amounts in $", "$")
    assert parse(restored, ["$5", "6"]) == [5, 6]


def test_texts_with_nan_are_cast_at_once():
    cast = MISSING.cast(pa.array(["1", "nan"]), pa.float64())

    assert cast is not None
    assert cast.is_null(nan_is_null=True).to_pylist() == [False, True]
    assert MissingTexts(("5",)).cast(pa.array(["1"]), pa.float64()) is None


def test_amounts_in_one_currency_refuse_others():
    with pytest.raises(pa.ArrowInvalid):
        parse(with_currency(MONEY, "$"), ["5 €"])
    assert split_currency(with_currency(MONEY, "$").description) == (MONEY.description, "$")
    assert with_currency(NUMBER, "$") is NUMBER


def test_descriptions_of_numbers_are_unique():
    descriptions = [each.description for each in TEXT_FORMATS if each.kind == "number"]

    assert len(descriptions) == len(set(descriptions)) == 31
