"""The role of a column: how it is used, and why."""

import json
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec.structs import replace

from altbi.errors import shorten

Role = Literal[
    "number",
    "date",
    "boolean",
    "category",
    "code",  # a number that is used as a category
    "identifier",
    "free text",
    "constant",
    "duplicate",
]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
# Columns of a model file with all remarks and whole reasons, and bytes of a reason in larger files.
MAX_REMARKED, MAX_REASON_BYTES = 10_000, 40
Sentence = Annotated[str, msgspec.Meta(max_length=400)]


# A model file has one for each column, so that defaults are left out.
class ColumnRole(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    kw_only=True,
    omit_defaults=True,
    gc=False,
):
    """How a column is used, and why.

    Examples
    --------
    >>> ColumnRole(role="duplicate", reason="It equals column 'a'.", duplicate_of=0).is_used
    False
    """

    role: Role
    reason: Sentence  # one sentence for the user
    remarks: Annotated[tuple[Sentence, ...], msgspec.Meta(max_length=10)] = ()
    n_distinct: Count = 0  # distinct values in the sample
    repeated_share: Share = 0.0  # share of an identifier's values that occur more than once
    duplicate_of: Count | None = None  # index of the column that it duplicates
    is_stated: bool = False  # the user stated the role
    is_text: bool = False  # whether the column holds texts

    def __post_init__(self) -> None:
        """Raise a `ValueError` for fields that contradict each other."""
        if (self.role == "duplicate") != (self.duplicate_of is not None):
            raise ValueError("expected duplicate_of for duplicates only")
        if self.repeated_share and self.role != "identifier":
            raise ValueError("expected a repeated_share of 0 unless the role is identifier")

    @property
    def is_used(self) -> bool:
        """Whether values of the column are compared: as numbers, dates, booleans or categories."""
        return self.role in ("number", "date", "boolean", "category", "code")

    @property
    def is_usual(self) -> bool:
        """Whether the column is used as others of its kind, and nothing is remarked about it."""
        is_plain = self.is_used and not is_special(self)
        return is_plain and not (self.is_stated or self.remarks)

    @property
    def explanation(self) -> str:
        """The reason and the remarks as one text."""
        return " ".join((self.reason, *self.remarks))


def is_special(role: ColumnRole) -> bool:
    """Return whether a column is used otherwise than other columns of its kind.

    This holds for identifiers, free text, codes, copies of other text columns, and other values
    than texts that count as categories. Constants and copies of numbers are used: a later row may
    differ from the constant or contradict the copy.
    """
    return (
        role.role in ("identifier", "free text", "code")
        or (role.role == "duplicate" and role.is_text)
        or (role.role == "category" and not role.is_text)
    )


def limit_sizes(roles: Sequence[ColumnRole]) -> list[ColumnRole]:
    """Return roles that fit into a model file: of very many columns, without remarks.

    With more than 10,000 columns, reasons are cut, too, and end with "…".
    """
    if len(roles) <= MAX_REMARKED:
        return list(roles)
    return [replace(role, remarks=(), reason=_cut_reason(role.reason)) for role in roles]


def _cut_reason(reason: str) -> str:
    """Return the start of a reason that takes at most `MAX_REASON_BYTES` in a model file."""
    n_letters = MAX_REASON_BYTES
    # The header is a text in a JSON file, so that letters may take 13 bytes.
    while len(json.dumps(json.dumps(shorten(reason, n_letters)))) > MAX_REASON_BYTES + 6:
        n_letters = 3 * n_letters // 4
    return shorten(reason, n_letters)
