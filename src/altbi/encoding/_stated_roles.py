"""Roles of columns that the user states, in place of those that are inferred."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from msgspec.structs import replace

from altbi.encoding._column_roles import ColumnRole, Role
from altbi.errors import ParameterError, list_names, quote, shorten
from altbi.table import Kind

AskedRole = Literal["number", "date", "category", "text", "identifier"]  # roles of --as


def parse_roles(entries: Sequence[str], names: Sequence[str]) -> dict[str, AskedRole]:
    """Parse entries of the option --as, such as "category:zip,text:note", to roles by name.

    The name begins after the first colon, so it may have colons itself. As in --columns, an entry
    is split at its commas, unless all after its first colon is the name of a column. A name with a
    comma therefore needs an entry of its own. Unknown roles, unknown names and names that occur
    twice raise a `ParameterError`.

    >>> parse_roles(["category:zip,text:note", "number:a,b"], ["zip", "note", "a,b"])
    {'zip': 'category', 'note': 'text', 'a,b': 'number'}
    """
    found: dict[str, AskedRole] = {}
    for entry in [entries] if isinstance(entries, str) else entries:
        is_name = entry.partition(":")[2].strip() in names
        for item in [entry] if is_name else entry.split(","):
            role, name = _parse_role(item, names)
            if name in found:
                raise ParameterError(
                    f"--as names column {quote(name)} twice. State one role for each column."
                )
            found[name] = role
    return found


def _parse_role(item: str, names: Sequence[str]) -> tuple[AskedRole, str]:
    """Parse one ROLE:NAME; an unknown role or name raises a `ParameterError`."""
    known: tuple[AskedRole, ...] = get_args(AskedRole)
    text, colon, name = (piece.strip() for piece in item.partition(":"))
    role = next((role for role in known if role == text), None)
    if not colon or role is None:
        raise ParameterError(
            f"--as: {quote(item)} does not begin with a role. Write ROLE:NAME for each column, "
            f"with one of {', '.join(known)}; a name with a comma needs an option of its own."
        )
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"Did you mean {quote(near[0])}?" if near else f"There are {list_names(names)}."
        raise ParameterError(f"--as names {quote(name)}, but no column has it. {hint}")
    return role, name


# Kinds of columns that can have a role, and what to do with another column.
_POSSIBLE: Mapping[AskedRole, tuple[tuple[Kind, ...], str]] = {
    "number": (
        ("number", "boolean"),
        "Convert its values to numbers, or pass --missing for each text that is none.",
    ),
    "date": (("date",), "Convert its values to dates, or write them in one date format."),
    "category": (("category", "number", "boolean"), "Convert its values to text."),
    "text": (("category",), "Use category or identifier, or convert its values to text."),
    "identifier": (("category", "number", "date"), "Exclude the column instead."),
}


def role_from_override(
    name: str, asked: AskedRole, kind: Kind, inferred: ColumnRole | None = None
) -> ColumnRole:
    """Return the role that a user asked for; `inferred` is the role that it replaces, if any.

    A role that is not possible for the kind of the column raises a `ParameterError`.
    """
    kinds, advice = _POSSIBLE[asked]
    if kind not in kinds:
        holds = {"category": "text", "date": "dates", "number": "numbers", "boolean": "booleans"}
        raise ParameterError(
            f"--as {asked}:{shorten(name, 40)}: column {quote(name)} holds {holds[kind]}, so it "
            f"cannot have the role {asked}. {advice}"
        )
    role: Role = asked if asked != "text" else "free text"
    if asked == "category" and kind == "number":
        role = "code"
    elif kind == "boolean":
        role = "boolean"
    if inferred is None:
        return ColumnRole(role=role, reason="Stated by the user.", is_asked=True)
    return replace(
        inferred,
        role=role,
        reason=shorten(f"Stated by the user; inferred: {inferred.role} ({inferred.reason})", 400),
        repeated_share=inferred.repeated_share if role == "identifier" else 0.0,
        duplicate_of=None,
        is_asked=True,
    )
