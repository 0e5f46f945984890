"""Type inference for text columns: text formats, and the one that parses all texts of a column."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

import pyarrow as pa
import pyarrow.compute as pc

from altbi.errors import TableError, infinity_error
from altbi.table import Kind

# The texts that pandas reads as missing, so that a file is read the same in both.
MISSING_TEXTS = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
    "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip

# Kinds that a model accepts for one another.
_COMPATIBLE: dict[Kind, set[Kind]] = {
    "number": {"number", "boolean"},
    "boolean": {"number", "boolean"},
}
_CONFLICTS = {
    frozenset({"dates as day/month/year", "dates as month/day/year"}): (
        "day and month of its dates are ambiguous; write them as year-month-day"
    ),
    frozenset({"numbers with a decimal comma", "numbers with commas between thousands"}): (
        "the commas in its numbers may be decimal or thousands separators; write a decimal point"
    ),
}
_LIKE_CODE = r"^0\d"
_LIKE_DATE = r"^\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})\b"
_LIKE_NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"

Parse = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True, slots=True)
class TextFormat:
    """A way in which the texts of a column are written, and the function that parses them."""

    kind: Kind  # of the parsed column
    description: str  # in messages and model files
    # Parses trimmed texts with null for missing; raises `pyarrow.ArrowInvalid` for other formats.
    parse: Parse


def _build_cast_parser(type_: pa.DataType) -> Parse:
    """Return a parser that casts texts to an Arrow type, such as ISO 8601 texts to timestamps."""
    return lambda texts: texts.cast(type_)


def _parse_decimal_comma(texts: pa.Array) -> pa.Array:
    """Parse numbers such as 1,5 to 1.5; a text with a point raises `pyarrow.ArrowInvalid`."""
    if pc.any(pc.match_substring(texts, ".")).as_py():
        raise pa.ArrowInvalid("a point in a number with a decimal comma")
    return pc.replace_substring(texts, ",", ".").cast(pa.float64())


def _build_thousands_parser(comma: str, point: str) -> Parse:
    """Return a parser of numbers with optional thousands separators and optional decimals.

    `comma` separates thousands and `point` separates decimals, whatever characters they are.
    """
    integer = rf"(0|[1-9]\d{{0,2}}(\{comma}\d{{3}})*)"  # no leading zeros
    pattern = rf"^[-+]?{integer}(\{point}\d+)?$"

    def parse(texts: pa.Array) -> pa.Array:
        """Parse texts to float64; a text that does not match raises `pyarrow.ArrowInvalid`."""
        if not pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py():
            raise pa.ArrowInvalid("no number with a sign between the thousands")
        bare = pc.replace_substring(texts, comma, "")
        return pc.replace_substring(bare, point, ".").cast(pa.float64())

    return parse


def _parse_percent(texts: pa.Array) -> pa.Array:
    """Parse 97% to 97, not 0.97; the percent sign is optional, and a comma is a decimal comma."""
    bare = pc.replace_substring_regex(texts, r"\s*%$", "")
    return pc.replace_substring(bare, ",", ".").cast(pa.float64())


def _build_date_parser(date_format: str, time: str = "") -> Parse:
    """Return a parser of dates written as in a `strptime` format, followed by a time format.

    The year has four digits. Days, months and hours may have one digit. An empty `time` means dates
    without a time.
    """
    shape = {"%d": r"(?P<d>\d{1,2})", "%m": r"\d{1,2}", "%Y": r"\d{4}"}
    clock = {"%H": r"\d{1,2}", "%M": r"\d{2}", "%S": r"\d{2}"}
    pattern = date_format.replace(".", r"\.") + time
    for directive, digits in (shape | clock).items():
        pattern = pattern.replace(directive, digits)

    def parse(texts: pa.Array) -> pa.Array:
        """Parse texts to timestamps in microseconds.

        Texts of another format and days that do not exist raise `pyarrow.ArrowInvalid`.
        """
        days = pc.extract_regex(texts, f"^{pattern}$")
        moments = pc.strptime(texts, format=date_format + time, unit="us")
        # strptime parses 31 February as 2 or 3 March, so the day is compared with the text.
        same = pc.equal(pc.day(moments), pc.struct_field(days, "d").cast(pa.int64()))
        if days.null_count != texts.null_count or not pc.all(same, min_count=0).as_py():
            raise pa.ArrowInvalid("no such date")
        return moments

    return parse


NUMBER = TextFormat("number", "numbers", _build_cast_parser(pa.float64()))
_POINTS = TextFormat(
    "number", "numbers with points between thousands", _build_thousands_parser(".", ",")
)
TEXT = TextFormat("category", "text", lambda texts: texts)

# Formats that need no note.
PLAIN_FORMATS = ("numbers", "booleans", "dates", "text")

# In the order of preference: the first format that parses all texts of a column is used.
TEXT_FORMATS = (
    NUMBER,
    TextFormat("boolean", "booleans", _build_cast_parser(pa.bool_())),
    *(
        TextFormat("date", "dates", _build_cast_parser(pa.timestamp(unit, zone)))
        for unit in ("us", "ns")
        for zone in (None, "UTC")
    ),
    TextFormat("number", "numbers with a decimal comma", _parse_decimal_comma),
    TextFormat(
        "number", "numbers with commas between thousands", _build_thousands_parser(",", ".")
    ),
    _POINTS,
    TextFormat("number", "percentages", _parse_percent),
    *(
        TextFormat("date", f"dates as {name}", _build_date_parser(order, time))
        for order, name in (
            ("%Y/%m/%d", "year/month/day"),
            ("%d.%m.%Y", "day.month.year"),
            ("%d/%m/%Y", "day/month/year"),
            ("%m/%d/%Y", "month/day/year"),
        )
        for time in ("", " %H:%M", " %H:%M:%S")
    ),
    TEXT,
)


def find_unparsable(format_: TextFormat, texts: pa.Array) -> int:
    """Return the index of the first trimmed text that a format cannot parse, by binary search.

    If it can parse all texts, the last index is returned.
    """
    low, high = 0, len(texts)  # texts before low parse; some text before high does not
    while high - low > 1:
        middle = (low + high) // 2
        try:
            format_.parse(texts.slice(low, middle - low))
        except pa.ArrowInvalid:
            high = middle
        else:
            low = middle
    return low


def missing_value_texts(file_format: str, further: Sequence[str]) -> tuple[str, ...]:
    """Return the texts that mean a missing value: `further`, and for CSV also `MISSING_TEXTS`."""
    return (*MISSING_TEXTS, *further) if file_format == "csv" else tuple(further)


def mask_missing(cells: pa.Array | pa.ChunkedArray, missing: pa.Array) -> pa.Array:
    """Return a column in which texts that, trimmed, are among `missing` are replaced by null.

    Dictionaries of text and large strings are converted to strings for this. Columns of other types
    are returned unchanged, and so are all columns if `missing` is empty.
    """
    kind = cells.type.value_type if pa.types.is_dictionary(cells.type) else cells.type
    if not len(missing) or not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return cells
    return mask_missing_texts(cells.cast(pa.string()), missing)


def mask_missing_texts(texts: pa.Array, missing: pa.Array) -> pa.Array:
    """Return the texts with null for those that, trimmed, are among `missing`.

    Other texts are not trimmed.
    """
    absent = pc.is_in(pc.ascii_trim_whitespace(texts), value_set=missing)
    return pc.if_else(absent, pa.scalar(None, texts.type), texts)


def parse_texts(format_: TextFormat, texts: pa.Array) -> pa.Array:
    """Parse texts after trimming them; texts of the kind "category" are returned unchanged.

    A text of another format raises `pyarrow.ArrowInvalid`.
    """
    return texts if format_.kind == "category" else format_.parse(pc.ascii_trim_whitespace(texts))


@final
@dataclass(frozen=True, slots=True)
class ExpectedType:
    """The type that a fitted model expects of a column."""

    kind: Kind
    written: str = ""  # `TextFormat.description` of the column in the training table, if text


@final
@dataclass(frozen=True, slots=True)
class InferenceState:
    """The state of a `TypeInference` after some rows, in plain values that can be pickled."""

    formats: tuple[int, ...]  # indices in `TEXT_FORMATS` of the formats that parse all texts
    not_number: tuple[int, str] | None  # row and text of the first text that is not a number
    infinite: int | None  # the first row with an infinite number
    with_points: str | None = None  # the first text whose points may be thousands separators


@final
class TypeInference:
    """Infers the text format of one column from its texts, which are added in chunks.

    `formats` are those that parse all texts so far. If a model expects a type of the column, they
    are only formats of this type.
    """

    def __init__(self, column: str, expected: ExpectedType | None = None) -> None:
        self.column = column
        self.expected = expected
        self.formats: tuple[TextFormat, ...] = _list_candidates(expected)
        self.not_number: tuple[int, str] | None = None
        self.infinite: int | None = None
        self.with_points: str | None = None

    def add(self, texts: pa.Array, first_row: int) -> None:
        """Add the next texts, with null for missing; drop the formats that cannot parse them.

        `first_row` is the number of their first row. If no format is left, which only happens for a
        type that a model expects, a `TableError` is raised. If only text is left, nothing is done.
        """
        if self.formats == (TEXT,):
            return
        trimmed = pc.ascii_trim_whitespace(texts)
        before = self.formats
        parsed = {format_: _try_parse(format_, trimmed) for format_ in before}
        self.formats = tuple(format_ for format_ in before if parsed[format_] is not None)
        if not self.formats:
            at = max(find_unparsable(format_, trimmed) for format_ in before)
            raise self._build_unexpected_error(first_row + at, texts[at].as_py())
        if before[0] is NUMBER and self.formats[0] is not NUMBER:
            at = find_unparsable(NUMBER, trimmed)
            self.not_number = (first_row + at, texts[at].as_py())
        if self.formats[0].kind == "number" and self.infinite is None:
            self.infinite = first_infinite(parsed[self.formats[0]], first_row)
        if self.with_points is None and {NUMBER, _POINTS} <= set(self.formats):
            self.with_points = _find_first_difference(texts, parsed[NUMBER], parsed[_POINTS])

    @property
    def state(self) -> InferenceState:
        """The state after the texts that were added so far."""
        formats = tuple(map(TEXT_FORMATS.index, self.formats))
        return InferenceState(formats, self.not_number, self.infinite, self.with_points)

    def shared_formats(self, found: InferenceState) -> tuple[TextFormat, ...]:
        """Return the formats that parse all texts so far and all texts of another state."""
        theirs = [TEXT_FORMATS[index] for index in found.formats]
        return tuple(format_ for format_ in self.formats if format_ in theirs)

    def merge(self, found: InferenceState, first_row: int) -> None:
        """Add the state of the next rows, the first of which has the number `first_row`.

        There must be a shared format.
        """
        self.formats = self.shared_formats(found)
        if self.not_number is None and found.not_number is not None:
            row, text = found.not_number
            self.not_number = (first_row + row, text)
        if self.infinite is None and found.infinite is not None:
            self.infinite = first_row + found.infinite
        self.with_points = self.with_points or found.with_points

    def infer(self) -> TextFormat:
        """Return the first format, in the order of preference, that parses all texts.

        Ambiguous dates and numbers are text; if a model expects a type, they raise a `TableError`.
        Infinite numbers raise a `TableError` as well. Without a model, a column without texts holds
        numbers.
        """
        problem = self._find_problem()
        if problem and self.expected:
            raise TableError(
                f"column {self.column!r}: the model expects a {self.expected.kind}, but {problem}."
            )
        format_ = TEXT if problem else self.formats[0]
        if format_.kind == "number" and self.infinite is not None:
            raise infinity_error(self.column, self.infinite)
        return format_

    def notes(self, sample: pa.Array) -> Iterator[str]:
        """Yield sentences for the user about the type of the column, if it may be unexpected.

        `sample` holds some of its texts. Raises the errors of `infer`.
        """
        format_ = self.infer()
        problem = self._find_problem()
        if problem:
            yield f"Column {self.column!r} is read as text, because {problem}."
        elif self._is_as_fitted():
            return
        elif self.expected and self.expected.written:
            yield (
                f"Column {self.column!r} is read as {format_.description}, because not all of its "
                f"cells are {self.expected.written}, as where the model was fitted."
            )
        elif format_.description not in PLAIN_FORMATS:
            yield f"Column {self.column!r} is read as {format_.description}."
        elif format_ is NUMBER and pc.any(pc.match_substring_regex(sample, _LIKE_CODE)).as_py():
            yield (
                f"Column {self.column!r} is read as numbers, though some of its cells begin with 0 "
                "as codes do. If they are codes, pass the column to --exclude or --id."
            )
        elif format_ is NUMBER and self.with_points and _POINTS in self.formats:
            yield (
                f"Column {self.column!r} is read as numbers with a decimal point, though its "
                f"points may be thousands separators, as in {_quote(self.with_points)}. If they "
                "do, write the numbers without them."
            )
        elif format_ is TEXT:
            yield from self._describe_text(sample.drop_null())

    def _describe_text(self, texts: pa.Array) -> Iterator[str]:
        """Yield notes if most texts of a text column look like numbers or dates.

        They quote a text that prevents the column from being parsed, if one is known.
        """
        if self.not_number and _most_match(texts, _LIKE_NUMBER):
            row, text = self.not_number
            yield (
                f"Column {self.column!r} is read as text, because row {row} (counted from 0) holds "
                f"{_quote(text)}, though most of its cells are numbers. Fix the value, or "
                "pass --missing VALUE to treat it as missing."
            )
        if not _most_match(texts, _LIKE_DATE):
            return
        first = texts.filter(pc.match_substring_regex(texts, _LIKE_DATE))[0].as_py()
        same = pc.equal(_replace_date_digits(texts), _replace_date_digits(pa.array([first]))[0])
        others = texts.filter(pc.invert(same))
        example = ""
        if len(others):
            example = f": {_quote(others[0].as_py())} is not written like {_quote(first)}"
        yield (
            f"Column {self.column!r} is read as text, though most of its cells look like dates"
            f"{example}. Write all dates in one format, and pass --missing VALUE for texts that "
            "mean a missing value."
        )

    def _find_problem(self) -> str | None:
        """Return why the texts are ambiguous, or None.

        Dates are ambiguous if they parse as day/month/year and as month/day/year; numbers, if their
        commas may be decimal or not. Texts in the format of a model's training table never are.
        """
        if self._is_as_fitted():
            return None
        descriptions = {format_.description for format_ in self.formats}
        for conflict, problem in _CONFLICTS.items():
            if conflict <= descriptions and self.formats[0].description in conflict:
                return problem
        return None

    def _is_as_fitted(self) -> bool:
        """Return whether the column has the text format of a model's training table."""
        return self.expected is not None and self.formats[0].description == self.expected.written

    def _build_unexpected_error(self, row: int, text: str) -> TableError:
        """Return the error for a text that does not have the type that the model expects."""
        kind = self.expected.kind if self.expected else TEXT.kind
        return TableError(
            f"column {self.column!r} holds {_quote(text)} in row {row} (counted from 0), but the "
            f"model expects a {kind}. Fix the value, pass --missing VALUE to treat it as missing, "
            "or fit a model on this table."
        )


def _list_candidates(expected: ExpectedType | None) -> tuple[TextFormat, ...]:
    """Return the formats that may be inferred, in the order of preference.

    Without an expected type these are all formats. Otherwise they have the same kind, where numbers
    and booleans count as the same, and the format of the training table comes first.
    """
    if expected is None:
        return TEXT_FORMATS
    if expected.kind == "category":
        return (TEXT,)
    kinds = _COMPATIBLE.get(expected.kind, {expected.kind})
    fitting = [format_ for format_ in TEXT_FORMATS if format_.kind in kinds]
    return tuple(sorted(fitting, key=lambda format_: format_.description != expected.written))


def first_infinite(values: pa.Array, first_row: int) -> int | None:
    """Return the number of the first row with an infinite value, or None.

    Columns that are not floating-point return None. `first_row` is the number of the first value.
    """
    if not pa.types.is_floating(values.type) or not pc.any(pc.is_inf(values)).as_py():
        return None
    return first_row + pc.index(pc.is_inf(values), True).as_py()


def _try_parse(format_: TextFormat, texts: pa.Array) -> pa.Array | None:
    """Return the parsed texts, or None if one of them does not have the format."""
    try:
        return format_.parse(texts)
    except pa.ArrowInvalid:
        return None


def _find_first_difference(texts: pa.Array, values: pa.Array, others: pa.Array) -> str | None:
    """Return the first text that two formats parse to different numbers, or None.

    `values` and `others` are the parsed texts.
    """
    index = pc.index(pc.not_equal(values, others), True).as_py()
    return None if index < 0 else str(texts[index].as_py())


def _replace_date_digits(texts: pa.Array) -> pa.Array:
    """Replace four digits by Y and other numbers by D, so that dates of one format become equal."""
    years = pc.replace_substring_regex(texts, r"\d{4}", "Y")
    return pc.replace_substring_regex(years, r"\d+", "D")


def _most_match(texts: pa.Array, pattern: str) -> bool:
    """Return whether more than half of the texts contain the pattern; False without texts."""
    return len(texts) > 0 and pc.mean(pc.match_substring_regex(texts, pattern)).as_py() > 0.5


def _quote(text: str) -> str:
    """Return a text in quotes, cut after 40 characters."""
    return repr(text if len(text) <= 40 else f"{text[:39]}…")
