"""Type inference: the text format that parses all texts of a column, found batch by batch."""

import dataclasses
from collections.abc import Collection, Iterator
from typing import final

import pyarrow as pa

from altbi.errors import TableError, infinity_error, quote
from altbi.io._expected_type import ExpectedType, list_candidates
from altbi.io._number_formats import is_same_currency, unique_currencies
from altbi.io._text_batches import (
    INDICES,
    InferenceState,
    TextBatch,
    find_total,
    find_unparsable,
    inspect_batch,
)
from altbi.io._text_formats import (
    AMBIGUOUS_COMMA,
    CONFLICTS,
    DECIMALS,
    NUMBER,
    POINT_PAIRS,
    TEXT,
    TEXT_FORMATS,
    MissingTexts,
    TextFormat,
    split_currency,
    with_currency,
)
from altbi.io._type_notes import (
    describe_decimal_mark,
    describe_format,
    describe_placeholders,
    describe_text,
)


@final
class TypeInference:
    """Infers the text format of one column from its texts, which are added in chunks.

    `formats` are those that parse all texts so far, in the order of preference. If a model expects
    a type of the column, they are only the format in which its training table was written, and
    formats that never parse a text to another value. So the value of a cell does not depend on the
    other cells. They only decide whether the column is read or refused.
    """

    def __init__(
        self,
        column: str,
        expected: ExpectedType | None = None,
        missing: MissingTexts | None = None,
    ) -> None:
        self.column = column
        self.expected = expected
        self.state = InferenceState(formats=list_candidates(expected))
        # The decimal mark that another column has decided, and this column.
        self._decided: tuple[str, str] | None = None
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

        `first_row` is the number of their first row. If a model expects a type of the column, a
        text that is not written so, and an amount in another currency, raise a `TableError`.
        """
        found = InferenceState(formats=self.state.formats)
        if found.formats != (INDICES[TEXT],):
            batch = TextBatch(texts, self._missing)
            found = inspect_batch(batch, self.state)
            if not found.formats or self._has_other_currency(found):
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

    def find_decimal_mark(self) -> str | None:
        """Return the decimal mark if the texts have only formats of numbers with one, or None."""
        found = {DECIMALS[each] for each in self.formats if each in DECIMALS}
        is_clear = len(found) == 1 and not self._find_problem()
        return found.pop() if is_clear else None

    def set_decimal_mark(self, mark: str, column: str) -> None:
        """Keep only the formats with a decimal mark, that of another column, if it is ambiguous."""
        if not self._has_ambiguous_mark():
            return
        kept = (
            index for index in self.state.formats if DECIMALS.get(TEXT_FORMATS[index], mark) == mark
        )
        self.state = dataclasses.replace(self.state, formats=tuple(kept))
        self._decided = mark, column

    def infer(self) -> TextFormat:
        """Return the first format, in the order of preference, that parses all texts.

        Without a model, ambiguous dates and numbers are text, and a column without texts holds
        numbers. Infinite numbers raise a `TableError`.
        """
        is_text = self._find_problem() or self._has_placeholders_only()
        format_ = TEXT if is_text else self._find_preferred()
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
        elif format_ is TEXT:
            yield from describe_text(self.column, sample.drop_null(), self._find_ruling_out)
        else:
            with_points = self.state.with_points if self._may_have_thousands_points() else None
            yield from describe_format(self.column, format_, sample, with_points)
            if self._decided:
                yield describe_decimal_mark(self.column, *self._decided)
        if format_.has_placeholders:
            yield from describe_placeholders(self.column, self.state.placeholders)

    def _find_ruling_out(self, format_: TextFormat) -> tuple[int, str] | None:
        """Return the row and the text of the first text that a format cannot parse, or None."""
        found = (
            (row, text) for row, text, ruled in self.state.ruled_out if INDICES[format_] in ruled
        )
        return next(found, None)

    def _find_preferred(self) -> TextFormat:
        """Return the first of `formats`; for amounts of money, the one with the currency found.

        If the texts have no currency, it is that of the model's training table.
        """
        currency = (*self.state.currencies, self._get_fitted_currency())[0]
        return with_currency(self.formats[0], currency)

    def _find_problem(self) -> str | None:
        """Return why the texts are ambiguous, or None; for a model, they never are."""
        if self.expected is not None:
            return None
        preferred, state = self._find_preferred(), self.state
        if preferred.currency and len(state.currencies) > 1:
            names = " and ".join(map(quote, state.currencies))
            return f"its amounts are in several currencies, such as {names}; convert them to one"
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
        """Return whether all numbers are in parentheses."""
        first = self.formats[0]
        is_number = first.kind == "number" and first is not NUMBER
        return is_number and not self.state.has_values

    def _has_placeholders_only(self) -> bool:
        """Return whether all texts are placeholders, such as "-", and no model expects a type."""
        state = self.state
        return bool(state.placeholders) and not state.has_values and self.expected is None

    def _has_ambiguous_mark(self) -> bool:
        """Return whether a point or a comma may be the decimal mark; for a model, it never is."""
        return self._find_problem() == AMBIGUOUS_COMMA or self._may_have_thousands_points()

    def _may_have_thousands_points(self) -> bool:
        """Return whether the points in numbers may be decimal points or thousands separators."""
        has_both = any(self.formats[0] is a and b in self.formats for a, b in POINT_PAIRS)
        return has_both and self.state.with_points is not None

    def _is_as_fitted(self, format_: TextFormat) -> bool:
        """Return whether a format is the one of a model's training table."""
        if self.expected is None:
            return False
        written, currency = split_currency(self.expected.written)
        description, found = split_currency(format_.description)
        return description == written and is_same_currency(found, currency)

    def _has_other_currency(self, found: InferenceState) -> bool:
        """Return whether texts have another currency than the model's training table."""
        currency = self._get_fitted_currency()
        return bool(currency) and len(unique_currencies((currency, *found.currencies))) > 1

    def _get_fitted_currency(self) -> str:
        """Return the currency of the model's training table; empty without one."""
        return split_currency(self.expected.written)[1] if self.expected else ""

    def _build_unexpected_error(self, batch: TextBatch, first_row: int) -> TableError:
        """Return the error for the first text of a batch that rules out the last format."""
        currency = self._get_fitted_currency()
        formats = [with_currency(each, currency) for each in self.formats]
        row = max(find_unparsable(each, batch.select_values(each)) for each in formats)
        text = str(batch.texts[row])
        what = self.expected.describe() if self.expected else TEXT.description
        why = self.expected.explain_refusal(text) if self.expected else ""
        return TableError(
            f"column {quote(self.column)} holds {quote(text)} in row "
            f"{first_row + row} (counted from 0), but the model expects {what}. {why}Fix the "
            "value, pass --missing VALUE to treat it as missing, or fit a model on this table."
        )


def share_decimal_mark(inferences: Collection[TypeInference]) -> None:
    """Read ambiguous numbers with the decimal mark of the columns in which it is clear.

    Nothing is changed if clear columns have different marks, or if a model expects types.
    """
    if any(each.expected is not None for each in inferences):
        return
    clear = {mark: each.column for each in inferences if (mark := each.find_decimal_mark())}
    if len(clear) == 1:
        ((mark, column),) = clear.items()
        for each in inferences:
            each.set_decimal_mark(mark, column)
