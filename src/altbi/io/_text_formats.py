"""What a text may stand for: each reading turns texts into values, or refuses the first bad one."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from altbi.table import Kind

__all__ = [
    "MISSING_WORDS",
    "NUMBER",
    "PLAIN",
    "POINTS",
    "TEXT",
    "TEXT_FORMATS",
    "TextFormat",
    "first_refused",
]

# The words that pandas takes for a missing cell, so that a file reads the same in both.
MISSING_WORDS = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
    "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip

Parse = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True, slots=True)
class TextFormat:
    """One way to read a column of texts.

    Attributes
    ----------
    kind : {"number", "boolean", "date", "category"}
        What the column holds if all of its texts can be read so.
    said : str
        The same in words.
    parse : function
        Turns texts, trimmed and with null for missing, into values; `pyarrow.ArrowInvalid` if one
        of them cannot be read so.
    """

    kind: Kind
    said: str
    parse: Parse


def _as(type_: pa.DataType) -> Parse:
    return lambda texts: texts.cast(type_)


def _decimal_comma(texts: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring(texts, ".")).as_py():
        raise pa.ArrowInvalid("a point in a number with a decimal comma")
    return pc.replace_substring(texts, ",", ".").cast(pa.float64())


def _grouped(comma: str, point: str) -> Parse:
    """Read numbers with a sign between the thousands, and perhaps decimals."""
    whole = rf"(0|[1-9]\d{{0,2}}(\{comma}\d{{3}})*)"  # no thousands begin with 0
    pattern = rf"^[-+]?{whole}(\{point}\d+)?$"

    def parse(texts: pa.Array) -> pa.Array:
        if not pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py():
            raise pa.ArrowInvalid("no number with a sign between the thousands")
        bare = pc.replace_substring(texts, comma, "")
        return pc.replace_substring(bare, point, ".").cast(pa.float64())

    return parse


def _percent(texts: pa.Array) -> pa.Array:
    """Read 97% as 97; a number among percentages may lack the sign."""
    bare = pc.replace_substring_regex(texts, r"\s*%$", "")
    return pc.replace_substring(bare, ",", ".").cast(pa.float64())


def _calendar(day_first: str, time: str = "") -> Parse:
    """Read dates with numbers for day, month and a year of four digits, and nothing around them."""
    shape = {"%d": r"(?P<d>\d{1,2})", "%m": r"\d{1,2}", "%Y": r"\d{4}"}
    clock = {"%H": r"\d{1,2}", "%M": r"\d{2}", "%S": r"\d{2}"}
    pattern = day_first.replace(".", r"\.") + time
    for part, digits in (shape | clock).items():
        pattern = pattern.replace(part, digits)

    def parse(texts: pa.Array) -> pa.Array:
        days = pc.extract_regex(texts, f"^{pattern}$")
        moments = pc.strptime(texts, format=day_first + time, unit="us")
        # strptime makes 2 March of 31 February: a date must be the one that is written.
        same = pc.equal(pc.day(moments), pc.struct_field(days, "d").cast(pa.int64()))
        if days.null_count != texts.null_count or not pc.all(same, min_count=0).as_py():
            raise pa.ArrowInvalid("no such date")
        return moments

    return parse


NUMBER = TextFormat("number", "numbers", _as(pa.float64()))
POINTS = TextFormat("number", "numbers with points between thousands", _grouped(".", ","))
TEXT = TextFormat("category", "text", lambda texts: texts)

# What goes without saying.
PLAIN = ("numbers", "booleans", "dates", "text")

# In the order of preference: the first that can read all texts of a column wins.
TEXT_FORMATS = (
    NUMBER,
    TextFormat("boolean", "booleans", _as(pa.bool_())),
    *(
        TextFormat("date", "dates", _as(pa.timestamp(unit, zone)))
        for unit in ("us", "ns")
        for zone in (None, "UTC")
    ),
    TextFormat("number", "numbers with a decimal comma", _decimal_comma),
    TextFormat("number", "numbers with commas between thousands", _grouped(",", ".")),
    POINTS,
    TextFormat("number", "percentages", _percent),
    *(
        TextFormat("date", f"dates as {name}", _calendar(order, time))
        for order, name in (
            ("%Y/%m/%d", "year/month/day"),
            ("%d.%m.%Y", "day.month.year"),
            ("%d/%m/%Y", "day/month/year"),
            ("%m/%d/%Y", "month/day/year"),
        )
        for time in ("", " %H:%M", " %H:%M:%S")
    ),
    TEXT,
)


def first_refused(reading: TextFormat, texts: pa.Array) -> int:
    """Find the first text that a reading refuses; there must be one."""
    low, high = 0, len(texts)  # all before low can be read; one before high cannot
    while high - low > 1:
        middle = (low + high) // 2
        try:
            reading.parse(texts.slice(low, middle - low))
        except pa.ArrowInvalid:
            high = middle
        else:
            low = middle
    return low
