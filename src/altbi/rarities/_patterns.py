"""Rarity of how texts are written: their characters, format and length."""

import itertools
import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, NamedTuple, TypeAlias, TypeVar, final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

MIN_VALUES = 20
# Formats and spellings that are kept for a column; others count as not seen.
MAX_FORMATS = 1_000
MAX_SPELLINGS = 1_000
# Characters of a text that are read, and those that its format is made of.
MAX_CHARACTERS = 1_000
MAX_FORMAT_CHARACTERS = 64

# Everything is counted twice: by rows, and by distinct values with the weight log(count) + 0.1.
# The second count protects a rare category whose format is also that of other categories, and it
# lets established values decide what is usual. The lower one of both rarities is used.
SINGLE_WEIGHT = 0.1
_SINGLE_WEIGHTS = np.array([1.0, SINGLE_WEIGHT])
# Formats up to this many times as frequent as a format count as equally rare, so that a rare
# format is not unusual where rare formats are common. Among numbers, those with one digit less are
# ten times as rare without being unusual, so the limit for rows is above ten.
_POOLING = np.array([12.0, 3.0])
_ROUNDING = 1 + 1e-9  # sums of weights are not exact

# The length has four bins in each octave. Lengths that differ by less than three bins, a factor of
# 1.7, count as equal.
N_LENGTHS = 64
_BINS_PER_OCTAVE = 4
_LENGTH_POOLING = 3

MAX_RARITY = 50.0  # more than the logarithms of counts can give
# Messages name a trait rather than a spelling if its rarity is nearly as high.
_PREFERENCE = 0.8
_MIN_DESCRIBED = 1.0
_MAX_EXAMPLE = 24

_UPPER, _LOWER, _CASELESS, _DIGIT, _SPACE, _SYMBOL, _CONTROL = "AaX9 sc"
_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_CLASS_OF_CATEGORY = {
    "Lu": _UPPER,
    "Lt": _UPPER,
    "Ll": _LOWER,
    "L": _CASELESS,
    "M": _CASELESS,
    "N": _DIGIT,
    "Z": _SPACE,
    "P": _SYMBOL,
    "S": _SYMBOL,
    "C": _CONTROL,
}
_CLASS_NAMES = {
    _UPPER: "an upper-case letter",
    _LOWER: "a lower-case letter",
    _CASELESS: "a letter without case",
    _DIGIT: "a digit",
    _SPACE: "a space",
    _SYMBOL: "a symbol outside ASCII",
    _CONTROL: "a control character",
    **{character: f"the character {character!r}" for character in _PUNCTUATION},
}
_BIT_OF_CLASS = {name: 1 << index for index, name in enumerate(_CLASS_NAMES)}
_OTHER_NAMES = (
    "a letter outside ASCII",
    "a space at the start or end",
    "two spaces in a row",
    "a lower-case first letter",
    "a capital after a lower-case letter",
    "a digit next to a letter",
)
# What a text can have, as it is named in messages.
TRAITS = (*_CLASS_NAMES.values(), *_OTHER_NAMES)
N_TRAITS = len(TRAITS)
# What an equal character, or an equal token, follows.
_REPEATED_CLASS = re.compile(r"(.)(?=\1)")
_REPEATED_TOKEN = re.compile(r"(?<!\S)(\S+ )(?=\1)")
_DIGIT_NEXT_TO_LETTER = re.compile("[AaX]9|9[AaX]")

Nats = Annotated[float, msgspec.Meta(ge=0, le=MAX_RARITY)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Signature = Annotated[str, msgspec.Meta(max_length=MAX_FORMAT_CHARACTERS)]
_SIZE_OF_TRAITS = msgspec.Meta(min_length=N_TRAITS, max_length=N_TRAITS)
_SIZE_OF_LENGTHS = msgspec.Meta(min_length=N_LENGTHS, max_length=N_LENGTHS)
Floats: TypeAlias = NDArray[np.float64]
_Key = TypeVar("_Key", int, str)


class _ClassTable(dict[int, str]):
    """Table for `str.translate` that replaces each character by its class."""

    def __missing__(self, code: int) -> str:
        """Return the class of a character that is not in the table."""
        category = unicodedata.category(chr(code))
        return _CLASS_OF_CATEGORY.get(category) or _CLASS_OF_CATEGORY[category[0]]


_CLASS_TABLE = _ClassTable({code: _ClassTable()[code] for code in range(128)})
_CLASS_TABLE.update({ord(character): character for character in _PUNCTUATION})


class Writing(NamedTuple):
    """How a text is written."""

    traits: int  # one bit for each of `TRAITS`
    spelling: str  # the class of each character: "AAA-999"
    length: int  # bin of the length

    @property
    def format(self) -> str:
        """The spelling without repeats ("A-9"); equal tokens in a row count once."""
        return _REPEATED_TOKEN.sub("", _REPEATED_CLASS.sub("", self.spelling))


def read_writing(text: str) -> Writing:
    """Return how a text is written; of a long text, only the start is read."""
    is_ascii = text.isascii()
    if not is_ascii:
        text = unicodedata.normalize("NFC", text)
    length = min(int(_BINS_PER_OCTAVE * math.log2(len(text) + 1)), N_LENGTHS - 1)
    text = text[:MAX_CHARACTERS]
    classes = text.translate(_CLASS_TABLE)
    others = (
        not is_ascii and any(c > "\x7f" and c.isalpha() for c in text),
        classes[:1] == _SPACE or classes[-1:] == _SPACE,
        "  " in classes,
        classes[:1] == _LOWER,
        _LOWER + _UPPER in classes,
        _DIGIT_NEXT_TO_LETTER.search(classes) is not None,
    )
    traits = sum(map(_BIT_OF_CLASS.__getitem__, set(classes)))
    for bit, has_trait in enumerate(others, len(_BIT_OF_CLASS)):
        traits |= has_trait << bit
    return Writing(traits, classes[:MAX_FORMAT_CHARACTERS], length)


class Format(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, gc=False):
    """A format of values of the column, such as "A-9"."""

    signature: Signature
    rarity: Nats
    unseen: Nats  # added for a spelling that no value has


class Spelling(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, gc=False):
    """A spelling of values of the column, such as "AAA-999"."""

    signature: Signature
    rarity: Nats  # includes the rarity of the format


@final
class TextPatterns(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True
):
    """Rarities of how the texts of a column are written.

    The rarity of a format is ``log(total / tail)``, where `tail` counts the values with this
    format and all formats that are about as rare or rarer. In a column in which rare formats
    together are common, it is therefore low. Characters and lengths are treated alike, and the
    highest of the three rarities counts.

    Examples
    --------
    >>> import pyarrow as pa
    >>> codes = [f"AB-{number}" for number in range(100, 400)]
    >>> patterns = fit_text_patterns(pa.array([*codes, "ab-7"], pa.large_string()))
    >>> patterns.score(pa.array(["AB-250", "AB-900", "ab-7", None], pa.large_string())).round(1)
    array([0., 0., 5., 0.])
    >>> patterns.describe("ab-7")
    'no lower-case letter, as in 99.7 % of the values'
    """

    # Share of the rows with each trait, and the rarities of having it and of lacking it.
    shares: Annotated[tuple[Share, ...], _SIZE_OF_TRAITS]
    having: Annotated[tuple[Nats, ...], _SIZE_OF_TRAITS]
    lacking: Annotated[tuple[Nats, ...], _SIZE_OF_TRAITS]
    # Only formats and spellings whose rarity differs from that of ones that no value has.
    formats: Annotated[tuple[Format, ...], msgspec.Meta(max_length=MAX_FORMATS)]
    spellings: Annotated[tuple[Spelling, ...], msgspec.Meta(max_length=MAX_SPELLINGS)]
    unseen: Nats  # rarity of a format that no value has
    usual: Signature  # the most frequent spelling
    lengths: Annotated[tuple[Nats, ...], _SIZE_OF_LENGTHS]

    def __post_init__(self) -> None:
        """Raise a `ValueError` if formats or spellings repeat."""
        for name, known in (("format", self.formats), ("spelling", self.spellings)):
            if len({item.signature for item in known}) < len(known):
                raise ValueError(f"text patterns: two entries for the same {name}")

    @cached_property
    def _formats(self) -> dict[str, Format]:
        """The formats by signature."""
        return {known.signature: known for known in self.formats}

    @cached_property
    def _spellings(self) -> dict[str, float]:
        """The rarities of spellings by signature."""
        return {known.signature: known.rarity for known in self.spellings}

    def score(self, values: pa.Array) -> Floats:
        """Return the rarity ``(n_rows,)`` of how each text is written; 0 for missing values."""
        encoded = values.dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        trait_rarities: dict[int, float] = {}
        rarities = np.zeros(len(texts) + 1)  # the last one is that of missing values
        for index, text in enumerate(texts):
            writing = read_writing(text)
            trait = trait_rarities.get(writing.traits)
            if trait is None:
                trait = trait_rarities[writing.traits] = max(self._list_traits(writing.traits))
            rarities[index] = max(
                trait, self._score_spelling(writing), self.lengths[writing.length]
            )
        indices = pc.fill_null(encoded.indices, len(texts)).to_numpy(zero_copy_only=False)
        found: Floats = rarities[indices]
        return found

    def describe(self, text: str) -> str:
        """Return how values are usually written, unlike this text; "" if it is usual, too."""
        writing = read_writing(text)
        traits = self._list_traits(writing.traits)
        spelling, length = self._score_spelling(writing), self.lengths[writing.length]
        highest = max(*traits, spelling, length)
        if highest < _MIN_DESCRIBED:
            return ""
        if max(traits) >= _PREFERENCE * highest:
            return self._describe_trait(writing.traits, traits)
        if spelling >= length:
            usual, own = _shorten_pair(self.usual, writing.spelling)
            return f"a text like {usual}, not {own}"
        is_long = writing.length > np.argmin(self.lengths)
        return f"a {'shorter' if is_long else 'longer'} text ({len(text)} characters here)"

    def _score_spelling(self, writing: Writing) -> float:
        """Return the rarity of the spelling of a text."""
        rarity = self._spellings.get(writing.spelling)
        if rarity is not None:
            return rarity
        known = self._formats.get(writing.format)
        return min(known.rarity + known.unseen, MAX_RARITY) if known else self.unseen

    def _list_traits(self, traits: int) -> list[float]:
        """Return, for each trait, the rarity of having it or of lacking it."""
        pairs = enumerate(zip(self.having, self.lacking, strict=True))
        return [has if traits >> bit & 1 else lacks for bit, (has, lacks) in pairs]

    def _describe_trait(self, traits: int, rarities: Sequence[float]) -> str:
        """Return the trait with the highest rarity; of equal ones, one that the text has."""
        _, has_trait, bit = max((r, traits >> bit & 1, -bit) for bit, r in enumerate(rarities))
        name, share = TRAITS[-bit], self.shares[-bit]
        if has_trait:
            bare = name.removeprefix("an ").removeprefix("a ").removeprefix("the ")
            return f"no {bare}, as in {_format_share(1 - share)} of the values"
        return f"{name}, as in {_format_share(share)} of the values"


def _shorten_pair(first: str, second: str) -> tuple[str, str]:
    """Return two signatures in quotes, without their ends if they are long.

    Their starts are left out, too, if the difference would not be shown otherwise.
    """
    pairs = zip(first, second, strict=False)
    n_equal = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    start = max(n_equal - _MAX_EXAMPLE // 2, 0) if n_equal >= _MAX_EXAMPLE - 1 else 0
    return _shorten(first, start), _shorten(second, start)


def _shorten(signature: str, start: int) -> str:
    """Return the part of a signature from `start` on in quotes, without its end if it is long."""
    shown = ("…" if start else "") + signature[start:]
    return repr(shown[: _MAX_EXAMPLE - 1] + "…" if len(shown) > _MAX_EXAMPLE else shown)


def _format_share(share: float) -> str:
    """Return a share in per cent; "all" only if it is exactly 1."""
    if share == 1:
        return "all"
    return "more than 99.9 %" if share > 0.9995 else f"{share:.1%}".replace("%", " %")


def fit_text_patterns(values: pa.Array) -> TextPatterns | None:
    """Fit the rarities of how texts are written; None if there are fewer than 20 values."""
    counted = values.drop_null().value_counts()
    counts_by_text = zip(
        counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True
    )
    texts, counts = zip(*sorted(counts_by_text), strict=True) if len(counted) else ((), ())
    if sum(counts) < MIN_VALUES:
        return None
    writings = [read_writing(text) for text in texts]
    weights = np.stack([counts, np.log(counts) + SINGLE_WEIGHT], axis=1)
    shares, having, lacking = _fit_traits(_sum_weights([w.traits for w in writings], weights))
    formats, spellings, unseen = _fit_formats(writings, weights)
    rows_by_spelling = _sum_weights([w.spelling for w in writings], weights)
    return TextPatterns(
        shares=tuple(shares.tolist()),
        having=tuple(having.tolist()),
        lacking=tuple(lacking.tolist()),
        formats=formats,
        spellings=spellings,
        unseen=unseen,
        usual=max(rows_by_spelling, key=lambda signature: rows_by_spelling[signature][0]),
        lengths=tuple(_fit_lengths([w.length for w in writings], weights).tolist()),
    )


def _sum_weights(keys: Sequence[_Key], weights: Floats) -> dict[_Key, Floats]:
    """Return the sum of the weights ``(2,)`` of the values with each key, in order of the keys."""
    sums: defaultdict[_Key, Floats] = defaultdict(lambda: np.zeros(2))
    for key, weight in zip(keys, weights, strict=True):
        sums[key] += weight
    return dict(sums)


def _compute_rarities(keys: Floats, masses: Floats, wanted: Floats) -> Floats:
    """Compute the rarities ``(n_wanted,)`` of items with `wanted` weights ``(n_wanted, 2)``.

    The tail consists of the items whose key is at most `_POOLING` times the wanted weight. The
    items have the `masses` ``(n_items, 2)``. One single value is added to tail and total, so that
    no rarity is infinite.
    """
    rarities = []
    for index, single in enumerate(_SINGLE_WEIGHTS):
        order = np.argsort(keys[:, index], kind="stable")
        sums = np.concatenate([[0.0], np.cumsum(masses[order, index])])
        limits = _POOLING[index] * np.maximum(wanted[:, index], single) * _ROUNDING
        tails = sums[np.searchsorted(keys[order, index], limits, side="right")]
        rarities.append(np.log((sums[-1] + single) / (tails + single)))
    lower: Floats = np.clip(np.minimum(*rarities), 0.0, MAX_RARITY)
    return lower


def _fit_traits(masses_by_traits: dict[int, Floats]) -> tuple[Floats, Floats, Floats]:
    """Return the share of rows with each trait, and the rarities of having and lacking it.

    The key of a value, which decides whether it belongs to the tail, is the weight of the rarest
    trait that it has or lacks.
    """
    masks = [[mask >> bit & 1 for bit in range(N_TRAITS)] for mask in masses_by_traits]
    has_trait = np.array(masks, bool)
    masses = np.array(list(masses_by_traits.values()))
    having = has_trait.T.astype(np.float64) @ masses
    lacking = (~has_trait).T.astype(np.float64) @ masses
    keys = np.where(has_trait[:, :, np.newaxis], having, lacking).min(axis=1)
    shares = having[:, 0] / masses[:, 0].sum()
    return (
        shares,
        _compute_rarities(keys, masses, having),
        _compute_rarities(keys, masses, lacking),
    )


class _FormatFit(NamedTuple):
    """A format with its spellings, before those that are not needed are left out."""

    signature: str
    mass: float  # number of rows
    rarity: float
    unseen: float
    spellings: tuple[tuple[str, float, float], ...]  # signature, number of rows, rarity


def _fit_formats(
    writings: Sequence[Writing], weights: Floats
) -> tuple[tuple[Format, ...], tuple[Spelling, ...], float]:
    """Return the known formats and spellings and the rarity of a format that no value has."""
    by_format: defaultdict[str, list[int]] = defaultdict(list)
    for index, writing in enumerate(writings):
        by_format[writing.format].append(index)
    masses = np.array([weights[members].sum(axis=0) for members in by_format.values()])
    wanted = np.vstack([masses, _SINGLE_WEIGHTS])
    *rarities, unseen = _compute_rarities(masses, masses, wanted).tolist()
    fitted = [
        _fit_spellings(signature, rarity, [writings[i].spelling for i in members], weights[members])
        for (signature, members), rarity in zip(by_format.items(), rarities, strict=True)
    ]
    fitted, spellings = _choose_spellings(fitted)
    formats, unseen = _choose_formats(fitted, unseen)
    return formats, spellings, unseen


def _fit_spellings(
    signature: str, rarity: float, spellings: Sequence[str], weights: Floats
) -> _FormatFit:
    """Return a format with the rarities of its spellings among the values of this format."""
    mass = float(weights[:, 0].sum())
    if mass == 1:  # most formats of free texts, for which the rest would take long
        return _FormatFit(signature, mass, rarity, 0.0, ((spellings[0], mass, 0.0),))
    sums = _sum_weights(spellings, weights)
    masses = np.array(list(sums.values()))
    wanted = np.vstack([masses, _SINGLE_WEIGHTS])
    *rarities, unseen = _compute_rarities(masses, masses, wanted).tolist()
    return _FormatFit(
        signature,
        mass,
        rarity,
        unseen,
        tuple(zip(sums, masses[:, 0].tolist(), rarities, strict=True)),
    )


def _choose_spellings(
    fitted: Sequence[_FormatFit],
) -> tuple[list[_FormatFit], tuple[Spelling, ...]]:
    """Return the most frequent spellings that are needed, and the formats without the others.

    A spelling is not needed if one that no value has is as rare. If there are too many, the rarity
    of a spelling that no value has is lowered to that of the ones left out.
    """
    needed = [
        (-mass, signature, index, rarity)
        for index, known in enumerate(fitted)
        for signature, mass, rarity in known.spellings
        if rarity < known.unseen
    ]
    needed.sort()
    chosen = list(fitted)
    for _, _, index, rarity in needed[MAX_SPELLINGS:]:
        chosen[index] = chosen[index]._replace(unseen=min(chosen[index].unseen, rarity))
    spellings = tuple(
        Spelling(signature=signature, rarity=min(fitted[index].rarity + rarity, MAX_RARITY))
        for _, signature, index, rarity in needed[:MAX_SPELLINGS]
    )
    return chosen, spellings


def _choose_formats(
    fitted: Sequence[_FormatFit], unseen: float
) -> tuple[tuple[Format, ...], float]:
    """Return the most frequent formats that are needed, and the rarity of all others."""
    needed = [known for known in fitted if known.rarity + known.unseen != unseen]
    needed.sort(key=lambda known: (-known.mass, known.signature))
    formats = tuple(
        Format(signature=known.signature, rarity=known.rarity, unseen=known.unseen)
        for known in needed[:MAX_FORMATS]
    )
    return formats, min([unseen, *(known.rarity for known in needed[MAX_FORMATS:])])


def _fit_lengths(bins: Sequence[int], weights: Floats) -> Floats:
    """Return the rarity of each bin of the length: how few values are as short, or as long."""
    masses = np.zeros((N_LENGTHS, 2))
    np.add.at(masses, list(bins), weights)
    total = masses.sum(axis=0)
    shorter = np.cumsum(masses, axis=0)
    longer = np.cumsum(masses[::-1], axis=0)[::-1]
    # Slightly longer values count as equally short, and the other way round.
    indices = np.arange(N_LENGTHS)
    shorter = shorter[np.minimum(indices + _LENGTH_POOLING, N_LENGTHS - 1)]
    longer = longer[np.maximum(indices - _LENGTH_POOLING, 0)]
    tails = np.minimum(shorter, longer)
    rarities = np.log((total + _SINGLE_WEIGHTS) / (tails + _SINGLE_WEIGHTS))
    lower: Floats = np.clip(rarities.min(axis=1), 0.0, MAX_RARITY)
    return lower
