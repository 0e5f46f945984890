"""The types of columns, settled over a whole file: no text in its last row comes as a surprise."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import pyarrow as pa
import pyarrow.compute as pc

from altbi.errors import TableError, infinity_error
from altbi.io._text_formats import (
    MISSING_WORDS,
    NUMBER,
    PLAIN,
    POINTS,
    TEXT,
    TEXT_FORMATS,
    TextFormat,
    first_refused,
)
from altbi.table import Kind

__all__ = [
    "ExpectedType",
    "InferenceState",
    "TypeInference",
    "first_infinite",
    "mask_missing",
    "missing_value_words",
    "parse_texts",
    "present_texts",
]

# Kinds that a model takes for one another.
_ALIKE: dict[Kind, set[Kind]] = {"number": {"number", "boolean"}, "boolean": {"number", "boolean"}}
_RIVALS = {
    frozenset({"dates as day/month/year", "dates as month/day/year"}): (
        "day and month of its dates cannot be told apart; write them as year-month-day"
    ),
    frozenset({"numbers with a decimal comma", "numbers with commas between thousands"}): (
        "the commas in its numbers may be decimal or stand between thousands; write a decimal point"
    ),
}
_LIKE_CODE = r"^0\d"
_LIKE_DATE = r"^\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})\b"
_LIKE_NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"


def missing_value_words(format_: str, further: Sequence[str]) -> tuple[str, ...]:
    """Give the texts that stand for a missing cell: CSV has no other way to write one."""
    return (*MISSING_WORDS, *further) if format_ == "csv" else tuple(further)


def mask_missing(cells: pa.Array | pa.ChunkedArray, missing: pa.Array) -> pa.Array:
    """Do the same as `present_texts` for cells of any type; only texts can stand for a gap."""
    kind = cells.type.value_type if pa.types.is_dictionary(cells.type) else cells.type
    if not len(missing) or not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return cells
    return present_texts(cells.cast(pa.string()), missing)


def present_texts(texts: pa.Array, missing: pa.Array) -> pa.Array:
    """Give texts as they are, those that stand for a missing cell as null."""
    absent = pc.is_in(pc.ascii_trim_whitespace(texts), value_set=missing)
    return pc.if_else(absent, pa.scalar(None, texts.type), texts)


def parse_texts(reading: TextFormat, texts: pa.Array) -> pa.Array:
    """Turn texts into values; the texts of a category stay as they are written."""
    return texts if reading.kind == "category" else reading.parse(pc.ascii_trim_whitespace(texts))


@final
@dataclass(frozen=True, slots=True)
class ExpectedType:
    """What a model expects of a column.

    Attributes
    ----------
    kind : {"number", "boolean", "date", "category"}
        What it holds.
    written : str, default=''
        How it was read where the model was fitted, in the words of `TextFormat.said`, if it was text.
    """

    kind: Kind
    written: str = ""


@final
@dataclass(frozen=True, slots=True)
class InferenceState:
    """What some rows say of a column of texts, in plain values; rows are counted from their first.

    Attributes
    ----------
    alive : tuple of int
        The places of the readings that could read all texts, in `TEXT_FORMATS`.
    no_number : (int, str) or None
        The first text that is no number, with its row.
    infinite : int or None
        The first row with an infinite number.
    pointed : str or None
        The first text that is another number if its points stand between thousands.
    """

    alive: tuple[int, ...]
    no_number: tuple[int, str] | None
    infinite: int | None
    pointed: str | None = None


@final
class TypeInference:
    """Finds the reading of one column of texts.

    Parameters
    ----------
    column : str
        Its name.
    expected : ExpectedType or None
        What a model expects; None takes what fits.
    """

    def __init__(self, column: str, expected: ExpectedType | None = None) -> None:
        self.column = column
        self.expected = expected
        self.alive: tuple[TextFormat, ...] = _candidates(expected)
        self.no_number: tuple[int, str] | None = None
        self.infinite: int | None = None
        self.pointed: str | None = None

    def add(self, texts: pa.Array, first_row: int) -> None:
        """TableScan at the next texts, missing ones as null; readings that cannot read them are out."""
        if self.alive == (TEXT,):
            return
        trimmed = pc.ascii_trim_whitespace(texts)
        before = self.alive
        parsed = {reading: _parsed(reading, trimmed) for reading in before}
        self.alive = tuple(reading for reading in before if parsed[reading] is not None)
        if not self.alive:
            at = max(first_refused(reading, trimmed) for reading in before)
            raise self._unwanted(first_row + at, texts[at].as_py())
        if before[0] is NUMBER and self.alive[0] is not NUMBER:
            at = first_refused(NUMBER, trimmed)
            self.no_number = (first_row + at, texts[at].as_py())
        if self.alive[0].kind == "number" and self.infinite is None:
            self.infinite = first_infinite(parsed[self.alive[0]], first_row)
        if self.pointed is None and {NUMBER, POINTS} <= set(self.alive):
            self.pointed = _first_other(texts, parsed[NUMBER], parsed[POINTS])

    @property
    def state(self) -> InferenceState:
        """What was found so far."""
        alive = tuple(map(TEXT_FORMATS.index, self.alive))
        return InferenceState(alive, self.no_number, self.infinite, self.pointed)

    def follow(self, found: InferenceState, first_row: int) -> bool:
        """Take over what others found in the next rows; False if no reading is left for all."""
        theirs = [TEXT_FORMATS[place] for place in found.alive]
        alive = tuple(reading for reading in self.alive if reading in theirs)
        if not alive:
            return False
        self.alive = alive
        if self.no_number is None and found.no_number is not None:
            row, text = found.no_number
            self.no_number = (first_row + row, text)
        if self.infinite is None and found.infinite is not None:
            self.infinite = first_row + found.infinite
        self.pointed = self.pointed or found.pointed
        return True

    def settled(self) -> TextFormat:
        """Give the first reading that could read all texts."""
        doubt = self._find_problem()
        if doubt and self.expected:
            raise TableError(
                f"column {self.column!r}: the model expects a {self.expected.kind}, but {doubt}."
            )
        reading = TEXT if doubt else self.alive[0]
        if reading.kind == "number" and self.infinite is not None:
            raise infinity_error(self.column, self.infinite)
        return reading

    def notes(self, sample: pa.Array) -> Iterator[str]:
        """Say what a reader of the column should know, in the light of some of its texts."""
        reading = self.settled()
        doubt = self._find_problem()
        if doubt:
            yield f"Column {self.column!r} is read as text, because {doubt}."
        elif self._is_as_learned():
            return
        elif self.expected and self.expected.written:
            yield (
                f"Column {self.column!r} is read as {reading.said}, because not all of its cells "
                f"are {self.expected.written}, as where the model was fitted."
            )
        elif reading.said not in PLAIN:
            yield f"Column {self.column!r} is read as {reading.said}."
        elif reading is NUMBER and _some(sample, _LIKE_CODE):
            yield (
                f"Column {self.column!r} is read as numbers, though some of its cells begin with 0 "
                "as codes do. If they are, leave it out (--exclude), or let it name rows (--id)."
            )
        elif reading is NUMBER and self.pointed and POINTS in self.alive:
            yield (
                f"Column {self.column!r} is read as numbers with a decimal point, though its "
                f"points may stand between thousands, as in {_quoted(self.pointed)}. If they do, "
                "write the numbers without them."
            )
        elif reading is TEXT:
            yield from self._why_text(sample.drop_null())

    def _why_text(self, texts: pa.Array) -> Iterator[str]:
        """Say which text keeps a column of numbers or dates from being one."""
        if self.no_number and _mostly(texts, _LIKE_NUMBER):
            row, text = self.no_number
            yield (
                f"Column {self.column!r} is read as text, because row {row} (counted from 0) holds "
                f"{_quoted(text)}, though most of its cells are numbers. Mend the cell, or name it "
                "with --missing if it means that there is none."
            )
        if not _mostly(texts, _LIKE_DATE):
            return
        first = texts.filter(pc.match_substring_regex(texts, _LIKE_DATE))[0].as_py()
        same = pc.equal(_shapes(texts), _shapes(pa.array([first]))[0])
        others = texts.filter(pc.invert(same))
        beside = ""
        if len(others):
            beside = f": {_quoted(others[0].as_py())} stands beside {_quoted(first)}"
        yield (
            f"Column {self.column!r} is read as text, though most of its cells look like dates"
            f"{beside}. Write all dates in one way, and name with --missing what means that there "
            "is none."
        )

    def _find_problem(self) -> str | None:
        """Say which two readings fit all texts, though they give them other values."""
        if self._is_as_learned():
            return None
        said = {reading.said for reading in self.alive}
        for rivals, doubt in _RIVALS.items():
            if rivals <= said and self.alive[0].said in rivals:
                return doubt
        return None

    def _is_as_learned(self) -> bool:
        """Tell whether all texts can be read as where the model was fitted."""
        return self.expected is not None and self.alive[0].said == self.expected.written

    def _unwanted(self, row: int, text: str) -> TableError:
        kind = self.expected.kind if self.expected else TEXT.kind
        return TableError(
            f"column {self.column!r} holds {_quoted(text)} in row {row} (counted from 0), but the "
            f"model expects a {kind}. Mend the cell, name it with --missing if it means that there "
            "is none, or fit a model on this table."
        )


def _candidates(expected: ExpectedType | None) -> tuple[TextFormat, ...]:
    """Give the readings in the order of preference: the model's own first."""
    if expected is None:
        return TEXT_FORMATS
    if expected.kind == "category":
        return (TEXT,)
    kinds = _ALIKE.get(expected.kind, {expected.kind})
    fitting = [reading for reading in TEXT_FORMATS if reading.kind in kinds]
    return tuple(sorted(fitting, key=lambda reading: reading.said != expected.written))


def first_infinite(values: pa.Array, first_row: int) -> int | None:
    """Find the first row with an infinite number."""
    if not pa.types.is_floating(values.type) or not pc.any(pc.is_inf(values)).as_py():
        return None
    return first_row + pc.index(pc.is_inf(values), True).as_py()


def _parsed(reading: TextFormat, texts: pa.Array) -> pa.Array | None:
    try:
        return reading.parse(texts)
    except pa.ArrowInvalid:
        return None


def _first_other(texts: pa.Array, values: pa.Array, others: pa.Array) -> str | None:
    """Give the first text that two readings take for different numbers."""
    place = pc.index(pc.not_equal(values, others), True).as_py()
    return None if place < 0 else str(texts[place].as_py())


def _some(sample: pa.Array, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(sample, pattern)).as_py())


def _shapes(texts: pa.Array) -> pa.Array:
    """Give texts with a letter in place of their digits: what two dates of one format share."""
    years = pc.replace_substring_regex(texts, r"\d{4}", "Y")
    return pc.replace_substring_regex(years, r"\d+", "D")


def _mostly(texts: pa.Array, pattern: str) -> bool:
    return len(texts) > 0 and pc.mean(pc.match_substring_regex(texts, pattern)).as_py() > 0.5


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:39]}…")
