"""Numbers in text: separators, signs, percentages and amounts of money."""

import sys
import unicodedata

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from altbi.io._number_formats import (
    CLEAR_STYLES,
    COMMAS,
    DECIMAL_COMMA,
    PLAIN,
    POINTS,
    STYLES,
    build_money_parser,
    build_percent_parser,
    is_currency,
    list_currencies,
    remove_currency,
)

CLEAR_POINT, CLEAR_COMMA = CLEAR_STYLES
SPACES, SPACES_COMMA, APOSTROPHES, APOSTROPHES_COMMA = STYLES[4:]


def parse(parser, *texts):
    return parser(pa.array(texts, pa.string())).to_pylist()


@pytest.mark.parametrize(
    ("style", "text", "value"),
    [
        (PLAIN, "007", 7),
        (PLAIN, "+5", 5),
        (PLAIN, "5-", -5),
        (PLAIN, "5 -", -5),
        (PLAIN, "- 5", -5),
        (PLAIN, "\u22125.5", -5.5),
        (PLAIN, "(5)", -5),
        (PLAIN, "( .5)", -0.5),
        (PLAIN, "1e3-", -1000),
        (PLAIN, "-.95", -0.95),
        *((PLAIN, f"36.{dash}", 36) for dash in ("-", "--", "\u2013", "\u2014", "\u2212")),
        *((DECIMAL_COMMA, f"36,{dash}", 36) for dash in ("-", "--", "\u2013", "\u2014")),
        (DECIMAL_COMMA, "-36,-", -36),
        (DECIMAL_COMMA, "(36,-)", -36),
        (DECIMAL_COMMA, "-,125", -0.125),
        (POINTS, "1.200,-", 1200),
        (COMMAS, "1,200.-", 1200),
        (DECIMAL_COMMA, "1,5", 1.5),
        (DECIMAL_COMMA, "0,125", 0.125),
        (DECIMAL_COMMA, "1234", 1234),
        (DECIMAL_COMMA, "(1,5)", -1.5),
        (COMMAS, "1,234,567.5", 1234567.5),
        (COMMAS, "12345678.5", 12345678.5),
        (COMMAS, "12,34,567", 1234567),
        (COMMAS, "1,234.", 1234),
        (COMMAS, "(1,234)", -1234),
        (POINTS, "1.234.567,5", 1234567.5),
        (POINTS, "1,5", 1.5),
        (SPACES, "1 234 567.5", 1234567.5),
        (SPACES, "1\u202f234\u00a0567", 1234567),
        (SPACES_COMMA, "1\u2009234,5", 1234.5),
        (APOSTROPHES, "1'234.5", 1234.5),
        (APOSTROPHES, "1\u2019234", 1234),
        (APOSTROPHES_COMMA, "-1'234,5", -1234.5),
        (CLEAR_POINT, "1.318", 1.318),
        (CLEAR_POINT, "-1,318.67", -1318.67),
        (CLEAR_POINT, "1,318,670", 1318670),
        (CLEAR_POINT, "12,34,567", 1234567),
        (CLEAR_POINT, "1 318.67", 1318.67),
        (CLEAR_POINT, "1'318", 1318),
        (CLEAR_POINT, "1,318.-", 1318),
        (CLEAR_COMMA, "1,318", 1.318),
        (CLEAR_COMMA, "1.318,67", 1318.67),
        (CLEAR_COMMA, "1.318.670", 1318670),
        (CLEAR_COMMA, "(1\u202f318,67)", -1318.67),
        (CLEAR_COMMA, "1'318,67", 1318.67),
        (CLEAR_COMMA, "1.318,-", 1318),
    ],
)
def test_numbers_are_parsed_by_style(style, text, value):
    assert parse(style.parse, text, None, "7") == [value, None, 7]
    assert style.may_parse(text)


@pytest.mark.parametrize(
    ("style", "text"),
    [
        *((PLAIN, text) for text in ("1,5", "1 234", "0x1f", "- x")),
        *((PLAIN, text) for text in ("--5", "-5-", "(-5)", "(5-)", "5--", "(5", "()")),
        *((PLAIN, text) for text in ("1.234.-", "36,-", "36. -", "36.---", "36\u2013", ".-")),
        *((DECIMAL_COMMA, text) for text in ("-,95", "36.-", "36, -", "--,95", "\u2013,95")),
        *((DECIMAL_COMMA, text) for text in ("1.5", "1,2,3", "1.234,5")),
        *((COMMAS, text) for text in ("0,125", "12,34", "1,2345", "1234,567", "1.234,5")),
        *((COMMAS, text) for text in ("1,23,45", "1,234,56.5", ",123")),
        *((POINTS, text) for text in ("1.5", "0.125", "1.2345", "1,234.5")),
        *((SPACES, text) for text in ("1 23", "12 3456", "1  234", "1 234,5", "0 123", "5 6")),
        *(
            (CLEAR_POINT, text)
            for text in ("1,318", "1.318,67", "1.318.670", "1 318'670", "0,318.5")
        ),
        *((CLEAR_POINT, text) for text in ("1,31.5", "1,318 670", "1 318,67", "1,5")),
        *((CLEAR_COMMA, text) for text in ("1.318", "1,318.67", "1,318,670", "1 318.670", "1.5")),
        *((APOSTROPHES, text) for text in ("1'23", "'123", "1 234")),
    ],
)
def test_other_texts_are_refused(style, text):
    with pytest.raises(pa.ArrowInvalid):
        parse(style.parse, "7", text)


@pytest.mark.parametrize("base", [each for each in (*STYLES, *CLEAR_STYLES) if each.base])
def test_styles_parse_what_their_base_parses(base):
    texts = pa.array(["1", "-2", "1e5", "inf", "(3)"])

    assert base.parse(texts).equals(base.base.parse(texts))


@pytest.mark.parametrize(
    ("style", "text", "value"),
    [
        (PLAIN, "97%", 97),
        (PLAIN, "2.5 %", 2.5),
        (PLAIN, "-3\u00a0%", -3),
        (PLAIN, "(3%)", -3),
        (PLAIN, "0", 0),
        (DECIMAL_COMMA, "97,5 %", 97.5),
        (COMMAS, "1,234.5%", 1234.5),
    ],
)
def test_percentages_are_not_divided(style, text, value):
    assert parse(build_percent_parser(style), text, None) == [value, None]


@pytest.mark.parametrize("text", ["% 3", "97%%", "9%7", "%", "% 3 %"])
def test_percent_signs_elsewhere_are_refused(text):
    with pytest.raises(pa.ArrowInvalid):
        parse(build_percent_parser(PLAIN), text)


@pytest.mark.parametrize(
    ("style", "text", "currency", "value"),
    [
        (PLAIN, "$ 58.90", "$", 58.9),
        (COMMAS, "$1,234.50", "$", 1234.5),
        (POINTS, "1.234,50 €", "€", 1234.5),
        (PLAIN, "EUR 12", "EUR", 12),
        (PLAIN, "12USD", "USD", 12),
        (PLAIN, "-£5", "£", -5),
        (PLAIN, "£-5", "£", -5),
        (PLAIN, "5€-", "€", -5),
        (PLAIN, "($5)", "$", -5),
        (PLAIN, "$(5)", "$", -5),
        (PLAIN, "(5 €)", "€", -5),
        (COMMAS, "(1,200.00)", None, -1200),
        (PLAIN, "12 kr", "kr", 12),
        (PLAIN, "12 kr.", "kr", 12),
        (PLAIN, "Rs.500", "Rs", 500),
        (DECIMAL_COMMA, "R$\u00a05,50", "R$", 5.5),
        (PLAIN, "US$5", "US$", 5),
        (PLAIN, "₿5", "₿", 5),
        (PLAIN, "$.5", "$", 0.5),
        (SPACES_COMMA, "1 234,50 zł", "zł", 1234.5),
        (PLAIN, "1e5", None, 100000),
        (DECIMAL_COMMA, "36,- €", "€", 36),
        (DECIMAL_COMMA, "12,\u2013 €", "€", 12),
        (DECIMAL_COMMA, "€36,--", "€", 36),
        (PLAIN, "CHF 36.-", "CHF", 36),
        (PLAIN, "36.\u2014Fr.", "Fr", 36),
        (PLAIN, "-$.95", "$", -0.95),
    ],
)
def test_amounts_of_money_are_parsed(style, text, currency, value):
    texts = pa.array([text, None, "7"])

    assert parse(build_money_parser(style), *texts.to_pylist()) == [value, None, 7]
    assert list_currencies(texts) == ([currency] if currency else [])
    if currency:
        assert parse(build_money_parser(style, currency), text) == [value]
        with pytest.raises(pa.ArrowInvalid):
            parse(build_money_parser(style, "¥"), text)


@pytest.mark.parametrize(
    "text", ["5€30", "$5$", "$5 €", "5 eur", "5 CUPS", "$", "5 $ €", "kr 5 kr"]
)
def test_other_amounts_are_refused(text):
    for other in ("1", "$1", "1 €"):
        with pytest.raises(pa.ArrowInvalid):
            parse(build_money_parser(PLAIN), other, text, "$3")


@pytest.mark.parametrize("style", [PLAIN, DECIMAL_COMMA])
@pytest.mark.parametrize("text", ["-,95 €", "€ -,95", "-.95 CHF", "CHF -.95", "-,95"])
def test_prices_below_one_are_never_negative(style, text):
    if style is DECIMAL_COMMA or text != "-,95":
        with pytest.raises(pa.ArrowInvalid):
            parse(build_money_parser(style), text, "5")


def test_all_currency_symbols_are_known():
    symbols = [
        chr(code) for code in range(sys.maxunicode) if unicodedata.category(chr(code)) == "Sc"
    ]

    assert all(map(is_currency, symbols))
    assert not any(map(is_currency, ("", "%", "e", "ABC", "$$", "usd")))


def test_points_after_abbreviations_are_removed():
    assert [remove_currency(text) for text in ("12 kr.", "Rs.5", "Fr 1.5")] == ["12 ", "5", " 1.5"]


NUMBERLIKE = st.text(st.sampled_from("0123456789.,' ()-+%$€eEinfa\u202f\u2013"), max_size=10)


@given(NUMBERLIKE, st.sampled_from((*STYLES, *CLEAR_STYLES)))
def test_quick_check_never_refuses_a_number(text, style):
    try:
        style.parse(pa.array([text]))
    except pa.ArrowInvalid:
        return
    assert style.may_parse(text)


@given(NUMBERLIKE, st.sampled_from((*STYLES, *CLEAR_STYLES)))
def test_quick_check_never_refuses_an_amount(text, style):
    try:
        build_money_parser(style)(pa.array([text]))
    except pa.ArrowInvalid:
        return
    assert style.may_parse(remove_currency(text))
