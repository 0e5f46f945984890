"""Ways to write numbers as text: separators, signs, percentages and amounts of money."""

import re
import string
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

Parse = Callable[[pa.Array], pa.Array]

# Rows to try first, because Arrow takes 0.5 microseconds for each text that it cannot cast.
HEAD_ROWS = 64

# A number whose point may be a thousands separator. A zero at its end makes it a decimal point.
LIKE_THOUSANDS = r"-?[1-9]\d{0,2}\.\d{3}"
_SPACES = " \u00a0\u2007\u2009\u202f"  # also no-break, figure, thin and narrow no-break spaces
_APOSTROPHES = "'\u2019"
_MINUS = "-\u2212"
_DASHES = _MINUS + "\u2013\u2014"
_AROUND_NUMBER = string.whitespace + _SPACES + _DASHES + "+()"

_ABBREVIATIONS = ("Fr", "Rs", "kr")  # a point may follow
# Codes of ISO 4217, and further names of currencies that are not a single symbol.
_CURRENCY_NAMES = (
    "AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN "
    "BWP BYN BZD CAD CDF CHF CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD "
    "FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HRK HTG HUF IDR ILS INR IQD IRR ISK JMD JOD "
    "JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT "
    "MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG "
    "QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS "
    "TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VES VND VUV WST XAF XCD XOF XPF YER "
    "ZAR "  # codespell:ignore
    "ZMW ZWL A$ AU$ C$ CA$ HK$ MX$ NT$ NZ$ R$ S$ US$ Kč zł"
)
_CURRENCIES = frozenset((*_ABBREVIATIONS, *_CURRENCY_NAMES.split()))
# Names of the same currency.
_CANONICAL_NAMES = {"EUR": "€", "USD": "$", "US$": "$", "GBP": "£"}
_AROUND_CURRENCY = "0123456789.,+()" + _DASHES + _APOSTROPHES + _SPACES

# A number in parentheses, a minus after a digit, or a minus and a space before a number.
_SIGN = "|".join(
    (
        rf"^\([{_SPACES}]*([\d.].*?)[{_SPACES}]*\)$",
        rf"^((?:[\d.].*)?\d)[{_SPACES}]*[{_MINUS}]$",
        rf"^[{_MINUS}][{_SPACES}]*([\d.].*)$",
    )
)
_INDIAN_GROUPS = r"[1-9]\d?(?:,\d{2})+,\d{3}"
# A price below 1 without its 0, such as -,95 and -.95. The minus does not mean a negative number.
_PRICE_BELOW_ONE = rf"[{_MINUS}]\s*[.,]\d{{2}}(\D|$)"


@dataclass(frozen=True, slots=True)
class NumberStyle:
    """The separators of numbers. A number may have none of them.

    A style parses all texts that its `base` parses, to the same numbers. The one exception is the
    style with a decimal comma, which parses no text with a point.
    """

    suffix: str  # of the description
    separators: str  # between thousands; several are alternatives
    decimal: str
    base: "NumberStyle | None" = None
    # Whether a point or comma between thousands must be clear: two of them, or a decimal mark too.
    is_clear: bool = False

    def parse(self, texts: pa.Array) -> pa.Array:
        """Parse texts to float64; a text of another style raises `pyarrow.ArrowInvalid`.

        Numbers in parentheses and before a minus sign are negative. A dash after the decimal mark
        means no cents: 36,- is 36.
        """
        try:
            self._parse_usual_signs(texts[:HEAD_ROWS])
            return self._parse_usual_signs(texts)
        except pa.ArrowInvalid:
            moved = pc.replace_substring_regex(texts, _SIGN, r"-\1\2\3")
            no_cents = rf"(\d\{self.decimal})[{_DASHES}]{{1,2}}$"
            return self._parse_usual_signs(pc.replace_substring_regex(moved, no_cents, r"\1"))

    def _parse_usual_signs(self, texts: pa.Array) -> pa.Array:
        """Parse texts with a sign before the number or none; as `parse` otherwise."""
        bare = self._remove_separators(texts) if self.separators else texts
        if self.decimal == ",":
            if pc.any(pc.match_substring(bare, ".")).as_py():
                raise pa.ArrowInvalid("a point in a number with a decimal comma")
            if pc.any(pc.match_substring(bare, "-,")).as_py() and _has_price_below_one(bare):
                raise pa.ArrowInvalid("a minus that may mean 0")
            bare = pc.replace_substring(bare, ",", ".")
        return bare.cast(pa.float64())

    def _remove_separators(self, texts: pa.Array) -> pa.Array:
        """Remove the separators of correctly divided numbers; other texts are not changed.

        Groups have three digits, and the first one does not begin with 0. Commas may also divide
        numbers as in India, 12,34,567.
        """
        divided = pc.match_substring_regex(texts, rf"^[-+]?(?:{self._build_pattern()})$")
        bare = texts
        for separator in self.separators:
            bare = pc.replace_substring(bare, separator, "")
        return pc.if_else(divided, bare, texts)

    def _build_pattern(self) -> str:
        """Return the pattern of correctly divided numbers without a sign."""
        first, fraction = r"[1-9]\d{0,2}", rf"\{self.decimal}\d*"
        if not self.is_clear:
            groups = rf"{first}(?:[{self.separators}]\d{{3}})+"
            if self.separators == ",":
                groups += f"|{_INDIAN_GROUPS}"
            return rf"(?:{groups})(?:{fraction})?"
        other = "," if self.decimal == "." else "\\."
        patterns = [
            *(rf"{first}(?:[{each}]\d{{3}})+(?:{fraction})?" for each in (_SPACES, _APOSTROPHES)),
            rf"{first}(?:{other}\d{{3}})+{fraction}",
            rf"{first}(?:{other}\d{{3}}){{2,}}",
        ]
        if other == ",":
            patterns.append(rf"(?:{_INDIAN_GROUPS})(?:{fraction})?")
        return "|".join(patterns)

    def may_parse(self, text: str) -> bool:
        """Return False only if `parse` would raise for this text; faster than `parse`.

        The time grows with the length of the text, not with its square: no letter is tried twice.
        """
        number = text.strip(_AROUND_NUMBER)
        found = re.fullmatch(
            rf"([\d{self.separators}\{self.decimal}]+)(?:e[-+]?\d+)?|inf(?:inity)?|nan.*",
            number,
            re.IGNORECASE,
        )
        return found is not None and (found[1] is None or re.search(r"\d", found[1]) is not None)


def _has_price_below_one(texts: pa.Array) -> bool:
    """Return whether a text has a minus that may stand for the 0 of a price, as in -,95."""
    return pc.any(pc.match_substring_regex(texts, _PRICE_BELOW_ONE)).as_py() is True


PLAIN = NumberStyle("", "", ".")
DECIMAL_COMMA = NumberStyle(" with a decimal comma", "", ",", PLAIN)
COMMAS = NumberStyle(" with commas between thousands", ",", ".", PLAIN)
POINTS = NumberStyle(" with points between thousands and a decimal comma", ".", ",", DECIMAL_COMMA)
STYLES = (
    PLAIN,
    DECIMAL_COMMA,
    COMMAS,
    POINTS,
    *(
        NumberStyle(f" with {name} between thousands{ending}", separators, base.decimal, base)
        for name, separators in (("spaces", _SPACES), ("apostrophes", _APOSTROPHES))
        for base, ending in ((PLAIN, ""), (DECIMAL_COMMA, " and a decimal comma"))
    ),
)
# Only for columns whose decimal mark a model states.
CLEAR_STYLES = tuple(
    NumberStyle(
        f" with a decimal {name} and separators of thousands",
        other + _SPACES + _APOSTROPHES,
        base.decimal,
        base,
        is_clear=True,
    )
    for name, other, base in (("point", ",", PLAIN), ("comma", ".", DECIMAL_COMMA))
)


def build_percent_parser(style: NumberStyle) -> Parse:
    """Return a parser of 97% to 97, not 0.97; the percent sign is optional."""
    return lambda texts: style.parse(_remove_symbol(texts, "%", is_prefix=False))


def build_money_parser(style: NumberStyle, currency: str | None = None) -> Parse:
    """Return a parser of amounts such as $5, 5 EUR or ($5); the currency is optional.

    Without `currency`, amounts in all currencies are parsed.
    """

    def parse(texts: pa.Array) -> pa.Array:
        """Parse amounts to float64; other texts raise `pyarrow.ArrowInvalid`."""
        found = _extract_currencies(texts)
        if _has_price_below_one(texts.filter(pc.not_equal(found, ""))):
            raise pa.ArrowInvalid("a minus that may mean 0")
        bare = texts
        for each in _list_names(found):
            if currency is None or is_same_currency(each, currency):
                is_found = pc.equal(found, each)
                bare = pc.if_else(is_found, _remove_symbol(texts, each), bare)
        return style.parse(bare)

    return parse


def list_currencies(texts: pa.Array) -> list[str]:
    """Return the different currencies of amounts by their first names, in the order of the texts.

    € and EUR are the same currency, for example.
    """
    return unique_currencies(_list_names(_extract_currencies(texts)))


def _list_names(found: pa.Array) -> list[str]:
    """Return the different names of currencies in the result of `_extract_currencies`."""
    return [each for each in pc.unique(found.drop_null()).to_pylist() if is_currency(each)]


def unique_currencies(names: Iterable[str]) -> list[str]:
    """Return the different currencies, each by the first of its names.

    >>> unique_currencies(["EUR", "$", "€"])
    ['EUR', '$']
    """
    first: dict[str, str] = {}
    for name in names:
        first.setdefault(_CANONICAL_NAMES.get(name, name), name)
    return list(first.values())


def is_same_currency(name: str, other: str) -> bool:
    """Return whether two names are those of one currency, such as € and EUR."""
    return len(unique_currencies((name, other))) == 1


def is_currency(text: str) -> bool:
    """Return whether a text is the symbol, the code or the abbreviation of a currency."""
    is_symbol = len(text) == 1 and unicodedata.category(text) == "Sc"
    return is_symbol or text in _CURRENCIES


def remove_percent_sign(text: str) -> str:
    """Return a text without its first percent sign."""
    return text.replace("%", "", 1)


def remove_currency(text: str) -> str:
    """Return a text without its currency, if it has one."""
    found = text.strip(_AROUND_CURRENCY)
    if not is_currency(found):
        return text
    return text.replace(f"{found}." if f"{found}." in text else found, "", 1)


def _extract_currencies(texts: pa.Array) -> pa.Array:
    """Return the currency of each amount, or another text, which is empty for a mere number."""
    return pc.utf8_trim(texts, characters=_AROUND_CURRENCY)


def _remove_symbol(texts: pa.Array, symbol: str, *, is_prefix: bool = True) -> pa.Array:
    """Remove a symbol, such as "€", and the spaces beside it from the start or the end of texts.

    It is removed at most once. A sign may stand outside of it. Other texts are not changed, and
    with `is_prefix` False it is only removed from the end.
    """
    escaped = re.escape(symbol)
    if symbol in _ABBREVIATIONS:
        texts = pc.replace_substring(texts, f"{symbol}.", symbol)
    ends = rf"{escaped}[{_MINUS})]?$"
    if is_prefix:
        ends += rf"|^[{_MINUS}+(]?[{_SPACES}]*{escaped}"
    bare = pc.replace_substring(texts, symbol, "", max_replacements=1)
    has_symbol = pc.match_substring_regex(texts, ends)
    return pc.if_else(has_symbol, pc.utf8_trim(bare, characters=_SPACES), texts)
