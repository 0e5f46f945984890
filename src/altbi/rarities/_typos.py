"""Rarity of texts that look like a misspelled frequent category of their column."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Annotated, NamedTuple, TypeAlias, final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

# A category that occurs at least this often can be the one that was meant.
MIN_COUNT = 5
MAX_CATEGORIES = 2_000
MAX_CATEGORY_CHARACTERS = 60_000  # of all categories; a text is compared with each of them
MAX_REPEATED = 10_000
MAX_REPEATED_CHARACTERS = 200_000
MAX_LENGTH = 256  # longer texts are never typos
# The category that was meant is at least this many times as frequent as the typo, and more if the
# typo occurs often enough to be a category. Other categories are comparable with each other.
MIN_RATIO = 5
MIN_CATEGORY_RATIO = 20

# Largest distance, as a share of the length of the longer text; one edit is always close enough.
# Single tokens may differ more, but not so much that they are other words.
CLOSENESS = 0.2
TOKEN_CLOSENESS = 1 / 3
MIN_EDITED_LENGTH = 3  # shorter texts may differ in case and spaces only
# Closeness means nothing if more than half of the categories are as close to another one.
MAX_CROWDING = 0.5
N_STEPS = 21  # the last one is for 20 edits and more

_N_BLOCK = 500  # texts compared with all categories at once
_N_CHECKED = 8  # close categories of a text whose tokens are compared
_MAX_CACHED = 100_000
_TOKEN_BOUNDARY = re.compile(r"[\W_]+")

Text = Annotated[str, msgspec.Meta(max_length=MAX_LENGTH)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Crowding = Annotated[tuple[Share, ...], msgspec.Meta(min_length=N_STEPS, max_length=N_STEPS)]
Indices: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


class _Pairs(NamedTuple):
    """Pairs of a text and a category that are close to each other."""

    texts: Indices
    categories: Indices
    edits: Indices  # number of inserted, deleted, replaced and transposed characters
    distances: Floats  # edits divided by the length of the longer text
    has_same_digits: NDArray[np.bool_]


class _Match(NamedTuple):
    """The category that a text looks like, or -1, and the rarity of the text."""

    category: int
    rarity: float


@final
class Misspellings(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True
):
    """Rarities of texts that are close to a much more frequent category.

    The rarity is ``log(count / own count) * (1 - distance) * (1 - crowding) ** 2``. The distance is
    the number of edits (inserted, deleted, replaced and transposed characters), divided by the
    length. The crowding is the share of the frequent categories that are as few edits away from
    another one, so that codes such as "A1" and "A2" are no typos of each other. It is counted
    separately for pairs of texts with equal digits and for those in which digits differ.

    Examples
    --------
    >>> import pyarrow as pa
    >>> cities = ["Leeds"] * 30 + ["Birmingham"] * 50 + ["Birminghm"]
    >>> typos = fit_misspellings(pa.array(cities, pa.large_string()))
    >>> typos.score(pa.array(["Birmingham", "Birminghm", "leeds", "York"])).round(1)
    array([0. , 2.4, 2.4, 0. ])
    >>> typos.suggest(["Birminghm", "York"])
    [('Birmingham', 50), None]
    """

    # Frequent categories, the most frequent ones first.
    categories: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1, max_length=MAX_CATEGORIES)]
    counts: Annotated[tuple[Count, ...], msgspec.Meta(max_length=MAX_CATEGORIES)]
    # Other values that occur more than once. All others count as values that occur once.
    repeated: Annotated[tuple[Text, ...], msgspec.Meta(max_length=MAX_REPEATED)]
    repeated_counts: Annotated[tuple[Count, ...], msgspec.Meta(max_length=MAX_REPEATED)]
    # Share of the categories with another one at most 0, 1, 2 ... edits away.
    crowding_same_digits: Crowding
    crowding_other_digits: Crowding

    def __post_init__(self) -> None:
        """Raise a `ValueError` if fields contradict each other."""
        texts = (*self.categories, *self.repeated)
        rules = {
            "a count for each category": len(self.categories) == len(self.counts),
            "a count for each repeated value": len(self.repeated) == len(self.repeated_counts),
            "distinct texts": len(set(texts)) == len(texts),
            "short categories": sum(map(len, self.categories)) <= MAX_CATEGORY_CHARACTERS,
            "short repeated values": sum(map(len, self.repeated)) <= MAX_REPEATED_CHARACTERS,
            "the most frequent category first": self.counts[:1] == (max(self.counts, default=0),),
        }
        if not all(rules.values()):
            broken = next(rule for rule, holds in rules.items() if not holds)
            raise ValueError(f"misspellings: expected {broken}")

    @cached_property
    def _own_counts(self) -> dict[str, int]:
        """The counts of all texts that are kept."""
        texts, counts = self.categories + self.repeated, self.counts + self.repeated_counts
        return dict(zip(texts, counts, strict=True))

    @cached_property
    def _index(self) -> "_CategoryIndex":
        """The categories, prepared for comparisons."""
        return _CategoryIndex(self.categories, self.counts)

    @cached_property
    def _crowding(self) -> Floats:
        """The crowding ``(2, N_STEPS)``: other digits, same digits."""
        return np.array([self.crowding_other_digits, self.crowding_same_digits])

    @cached_property
    def _cache(self) -> dict[str, _Match]:
        """The matches of texts that were compared before."""
        return {}

    def score(self, values: pa.Array) -> Floats:
        """Return the rarities ``(n_rows,)`` of texts; 0 if they look like no category."""
        encoded = values.dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        rarities = np.array([*(match.rarity for match in self._find(texts)), 0.0])
        indices = pc.fill_null(encoded.indices, len(texts)).to_numpy(zero_copy_only=False)
        found: Floats = rarities[indices]
        return found

    def suggest(self, texts: Iterable[str]) -> list[tuple[str, int] | None]:
        """Return, for each text, the category that it looks like and its count, or None."""
        indices = [match.category for match in self._find(list(texts))]
        return [(self.categories[i], self.counts[i]) if i >= 0 else None for i in indices]

    def _find(self, texts: Sequence[str]) -> list[_Match]:
        """Return the matches of texts, from the cache if they were compared before."""
        limit = max(self.counts)
        known = {
            text: _Match(-1, 0.0)
            for text in texts
            if len(text) > MAX_LENGTH or self._own_counts.get(text, 1) * MIN_RATIO > limit
        }
        cached = ((text, self._cache.get(text)) for text in texts if text not in known)
        known |= {text: match for text, match in cached if match is not None}
        new = list(dict.fromkeys(text for text in texts if text not in known))
        found = dict(zip(new, self._compare(new), strict=True))
        if len(self._cache) + len(found) > _MAX_CACHED:
            self._cache.clear()
        if len(found) <= _MAX_CACHED:
            self._cache.update(found)
        known |= found
        return [known[text] for text in texts]

    def _compare(self, texts: Sequence[str]) -> list[_Match]:
        """Return the matches of texts with the categories."""
        matches = [_Match(-1, 0.0)] * len(texts)
        if self._crowding[:, 0].min() > MAX_CROWDING:
            return matches
        folded = [_fold(text) for text in texts]
        counts = np.array([self._own_counts.get(text, 1) for text in texts])
        for pairs in self._index.find_close(folded):
            rarities = self._score_pairs(pairs, counts)
            best = _choose_pairs(pairs, -rarities, rarities > 0)
            for row, category, rarity in zip(
                pairs.texts[best].tolist(),
                pairs.categories[best].tolist(),
                rarities[best].tolist(),
                strict=True,
            ):
                is_new = matches[row].category < 0
                if is_new and _has_close_tokens(folded[row], self._index.folded[category]):
                    matches[row] = _Match(category, rarity)
        return matches

    def _score_pairs(self, pairs: _Pairs, own_counts: Indices) -> Floats:
        """Return the rarity of each pair's text as a typo of its category."""
        edits = np.minimum(pairs.edits, N_STEPS - 1)
        crowding = self._crowding[pairs.has_same_digits.astype(np.int64), edits]
        counts, own = self._index.counts[pairs.categories], own_counts[pairs.texts]
        # Looked-up logarithms do not depend on the number of pairs.
        distinct, inverse = np.unique(own, return_inverse=True)
        log_own = np.array([math.log(count) for count in distinct.tolist()])[inverse]
        ratios = self._index.log_counts[pairs.categories] - log_own
        min_ratios = np.where(own < MIN_COUNT, MIN_RATIO, MIN_CATEGORY_RATIO)
        is_typo = (counts >= min_ratios * own) & (crowding <= MAX_CROWDING)
        rarities: Floats = ratios * (1 - pairs.distances) * (1 - crowding) ** 2 * is_typo
        return rarities


def fit_misspellings(values: pa.Array) -> Misspellings | None:
    """Fit the frequent categories of a column; None if no value occurs five times."""
    counted = values.drop_null().value_counts()
    texts, counts = counted.field("values").to_pylist(), counted.field("counts").to_pylist()
    pairs = zip(texts, counts, strict=True)
    ranked = [(text, n) for text, n in pairs if n > 1 and len(text) <= MAX_LENGTH]
    ranked.sort(key=lambda pair: (-pair[1], pair[0]))
    frequent = [pair for pair in ranked if pair[1] >= MIN_COUNT][:MAX_CATEGORIES]
    frequent = _limit_characters(frequent, MAX_CATEGORY_CHARACTERS)
    if not frequent:
        return None
    rest = _limit_characters(ranked[len(frequent) :][:MAX_REPEATED], MAX_REPEATED_CHARACTERS)
    categories, category_counts = zip(*frequent, strict=True)
    other_digits, same_digits = _compute_crowding(_CategoryIndex(categories, category_counts))
    return Misspellings(
        categories=categories,
        counts=category_counts,
        repeated=tuple(text for text, _ in rest),
        repeated_counts=tuple(count for _, count in rest),
        crowding_same_digits=same_digits,
        crowding_other_digits=other_digits,
    )


def _limit_characters(pairs: list[tuple[str, int]], limit: int) -> list[tuple[str, int]]:
    """Return the first pairs, whose texts have at most `limit` characters together."""
    n_characters = np.cumsum([len(text) for text, _ in pairs])
    return pairs[: int(np.searchsorted(n_characters, limit, side="right"))]


def _compute_crowding(index: "_CategoryIndex") -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the crowding by edits, for pairs with other digits and with the same digits.

    With the same digits, a category counts only if it is not a typo itself, which is closer to a
    much more frequent category than to all comparable ones.
    """
    shape = len(index.folded)
    other_digits, comparable, meant = (np.full(shape, np.inf) for _ in range(3))
    for pairs in index.find_close(index.folded):
        is_other = pairs.texts != pairs.categories
        _lower(other_digits, pairs, np.flatnonzero(is_other & ~pairs.has_same_digits))
        counts, others = index.counts[pairs.texts], index.counts[pairs.categories]
        is_meant = others >= MIN_CATEGORY_RATIO * counts
        is_comparable = is_other & ~is_meant & (counts < MIN_CATEGORY_RATIO * others)
        for nearest, is_wanted in ((comparable, is_comparable), (meant, is_meant)):
            chosen = _choose_pairs(pairs, pairs.edits, is_wanted & pairs.has_same_digits)
            rows, columns = pairs.texts[chosen].tolist(), pairs.categories[chosen].tolist()
            texts = [(index.folded[i], index.folded[j]) for i, j in zip(rows, columns, strict=True)]
            has_close_tokens = [_has_close_tokens(*both) for both in texts]
            _lower(nearest, pairs, chosen[np.array(has_close_tokens, bool)])
    comparable[meant < comparable] = np.inf
    # With few categories, one that is close by chance must not be ruled out. Where digits differ,
    # it is likelier.
    return _count_close(other_digits, 1.0), _count_close(comparable, 0.5)


def _lower(nearest: Floats, pairs: _Pairs, chosen: Indices) -> None:
    """Set `nearest` to the number of edits of the chosen pairs, where that is lower."""
    np.minimum.at(nearest, pairs.texts[chosen], pairs.edits[chosen])


def _count_close(nearest: Floats, n_added: float) -> tuple[float, ...]:
    """Return the share of categories with another one at most 0, 1, 2 ... edits away."""
    n_close = (nearest[:, np.newaxis] <= np.arange(N_STEPS)).sum(axis=0)
    return tuple(((n_close + n_added) / (len(nearest) + 1)).tolist())


def _choose_pairs(pairs: _Pairs, keys: Floats | Indices, is_allowed: NDArray[np.bool_]) -> Indices:
    """Return the indices of the allowed pairs with the smallest keys, at most 8 for each text."""
    allowed = np.flatnonzero(is_allowed)
    order = np.lexsort((pairs.categories[allowed], keys[allowed], pairs.texts[allowed]))
    chosen = allowed[order]
    texts = pairs.texts[chosen]
    ranks = np.arange(len(texts)) - np.searchsorted(texts, texts)
    return chosen[ranks < _N_CHECKED]


@final
class _CategoryIndex:
    """Frequent categories, sorted by length for comparisons with other texts."""

    def __init__(self, categories: Sequence[str], counts: Sequence[int]) -> None:
        self.folded = [_fold(category) for category in categories]
        self.counts = np.array(counts)
        self.log_counts = np.array([math.log(count) for count in counts])
        lengths = np.array([len(text) for text in self.folded])
        self._order = np.argsort(lengths, kind="stable")
        self._lengths = lengths[self._order]
        self._sorted = [self.folded[index] for index in self._order]
        self._digit_codes: dict[str, int] = {}
        codes = [self._digit_codes.setdefault(d, len(self._digit_codes)) for d in self._digits()]
        self._digits_of_sorted = np.array(codes)

    def _digits(self) -> Iterator[str]:
        """Yield the digits of each category, sorted by length."""
        return map(_keep_digits, self._sorted)

    def find_close(self, folded: Sequence[str]) -> Iterator[_Pairs]:
        """Yield blocks of the pairs of a folded text and a category that are close enough.

        All pairs of a text are in the same block.
        """
        lengths = np.array([len(text) for text in folded], np.int64)
        order = np.argsort(lengths, kind="stable")
        bounds = np.flatnonzero(np.diff(lengths[order])) + 1
        for same_length in np.split(order, bounds):
            for start in range(0, len(same_length), _N_BLOCK):
                yield self._compare_block(folded, same_length[start : start + _N_BLOCK])

    def _compare_block(self, folded: Sequence[str], rows: Indices) -> _Pairs:
        """Return the close pairs of texts of equal length."""
        from rapidfuzz.distance import OSA
        from rapidfuzz.process import cdist

        texts = [folded[row] for row in rows]
        length = len(texts[0])
        limit = _compute_limits(np.array([length / (1 - CLOSENESS)])).item()
        low, high = np.searchsorted(self._lengths, [length - limit, length + limit + 1])
        candidates = self._sorted[low:high]
        edits = cdist(texts, candidates, scorer=OSA.distance, score_cutoff=limit, dtype=np.uint16)
        longer = np.maximum(self._lengths[low:high], length)
        limits = _compute_limits(longer)
        limits[np.minimum(self._lengths[low:high], length) < MIN_EDITED_LENGTH] = 0
        row, column = np.nonzero((edits <= limits) & (length > 0))
        codes = np.array([self._digit_codes.get(_keep_digits(text), -1) for text in texts])
        n_edits = edits[row, column].astype(np.int64)
        return _Pairs(
            rows[row],
            self._order[low:high][column],
            n_edits,
            n_edits / longer[column],
            codes[row] == self._digits_of_sorted[low:high][column],
        )


def _compute_limits(lengths: Floats | Indices) -> Indices:
    """Return the largest number of edits between texts, the longer one of the given length."""
    limits: Indices = np.maximum((lengths * CLOSENESS + 1e-9).astype(np.int64), 1)
    return limits


def _fold(text: str) -> str:
    """Return a text without differences of case and spaces."""
    return " ".join(text.casefold().split())


def _keep_digits(text: str) -> str:
    """Return the digits of a text."""
    return "".join(filter(str.isdecimal, text))


def _has_close_tokens(text: str, other: str) -> bool:
    """Return whether each token is close to the other text's, if there are as many tokens.

    A typo changes a few characters of a word. Another word makes another category.
    """
    from rapidfuzz.distance import OSA

    pairs = [_TOKEN_BOUNDARY.split(text), _TOKEN_BOUNDARY.split(other)]
    if len(pairs[0]) != len(pairs[1]) or len(pairs[0]) == 1:
        return True
    for token, other_token in zip(*pairs, strict=True):
        limit = max(int(TOKEN_CLOSENESS * max(len(token), len(other_token))), 1)
        if OSA.distance(token, other_token, score_cutoff=limit) > limit:
            return False
    return True
