"""Infer how each column of a training sample is used: as numbers, categories, identifiers, ...

No rule looks at column names, letters or languages. When the values leave a choice, a column keeps
its kind, because a measured column that is left out is a worse error than an identifier in use.
"""

import difflib
import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace
from numpy.typing import NDArray

from altbi._formatting import format_number
from altbi.errors import ParameterError, list_names, quote, shorten
from altbi.table import Kind, Table

Role = Literal[
    "number",
    "date",
    "boolean",
    "category",
    "code",  # a number that is used as a category
    "identifier",
    "free text",
    "constant",
    "duplicate",
]
AskedRole = Literal["number", "date", "category", "text", "identifier"]  # roles of --as

Values = NDArray[np.float64]
Counts = NDArray[np.int64]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Sentence = Annotated[str, msgspec.Meta(max_length=400)]

DOMINATED_SHARE = 0.99  # of the values; a column with such a value gets a remark
# Of the values; among texts that are nearly unique otherwise, such a text means "none" or the like.
DEFAULT_SHARE = 0.05
NEARLY_UNIQUE = 0.95  # distinct values per row
_MIN_ROWS = 50  # with fewer rows, most columns have distinct values
_MIN_COUNTER_ROWS = 20  # the integers 1 to 20 are in some order by chance once in 10**7 tables
_MIN_RANDOM_ROWS = 200  # an even distribution is not recognised in fewer rows
# Number of repeated values that chance would give before their absence shows a key: with 20
# expected, at most 2 occur once in 10**6 columns.
_MIN_EXPECTED_REPEATS = 20
_MAX_REPEATS = 0.1  # of the repeats that chance would give
# Elapsed times and totals do not repeat either. With fewer expected repeats than this, keys must
# also be spread evenly, as a sample of a counter is.
_MANY_EXPECTED_REPEATS = 100
_MAX_DISTANCE = 0.1  # largest Kolmogorov distance to the even distribution
# Nats of chance that two columns group the rows in the same way. It is about 5 differing rows in
# 1,000, so that two rare flags that agree in one row are not duplicates.
_MIN_DUPLICATE_NATS = 30.0
_MAX_COMPARED = 8  # columns of numbers that group the rows alike and are compared
_N_TEXTS = 256  # distinct texts whose format is examined
_MAX_INTEGER = 2.0**64

# Ranges of integers that a generator of keys fills evenly: all numbers of 6 to 19 digits, and words
# of 32, 63 or 64 bits. A measured quantity that fills one of them evenly is not known.
_KEY_RANGES = (
    *((10.0 ** (n_digits - 1), 10.0**n_digits) for n_digits in range(6, 20)),
    *((0.0, 2.0**bits) for bits in (31, 32, 63, 64)),
    (-(2.0**31), 2.0**31),
    (-(2.0**63), 2.0**63),
)
_SECONDS_OF_1980, _SECONDS_OF_2100 = 3.15e8, 4.2e9
_YEARS = (1500, 2200)

_SIGNED = r"[-+]?\d+([., ]\d{3})*([.,]\d+)?"
_NUMBER_PATTERN = re.compile(  # 58.90, $ 58.90, 87 %, 12.5kg, 12 ounces
    rf"[^\w\s]{{0,3}} ?{_SIGNED} ?[^\w\s]{{0,2}}|{_SIGNED} [^\W\d_]{{1,10}}\.?"
    r"|[-+]?\d+[.,]\d+[^\W\d_]{1,10}"
)
_INTEGER_PATTERN = "^[0-9]{1,18}$"
_DATE_PATTERN = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([T ]\d{1,2}:\d{2}.{0,20})?")


class ColumnRole(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, gc=False):
    """How a column is used, and why.

    Examples
    --------
    >>> ColumnRole(role="duplicate", reason="It equals column 'a'.", duplicate_of=0).is_used
    False
    """

    role: Role
    reason: Sentence  # one sentence for the user
    remarks: Annotated[tuple[Sentence, ...], msgspec.Meta(max_length=10)] = ()
    n_distinct: Count = 0  # distinct values in the sample
    repeated_share: Share = 0.0  # share of an identifier's values that occur more than once
    duplicate_of: Count | None = None  # index of the column that it duplicates
    is_asked: bool = False  # the user chose the role
    is_text: bool = False  # whether the column holds texts

    def __post_init__(self) -> None:
        """Raise a `ValueError` for fields that contradict each other."""
        if (self.role == "duplicate") != (self.duplicate_of is not None):
            raise ValueError("expected duplicate_of for duplicates only")
        if self.repeated_share and self.role != "identifier":
            raise ValueError("expected a repeated_share of 0 unless the role is identifier")

    @property
    def is_used(self) -> bool:
        """Whether values of the column are compared: as numbers, dates, booleans or categories."""
        return self.role in ("number", "date", "boolean", "category", "code")


def is_special(role: ColumnRole) -> bool:
    """Return whether a column is used otherwise than other columns of its kind.

    This holds for identifiers, free text, codes, and copies of other text columns. Constants and
    copies of numbers are used: a later row may differ from the constant or contradict the copy.
    """
    return role.role in ("identifier", "free text", "code") or (
        role.role == "duplicate" and role.is_text
    )


@dataclass(frozen=True)
class _Profile:
    """The distinct values of a column in order of first appearance, and their counts."""

    kind: Kind
    n_rows: int
    n_source_rows: int  # rows of the table that the sample was taken from
    values: pa.Array  # distinct values without the missing ones
    counts: Counts
    digest: bytes  # equal for columns that group the rows in the same way

    @property
    def numbers(self) -> Values:
        """Distinct values of a column that does not hold texts."""
        return self.values.to_numpy(zero_copy_only=False)

    @property
    def n_present(self) -> int:
        """Number of values that are not missing."""
        return int(self.counts.sum())

    @property
    def n_distinct(self) -> int:
        """Number of distinct values."""
        return len(self.counts)

    @property
    def n_single(self) -> int:
        """Number of values that occur once."""
        return int(np.count_nonzero(self.counts == 1))

    @property
    def n_default(self) -> int:
        """Rows with the most frequent value if it is a text with `DEFAULT_SHARE`, else 0."""
        count = int(self.counts.max())
        is_frequent = count >= max(5, DEFAULT_SHARE * self.n_present)
        return count if is_frequent and self.kind == "category" else 0

    @property
    def repeated_share(self) -> float:
        """Share of the values that occur more than once, without the default text."""
        return 1 - self.n_single / max(self.n_present - self.n_default, 1)


def infer_roles(table: Table) -> tuple[ColumnRole, ...]:
    """Return the role of each column of a training sample.

    Columns of an array are not named by a user, who cannot be expected to know what is left out:
    they keep their kind, and the role that a data frame would give is a remark.
    """
    found: list[ColumnRole] = []
    earlier: dict[tuple[str, bytes], list[tuple[int, _Profile]]] = {}
    for column in range(len(table.names)):
        profile = _create_profile(table, column)
        role = _infer_role(profile)
        original = None if role.role == "constant" else _find_original(profile, column, earlier)
        if original is not None:
            role = ColumnRole(
                role="duplicate",
                reason=_describe_duplicate(profile, quote(table.names[original], 40)),
                n_distinct=profile.n_distinct,
                duplicate_of=original,
                is_text=profile.kind == "category",
            )
        found.append(role if table.is_frame else _keep_kind(role, profile.kind))
    return tuple(found)


def _create_profile(table: Table, column: int) -> _Profile:
    """Return the distinct values of a column, their counts, and the hash of their positions."""
    kind = table.kinds[column]
    if kind == "category":
        values = table.categories(column)
    else:
        numbers = table.numbers([column])[:, 0] + 0.0  # -0.0 becomes 0.0
        values = pa.array(numbers, from_pandas=True)
    encoded = values.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy().astype(np.int32, copy=False)
    counts = np.bincount(codes + 1, minlength=len(encoded.dictionary) + 1)[1:]
    return _Profile(
        kind=kind,
        n_rows=len(table),
        n_source_rows=table.n_source_rows or len(table),
        values=encoded.dictionary,
        counts=counts,
        digest=hashlib.blake2b(codes, digest_size=16).digest(),
    )


def _infer_role(profile: _Profile) -> ColumnRole:
    """Return the role of a column by its own values."""
    n_missing = profile.n_rows - profile.n_present
    if not profile.n_present:
        return ColumnRole(role="constant", reason=f"No value in {profile.n_rows:,} rows.")
    if profile.n_distinct == 1 and not n_missing:
        value = _show(profile, 0)
        reason = f"All {profile.n_rows:,} rows have the value {value}."
        return ColumnRole(role="constant", reason=reason, n_distinct=1)
    if profile.kind == "category":
        role, reason = _infer_text_role(profile)
    elif profile.kind == "number":
        role, reason = _infer_number_role(profile)
    else:
        role, reason = profile.kind, f"{profile.n_distinct:,} distinct values."
    return ColumnRole(
        role=role,
        reason=reason,
        remarks=tuple(_describe_remarks(profile, role)),
        n_distinct=profile.n_distinct,
        repeated_share=profile.repeated_share if role == "identifier" else 0.0,
    )


def _keep_kind(role: ColumnRole, kind: Kind) -> ColumnRole:
    """Return the role of a column of an array: its kind, with another role as a remark."""
    if role.role == kind:
        return role
    remark = f"Would be of the role {role.role!r} in a data frame. It is used, as in any array."
    return ColumnRole(
        role=kind,
        reason=role.reason,
        remarks=(remark, *role.remarks),
        n_distinct=role.n_distinct,
    )


def _describe_remarks(profile: _Profile, role: Role) -> Iterator[str]:
    """Yield sentences about a column that do not change its role."""
    share = profile.counts.max() / profile.n_present
    if profile.n_distinct == 1:
        yield f"The only value is {_show(profile, 0)}; the other rows have none."
    elif share >= DOMINATED_SHARE:
        value = _show(profile, int(profile.counts.argmax()))
        yield f"{value} has {profile.counts.max():,} of {profile.n_present:,} values."
    if profile.kind == "category" and profile.n_distinct == 2:
        yield f"Two values, like a boolean: {_show(profile, 0)} and {_show(profile, 1)}."
    is_key = profile.n_distinct == profile.n_present >= _MIN_COUNTER_ROWS
    if role == "number" and is_key and _is_integral(profile.numbers):
        yield "No integer occurs twice. If they identify rows, exclude the column."


def _show(profile: _Profile, index: int) -> str:
    """Return a distinct value as a text for a message."""
    value = profile.values[index].as_py()
    if profile.kind == "category":
        return quote(value, 40)
    return format_number(value) if profile.kind == "number" else str(float(value))


# Numbers


def _infer_number_role(profile: _Profile) -> tuple[Role, str]:
    """Return the role of a column of numbers, and the reason."""
    values = profile.numbers
    low, high = float(values.min()), float(values.max())
    if _is_integral(values):
        evidence = _describe_key(values, profile)
        if evidence:
            return "identifier", evidence
        evidence = _describe_code(np.sort(values), profile.n_present)
        if evidence:
            return "code", evidence
    limits = f"{format_number(low)} to {format_number(high)}"
    return "number", f"{profile.n_distinct:,} distinct numbers from {limits}."


def _is_integral(values: Values) -> bool:
    """Return whether all values are integers of at most 64 bits."""
    # Most measurements are recognised by their first values.
    for some in (values[:64], values):
        if not (np.abs(some) <= _MAX_INTEGER).all() or (np.rint(some) != some).any():
            return False
    return True


def _describe_key(values: Values, profile: _Profile) -> str | None:
    """Return the evidence that integers are keys, or None.

    Keys are counters, integers that repeat much less often than chance would have it, and numbers
    that fill a range of computer integers evenly.
    """
    n_present, n_distinct = profile.n_present, profile.n_distinct
    if n_present < _MIN_COUNTER_ROWS or n_distinct < 0.9 * n_present:
        return None
    ranked = np.sort(values)
    if not _may_be_times(ranked):
        counter = _describe_counter(values, ranked, profile)
        if counter:
            return counter
    return _describe_random_key(ranked, n_present)


def _describe_counter(values: Values, ranked: Values, profile: _Profile) -> str | None:
    """Return the evidence that integers count rows, or are a sample of such a counter.

    If n values were independent, R possible integers would repeat at least n - R (1 - exp(-n / R))
    times, whatever their distribution. Far fewer repeats mean that something keeps them unique.
    """
    n_present, n_distinct = profile.n_present, profile.n_distinct
    low, high = ranked[0], ranked[-1]
    n_possible = high - low + 1
    span = f"from {format_number(low)} to {format_number(high)}"
    if n_distinct == n_present:
        steps = np.diff(values)
        if (steps == steps[0]).all():
            return f"A counter: each row adds {format_number(steps[0])}, {span}."
        if n_possible == n_distinct:
            return f"A counter: each integer {span} occurs once."
        is_sorted = abs(np.sign(steps).mean()) >= 0.9
        if is_sorted and n_possible > 2 * profile.n_source_rows:
            return None  # elapsed time or a total, as far as the values show
    expected = n_present + n_possible * math.expm1(-n_present / n_possible)
    n_repeats = n_present - n_distinct
    if expected < _MIN_EXPECTED_REPEATS or n_repeats > _MAX_REPEATS * expected:
        return None
    is_even = _compute_distance(ranked, low, high + 1) <= _MAX_DISTANCE
    if not is_even and expected < _MANY_EXPECTED_REPEATS:
        return None
    return (
        f"{n_distinct:,} distinct integers in {n_present:,} rows {span}; at least "
        f"{expected:,.0f} repeats are expected by chance."
    )


def _describe_random_key(ranked: Values, n_present: int) -> str | None:
    """Return the evidence that distinct integers in ascending order are random keys, or None."""
    n_distinct = len(ranked)
    if n_distinct < _MIN_RANDOM_ROWS or not _has_even_last_digits(ranked):
        return None
    limit = 0.02 + 1.2 / math.sqrt(n_distinct)
    for low, high in _KEY_RANGES:
        inside = ranked[0] >= low and ranked[-1] < high
        if inside and _compute_distance(ranked, low, high) <= limit:
            return (
                f"{n_distinct:,} distinct integers in {n_present:,} rows fill the range from "
                f"{format_number(low)} to {format_number(high)} evenly."
            )
    return None


def _may_be_times(ranked: Values) -> bool:
    """Return whether integers in ascending order may be years, dates or seconds since 1970."""
    low, high = ranked[0], ranked[-1]
    if _YEARS[0] <= low and high <= _YEARS[1]:
        return True
    for ticks in (1.0, 1e3, 1e6, 1e9):
        if low >= ticks * _SECONDS_OF_1980 and high <= ticks * _SECONDS_OF_2100:
            return True
    return any(_are_calendar_dates(ranked, n_digits) for n_digits in (6, 8, 10, 12, 14))


def _are_calendar_dates(ranked: Values, n_digits: int) -> bool:
    """Return whether integers have the form yyyymm, yyyymmdd, yyyymmddhh, ... of `n_digits`."""
    scale = 10.0 ** (n_digits - 4)
    if ranked[0] < _YEARS[0] * scale or ranked[-1] >= (_YEARS[1] + 1) * scale:
        return False
    months = ranked // (scale / 100) % 100
    is_valid = (months >= 1) & (months <= 12)
    if n_digits >= 8:
        days = ranked // (scale / 10_000) % 100
        is_valid &= (days >= 1) & (days <= 31)
    return bool(is_valid.all())


def _compute_distance(ranked: Values, low: float, high: float) -> float:
    """Return the Kolmogorov distance of sorted values to the even distribution on [low, high)."""
    shares = (ranked - low) / (high - low)
    return float(np.abs(shares - (np.arange(len(ranked)) + 0.5) / len(ranked)).max())


def _has_even_last_digits(values: Values) -> bool:
    """Return whether the last digits of distinct integers are about equally frequent.

    Amounts are not: many are multiples of 5 or 10, or end with 9. Integers of more than 53 bits are
    not examined, because their last digits are rounded.
    """
    if np.abs(values).max() > 2.0**53:
        return True
    shares = np.bincount(np.abs(values % 10).astype(np.int64), minlength=10) / len(values)
    return bool(np.abs(shares - 0.1).max() <= 0.03 + 4 * math.sqrt(0.09 / len(values)))


def _describe_code(ranked: Values, n_present: int) -> str | None:
    """Return the evidence that distinct integers in ascending order are codes, or None.

    Codes such as postcodes have the same number of digits, fill the range of these digits, and
    leave most integers out although each code occurs often. A quantity that occurs as often would
    leave few integers out, except for rounded amounts, whose last digits are not even.
    """
    n_distinct, high = len(ranked), ranked[-1]
    if n_distinct < 50 or n_present < 5 * n_distinct or ranked[0] < 0 or high < 100:
        return None
    n_digits = len(str(int(high)))
    lowest = 10.0 ** (n_digits - 1)
    n_full = n_distinct - int(np.searchsorted(ranked, lowest))
    # Leading zeros are lost when codes become numbers.
    if n_full < 0.85 * n_distinct:
        return None
    is_sparse = n_distinct <= 0.5 * (high - ranked[0] + 1)
    is_even = _compute_distance(ranked, 0.0 if n_full < n_distinct else lowest, 10 * lowest) <= 0.2
    # Values of an instrument with a step of 3 or 7 have even last digits, too.
    has_step = np.gcd.reduce(np.diff(ranked).astype(np.int64)) > 1
    if has_step or not (is_sparse and is_even and _has_even_last_digits(ranked)):
        return None
    return (
        f"{n_distinct:,} codes of {n_digits} digits in {n_present:,} rows; "
        f"{1 - n_distinct / (high - ranked[0] + 1):.0%} of the integers between never occur."
    )


# Texts


@dataclass(frozen=True)
class _TextFormat:
    """How texts are written, from at most `_N_TEXTS` distinct texts."""

    n_tokens: float  # mean number of tokens that spaces separate
    length: float  # mean number of characters
    is_key: bool  # one token with digits, symbols or a fixed length, or mostly digits
    meaning: str  # "numbers" or "dates" if the texts are numbers or dates, else ""


def _infer_text_role(profile: _Profile) -> tuple[Role, str]:
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
        default = _show(profile, int(profile.counts.argmax()))
        reason = f"{reason} besides {default} in {n_default:,} rows"
    if written.meaning:
        reason = f"{reason}; they are {written.meaning} in a text column"
        is_key = written.meaning == "numbers" and _is_numeric_key(profile)
        return ("identifier" if is_key else "free text"), f"{reason}."
    if role == "free text":
        reason = f"{reason}, with {written.n_tokens:.1f} words on average"
    return role, f"{reason}."


def _choose_text_role(written: _TextFormat, n_values: int, share: float) -> Role | None:
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


def _is_numeric_key(profile: _Profile) -> bool:
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
    return _describe_key(texts.cast(pa.float64()).to_numpy(), profile) is not None


# Duplicates


def _find_original(
    profile: _Profile, column: int, earlier: dict[tuple[str, bytes], list[tuple[int, _Profile]]]
) -> int | None:
    """Return the index of the first earlier column with the same contents, or None.

    A column without one is added to `earlier`, which has columns by kind and digest.
    """
    if _compute_nats(profile) < _MIN_DUPLICATE_NATS:
        return None
    family = "number" if profile.kind == "boolean" else profile.kind
    candidates = earlier.setdefault((family, profile.digest), [])
    for index, candidate in candidates:
        if _is_copy(profile, candidate):
            return index
    if len(candidates) < _MAX_COMPARED:
        candidates.append((column, profile))
    return None


def _compute_nats(profile: _Profile) -> float:
    """Return how surely columns do not group the rows alike by chance: n log n - sum(c log c)."""
    missing = profile.n_rows - profile.n_present
    counts = np.append(profile.counts, missing) if missing else profile.counts
    return float(profile.n_rows * math.log(profile.n_rows) - counts @ np.log(counts))


def _is_copy(profile: _Profile, other: _Profile) -> bool:
    """Return whether columns that group the rows alike hold the same, written in another way."""
    if profile.kind == "category":
        # All columns of unique texts group the rows alike.
        is_unique = profile.n_distinct == profile.n_present
        return not is_unique or bool(profile.values.equals(other.values))
    return _is_linear_copy(profile.numbers, other.numbers)


def _is_linear_copy(values: Values, others: Values) -> bool:
    """Return whether numbers are a linear function of others, to rounding.

    A wider tolerance would join start and end times, whose differences are small.
    """
    if np.array_equal(values, others):
        return True
    first, last = int(others.argmin()), int(others.argmax())
    with np.errstate(over="ignore", invalid="ignore"):
        factor = (values[last] - values[first]) / (others[last] - others[first])
        scaled = factor * others
        errors = np.abs(values - values[first] - (scaled - scaled[first]))
        is_single = any((some.astype(np.float32) == some).all() for some in (values, others))
        precision = 2 * float(np.finfo(np.float32).eps) if is_single else 1e-12
        allowed = precision * np.maximum(np.abs(values), np.abs(scaled))
        return bool((errors <= allowed).all())


def _describe_duplicate(profile: _Profile, name: str) -> str:
    """Return why a column is a duplicate of the named one."""
    how = "renames the values" if profile.kind == "category" else "is a linear function"
    return f"In all {profile.n_rows:,} rows, it equals or {how} of column {name}."


# Roles that the user states


def parse_roles(entries: Sequence[str], names: Sequence[str]) -> dict[str, AskedRole]:
    """Parse entries of the option --as, such as "category:zip,text:note", to roles by name.

    The name begins after the first colon, so it may have colons itself. As in --columns, an entry
    is split at its commas, unless all after its first colon is the name of a column. A name with a
    comma therefore needs an entry of its own. Unknown roles, unknown names and names that occur
    twice raise a `ParameterError`.

    >>> parse_roles(["category:zip,text:note", "number:a,b"], ["zip", "note", "a,b"])
    {'zip': 'category', 'note': 'text', 'a,b': 'number'}
    """
    found: dict[str, AskedRole] = {}
    for entry in [entries] if isinstance(entries, str) else entries:
        is_name = entry.partition(":")[2].strip() in names
        for item in [entry] if is_name else entry.split(","):
            role, name = _parse_role(item, names)
            if name in found:
                raise ParameterError(
                    f"--as names column {quote(name)} twice. State one role for each column."
                )
            found[name] = role
    return found


def _parse_role(item: str, names: Sequence[str]) -> tuple[AskedRole, str]:
    """Parse one ROLE:NAME; an unknown role or name raises a `ParameterError`."""
    known: tuple[AskedRole, ...] = get_args(AskedRole)
    text, colon, name = (piece.strip() for piece in item.partition(":"))
    role = next((role for role in known if role == text), None)
    if not colon or role is None:
        raise ParameterError(
            f"--as: {quote(item)} does not begin with a role. Write ROLE:NAME for each column, "
            f"with one of {', '.join(known)}; a name with a comma needs an option of its own."
        )
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"Did you mean {quote(near[0])}?" if near else f"There are {list_names(names)}."
        raise ParameterError(f"--as names {quote(name)}, but no column has it. {hint}")
    return role, name


# Kinds of columns that can have a role, and what to do with another column.
_POSSIBLE: Mapping[AskedRole, tuple[tuple[Kind, ...], str]] = {
    "number": (
        ("number", "boolean"),
        "Convert its values to numbers, or pass --missing for each text that is none.",
    ),
    "date": (("date",), "Convert its values to dates, or write them in one date format."),
    "category": (("category", "number", "boolean"), "Convert its values to text."),
    "text": (("category",), "Use category or identifier, or convert its values to text."),
    "identifier": (("category", "number", "date"), "Exclude the column instead."),
}


def role_from_override(
    name: str, asked: AskedRole, kind: Kind, inferred: ColumnRole | None = None
) -> ColumnRole:
    """Return the role that a user asked for; `inferred` is the role that it replaces, if any.

    A role that is not possible for the kind of the column raises a `ParameterError`.
    """
    kinds, advice = _POSSIBLE[asked]
    if kind not in kinds:
        holds = {"category": "text", "date": "dates", "number": "numbers", "boolean": "booleans"}
        raise ParameterError(
            f"--as {asked}:{shorten(name, 40)}: column {quote(name)} holds {holds[kind]}, so it "
            f"cannot have the role {asked}. {advice}"
        )
    role: Role = asked if asked != "text" else "free text"
    if asked == "category" and kind == "number":
        role = "code"
    elif kind == "boolean":
        role = "boolean"
    if inferred is None:
        return ColumnRole(role=role, reason="Stated by the user.", is_asked=True)
    return replace(
        inferred,
        role=role,
        reason=shorten(f"Stated by the user; inferred: {inferred.role} ({inferred.reason})", 400),
        repeated_share=inferred.repeated_share if role == "identifier" else 0.0,
        duplicate_of=None,
        is_asked=True,
    )
