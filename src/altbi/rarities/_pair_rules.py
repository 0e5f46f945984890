"""Rarity of pairs of values: rows that break a rule between two columns."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, NamedTuple, TypeAlias, final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from altbi.errors import MAX_NAME, escape_text, quote, shorten

Integers: TypeAlias = NDArray[np.int64]

# Bounds of the search and of the model file. 50,000 entries of two texts of at most 400 characters
# take 40 MB at worst, and less than 2 MB with texts of usual length.
MAX_SAMPLE_ROWS = 20_000
MAX_COLUMNS = 100
MAX_VALUES = 5_000
MAX_TEXT = 400  # longer texts count as missing
MAX_RULES = 300
MAX_ENTRIES = 50_000

# A rule must hold in 99 % of at least 50 rows, and it must be better than chance: at least 30 rows
# would disagree if the columns were independent, and at most a tenth of these do. With 30, a few
# equal values of a rare category make no rule, even if all determinants occur only twice.
MIN_SUPPORT = 50
MIN_SHARE = 0.99
MIN_CHANCE = 30.0
MIN_REDUCTION = 10.0
# A pair that has more than half as many rows as the usual one breaks no rule that others keep.
MIN_RATIO = 2
_LOG_RELIABLE = math.log(100)  # log odds of a rule whose rarities count in full

# Pairs of columns are screened on this many pairs of rows with equal determinants, which are
# neighbours after sorting. The reduction is smaller than `MIN_REDUCTION`, because a few pairs of
# rows estimate it roughly.
_N_SCREENED = 2_000
_SCREENED_REDUCTION = 3.0
_SCREENED_SLACK = 5

_N_BLOCK = 65_536  # rows scored at once
_GOLDEN_RATIO = 0.6180339887498949
_MISSING, _UNKNOWN = -1, -2

# Logarithms of n + 1. Looked-up values do not depend on how many rows are scored at once.
_LOG_COUNTS = np.log(np.arange(1, MAX_SAMPLE_ROWS + 2))

Count = Annotated[int, msgspec.Meta(ge=1, le=MAX_SAMPLE_ROWS)]
Index = Annotated[int, msgspec.Meta(ge=0, lt=MAX_VALUES)]
Indices = Annotated[tuple[Index, ...], msgspec.Meta(max_length=MAX_ENTRIES)]
Counts = Annotated[tuple[Count, ...], msgspec.Meta(max_length=MAX_ENTRIES)]
Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]


class BrokenRule(NamedTuple):
    """The rarest rule about a column that a row breaks."""

    name: str  # of the column
    text: str  # the usual partner, in words
    value: str | None  # what the column usually has; None if the rule is about the other column


class RuleColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A column that occurs in a rule, with those of its values that the rules refer to."""

    name: str
    values: Annotated[tuple[Text, ...], msgspec.Meta(max_length=MAX_VALUES)]
    counts: Annotated[tuple[Count, ...], msgspec.Meta(max_length=MAX_VALUES)]  # sample rows

    def __post_init__(self) -> None:
        """Raise a `ValueError` if the fields contradict each other."""
        if len(self.values) != len(self.counts):
            raise ValueError("pair rules: expected one count for each value")
        if len(set(self.values)) < len(self.values):
            raise ValueError("pair rules: expected distinct values")
        "".join(self.values).encode()  # a lone surrogate raises a UnicodeEncodeError


class PairRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A rule: the value of the column `determinant` nearly determines that of `dependent`.

    Columns and values are given by their indices. The n-th known determinant has its usual partner
    in `n_usual[n]` sample rows. Other pairs with a known determinant are listed with their counts.
    """

    determinant: Index
    dependent: Index
    known: Indices
    usual: Indices
    n_usual: Counts
    other_known: Indices = ()
    others: Indices = ()
    n_others: Counts = ()

    def __post_init__(self) -> None:
        """Raise a `ValueError` if the fields contradict each other."""
        counts = dict(zip(self.known, self.n_usual, strict=True))
        usual = set(zip(self.known, self.usual, strict=True))
        pairs = list(zip(self.other_known, self.others, self.n_others, strict=True))
        if self.determinant == self.dependent or len(counts) < len(self.known):
            raise ValueError("pair rules: expected two columns and distinct determinants")
        if len({(known, other) for known, other, _ in pairs} - usual) < len(pairs):
            raise ValueError("pair rules: expected distinct pairs")
        if any(count > counts.get(known, 0) for known, _, count in pairs):
            raise ValueError("pair rules: expected the usual partner to be the most frequent one")

    @property
    def n_entries(self) -> int:
        """Number of stored pairs of values."""
        return len(self.known) + len(self.others)


@final
class PairRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """Rules between pairs of columns, and the rarity of values that break them.

    The rarity of a broken rule is ``log((n_usual + 1) / (n + 1))``, where the sample has the
    determinant with its usual partner in `n_usual` rows and the row's own pair in `n` rows. It is
    at least ``log((total + 1) / (tail + 1))``, where the tail are those of the `total` rows of the
    rule that break it with pairs as rare, if n is at most half of `n_usual`: a determinant may be
    rare although the rule hardly ever fails. Rules that hold in less than 99 % have a smaller
    weight. The rarity is divided between the two values,
    so that a value that breaks several rules gets the most. A value has the maximum over its rules.
    Missing values and unknown determinants break no rule.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from altbi.rarities._pair_rules import fit_pair_rules
    >>> codes = pa.array(["a", "b", "c"] * 40 + ["a"], pa.large_string())
    >>> colours = pa.array(["red", "green", "blue"] * 40 + ["blue"], pa.large_string())
    >>> rules = fit_pair_rules(["code", "colour"], [codes, colours])
    >>> rules.names
    ('code', 'colour')
    >>> rules.score({"code": codes, "colour": colours})[[0, -1]].round(2)
    array([[0.  , 0.  ],
           [1.84, 1.84]])
    >>> rules.explain({"code": "a", "colour": "pink"})
    (('colour', "usually 'red' where code is 'a' (40 rows)"),)
    """

    columns: Annotated[tuple[RuleColumn, ...], msgspec.Meta(max_length=MAX_COLUMNS)] = ()
    rules: Annotated[tuple[PairRule, ...], msgspec.Meta(max_length=MAX_RULES)] = ()
    not_searched: tuple[str, ...] = ()  # columns beyond the limit of 100

    def __post_init__(self) -> None:
        """Raise a `ValueError` if the fields contradict each other."""
        if len(set(self.names)) < len(self.columns):
            raise ValueError("pair rules: expected distinct columns")
        if sum(rule.n_entries for rule in self.rules) > MAX_ENTRIES:
            raise ValueError(f"pair rules: expected at most {MAX_ENTRIES} entries")
        sizes = [len(column.values) for column in self.columns]
        for rule in self.rules:
            if max(rule.determinant, rule.dependent) >= len(sizes):
                raise ValueError("pair rules: expected an existing column")
            is_known = max(rule.known, default=0) < sizes[rule.determinant]
            if not is_known or max((*rule.usual, *rule.others), default=0) >= sizes[rule.dependent]:
                raise ValueError("pair rules: expected existing values")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns with a rule, in the order of the columns of `score`."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def _tables(self) -> "list[_RuleTable]":
        """Arrays that find the rows that break each rule; building them takes long."""
        return [_RuleTable(rule, self.columns) for rule in self.rules]

    def score(self, texts: Mapping[str, pa.Array]) -> NDArray[np.float64]:
        """Return the rarities ``(n_rows, len(names))`` of the values of some rows.

        `texts` has a large_string array for each column of `names`; others are ignored.
        """
        columns = [texts[name] for name in self.names]
        n_rows = len(columns[0]) if columns else 0
        rarities = np.zeros((n_rows, len(columns)))
        for start in range(0, n_rows, _N_BLOCK):
            block = [column.slice(start, _N_BLOCK) for column in columns]
            codes = [_encode_values(*pair) for pair in zip(block, self.columns, strict=True)]
            breaks = [table.find_breaks(codes) for table in self._tables]
            _assign_rarities(breaks, rarities[start : start + _N_BLOCK])
        return rarities

    def explain(self, row: Mapping[str, str | None]) -> tuple[tuple[str, str], ...]:
        """Return the columns of a row that break a rule, with the usual partner.

        The column of the highest rarity is first, and each column is listed once.
        """
        return tuple((broken.name, broken.text) for broken in self.list_broken(row))

    def list_broken(self, row: Mapping[str, str | None]) -> list[BrokenRule]:
        """Return a broken rule for each column that `explain` returns, in the same order."""
        texts = [pa.array([row[name]], pa.large_string()) for name in self.names]
        codes = [_encode_values(*pair) for pair in zip(texts, self.columns, strict=True)]
        breaks = [table.find_breaks(codes) for table in self._tables]
        breaks = [broken for broken in breaks if len(broken.rows)]
        rarities = np.zeros((1, len(codes)))
        _assign_rarities(breaks, rarities)
        reasons = []
        for position in np.argsort(-rarities[0], kind="stable"):
            if rarities[0, position] > 0:
                reasons.append(self._describe(position, breaks))
        return reasons

    def _describe(self, position: int, breaks: Sequence["_Breaks"]) -> BrokenRule:
        """Return the usual partner in the rarest broken rule of a column.

        Rules about the column itself are preferred, because they name its expected value.
        """
        involved = [x for x in breaks if position in (x.rule.determinant, x.rule.dependent)]
        best = min(involved, key=lambda x: (x.rule.dependent != position, -x.rarities[0]))
        rule, known = best.rule, int(best.known[0])
        given, dependent = self.columns[rule.determinant], self.columns[rule.dependent]
        names = [shorten(escape_text(column.name), MAX_NAME) for column in (given, dependent)]
        is_expected = rule.dependent == position
        usual = dependent.values[rule.usual[known]]
        subject = "" if is_expected else f"{names[1]} is "
        text = (
            f"{subject}usually {quote(usual)} where {names[0]} is "
            f"{quote(given.values[rule.known[known]])} ({rule.n_usual[known]} rows)"
        )
        return BrokenRule(self.names[position], text, usual if is_expected else None)


def _encode_values(texts: pa.Array, column: RuleColumn) -> Integers:
    """Return the index of each text among the column's values; -1 is missing, -2 is unknown."""
    values = pa.array(column.values, pa.large_string())
    codes = pc.fill_null(pc.index_in(texts, value_set=values), _UNKNOWN)
    is_missing = pc.or_kleene(pc.is_null(texts), pc.greater(pc.utf8_length(texts), MAX_TEXT))
    codes = pc.if_else(is_missing, pa.scalar(_MISSING, pa.int32()), codes)
    return np.asarray(codes.to_numpy(zero_copy_only=False), dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class _Breaks:
    """Rows that break one rule."""

    rule: PairRule
    rows: Integers
    known: Integers  # index of the rule's known determinant in each row
    rarities: NDArray[np.float64]
    # How rare each value is given the other, by counts: they divide the rarity. That of the
    # determinant is 0 if the partner occurs nowhere else.
    by_partner: NDArray[np.float64]
    by_determinant: NDArray[np.float64]


class _RuleTable:
    """Arrays that find the rows that break one rule."""

    def __init__(self, rule: PairRule, columns: Sequence[RuleColumn]) -> None:
        n_determinants = len(columns[rule.determinant].values)
        self.rule = rule
        log_odds = math.log((sum(rule.n_usual) + 1) / (sum(rule.n_others) + 1))
        self.weight = min(max(log_odds / _LOG_RELIABLE, 0.0), 1.0)
        # Two entries more at the end, for missing (-1) and unknown (-2) determinants.
        self.known = np.full(n_determinants + 2, -1)
        self.known[list(rule.known)] = np.arange(len(rule.known))
        self.usual = np.array([*rule.usual, _MISSING])
        self.n_usual = np.array([*rule.n_usual, 0])
        self.n_dependents = len(columns[rule.dependent].values)
        self.dependent_counts = np.array([*columns[rule.dependent].counts, 0, 0])
        pairs = self._combine(
            np.array(rule.other_known, dtype=np.int64), np.array(rule.others, dtype=np.int64)
        )
        order = np.argsort(pairs)
        # A last entry that equals no pair, so that every search ends at an entry.
        self.pairs = np.append(pairs[order], np.iinfo(np.int64).max)
        self.n_pairs = np.append(np.array(rule.n_others, dtype=np.int64)[order], 0)
        self.by_rule = self._compute_rule_rarities()

    def _compute_rule_rarities(self) -> NDArray[np.float64]:
        """Return how rare broken rules are, for pairs in 0, 1, 2, … sample rows.

        The rarity is that of all rows whose pair breaks the rule and does not occur more often.
        """
        n_others = np.array(self.rule.n_others, dtype=np.int64)
        rows = np.bincount(n_others, weights=n_others, minlength=2)
        tails = np.cumsum(rows)
        tails[0] = tails[1]  # a new pair is as rare as one that occurs once
        total = sum(self.rule.n_usual) + int(n_others.sum())
        return np.log((total + 1) / (tails + 1))

    def _combine(self, determinants: Integers, dependents: Integers) -> Integers:
        """Return one integer for each pair of values, also for unknown dependents."""
        return determinants * (self.n_dependents + 2) + dependents + 2

    def find_breaks(self, codes: Sequence[Integers]) -> _Breaks:
        """Return the rows of a block that break the rule, and their rarities."""
        determinants = codes[self.rule.determinant]
        dependents = codes[self.rule.dependent]
        known = self.known[determinants]
        is_broken = (known >= 0) & (dependents != _MISSING) & (dependents != self.usual[known])
        rows = np.flatnonzero(is_broken)
        known, dependents = known[rows], dependents[rows]
        pairs = self._combine(determinants[rows], dependents)
        entries = np.searchsorted(self.pairs, pairs)
        n_own = np.where(self.pairs[entries] == pairs, self.n_pairs[entries], 0)
        own = _LOG_COUNTS[n_own]
        n_usual = self.n_usual[known]
        by_count = _LOG_COUNTS[n_usual] - own
        by_rule = np.where(n_usual >= MIN_RATIO * np.maximum(n_own, 1), self.by_rule[n_own], 0.0)
        reverse = _LOG_COUNTS[self.dependent_counts[dependents]] - own
        return _Breaks(
            rule=self.rule,
            rows=rows,
            known=known,
            rarities=np.maximum(by_count, by_rule) * self.weight,
            by_partner=np.maximum(reverse, 0),
            by_determinant=by_count,
        )


def _assign_rarities(breaks: Sequence[_Breaks], rarities: NDArray[np.float64]) -> None:
    """Divide the rarities of broken rules between the two values of each, in place.

    The shares are proportional to the rarity of each value given the other, times the square of the
    total rarity of all rules that the value breaks in this row. So the value that conflicts with
    ten equal columns gets nearly all, and these columns nearly nothing.
    """
    totals = np.zeros_like(rarities)
    for broken in breaks:
        totals[broken.rows, broken.rule.determinant] += broken.rarities
        totals[broken.rows, broken.rule.dependent] += broken.rarities
    for broken in breaks:
        rows, rule = broken.rows, broken.rule
        first = broken.by_partner * totals[rows, rule.determinant] ** 2
        second = broken.by_determinant * totals[rows, rule.dependent] ** 2
        share = first / np.where(first + second > 0, first + second, 1)
        for position, factor in ((rule.determinant, share), (rule.dependent, 1 - share)):
            old = rarities[rows, position]
            rarities[rows, position] = np.maximum(old, factor * broken.rarities)


@dataclass(frozen=True, slots=True, eq=False)
class _Sample:
    """Sample rows of one column as codes."""

    position: int  # of the column in the table
    values: pa.Array  # sorted
    codes: Integers  # index of the value in each row; -1 is missing
    counts: Integers
    entropy: float


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """How often pairs of values of two columns occur, sorted by determinant and dependent.

    Only rows whose determinant occurs at least twice beside a value count.
    """

    determinants: Integers
    dependents: Integers
    counts: Integers
    strength: float  # how many times fewer rows disagree than by chance; 0 if it is no rule


@dataclass(frozen=True, slots=True, eq=False)
class _Entries:
    """The entries of one rule; its columns and values have the indices of the sample."""

    determinant: _Sample
    dependent: _Sample
    known: Integers
    usual: Integers
    n_usual: Integers
    other_known: Integers
    others: Integers
    n_others: Integers


def fit_pair_rules(
    names: Sequence[str], columns: Sequence[pa.Array], *, min_share: float = MIN_SHARE
) -> PairRules | None:
    """Return the rules between columns of discrete texts; None without any.

    `columns` has one large_string array for each name. Columns with fewer than 2 or more than 5,000
    values are ignored, and so are columns in which most values are unique. If more than 100 columns
    are left, those of the highest entropy are searched, and the others are listed in
    `not_searched`. A rule holds in at least the share `min_share` of its rows.
    """
    samples, not_searched = _choose_columns(columns)
    chosen = _choose_entries(samples, min_share)
    if not chosen and not not_searched:
        return None
    values = _collect_values(chosen)
    by_position = {sample.position: sample for sample in samples}
    return PairRules(
        columns=tuple(
            RuleColumn(
                name=names[position],
                values=tuple(by_position[position].values.take(pa.array(used)).to_pylist()),
                counts=tuple(by_position[position].counts[used].tolist()),
            )
            for position, used in values.items()
        ),
        rules=tuple(_build_rule(entries, values) for entries in chosen),
        not_searched=tuple(names[position] for position in not_searched),
    )


def _choose_columns(columns: Sequence[pa.Array]) -> tuple[list[_Sample], list[int]]:
    """Return samples of the columns of the highest entropy, and the positions of those left out."""
    rows = _choose_rows(len(columns[0]) if columns else 0)
    samples: list[_Sample] = []
    left_out = []
    for position, texts in enumerate(columns):
        sample = _encode_sample(position, texts, rows)
        if sample is not None:
            samples.append(sample)
        if len(samples) > MAX_COLUMNS:  # at once, because a table may have 100,000 columns
            weakest = min(samples, key=lambda sample: (sample.entropy, -sample.position))
            samples.remove(weakest)
            left_out.append(weakest.position)
    return samples, sorted(left_out)


def _choose_rows(n_rows: int) -> Integers:
    """Return the indices of at most `MAX_SAMPLE_ROWS` rows, one from each block of equal size.

    The position in the block follows the golden ratio, so that a period in the table hides no
    values.
    """
    if n_rows <= MAX_SAMPLE_ROWS:
        return np.arange(n_rows)
    blocks = np.arange(MAX_SAMPLE_ROWS)
    return ((blocks + (blocks * _GOLDEN_RATIO) % 1) * (n_rows / MAX_SAMPLE_ROWS)).astype(np.int64)


def _encode_sample(position: int, texts: pa.Array, rows: Integers) -> _Sample | None:
    """Return the sample rows of a column as codes; None if the column cannot be in a rule."""
    encoded = texts.take(pa.array(rows)).dictionary_encode()
    if not 2 <= len(encoded.dictionary) <= MAX_VALUES:
        return None
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    # One entry more at the end, for missing values (-1).
    ranks = np.full(len(order) + 1, _MISSING)
    ranks[order] = np.arange(len(order))
    lengths = pc.utf8_length(encoded.dictionary).to_numpy()
    ranks[:-1][lengths > MAX_TEXT] = _MISSING
    codes = ranks[pc.fill_null(encoded.indices, -1).to_numpy()]
    counts = np.bincount(codes[codes >= 0], minlength=len(order))
    n_repeated = counts[counts > 1].sum()
    if np.count_nonzero(counts) < 2 or 2 * n_repeated < counts.sum():
        return None
    shares = counts[counts > 0] / counts.sum()
    entropy = -float((shares * np.log(shares)).sum())
    return _Sample(position, encoded.dictionary.take(pa.array(order)), codes, counts, entropy)


def _choose_entries(samples: Sequence[_Sample], min_share: float) -> list[_Entries]:
    """Return the entries of the strongest rules that respect the bounds."""
    found = []
    for determinant, dependent in _screen_pairs(samples):
        pairs = _count_pairs(determinant, dependent, min_share)
        if pairs.strength:
            # Pairs are counted again for chosen rules: those of 9,900 rules could take 1 GB.
            found.append((pairs.strength, len(pairs.counts), determinant, dependent))
    found.sort(key=lambda rule: (-rule[0], rule[2].position, rule[3].position))
    chosen: list[_Entries] = []
    n_entries = 0
    for _, n_pairs, determinant, dependent in found:
        if len(chosen) < MAX_RULES and n_entries + n_pairs <= MAX_ENTRIES:
            pairs = _count_pairs(determinant, dependent, min_share)
            chosen.append(_tabulate(determinant, dependent, pairs))
            n_entries += n_pairs
    return chosen


def _screen_pairs(samples: Sequence[_Sample]) -> Iterator[tuple[_Sample, _Sample]]:
    """Yield ordered pairs of columns that may be a rule.

    Rows with equal determinants must have equal dependents in most of some pairs of rows.
    """
    codes = np.stack([sample.codes for sample in samples], axis=1) if samples else np.empty((0, 0))
    chance = np.array([1 - _compute_agreement(sample.counts) for sample in samples])
    for position, determinant in enumerate(samples):
        order = np.argsort(determinant.codes, kind="stable")
        in_order = determinant.codes[order]
        twins = np.flatnonzero((in_order[1:] == in_order[:-1]) & (in_order[1:] >= 0))
        step = -(-len(twins) // _N_SCREENED) or 1
        first, second = codes[order[twins[::step]]], codes[order[twins[::step] + 1]]
        is_present = (first >= 0) & (second >= 0)
        n_different = ((first != second) & is_present).sum(axis=0)
        may_hold = (
            n_different <= chance / _SCREENED_REDUCTION * is_present.sum(axis=0) + _SCREENED_SLACK
        )
        may_hold[position] = False
        for other in np.flatnonzero(may_hold).tolist():
            yield determinant, samples[other]


def _compute_agreement(counts: Integers) -> float:
    """Return the probability that two different rows have the same value."""
    total = int(counts.sum())
    return float((counts * (counts - 1)).sum()) / max(total * (total - 1), 1)


def _count_pairs(determinant: _Sample, dependent: _Sample, min_share: float) -> _Pairs:
    """Return how often the pairs of values of two columns occur, and the strength of the rule.

    The agreement of a row is the share of the other rows with its determinant that have its
    dependent. For independent columns, its mean has the expectation `_compute_agreement`.
    """
    n_dependents = len(dependent.counts)
    is_present = (determinant.codes >= 0) & (dependent.codes >= 0)
    keys = determinant.codes[is_present] * n_dependents + dependent.codes[is_present]
    pairs, counts = _count_distinct(keys, len(determinant.counts) * n_dependents)
    determinants, dependents = np.divmod(pairs, n_dependents)
    totals = np.bincount(determinants, weights=counts, minlength=1)[determinants]
    is_known = totals >= 2
    determinants, dependents = determinants[is_known], dependents[is_known]
    counts, totals = counts[is_known], totals[is_known]
    n_rows = int(counts.sum())
    strength = 0.0
    if n_rows >= MIN_SUPPORT:
        starts = np.flatnonzero(np.diff(determinants, prepend=-1))
        n_usual = int(np.maximum.reduceat(counts, starts).sum())
        n_different = float((counts * (totals - counts) / (totals - 1)).sum())
        chance = n_rows * (1 - _compute_agreement(np.bincount(dependents, counts).astype(np.int64)))
        is_better = chance >= max(MIN_CHANCE, MIN_REDUCTION * n_different)
        if n_usual >= min_share * n_rows and is_better:
            strength = chance / (n_different + 1)
    return _Pairs(determinants, dependents, counts, strength)


def _count_distinct(keys: Integers, n_keys: int) -> tuple[Integers, Integers]:
    """Return the distinct integers below `n_keys`, sorted, and their counts."""
    if n_keys > 8 * len(keys):
        return np.unique(keys, return_counts=True)
    counts = np.bincount(keys, minlength=1)
    distinct = np.flatnonzero(counts)
    return distinct, counts[distinct]


def _tabulate(determinant: _Sample, dependent: _Sample, pairs: _Pairs) -> _Entries:
    """Return the entries of a rule: known determinants with usual partners, and other pairs.

    A determinant is known if its usual partner occurs at least twice. The first of equally frequent
    partners is the usual one.
    """
    order = np.lexsort((pairs.dependents, -pairs.counts, pairs.determinants))
    determinants = pairs.determinants[order]
    dependents, counts = pairs.dependents[order], pairs.counts[order]
    is_usual = np.diff(determinants, prepend=-1) > 0
    is_known = (counts[is_usual] >= 2)[np.cumsum(is_usual) - 1]
    usual, other = is_usual & is_known, ~is_usual & is_known
    return _Entries(
        determinant=determinant,
        dependent=dependent,
        known=determinants[usual],
        usual=dependents[usual],
        n_usual=counts[usual],
        other_known=determinants[other],
        others=dependents[other],
        n_others=counts[other],
    )


def _collect_values(chosen: Sequence[_Entries]) -> dict[int, Integers]:
    """Return the codes of the values that rules refer to, by position of the column."""
    used: dict[int, list[Integers]] = {}
    for entries in chosen:
        used.setdefault(entries.determinant.position, []).append(entries.known)
        used.setdefault(entries.dependent.position, []).extend((entries.usual, entries.others))
    return {position: np.unique(np.concatenate(used[position])) for position in sorted(used)}


def _build_rule(entries: _Entries, values: Mapping[int, Integers]) -> PairRule:
    """Return the rule with the indices of the columns and values that are kept."""
    positions = list(values)
    given, wanted = entries.determinant.position, entries.dependent.position
    return PairRule(
        determinant=positions.index(given),
        dependent=positions.index(wanted),
        known=tuple(np.searchsorted(values[given], entries.known).tolist()),
        usual=tuple(np.searchsorted(values[wanted], entries.usual).tolist()),
        n_usual=tuple(entries.n_usual.tolist()),
        other_known=tuple(np.searchsorted(values[given], entries.other_known).tolist()),
        others=tuple(np.searchsorted(values[wanted], entries.others).tolist()),
        n_others=tuple(entries.n_others.tolist()),
    )
