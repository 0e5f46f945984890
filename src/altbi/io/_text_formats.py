"""Text formats: the ways in which the values of a text column are written, and missing texts."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

import pyarrow as pa
import pyarrow.compute as pc

from altbi.io import _date_formats as dates
from altbi.io import _number_formats as numbers
from altbi.io._date_formats import DatePattern
from altbi.io._number_formats import NumberStyle
from altbi.table import Kind

# The texts that pandas reads as missing, so that a file is read the same in both.
MISSING_TEXTS = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
    "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip
_SIMPLE_PLACEHOLDERS = (
    "-", "--", "---", "\u2013", "\u2014", ".", "..", "...", "…", "?", "??", "n.a.", "n. a.", "n.a",
    "na", "n.d.", "n/d", "s/d", "k.A.", "k. A.", "k.a.", "keine Angabe", "Keine Angabe", "none",
    "unknown", "missing", "not available", "not applicable", "unbekannt", "inconnu", "desconocido",
    "0000-00-00", "0000-00-00 00:00:00",
)  # fmt: skip
# Errors of Excel in English, German, French, Spanish, Italian, Portuguese and Dutch.
_EXCEL_ERRORS = (
    "#DIV/0!", "#NAME?", "#NULL!", "#NUM!", "#REF!", "#VALUE!", "#CALC!", "#SPILL!",
    "#NV", "#N/V", "#BEZUG!", "#WERT!", "#ZAHL!", "#KALK!", "#ÜBERLAUF!",
    "#NOM?", "#NOMBRE!", "#NUL!", "#VALEUR!", "#PROPAGATION!",
    "#¡DIV/0!", "#¿NOMBRE?", "#¡NULO!", "#¡NUM!", "#¡REF!", "#¡VALOR!",
    "#N/D", "#NOME?", "#NULLO!", "#RIF!", "#VALORE!",  # codespell:ignore
    "#NULO!", "#NÚM!", "#VALOR!",
    "#N/B", "#DEEL/0!", "#GETAL!", "#LEEG!", "#NAAM?", "#VERW!", "#WAARDE!",  # codespell:ignore
)  # fmt: skip
# Texts that may also be values. They are missing only in a column whose other texts are numbers or
# dates. Arrow reads texts with "nan" as numbers.
PLACEHOLDERS = tuple(
    dict.fromkeys(
        text
        for each in (*_SIMPLE_PLACEHOLDERS, *_EXCEL_ERRORS, *MISSING_TEXTS)
        for text in (each, each.upper(), each.capitalize())
        if "nan" not in text.lower()
    )
)

Parse = Callable[[pa.Array], pa.Array]


def _accept_any(text: str) -> bool:
    """Return True for all texts."""
    return True


@final
@dataclass(frozen=True, slots=True, eq=False)
class TextFormat:
    """A way in which the texts of a column are written, and the function that parses them."""

    kind: Kind  # of the parsed column
    description: str  # in messages and model files
    # Parses trimmed texts with null for missing; raises `pyarrow.ArrowInvalid` for other formats.
    parse: Parse
    # If Arrow can cast a text to this type, the text has the format, and this is its value.
    type: pa.DataType | None = None
    may_parse: Callable[[str], bool] = _accept_any  # False only for texts that `parse` refuses
    # Formats that parse no other texts than this one, except for texts with the letters beside.
    implied_by: tuple[tuple["TextFormat", str], ...] = ()
    currency: str = ""  # the only one, for amounts of money

    @property
    def has_placeholders(self) -> bool:
        """Whether `PLACEHOLDERS` are missing values in this format."""
        return self.kind in ("number", "date")

    @property
    def is_money(self) -> bool:
        """Whether the numbers are amounts of money."""
        return self.description.startswith("amounts ")


def _build_cast_format(
    kind: Kind, description: str, type_: pa.DataType, may_parse: Callable[[str], bool]
) -> TextFormat:
    """Return a format of texts that Arrow casts to a type, such as ISO 8601 dates."""
    return TextFormat(kind, description, lambda texts: texts.cast(type_), type_, may_parse)


NUMBER = _build_cast_format("number", "numbers", pa.float64(), numbers.PLAIN.may_parse)
BOOLEAN = _build_cast_format(
    "boolean", "booleans", pa.bool_(), lambda text: text.lower() in ("0", "1", "false", "true")
)
TEXT = TextFormat("category", "text", lambda texts: texts)
# In microseconds or nanoseconds, without and with a time zone.
_ISO_DATES = tuple(
    _build_cast_format("date", "dates", pa.timestamp(unit, zone), lambda text: text[4:5] == "-")
    for unit in ("us", "ns")
    for zone in (None, "UTC")
)

_Styles = dict[NumberStyle, TextFormat]


def _build_number_formats(
    noun: str,
    build_parser: Callable[[NumberStyle], Parse],
    clean: Callable[[str], str],
    bare: _Styles | None = None,
) -> _Styles:
    """Return the formats of numbers in all styles, with optional symbols around them.

    `noun` is what the numbers are, and `clean` removes the symbols from a text. `bare` has the
    formats without symbols.
    """
    formats: _Styles = {}
    for style in (*numbers.STYLES, *numbers.CLEAR_STYLES):
        implied_by = [(bare[style], "")] if bare else []
        if style.base is not None:
            # The style with a decimal comma parses no points.
            letters = "." if style is numbers.DECIMAL_COMMA else ""
            implied_by.append((formats[style.base], letters))
        elif not bare:
            implied_by.append((NUMBER, ""))
        is_signed = not bare and style is numbers.PLAIN
        formats[style] = TextFormat(
            "number",
            "numbers with signs such as 5- or (5)" if is_signed else noun + style.suffix,
            build_parser(style),
            pa.float64() if style.decimal == "." else None,
            functools.partial(_may_parse_number, style, clean),
            tuple(implied_by),
        )
    return formats


def _may_parse_number(style: NumberStyle, clean: Callable[[str], str], text: str) -> bool:
    """Return False only if a style does not parse a text without its symbols."""
    return style.may_parse(clean(text))


_NUMBERS = _build_number_formats("numbers", lambda style: style.parse, str)
SIGNED_NUMBER = _NUMBERS[numbers.PLAIN]
_PERCENTAGES = _build_number_formats(
    "percentages", numbers.build_percent_parser, numbers.remove_percent_sign, _NUMBERS
)
_MONEY = _build_number_formats(
    "amounts of money", numbers.build_money_parser, numbers.remove_currency, _NUMBERS
)
_NUMBER_STYLES = (_NUMBERS, _PERCENTAGES, _MONEY)


def _build_date_formats() -> Iterator[TextFormat]:
    """Yield the formats of dates in all orders, each with 24 and with 12 hours."""
    for n_digits, orders in ((4, dates.DATE_ORDERS), (2, dates.SHORT_YEAR_ORDERS)):
        for order in orders:
            is_like_iso = n_digits == 4 and order == "year-month-day"
            description = f"dates as {order}" + " with two-digit years" * (n_digits == 2)
            implied_by: tuple[tuple[TextFormat, str], ...] = ((_ISO_DATES[0], ""),) * is_like_iso
            for clock in ("24 or hour" if is_like_iso else "24", "12"):
                pattern = DatePattern(order, clock, n_digits)
                format_ = _build_date_format(description, pattern, implied_by)
                yield format_
                # Without a time of day, the clock does not matter.
                implied_by = ((format_, ": T" if is_like_iso else ":"),)


def _build_date_format(
    description: str,
    pattern: DatePattern,
    implied_by: tuple[tuple[TextFormat, str], ...] = (),
) -> TextFormat:
    """Return the format of dates or times that match a pattern."""
    return TextFormat(
        "date", description, pattern.parse, may_parse=pattern.may_parse, implied_by=implied_by
    )


# Formats that need no note.
PLAIN_FORMATS = ("numbers", "booleans", "dates", "text")

# In the order of preference: up to text, the first format that parses a whole column is used.
TEXT_FORMATS = (
    NUMBER,
    BOOLEAN,
    *_ISO_DATES,
    *(styles[style] for styles in _NUMBER_STYLES for style in numbers.STYLES),
    *_build_date_formats(),
    *(_build_date_format("times of day", DatePattern("", clock)) for clock in ("24", "12")),
    TEXT,
    # Only for columns whose decimal mark a model states.
    *(styles[style] for styles in _NUMBER_STYLES for style in numbers.CLEAR_STYLES),
)
# Descriptions of formats of numbers, and the format with the same decimal mark that parses all
# clear separators of thousands.
CLEAR_FORMATS = {
    format_.description: styles[clear].description
    for styles in _NUMBER_STYLES
    for style, format_ in styles.items()
    for clear in numbers.CLEAR_STYLES
    if clear.decimal == style.decimal
}
CLEAR_FORMATS[NUMBER.description] = CLEAR_FORMATS[SIGNED_NUMBER.description]

DECIMALS = {  # the decimal mark of each format of numbers
    NUMBER: ".",
    **{format_: style.decimal for styles in _NUMBER_STYLES for style, format_ in styles.items()},
}
# Formats with a decimal point, and those with points between thousands. A text with three digits
# after a point may have both formats.
POINT_PAIRS = (
    (NUMBER, _NUMBERS[numbers.POINTS]),
    *((styles[numbers.PLAIN], styles[numbers.POINTS]) for styles in _NUMBER_STYLES),
)
AMBIGUOUS_COMMA = (
    "the commas in its numbers may be decimal or thousands separators; write a decimal point"
)
_AMBIGUOUS_DAY = "day and month of its dates are ambiguous; write them as year-month-day"
_AMBIGUOUS_YEAR = "day, month and year of its dates are ambiguous; write years with four digits"
# Descriptions of formats that parse some texts to different values, and why this is a problem.
CONFLICTS: tuple[tuple[set[str], str], ...] = (
    *(
        (
            {f"{noun}{style.suffix}" for style in (numbers.DECIMAL_COMMA, numbers.COMMAS)},
            AMBIGUOUS_COMMA,
        )
        for noun in ("numbers", "percentages", "amounts of money")
    ),
    ({"dates as day/month/year", "dates as month/day/year"}, _AMBIGUOUS_DAY),
    ({"dates as day-month-year", "dates as month-day-year"}, _AMBIGUOUS_DAY),
    *(
        (
            {
                f"dates as {each.replace(' ', mark)} with two-digit years"
                for each in ("day month year", "month day year", "year month day")
            },
            _AMBIGUOUS_YEAR,
        )
        for mark in "/-"
    ),
)


def with_currency(format_: TextFormat, currency: str) -> TextFormat:
    """Return the format of amounts of money in one currency.

    Other formats are returned unchanged, and so are all if the currency is empty.

    >>> with_currency(TEXT, "$") is TEXT
    True
    """
    for style, money in _MONEY.items():
        if money is format_ and currency:
            description = f"amounts in {currency}{style.suffix}"
            parse = numbers.build_money_parser(style, currency)
            return dataclasses.replace(
                format_, description=description, parse=parse, currency=currency
            )
    return format_


def complete_description(description: str) -> str:
    """Return a description of a format as it is now; older models may have another one."""
    old = description.endswith(" with points between thousands")
    return f"{description} and a decimal comma" if old else description


def split_currency(description: str) -> tuple[str, str]:
    """Return the description of a format in any currency, and the currency, which may be empty.

    >>> split_currency("amounts in € with a decimal comma")
    ('amounts of money with a decimal comma', '€')
    >>> split_currency("dates")
    ('dates', '')
    """
    description = complete_description(description)
    if not description.startswith("amounts in "):
        return description, ""
    currency = description.split(" ")[2]
    return description.replace(f"in {currency}", "of money", 1), currency


def encode_format(format_: TextFormat) -> tuple[int, str]:
    """Return a format as plain values, for `decode_format` of the same version of altbi."""
    description, currency = split_currency(format_.description)
    if not currency:
        return TEXT_FORMATS.index(format_), ""
    return [each.description for each in TEXT_FORMATS].index(description), currency


def decode_format(index: int, currency: str) -> TextFormat:
    """Return the format that `encode_format` has converted to plain values."""
    return with_currency(TEXT_FORMATS[index], currency)


def missing_value_texts(file_format: str, further: Sequence[str]) -> tuple[str, ...]:
    """Return the texts that mean a missing value.

    They are `further`, and for CSV files and Excel workbooks also `MISSING_TEXTS`.
    """
    return (*MISSING_TEXTS, *further) if file_format in ("csv", "excel") else tuple(further)


def mask_missing(cells: pa.Array | pa.ChunkedArray, missing: pa.Array) -> pa.Array:
    """Return a column in which texts that, trimmed, are among `missing` are replaced by null.

    Dictionaries of text and large strings are converted to strings for this. Columns of other types
    are returned unchanged, and so are all columns if `missing` is empty.
    """
    kind = cells.type.value_type if pa.types.is_dictionary(cells.type) else cells.type
    if not len(missing) or not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return cells
    return mask_missing_texts(cells.cast(pa.string()), missing)


def mask_missing_texts(texts: pa.Array, missing: pa.Array) -> pa.Array:
    """Return the texts with null for those that, trimmed, are among `missing`.

    Other texts are not trimmed.
    """
    absent = pc.is_in(pc.ascii_trim_whitespace(texts), value_set=missing)
    return pc.if_else(absent, pa.scalar(None, texts.type), texts)


@final
class MissingTexts:
    """The texts that mean a missing value: always, and among numbers or dates only."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = tuple(dict.fromkeys(texts))
        self.array = pa.array(self.texts, pa.string())
        self.n_always = len(self.texts)
        self._all = pa.array(dict.fromkeys((*texts, *PLACEHOLDERS)), pa.string())
        self._castable: dict[pa.DataType, bool] = {}

    def find(self, trimmed: pa.Array) -> pa.Array:
        """Return the index of each trimmed text among the missing texts, or null.

        Placeholders have the indices from `n_always` on.
        """
        return pc.index_in(trimmed, value_set=self._all)

    def remove(self, trimmed: pa.Array, found: pa.Array, *, placeholders: bool) -> pa.Array:
        """Return trimmed texts with null for missing ones, and also for placeholders if asked.

        `found` is the result of `find`.
        """
        is_kept = found.is_null()
        if not placeholders:
            is_kept = pc.or_(is_kept, pc.fill_null(pc.greater_equal(found, self.n_always), False))
        return pc.if_else(is_kept, trimmed, pa.scalar(None, pa.string()))

    def cast(self, texts: pa.Array, type_: pa.DataType | None) -> pa.Array | None:
        """Return texts that were cast as they are, or None if this is not possible.

        It is not possible if a text that means a missing value could be cast, except for "nan".
        """
        if type_ is None or self._has_castable(type_):
            return None
        try:
            texts[: numbers.HEAD_ROWS].cast(type_)
            return texts.cast(type_)
        except pa.ArrowInvalid:
            return None

    def _has_castable(self, type_: pa.DataType) -> bool:
        """Return whether a text that means a missing value is a value of a type, but not NaN."""
        if type_ not in self._castable:
            self._castable[type_] = any(_is_castable(text, type_) for text in self.texts)
        return self._castable[type_]


def _is_castable(text: str, type_: pa.DataType) -> bool:
    """Return whether Arrow casts a text to a value of a type that is not NaN."""
    try:
        value = pa.array([text], pa.string()).cast(type_)
    except pa.ArrowInvalid:
        return False
    return not value.is_null(nan_is_null=True)[0].as_py()


def parse_texts(format_: TextFormat, texts: pa.Array, missing: MissingTexts) -> pa.Array:
    """Parse texts after trimming them; null or NaN for those that mean a missing value.

    Which of the two it is for a text such as "nan" may depend on other texts. Both are missing.
    Texts of the kind "category" are not trimmed. A text of another format raises
    `pyarrow.ArrowInvalid`.
    """
    if format_.kind == "category":
        return mask_missing_texts(texts, missing.array)
    values = missing.cast(texts, format_.type)
    if values is not None:
        return values
    trimmed = pc.ascii_trim_whitespace(texts)
    placeholders = format_.has_placeholders
    return format_.parse(missing.remove(trimmed, missing.find(trimmed), placeholders=placeholders))
