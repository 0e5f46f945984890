"""Roles of columns of texts: identifiers, free text and categories."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from altbi.encoding._column_profile import ColumnProfile, show_value
from altbi.encoding._number_roles import describe_key
from altbi.errors import shorten

TextRole = Literal["category", "free text", "identifier"]

NEARLY_UNIQUE = 0.95  # distinct values per row
_MIN_ROWS = 50  # with fewer rows, most columns have distinct values
_N_TEXTS = 256  # distinct texts whose format is examined

_SIGNED = r"[-+]?\d+([., ]\d{3})*([.,]\d+)?"
_NUMBER_PATTERN = re.compile(  # 58.90, $ 58.90, 87 %, 12.5kg, 12 ounces
    rf"[^\w\s]{{0,3}} ?{_SIGNED} ?[^\w\s]{{0,2}}|{_SIGNED} [^\W\d_]{{1,10}}\.?"
    r"|[-+]?\d+[.,]\d+[^\W\d_]{1,10}"
)
_INTEGER_PATTERN = "^[0-9]{1,18}$"
_DATE_PATTERN = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([T ]\d{1,2}:\d{2}.{0,20})?")


@dataclass(frozen=True)
class _TextFormat:
    """How texts are written, from at most `_N_TEXTS` distinct texts."""

    n_tokens: float  # mean number of tokens that spaces separate
    length: float  # mean number of characters
    is_key: bool  # one token with digits, symbols or a fixed length, or mostly digits
    meaning: str  # "numbers" or "dates" if the texts are numbers or dates, else ""


def infer_text_role(profile: ColumnProfile) -> tuple[TextRole, str]:
    """Return the role of a column of texts, and the reason."""
    usual = f"{profile.n_distinct:,} distinct texts."
    n_default = profile.n_default
    n_others = profile.n_present - n_default
    share = (profile.n_distinct - (n_default > 0)) / max(n_others, 1)
    if n_others < 10 or share < 0.3:
        return "category", usual
    written = _examine_texts(profile.values)
    role = _choose_text_role(written, n_others, share)
    # Few values with many rows are not repeats of a key.
    n_often = int(profile.counts[profile.counts > 5].sum()) - (n_default if n_default > 5 else 0)
    if role is None or n_often > 0.4 * n_others:
        return "category", usual
    reason = f"{profile.n_single:,} of {n_others:,} values occur once"
    if n_default:
        default = show_value(profile, int(profile.counts.argmax()))
        reason = f"{reason} besides {default} in {n_default:,} rows"
    if written.meaning:
        reason = f"{reason}; they are {written.meaning} in a text column"
        is_key = written.meaning == "numbers" and _is_numeric_key(profile)
        return ("identifier" if is_key else "free text"), f"{reason}."
    if role == "free text":
        reason = f"{reason}, with {written.n_tokens:.1f} words on average"
    return role, f"{reason}."


def _choose_text_role(written: _TextFormat, n_values: int, share: float) -> TextRole | None:
    """Return identifier or free text for texts with this share of distinct ones, or None."""
    is_long = written.n_tokens >= 4 or (written.length >= 40 and not written.is_key)
    if n_values < _MIN_ROWS:
        if is_long and share > 0.5 and not written.is_key:
            return "free text"
        return "identifier" if written.is_key and share == 1 else None
    if written.meaning and share >= 0.5:
        return "free text"
    if written.is_key:
        return "identifier"
    if is_long and share >= 0.5:
        return "free text"
    if share < NEARLY_UNIQUE:
        return None
    # Names repeat by chance, so that their repeats are not examined.
    return "identifier" if share == 1 and written.n_tokens < 1.5 else "free text"


def _examine_texts(values: pa.Array) -> _TextFormat:
    """Return how distinct texts are written."""
    rows = np.linspace(0, len(values) - 1, min(len(values), _N_TEXTS)).astype(np.int64)
    texts = [shorten(text, 1000) for text in values.take(pa.array(rows)).to_pylist()]
    lengths = [len(text) for text in texts]
    n_tokens = [len(text.split()) for text in texts]
    usual_length = max(set(lengths), key=lengths.count)

    def is_usual(holds: Iterator[bool], share: float) -> bool:
        return sum(holds) >= share * len(texts)

    has_fixed_length = usual_length >= 8 and is_usual((n == usual_length for n in lengths), 0.9)
    has_digits = is_usual((any(map(str.isdigit, text)) for text in texts), 0.8)
    has_symbols = is_usual((not text.isalnum() for text in texts), 0.8)
    is_token = is_usual((n <= 1 for n in n_tokens), 0.95)
    n_digits = sum(sum(map(str.isdigit, text)) for text in texts)
    meaning = ""
    for name, pattern in (("dates", _DATE_PATTERN), ("numbers", _NUMBER_PATTERN)):
        if is_usual((bool(pattern.fullmatch(text)) for text in texts), 0.9):
            meaning = meaning or name
    return _TextFormat(
        n_tokens=sum(n_tokens) / len(texts),
        length=sum(lengths) / len(texts),
        is_key=(is_token and (has_digits or has_symbols or has_fixed_length))
        or n_digits >= 0.5 * sum(lengths) > 0,
        meaning=meaning,
    )


def _is_numeric_key(profile: ColumnProfile) -> bool:
    """Return whether texts of digits are keys: of fixed length, with leading zeros, or counters."""
    is_integer = pc.match_substring_regex(profile.values, _INTEGER_PATTERN)
    texts = profile.values.filter(is_integer)
    if len(texts) < NEARLY_UNIQUE * profile.n_distinct:
        return False
    lengths = pc.utf8_length(texts).to_numpy()
    has_fixed_length = lengths.min() >= 6 and (lengths == np.median(lengths)).mean() >= 0.95
    if has_fixed_length or pc.match_substring_regex(texts, "^0[0-9]").to_numpy(False).any():
        return True
    if len(texts) < profile.n_distinct:
        return False
    return describe_key(texts.cast(pa.float64()).to_numpy(), profile) is not None
