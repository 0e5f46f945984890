"""Sentences for the user about the types of text columns that may be unexpected."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from altbi.errors import quote
from altbi.io._text_formats import NUMBER, PLAIN_FORMATS, TextFormat

_LIKE_CODE = r"^0\d"
_LIKE_DATE = r"^\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})\b"
_LIKE_NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"
_IN_PARENTHESES = r"^\s*\(.*\)\s*$"
_MAX_PLACEHOLDERS = 5


def describe_format(
    column: str, format_: TextFormat, sample: pa.Array, with_points: str | None
) -> Iterator[str]:
    """Yield notes on the format of a column that is not text.

    `sample` holds some of its texts. `with_points` is a text whose points may be thousands
    separators, or None.
    """
    if format_.description not in PLAIN_FORMATS:
        yield f"Column {quote(column)} is read as {format_.description}.{_explain(format_, sample)}"
    elif format_ is NUMBER and _any_matches(sample, _LIKE_CODE):
        yield (
            f"Column {quote(column)} is read as numbers, though some of its cells begin with 0 "
            "as codes do. If they are codes, pass the column to --exclude or --id."
        )
    if with_points:
        yield (
            f"Column {quote(column)} is read as numbers with a decimal point, though its "
            f"points may be thousands separators, as in {quote(with_points)}. If they "
            "do, write the numbers without them."
        )


def _explain(format_: TextFormat, sample: pa.Array) -> str:
    """Return a sentence on a reading that is not obvious, after a space, or nothing."""
    if "two-digit years" in format_.description:
        return " Their years are 1969 to 2068."
    if format_.kind == "number" and _any_matches(sample, _IN_PARENTHESES):
        return " Numbers in parentheses are negative."
    return ""


def describe_placeholders(column: str, counts: Sequence[tuple[str, int]]) -> Iterator[str]:
    """Yield a note on the texts that are missing because all others are numbers or dates.

    `counts` has these texts, and the number of rows of each.
    """
    if not counts:
        return
    common = sorted(counts, key=lambda each: (-each[1], each[0]))
    shown = [f"{quote(text)} ({n_rows} row{'s' * (n_rows > 1)})" for text, n_rows in common]
    if len(shown) > _MAX_PLACEHOLDERS:
        shown[_MAX_PLACEHOLDERS:] = [f"and {len(shown) - _MAX_PLACEHOLDERS} others"]
    yield (
        f"Column {quote(column)}: some texts count as missing, because all other cells are numbers "
        f"or dates: {', '.join(shown)}. If one is a value, replace it by a number or a date."
    )


def describe_total(totals: Iterable[tuple[int, str] | None]) -> Iterator[str]:
    """Yield a note if the last row seems to be a total of the others.

    `totals` has for each column the number and the text of the last row if it means a total.
    """
    for row, text in itertools.islice(filter(None, totals), 1):
        yield (
            f"Row {row} (counted from 0) seems to be a total of the rows above it ({quote(text)}). "
            "Remove it from the file if so."
        )


def describe_text(
    column: str, texts: pa.Array, not_number: tuple[int, str] | None
) -> Iterator[str]:
    """Yield notes if most texts of a text column look like numbers or dates.

    `texts` are some of them, without missing ones. The notes quote a text that prevents the column
    from being parsed, if one is known: `not_number` has the row and the text of the first one.
    """
    if not_number and _most_match(texts, _LIKE_NUMBER):
        row, text = not_number
        yield (
            f"Column {quote(column)} is read as text, because row {row} (counted from 0) holds "
            f"{quote(text)}, though most of its cells are numbers. Fix the value, or "
            "pass --missing VALUE to treat it as missing."
        )
    if not _most_match(texts, _LIKE_DATE):
        return
    first = texts.filter(pc.match_substring_regex(texts, _LIKE_DATE))[0].as_py()
    same = pc.equal(_replace_date_digits(texts), _replace_date_digits(pa.array([first]))[0])
    others = texts.filter(pc.invert(same))
    example = ""
    if len(others):
        example = f": {quote(others[0].as_py())} is not written like {quote(first)}"
    yield (
        f"Column {quote(column)} is read as text, though most of its cells look like dates"
        f"{example}. Write all dates in one format, and pass --missing VALUE for texts that "
        "mean a missing value."
    )


def _replace_date_digits(texts: pa.Array) -> pa.Array:
    """Replace four digits by Y and other numbers by D, so that dates of one format become equal."""
    years = pc.replace_substring_regex(texts, r"\d{4}", "Y")
    return pc.replace_substring_regex(years, r"\d+", "D")


def _most_match(texts: pa.Array, pattern: str) -> bool:
    """Return whether more than half of the texts contain the pattern; False without texts."""
    return len(texts) > 0 and pc.mean(pc.match_substring_regex(texts, pattern)).as_py() > 0.5


def _any_matches(texts: pa.Array, pattern: str) -> bool:
    """Return whether a text contains the pattern; null does not."""
    return pc.any(pc.match_substring_regex(texts, pattern)).as_py() is True
