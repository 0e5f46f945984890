"""Sentences for the user about the types of text columns that may be unexpected."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from altbi.errors import quote
from altbi.io._text_batches import try_parse
from altbi.io._text_formats import (
    NUMBER,
    PLACEHOLDERS,
    PLAIN_FORMATS,
    TEXT,
    TEXT_FORMATS,
    TextFormat,
)

INFERRED_FORMATS = TEXT_FORMATS[: TEXT_FORMATS.index(TEXT)]
_LIKE_CODE = r"^0\d"
_LARGE_INTEGER = r"^\s*[-+]?[1-9]\d{15,300}\s*$"  # 2**53, the first that may be rounded, or more
_LIKE_DATE = r"^\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})\b"
_LIKE_VALUE = r"(?i)\d|^\s*(true|false)\s*$"
_IN_PARENTHESES = r"^\s*\(.*\)\s*$"
_WITHOUT_PERCENT = r"^[^%]*[1-9][^%]*$"
_MAX_PLACEHOLDERS = 5
_N_PROBES = 50  # texts of a column that are parsed in all formats
_MAX_LETTERS = 1000  # longer texts are taken for texts
_N_FIRST_PROBES = 8  # a format that parses none of these is not tried further

FindRulingOut = Callable[[TextFormat], tuple[int, str] | None]


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
            "as codes do. If they are codes, pass --as category:NAME, --id or --exclude."
        )
    elif format_ is NUMBER and (rounded := _find_rounded_integer(sample)) is not None:
        yield (
            f"Column {quote(column)} is read as numbers, though some of its integers, such as "
            f"{quote(rounded)}, are rounded. If they are codes, pass --as category:NAME, --id or "
            "--exclude."
        )
    if with_points:
        yield (
            f"Column {quote(column)} is read as numbers with a decimal point, though its "
            f"points may be thousands separators, as in {quote(with_points)}. If they "
            "do, write the numbers without them."
        )


def _find_rounded_integer(texts: pa.Array) -> str | None:
    """Return the first integer that no floating-point number equals, or None."""
    large = texts.filter(pc.match_substring_regex(texts, _LARGE_INTEGER)).drop_null()
    return next((text for text in large.to_pylist() if int(text) != float(text)), None)


def describe_decimal_mark(column: str, mark: str, other: str) -> str:
    """Return a note on a column whose decimal mark is that of another column of the table."""
    name = "comma" if mark == "," else "point"
    return (
        f"Column {quote(column)} could be read with a decimal point or a decimal comma. It is read "
        f"with a decimal {name}, as column {quote(other)} is."
    )


def _explain(format_: TextFormat, sample: pa.Array) -> str:
    """Return a sentence on a reading that is not obvious, after a space, or nothing."""
    if "two-digit years" in format_.description:
        return " Their years are 1969 to 2068."
    if format_.description.startswith("percentages") and _any_matches(sample, _WITHOUT_PERCENT):
        return " Some of them have no percent sign; the sign changes no value, and 97% is 97."
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


def describe_text(column: str, texts: pa.Array, find_ruling_out: FindRulingOut) -> Iterator[str]:
    """Yield a note if most texts of a text column look like values of another format.

    `texts` are some of them, without missing ones. `find_ruling_out` returns the row and the text
    of the first text of the column that a format cannot parse, or None. The note quotes it.
    """
    written = _find_common_format(texts)
    problem = written and _describe_ruling_out(*written, find_ruling_out)
    if problem:
        yield f"Column {quote(column)} is read as text, because {problem}"
        return
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


def _find_common_format(texts: pa.Array) -> tuple[TextFormat, bool] | None:
    """Return the format of at least half of the texts, and whether it is more than half.

    Only some of the texts are parsed. Without such a format, None is returned.
    """
    if not _most_match(texts, _LIKE_VALUE):
        return None
    chosen = np.unique(np.linspace(0, len(texts) - 1, _N_PROBES).astype(int))
    trimmed = (text.strip() for text in texts.take(pa.array(chosen)).to_pylist())
    probes = [text for text in trimmed if text not in PLACEHOLDERS]
    count, best = max(
        ((_count_parsed(each, probes), each) for each in INFERRED_FORMATS), key=lambda pair: pair[0]
    )
    return (best, 2 * count > len(probes)) if count and 2 * count >= len(probes) else None


def _count_parsed(format_: TextFormat, texts: Sequence[str]) -> int:
    """Return how many texts have a format; 0 if none of the first does."""
    count = 0
    for i, text in enumerate(texts):
        if len(text) <= _MAX_LETTERS and _has_format(text, format_):
            count += 1
        elif not count and i + 1 >= _N_FIRST_PROBES:
            return 0
    return count


def _has_format(text: str, format_: TextFormat) -> bool:
    """Return whether a text has a format."""
    return format_.may_parse(text) and try_parse(format_, pa.array([text])) is not None


def _describe_ruling_out(
    format_: TextFormat, is_most: bool, find_ruling_out: FindRulingOut
) -> str | None:
    """Return which text rules out the format of most texts, and what to do.

    If the text has another format of the same kind, a text that rules out that one is named too.
    Without such texts, None is returned.
    """
    found = find_ruling_out(format_)
    if found is None:
        return None
    text = found[1].strip()
    for other in INFERRED_FORMATS if len(text) <= _MAX_LETTERS else ():
        if other.kind == format_.kind and _has_format(text, other):
            rival = find_ruling_out(other)
            # No-break spaces are removed here, so the same text may be found for both.
            if rival in (None, found):
                continue
            if _has_format(rival[1].strip(), format_):
                (row, first), (next_row, second) = sorted((found, rival))
                return (
                    f"its {format_.kind}s are written in several ways: row {row} (counted from 0) "
                    f"holds {quote(first)}, and row {next_row} holds {quote(second)}. Write all of "
                    "them in one format."
                )
    if not is_most:
        return None
    return (
        f"row {found[0]} (counted from 0) holds {quote(found[1])}, though most of its cells are "
        f"{format_.description}. Fix the value, or pass --missing VALUE to treat it as missing."
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
