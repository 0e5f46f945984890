"""The types that a model expects of text columns, and the formats that are tried for them.

A score depends on its row and the model alone. So no cell may change how others are parsed.
"""

import re
from dataclasses import dataclass
from typing import final

from altbi.io._text_formats import (
    BOOLEAN,
    CLEAR_FORMATS,
    CONFLICTS,
    NUMBER,
    SIGNED_NUMBER,
    TEXT,
    TEXT_FORMATS,
    complete_description,
    split_currency,
)
from altbi.table import Kind

# Kinds that a model accepts for one another.
_COMPATIBLE: dict[Kind, set[Kind]] = {
    "number": {"number", "boolean"},
    "boolean": {"number", "boolean"},
}
# Formats of which no two parse a text to different values, by the description in the model. An
# empty one stands for all formats that the model does not state.
_PLAIN_NUMBERS = {NUMBER.description, SIGNED_NUMBER.description, BOOLEAN.description}
_AMBIGUOUS = set[str]().union(*(descriptions for descriptions, _ in CONFLICTS))
_CONSISTENT: dict[str, set[str]] = {
    **dict.fromkeys(_PLAIN_NUMBERS, _PLAIN_NUMBERS),
    "dates": {"dates", "dates as year-month-day"},
    "": {
        *_PLAIN_NUMBERS,
        *(each.description for each in TEXT_FORMATS if each.kind == "date"),
        TEXT.description,
    }
    - _AMBIGUOUS,
}
_EXAMPLES = {
    "numbers": " such as 1234.5",
    "booleans": " such as true or 0",
    "dates": " such as 2024-12-31",
}


@final
@dataclass(frozen=True, slots=True)
class ExpectedType:
    """The type that a fitted model expects of a column."""

    kind: Kind
    written: str = ""  # `TextFormat.description` of the column in the training table, if text

    def describe(self) -> str:
        """Return how the values must be written, for messages."""
        written = complete_description(self.written) or f"{self.kind}s"
        ending = "as where it was fitted" if self.written else "all in one format"
        return f"{written}{_EXAMPLES.get(written, '')}, {ending}"

    def explain_refusal(self, text: str) -> str:
        """Return a sentence before a space if a text is refused because it is ambiguous.

        Otherwise it is empty.
        """
        has_comma = complete_description(self.written).endswith("decimal comma")
        name, mark = ("point", r"\.") if has_comma else ("comma", ",")
        is_ambiguous = re.fullmatch(rf"\D*[1-9]\d{{0,2}}{mark}\d{{3}}\D*", text)
        if self.kind != "number" or not is_ambiguous:
            return ""
        return f"The {name} may be a decimal mark or a separator of thousands. "


def list_candidates(expected: ExpectedType | None) -> tuple[int, ...]:
    """Return the indices of the formats that may be inferred.

    Without an expected type these are all formats. Otherwise they are the format that the model
    states, and formats that parse no text to another value. Such are numbers in parentheses beside
    plain numbers, and 0, 1, true and false beside all numbers. The decimal mark is that of the
    format. Separators of thousands are only parsed if the format has them or if they are clear, as
    in 1,234.5 beside plain numbers. If the model states no format, the formats are plain numbers
    without separators, booleans, and those dates that are not ambiguous.
    """
    if expected is None:
        return tuple(range(TEXT_FORMATS.index(TEXT) + 1))
    kinds = _COMPATIBLE.get(expected.kind, {expected.kind})
    written = split_currency(expected.written)[0]
    known = {each.description for each in TEXT_FORMATS if each.kind in kinds}
    stated = written if written in known else ""
    names = _CONSISTENT.get(stated, {stated, BOOLEAN.description}) | {CLEAR_FORMATS.get(stated, "")}
    return tuple(
        index
        for index, each in enumerate(TEXT_FORMATS)
        if each.kind in kinds and each.description in names
    )
