"""Rarities of all values of a table, one for each row and column."""

import json
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Annotated, Literal, NamedTuple, Self, final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from altbi.errors import MAX_NAME, escape_text, quote, shorten
from altbi.rarities._category_counts import CategoryCounts, fit_category_counts
from altbi.rarities._date_differences import DateDifference, fit_date_difference
from altbi.rarities._date_rarity import DateRarity, fit_date_rarity
from altbi.rarities._missing_patterns import (
    MissingPatterns,
    choose_columns,
    fit_missing_patterns,
)
from altbi.rarities._missing_values import MissingCounts
from altbi.rarities._pair_rules import PairRules, fit_pair_rules
from altbi.rarities._patterns import TextPatterns, fit_text_patterns
from altbi.rarities._repeats import RepeatCounts, fit_repeat_counts
from altbi.rarities._signs import SignCounts, fit_sign_counts
from altbi.rarities._typos import Misspellings, fit_misspellings
from altbi.table import Table

Floats = NDArray[np.float64]
# Bytes of what a model file holds about texts. Its header has at most 64 MiB, of which half are for
# other values of 100,000 columns.
MAX_BYTES = 16_000_000
MAX_COLUMNS = 100_000
# Columns of dates, the first ones of a table, whose differences count; and their pairs.
MAX_DATES = 10
MAX_PAIRS = MAX_DATES * (MAX_DATES - 1) // 2
# Start of a sentence about a typo, which the category that it looks like follows.
TYPO_VERB = "looks like"
# Largest usual rarity in a model file; logarithms of counts and their sums are smaller.
MAX_RARITY = 1e6
# A rarest value is usual if so many training rows have one that is as rare.
USUAL_ROWS = 0.3
# Rarity from which the time between two dates, and a pattern of missing values, is described.
MIN_DESCRIBED = 2.0
# What a column is used for: a "copy" of another text column occurs in rules only, an "integer" in
# rules, too, and of "other" columns only missing values count.
Use = Literal["category", "copy", "date", "identifier", "integer", "number", "other"]


class ValueNote(NamedTuple):
    """What is expected instead of a rare value."""

    text: str = ""  # in a few words; "" if that is unclear
    value: str | None = None  # the value that is probably right
    # How a sentence about the value continues with the text: "looks like", "expected" or "".
    verb: str = "expected"


class ColumnRarity(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Rarities of the values of one column; None where nothing was learned."""

    missing: MissingCounts
    categories: CategoryCounts | None = None
    patterns: TextPatterns | None = None
    misspellings: Misspellings | None = None
    dates: DateRarity | None = None
    repeats: RepeatCounts | None = None
    signs: SignCounts | None = None

    @property
    def reads_texts(self) -> bool:
        """Whether values are needed as texts."""
        return any(scorer is not None for scorer in self._text_scorers)

    @property
    def _text_scorers(
        self,
    ) -> tuple[CategoryCounts | TextPatterns | Misspellings | RepeatCounts | None, ...]:
        """What scores texts."""
        return self.categories, self.patterns, self.misspellings, self.repeats

    def find_note(self, text: str) -> ValueNote:
        """Return what is expected instead of a rare text."""
        if self.misspellings is not None:
            (suggestion,) = self.misspellings.suggest([text])
            if suggestion is not None:
                found = f"{quote(suggestion[0])} ({suggestion[1]:,} rows)"
                return ValueNote(found, suggestion[0], TYPO_VERB)
        if self.repeats is not None and (n_rows := self.repeats.count(text)) > 1:
            return ValueNote(f"once; it occurs {n_rows:,} times")
        return ValueNote(self._describe_text(text))

    def _describe_text(self, text: str) -> str:
        """Return how texts are usually written, or the usual categories, or ""."""
        value = pa.array([text], pa.large_string())
        by_pattern = self.patterns.score(value)[0] if self.patterns is not None else 0.0
        by_category = self.categories.score(value)[0] if self.categories is not None else 0.0
        usual = self.categories.describe(text) if self.categories is not None else ""
        if self.patterns is not None and (by_pattern > by_category or not usual):
            return self.patterns.describe(text)
        return usual

    def score_texts(self, texts: pa.Array) -> Floats:
        """Return the rarities ``(n_rows,)`` of texts; 0 for missing ones."""
        total = np.zeros(len(texts))
        for scorer in self._text_scorers[1:]:
            if scorer is not None:
                total += scorer.score(texts)
        if self.categories is None:
            return total
        rarities, limits = self.categories.score_with_limits(texts)
        return np.minimum(total, limits) + rarities


@final
class ValueRarities(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Rarities of texts, dates and missing values, and of pairs of values.

    The rarity of a text adds up that of its category, of how it is written, and of a typo. A value
    that breaks a rule between two columns is rarer still. Of numbers, only signs count here.
    """

    columns: Annotated[tuple[ColumnRarity, ...], msgspec.Meta(max_length=MAX_COLUMNS)]
    rules: PairRules | None = None
    differences: Annotated[tuple[DateDifference, ...], msgspec.Meta(max_length=MAX_PAIRS)] = ()
    patterns: MissingPatterns | None = None
    # Rarity that the rarest value of a row has in the share `USUAL_ROWS` of the training rows.
    usual_rarest: Annotated[float, msgspec.Meta(ge=0, le=MAX_RARITY)] = 0.0

    def __post_init__(self) -> None:
        """Raise a `ValueError` unless differences are those of two existing columns."""
        if self.patterns is not None and max(self.patterns.columns) >= len(self.columns):
            raise ValueError("value rarities: expected missing values of existing columns")
        for difference in self.differences:
            if max(difference.first, difference.second) >= len(self.columns):
                raise ValueError("value rarities: expected differences of existing columns")
            if difference.first == difference.second:
                raise ValueError("value rarities: expected differences of two columns")

    def score(self, table: Table) -> Floats:
        """Return the rarities ``(n_rows, n_columns)`` of the values of a table, in nats."""
        # Column by column in memory, because columns are computed one by one.
        rarities = np.zeros((len(table), len(self.columns)), order="F")
        self._add_numbers(table, rarities)
        texts: dict[str, pa.Array] = {}
        for number, column in enumerate(self.columns):
            if table.kinds[number] == "category":
                is_missing = table.categories(number).is_null().to_numpy(zero_copy_only=False)
                rarities[:, number] += column.missing.rarity * is_missing
            elif column.dates is not None:
                rarities[:, number] += column.dates.score(table.numbers([number])[:, 0])
            if column.reads_texts or table.names[number] in self._rule_names:
                texts[table.names[number]] = read_texts(table, number)
                rarities[:, number] += column.score_texts(texts[table.names[number]])
        if self.rules is not None and self._rule_names:
            positions = [table.names.index(name) for name in self.rules.names]
            rarities[:, positions] += self.rules.score(texts)
        self._add_differences(table, rarities)
        if self.patterns is not None:
            self._add_patterns(self.patterns, table, rarities)
        return rarities

    def _add_patterns(self, patterns: MissingPatterns, table: Table, rarities: Floats) -> None:
        """Add the rarities of patterns of missing values to those of one column.

        The part that the rarest missing value of the row explains is left out.
        """
        is_missing = _find_all_missing(table, patterns.columns)
        single = [self.columns[number].missing.rarity for number in patterns.columns]
        found, columns = patterns.score(is_missing)
        explained = np.where(is_missing, single, 0.0).max(axis=1)
        rarities[np.arange(len(found)), columns] += np.maximum(found - explained, 0.0)

    def with_usual_rarest(self, rarities: Floats) -> Self:
        """Return a copy that knows how rare the rarest values of the training rows are."""
        usual = float(np.quantile(rarities.max(axis=1), 1 - USUAL_ROWS, method="lower"))
        return msgspec.structs.replace(self, usual_rarest=min(usual, MAX_RARITY))

    def find_rarest(self, rarities: Floats) -> tuple[NDArray[np.intp], Floats]:
        """Return for each row the column of its rarest value, and how much rarer it is than usual.

        Both have the shape ``(n_rows,)``. Of equally rare values, the first one counts. One rare
        value says little in a table in which most rows have such a value.
        """
        return rarities.argmax(axis=1), self.measure_rarest(rarities)

    def measure_rarest(self, rarities: Floats) -> Floats:
        """Return how much rarer the rarest value of each row ``(n_rows,)`` is than usual."""
        excess: Floats = np.maximum(rarities.max(axis=1) - self.usual_rarest, 0.0)
        return excess

    def _add_numbers(self, table: Table, rarities: Floats) -> None:
        """Add the rarities of missing values and signs of columns that are no texts.

        Columns are read one by one, which is faster than the rows of a matrix.
        """
        for number, kind in enumerate(table.kinds):
            if kind == "category":
                continue
            column, values = self.columns[number], table.numbers([number])[:, 0]
            is_missing = np.isnan(values)
            if is_missing.any():
                rarities[is_missing, number] += column.missing.rarity
            if column.signs is not None and column.signs.rarities.any():
                rarities[:, number] += column.signs.score(values)

    @property
    def _rule_names(self) -> tuple[str, ...]:
        """Names of the columns that occur in a rule."""
        return self.rules.names if self.rules is not None else ()

    def _add_differences(self, table: Table, rarities: Floats) -> None:
        """Add the rarity of the time between two dates to that of the rarer date.

        If none of them is rarer by itself, it is that of the second column.
        """
        own = rarities.copy() if self.differences else rarities
        for each in self.differences:
            found = _score_difference(each, table)
            is_first = own[:, each.first] > own[:, each.second]
            rarities[:, each.first] += found * is_first
            rarities[:, each.second] += found * ~is_first

    def describe(self, table: Table, row: int, number: int) -> str:
        """Return what is expected instead of a rare value, in a few words; "" if that is unclear.

        `row` and `number` are the indices of a row and a column of the table.
        """
        return self.find_note(table, row, number).text

    def find_note(self, table: Table, row: int, number: int) -> ValueNote:
        """Return what is expected instead of a rare value.

        `row` and `number` are the indices of a row and a column of the table.
        """
        name, column = table.names[number], self.columns[number]
        text = _read_text(table, row, name)
        note = ValueNote(column.missing.describe()) if text is None else column.find_note(text)
        # A similar text is better evidence than another column, which may be the wrong one.
        if note.verb != TYPO_VERB and name in self._rule_names:
            broken = self._find_break(table, row, name)
            note = broken if broken.text else note
        if not note.text or text is None:
            note = ValueNote(self._describe_pattern(table, row, number) or note.text)
        if note.text or text is None:
            return note
        expected = self._describe_difference(table, row, number)
        if not expected and table.kinds[number] != "category":
            expected = _describe_number(column, float(table.numbers([number])[row, 0]))
        return ValueNote(expected)

    def _describe_pattern(self, table: Table, row: int, number: int) -> str:
        """Return what is expected if a pattern of missing values is rare because of a column."""
        if self.patterns is None:
            return ""
        values = table.slice(row, row + 1)
        rarities, columns = self.patterns.score(_find_all_missing(values, self.patterns.columns))
        if columns[0] != number or rarities[0] < MIN_DESCRIBED:
            return ""
        expected = "a value" if find_missing(values, number)[0] else "no value"
        return f"{expected}, given what else is missing here"

    def _find_break(self, table: Table, row: int, name: str) -> ValueNote:
        """Return the usual value of a column in a rule that a row breaks."""
        assert self.rules is not None
        cells = {each: _read_text(table, row, each) for each in self.rules.names}
        broken = next((each for each in self.rules.list_broken(cells) if each.name == name), None)
        return ValueNote() if broken is None else ValueNote(broken.text, broken.value, "")

    def _describe_difference(self, table: Table, row: int, number: int) -> str:
        """Return the name of another date to which the time is rare, or ""."""
        values = table.slice(row, row + 1)
        for each in self.differences:
            pair = [each.first, each.second]
            if number in pair and _score_difference(each, values)[0] >= MIN_DESCRIBED:
                (other,) = set(pair) - {number}
                return f"another time from {shorten(escape_text(table.names[other]), MAX_NAME)}"
        return ""


def _describe_number(column: ColumnRarity, value: float) -> str:
    """Return what is expected instead of a rare date, or of a number with a rare sign."""
    if column.dates is not None:
        return column.dates.describe(value)
    return column.signs.describe(value) if column.signs is not None else ""


def _score_difference(difference: DateDifference, table: Table) -> Floats:
    """Return the rarities ``(n_rows,)`` of times between two columns; 0 for columns of texts."""
    pair = [difference.first, difference.second]
    if "category" in (table.kinds[difference.first], table.kinds[difference.second]):
        return np.zeros(len(table))
    return difference.score(*table.numbers(pair).T)


def fit_value_rarities(table: Table, uses: Sequence[Use]) -> ValueRarities:
    """Fit the rarities of the values of a training sample; `uses` has one entry for each column."""
    columns, texts = [], {}
    n_bytes = 0
    for number, use in enumerate(uses):
        column = _fit_column(table, number, use)
        if use in ("category", "copy", "integer"):
            texts[table.names[number]] = read_texts(table, number)
        if column.reads_texts:
            column, size = _limit_size(column, MAX_BYTES - n_bytes)
            n_bytes += size
        columns.append(column)
    rules = fit_pair_rules(list(texts), list(texts.values())) if len(texts) > 1 else None
    if rules is not None and _measure_size(rules) > MAX_BYTES - n_bytes:
        rules = None
    return ValueRarities(
        columns=tuple(columns),
        rules=rules,
        differences=tuple(_fit_differences(table, uses)),
        patterns=_fit_missing_patterns(table, columns),
    )


def _fit_missing_patterns(table: Table, columns: Sequence[ColumnRarity]) -> MissingPatterns | None:
    """Fit the rarities of values that are missing together."""
    missing = [column.missing for column in columns]
    shares = np.array([each.n_missing / max(len(table), 1) for each in missing])
    chosen = choose_columns(shares)
    return fit_missing_patterns(chosen, _find_all_missing(table, chosen))


def _find_all_missing(table: Table, columns: Sequence[int]) -> NDArray[np.bool_]:
    """Return a mask ``(n_rows, len(columns))`` of the missing values of some columns."""
    is_missing = np.zeros((len(table), len(columns)), dtype=bool)
    for index, number in enumerate(columns):
        is_missing[:, index] = find_missing(table, number)
    return is_missing


def _limit_size(column: ColumnRarity, limit: int) -> tuple[ColumnRarity, int]:
    """Return as much of the rarities of a column as fits into `limit` bytes, and its size."""
    without_texts = msgspec.structs.replace(column, categories=None, repeats=None)
    for smaller in (column, without_texts):
        size = _measure_size(smaller)
        if size <= limit:
            return smaller, size
    return ColumnRarity(missing=column.missing), 0


def _measure_size(state: ColumnRarity | PairRules) -> int:
    """Return the bytes that a state takes in a model file, which holds it as an escaped string."""
    text = json.dumps(msgspec.to_builtins(state))
    return len(text) + text.count('"') + text.count("\\")


def _fit_differences(table: Table, uses: Sequence[Use]) -> Iterator[DateDifference]:
    """Yield the rarities of times between all pairs of the first columns of dates."""
    dates = [number for number, use in enumerate(uses) if use == "date"][:MAX_DATES]
    for first, second in combinations(dates, 2):
        values = table.numbers([first, second])
        found = fit_date_difference(*values.T, first=first, second=second)
        if found is not None:
            yield found


def _fit_column(table: Table, number: int, use: Use) -> ColumnRarity:
    """Fit the rarities of one column."""
    is_missing = find_missing(table, number)
    n_missing = int(is_missing.sum())
    missing = MissingCounts(n_present=len(table) - n_missing, n_missing=n_missing)
    if use == "date":
        return ColumnRarity(missing=missing, dates=fit_date_rarity(table.numbers([number])[:, 0]))
    if use == "identifier":
        return ColumnRarity(missing=missing, repeats=fit_repeat_counts(read_texts(table, number)))
    if use in ("number", "integer"):
        signs = fit_sign_counts(table.numbers([number])[:, 0])
        return ColumnRarity(missing=missing, signs=signs)
    if use != "category":
        return ColumnRarity(missing=missing)
    texts, is_written = read_texts(table, number), table.kinds[number] == "category"
    return ColumnRarity(
        missing=missing,
        categories=fit_category_counts(texts),
        patterns=fit_text_patterns(texts) if is_written else None,
        misspellings=fit_misspellings(texts) if is_written else None,
    )


def find_missing(table: Table, number: int) -> NDArray[np.bool_]:
    """Return a mask ``(n_rows,)`` of the missing values of a column."""
    if table.kinds[number] == "category":
        return np.asarray(table.categories(number).is_null().to_numpy(zero_copy_only=False))
    return np.isnan(table.numbers([number])[:, 0])


def read_texts(table: Table, number: int) -> pa.Array:
    """Return the values of a column as texts; numbers without fractions have no decimal point."""
    if table.kinds[number] == "category":
        return table.categories(number)
    if table.kinds[number] == "boolean":
        values = table.numbers([number])[:, 0]
        texts = pa.array(np.where(values > 0, "True", "False"), pa.large_string())
        return pc.if_else(pa.array(np.isnan(values)), pa.scalar(None, pa.large_string()), texts)
    encoded = pa.array(table.numbers([number])[:, 0], from_pandas=True).dictionary_encode()
    texts = [_format_number(value) for value in encoded.dictionary.to_pylist()]
    dictionary = pa.array(texts, pa.large_string())
    return pc.take(dictionary, encoded.indices)


def _read_text(table: Table, row: int, name: str) -> str | None:
    """Return one value of a table as a text; None if it is missing."""
    text: str | None = read_texts(table.slice(row, row + 1), table.names.index(name))[0].as_py()
    return text


def _format_number(value: float) -> str:
    """Return a number as a text that depends on its value only."""
    return str(int(value)) if float(value).is_integer() else repr(value)
