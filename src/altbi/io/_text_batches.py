"""What the texts of a column are, one batch after the other: formats, placeholders, currencies."""

import functools
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from altbi.io._number_formats import HEAD_ROWS, list_currencies, unique_currencies
from altbi.io._text_formats import (
    POINT_PAIRS,
    TEXT,
    TEXT_FORMATS,
    MissingTexts,
    TextFormat,
)

INDICES = {format_: index for index, format_ in enumerate(TEXT_FORMATS)}
_TOTALS = frozenset((
    "total", "totals", "grand total", "grand totals", "subtotal", "sub total", "sub-total", "sum",
    "gesamt", "gesamtsumme", "insgesamt", "summe", "zwischensumme", "total général",
    "somme",  # codespell:ignore
    "total general", "suma", "totale", "somma", "soma", "totaal", "total geral",
))  # fmt: skip


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceState:
    """What is known about the texts of a column, in plain values that can be pickled."""

    formats: tuple[int, ...]  # indices in `TEXT_FORMATS` of the formats that parse all texts
    # Rows and texts that rule out formats, with the indices of these: for each format, the first.
    ruled_out: tuple[tuple[int, str, tuple[int, ...]], ...] = ()
    infinite: int | None = None  # the first row with an infinite number
    with_points: str | None = None  # the first text whose points may be thousands separators
    currencies: tuple[str, ...] = ()  # of amounts of money; only the first two
    # The texts that are missing values among numbers or dates only, and the numbers of their rows.
    placeholders: tuple[tuple[str, int], ...] = ()
    has_values: bool = False  # whether a text is a value, and not in parentheses
    total: tuple[int, str] | None = None  # row and text of the last text, if it means a total

    def append(self, following: "InferenceState", first_row: int) -> "InferenceState":
        """Return what is known about the texts of this state and the following ones.

        `first_row` is the number of the first of these.
        """

        def shift(found: tuple[int, str] | None) -> tuple[int, str] | None:
            """Return a row and a text of the following ones with the number of the row."""
            return None if found is None else (first_row + found[0], found[1])

        ruled_out = [
            (first_row + row, text, tuple(index for index in indices if index in self.formats))
            for row, text, indices in following.ruled_out
        ]
        infinite = self.infinite
        if infinite is None and following.infinite is not None:
            infinite = first_row + following.infinite
        counts = Counter(dict(self.placeholders)) + Counter(dict(following.placeholders))
        return InferenceState(
            formats=tuple(index for index in self.formats if index in following.formats),
            ruled_out=(*self.ruled_out, *(each for each in ruled_out if each[2])),
            infinite=infinite,
            with_points=self.with_points or following.with_points,
            currencies=tuple(unique_currencies((*self.currencies, *following.currencies))[:2]),
            placeholders=tuple(sorted(counts.items())),
            has_values=self.has_values or following.has_values,
            total=shift(following.total),
        )


@final
class TextBatch:
    """Some texts of a column, and what is derived from them when it is needed."""

    def __init__(self, texts: pa.Array, missing: MissingTexts) -> None:
        self.texts = texts
        self._missing = missing
        self._is_cast = False  # whether Arrow could cast all texts, so that none is missing

    @functools.cached_property
    def _trimmed(self) -> pa.Array:
        """The texts without spaces around them."""
        return pc.ascii_trim_whitespace(self.texts)

    @functools.cached_property
    def _found(self) -> pa.Array:
        """The index of each text among the missing ones, as `MissingTexts.find`."""
        return self._missing.find(self._trimmed)

    @functools.cached_property
    def values(self) -> pa.Array:
        """The texts trimmed, with null for those that are missing among numbers or dates."""
        return self._missing.remove(self._trimmed, self._found, placeholders=True)

    def select_values(self, format_: TextFormat) -> pa.Array:
        """Return the texts trimmed, with null for those that are missing in a format."""
        if format_.has_placeholders:
            return self.values
        return self._missing.remove(self._trimmed, self._found, placeholders=False)

    @functools.cached_property
    def probes(self) -> list[str]:
        """Some values, which are parsed first; it is empty only if there are none.

        One of them is likely to rule out a format. `parse` adds values that it finds.
        """
        head = pc.ascii_trim_whitespace(self.texts[:HEAD_ROWS])
        head = head.filter(self._missing.find(head).is_null()).drop_null()
        values = head if len(head) else self.values.drop_null()
        return values[:1].to_pylist()

    def contains(self, letters: str) -> bool:
        """Return False only if none of the ASCII letters is in any text."""
        offsets = np.frombuffer(self.texts.buffers()[1], np.int32)
        start, end = offsets[self.texts.offset], offsets[self.texts.offset + len(self.texts)]
        data = self.texts.buffers()[2]
        written = b"" if data is None else data[start:end].to_pybytes()
        return any(letter.encode() in written for letter in letters)

    def count_placeholders(self) -> tuple[tuple[str, int], ...]:
        """Return the placeholders among the texts, and the number of rows of each."""
        if self._is_cast:
            return ()
        is_placeholder = pc.greater_equal(self._found, self._missing.n_always)
        counts = pc.value_counts(self._trimmed.filter(is_placeholder))
        return tuple((each["values"], each["counts"]) for each in counts.to_pylist())

    def has_values(self) -> bool:
        """Return whether a text is a value, and not in parentheses."""
        if any(not text.startswith("(") for text in self.probes):
            return True
        return pc.any(pc.invert(pc.starts_with(self.values, "("))).as_py() is True

    def parse(self, format_: TextFormat) -> pa.Array | None:
        """Return the parsed texts, or None if one of them does not have the format."""
        if not self.probes and format_.has_placeholders:
            return self.values  # all are null
        if not all(map(format_.may_parse, self.probes)):
            return None
        values = self._missing.cast(self.texts, format_.type)
        if values is not None:
            self._is_cast = True
            return values
        if try_parse(format_, pa.array(self.probes, pa.string())) is None:
            return None
        values = try_parse(format_, self.select_values(format_))
        if values is None and format_.has_placeholders:
            self.probes.append(self.values[find_unparsable(format_, self.values)].as_py())
        return values


def inspect_batch(batch: TextBatch, known: InferenceState) -> InferenceState:
    """Return the state after a batch alone; only the formats in `known` are tried.

    What `known` has already may be left out.
    """
    candidates = [TEXT_FORMATS[index] for index in known.formats]
    parsed = _parse(batch, candidates)
    ruled_out = _find_ruled_out(batch, [each for each in candidates if each not in parsed])
    formats = tuple(INDICES[each] for each in parsed)
    if not any(each.has_placeholders for each in parsed):
        return InferenceState(formats=formats, ruled_out=ruled_out)
    numbers = next((parsed[each] for each in parsed if each.kind == "number"), None)
    return InferenceState(
        formats=formats,
        ruled_out=ruled_out,
        infinite=None if numbers is None else first_infinite(numbers, 0),
        with_points=None if known.with_points else _find_text_with_points(batch, parsed),
        currencies=_find_currencies(batch, parsed),
        placeholders=batch.count_placeholders(),
        has_values=known.has_values or batch.has_values(),
    )


def _parse(batch: TextBatch, candidates: Sequence[TextFormat]) -> dict[TextFormat, pa.Array | None]:
    """Return the formats that parse all texts of a batch, with the values.

    The values are None if it follows from another format that all texts can be parsed.
    """
    parsed: dict[TextFormat, pa.Array | None] = {}
    for format_ in candidates:
        if format_ is TEXT or any(True for _ in _iterate_bases(batch, format_, parsed)):
            parsed[format_] = None
        elif (values := batch.parse(format_)) is not None:
            parsed[format_] = values
    return parsed


def _find_ruled_out(
    batch: TextBatch, formats: Iterable[TextFormat]
) -> tuple[tuple[int, str, tuple[int, ...]], ...]:
    """Return `InferenceState.ruled_out` for formats that do not parse all texts of a batch."""
    firsts: dict[TextFormat, int] = {}
    for format_ in formats:
        texts = batch.select_values(format_)
        first = pc.index(texts.is_valid(), True).as_py()
        # A format parses at least what its bases parse.
        first = max((first, *(firsts[base] for base in _iterate_bases(batch, format_, firsts))))
        text = texts[first : first + 1]
        if format_.may_parse(str(text[0])) and try_parse(format_, text) is not None:
            first += find_unparsable(format_, texts[first:])
        firsts[format_] = first
    return tuple(
        (
            row,
            batch.texts[row].as_py(),
            tuple(INDICES[each] for each in firsts if firsts[each] == row),
        )
        for row in sorted(set(firsts.values()))
    )


def _iterate_bases(
    batch: TextBatch, format_: TextFormat, known: Container[TextFormat]
) -> Iterator[TextFormat]:
    """Yield those of the known formats that parse no other texts of a batch than a format."""
    for base, letters in format_.implied_by:
        if base in known and not (letters and batch.contains(letters)):
            yield base


def _find_text_with_points(batch: TextBatch, formats: Collection[TextFormat]) -> str | None:
    """Return the first text with a decimal point that may be a thousands separator, or None."""
    for plain, pointed in POINT_PAIRS:
        if plain in formats and pointed in formats and batch.contains("."):
            texts = batch.values
            index = pc.index(pc.not_equal(plain.parse(texts), pointed.parse(texts)), True).as_py()
            return None if index < 0 else str(batch.texts[index].as_py())
    return None


def _find_currencies(batch: TextBatch, formats: Collection[TextFormat]) -> tuple[str, ...]:
    """Return the first two different currencies of amounts of money.

    If the texts have another format as well, they have no currency.
    """
    first = next((each for each in formats if each.kind == "number"), None)
    if first is None or not first.is_money:
        return ()
    return tuple(list_currencies(batch.values)[:2])


def find_total(texts: pa.Array) -> tuple[int, str] | None:
    """Return the index and the text of the last row if it means a total, such as "Total:"."""
    text = texts[-1].as_py() if len(texts) else None
    return (len(texts) - 1, str(text)) if is_total(text) else None


def is_total(text: object) -> bool:
    """Return whether a value is a text that means a total, such as "Total:"."""
    return isinstance(text, str) and text.strip().rstrip(":").rstrip().casefold() in _TOTALS


def find_unparsable(format_: TextFormat, texts: pa.Array) -> int:
    """Return the index of the first trimmed text that a format cannot parse.

    If it can parse all texts, the last index is returned. The time is proportional to the index,
    because texts that cannot be parsed take long.
    """
    low, step = 0, 1  # texts before low parse
    while low < len(texts) - 1:
        if try_parse(format_, texts[low : low + step]) is not None:
            low, step = low + step, 2 * step
        elif step == 1:
            return low
        else:
            step //= 2
    return len(texts) - 1


def first_infinite(values: pa.Array, first_row: int) -> int | None:
    """Return the number of the first row with an infinite value, or None.

    Columns that are not floating-point return None. `first_row` is the number of the first value.
    """
    if not pa.types.is_floating(values.type) or not pc.any(pc.is_inf(values)).as_py():
        return None
    return first_row + pc.index(pc.is_inf(values), True).as_py()


def try_parse(format_: TextFormat, texts: pa.Array) -> pa.Array | None:
    """Return the parsed texts, or None if one of them does not have the format."""
    try:
        return format_.parse(texts)
    except pa.ArrowInvalid:
        return None
