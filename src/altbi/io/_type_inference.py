"""Type inference: the text format that parses all texts of a column, found batch by batch."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import pyarrow as pa

from altbi.errors import TableError, infinity_error, quote
from altbi.io._text_batches import (
    INDICES,
    InferenceState,
    TextBatch,
    find_total,
    find_unparsable,
    inspect_batch,
)
from altbi.io._text_formats import (
    CONFLICTS,
    NUMBER,
    POINT_PAIRS,
    TEXT,
    TEXT_FORMATS,
    MissingTexts,
    TextFormat,
    split_currency,
    with_currency,
)
from altbi.io._type_notes import describe_format, describe_placeholders, describe_text
from altbi.table import Kind

# Kinds that a model accepts for one another.
_COMPATIBLE: dict[Kind, set[Kind]] = {
    "number": {"number", "boolean"},
    "boolean": {"number", "boolean"},
}


@final
@dataclass(frozen=True, slots=True)
class ExpectedType:
    """The type that a fitted model expects of a column."""

    kind: Kind
    written: str = ""  # `TextFormat.description` of the column in the training table, if text


@final
class TypeInference:
    """Infers the text format of one column from its texts, which are added in chunks.

    `formats` are those that parse all texts so far, in the order of preference. If a model expects
    a type of the column, they are only formats of this type.
    """

    def __init__(
        self,
        column: str,
        expected: ExpectedType | None = None,
        missing: MissingTexts | None = None,
    ) -> None:
        self.column = column
        self.expected = expected
        self.state = InferenceState(formats=_list_candidates(expected))
        self._missing = missing or MissingTexts(())

    @property
    def formats(self) -> tuple[TextFormat, ...]:
        """The formats that parse all texts so far, in the order of preference.

        The format of a model's training table comes first.
        """
        written = split_currency(self.expected.written)[0] if self.expected else ""
        formats = [TEXT_FORMATS[index] for index in self.state.formats]
        return tuple(sorted(formats, key=lambda format_: format_.description != written))

    def add(self, texts: pa.Array, first_row: int) -> None:
        """Add the next texts; drop the formats that cannot parse them.

        `first_row` is the number of their first row. If no format is left, which only happens for a
        type that a model expects, a `TableError` is raised.
        """
        found = InferenceState(formats=self.state.formats)
        if found.formats != (INDICES[TEXT],):
            batch = TextBatch(texts, self._missing)
            found = inspect_batch(batch, self.state)
            if not found.formats:
                raise self._build_unexpected_error(batch, first_row)
        found = dataclasses.replace(found, total=find_total(texts))
        self.state = self.state.append(found, first_row)

    def shared_formats(self, found: InferenceState) -> tuple[TextFormat, ...]:
        """Return the formats that parse all texts so far and all texts of another state."""
        return tuple(each for each in self.formats if INDICES[each] in found.formats)

    def merge(self, found: InferenceState, first_row: int) -> None:
        """Add the state of the next rows, the first of which has the number `first_row`.

        There must be a row and a shared format.
        """
        self.state = self.state.append(found, first_row)

    def infer(self) -> TextFormat:
        """Return the first format, in the order of preference, that parses all texts.

        Ambiguous dates and numbers are text; if a model expects a type, they raise a `TableError`.
        Infinite numbers raise a `TableError` as well. Without a model, a column without texts holds
        numbers.
        """
        problem = self._find_problem()
        if problem and self.expected:
            raise TableError(
                f"column {quote(self.column)}: the model expects a {self.expected.kind}, but "
                f"{problem}."
            )
        format_ = TEXT if problem or self._has_placeholders_only() else self._find_preferred()
        if format_.kind == "number" and self.state.infinite is not None:
            raise infinity_error(self.column, self.state.infinite)
        return format_

    def notes(self, sample: pa.Array) -> Iterator[str]:
        """Yield sentences for the user about the type of the column, if it may be unexpected.

        `sample` holds some of its texts, with null for missing. Raises the errors of `infer`.
        """
        format_ = self.infer()
        problem = self._find_problem()
        if problem:
            yield f"Column {quote(self.column)} is read as text, because {problem}."
        elif self._is_as_fitted(format_):
            pass
        elif self.expected and self.expected.written:
            yield (
                f"Column {quote(self.column)} is read as {format_.description}, because not all "
                f"of its cells are {self.expected.written}, as where the model was fitted."
            )
        elif format_ is TEXT:
            yield from describe_text(self.column, sample.drop_null(), self.state.not_number)
        else:
            with_points = self.state.with_points if self._may_have_thousands_points() else None
            yield from describe_format(self.column, format_, sample, with_points)
        if format_.has_placeholders:
            yield from describe_placeholders(self.column, self.state.placeholders)

    def _find_preferred(self) -> TextFormat:
        """Return the first of `formats`; for amounts of money, the one with the currency found.

        If the texts have no currency, it is that of the model's training table.
        """
        written = self.expected.written if self.expected else ""
        currency = (*self.state.currencies, split_currency(written)[1])[0]
        return with_currency(self.formats[0], currency)

    def _find_problem(self) -> str | None:
        """Return why the texts are ambiguous, or None.

        Texts in the format of a model's training table are not, except for several currencies.
        """
        preferred, state = self._find_preferred(), self.state
        if preferred.currency and len(state.currencies) > 1:
            names = " and ".join(map(quote, state.currencies))
            return f"its amounts are in several currencies, such as {names}; convert them to one"
        if self._is_as_fitted(preferred):
            return None
        if self._has_parentheses_only():
            return "all of its numbers are in parentheses; write a minus sign if they are negative"
        if preferred.currency and self._may_have_thousands_points():
            return "the points in its amounts may be thousands separators; write decimals or none"
        for descriptions, problem in CONFLICTS:
            conflicting = {each.description for each in self.formats} & descriptions
            if len(conflicting) > 1 and self.formats[0].description in descriptions:
                return problem
        return None

    def _has_parentheses_only(self) -> bool:
        """Return whether all numbers are in parentheses, and no model expects numbers."""
        first = self.formats[0]
        is_number = first.kind == "number" and first is not NUMBER
        return is_number and not self.state.has_values and self.expected is None

    def _has_placeholders_only(self) -> bool:
        """Return whether all texts are placeholders, such as "-", and no model expects a type."""
        state = self.state
        return bool(state.placeholders) and not state.has_values and self.expected is None

    def _may_have_thousands_points(self) -> bool:
        """Return whether the points in numbers may be decimal points or thousands separators."""
        has_both = any(self.formats[0] is a and b in self.formats for a, b in POINT_PAIRS)
        return has_both and self.state.with_points is not None

    def _is_as_fitted(self, format_: TextFormat) -> bool:
        """Return whether a format is the one of a model's training table."""
        return self.expected is not None and format_.description == self.expected.written

    def _build_unexpected_error(self, batch: TextBatch, first_row: int) -> TableError:
        """Return the error for the first text of a batch that rules out the last format."""
        row = max(find_unparsable(each, batch.select_values(each)) for each in self.formats)
        kind = self.expected.kind if self.expected else TEXT.kind
        return TableError(
            f"column {quote(self.column)} holds {quote(batch.texts[row].as_py())} in row "
            f"{first_row + row} (counted from 0), but the model expects a {kind}. Fix the value, "
            "pass --missing VALUE to treat it as missing, or fit a model on this table."
        )


def _list_candidates(expected: ExpectedType | None) -> tuple[int, ...]:
    """Return the indices of the formats that may be inferred.

    Without an expected type these are all formats. Otherwise they have the same kind, where numbers
    and booleans count as the same.
    """
    kinds = _COMPATIBLE.get(expected.kind, {expected.kind}) if expected else None
    return tuple(
        index for index, each in enumerate(TEXT_FORMATS) if kinds is None or each.kind in kinds
    )
