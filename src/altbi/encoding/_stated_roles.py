"""Roles of columns that the user states, in place of those that are inferred."""

import difflib
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, get_args

from altbi.encoding._column_roles import ColumnRole, Role
from altbi.errors import ParameterError, list_names, quote, shorten
from altbi.table import Kind

StatedRole = Literal["number", "category", "text", "identifier"]
ROLE_NAMES: tuple[StatedRole, ...] = get_args(StatedRole)

# Kinds of columns that can have a role, and what to do with another column.
_POSSIBLE: Mapping[StatedRole, tuple[tuple[Kind, ...], str]] = {
    "number": (
        ("number",),
        "Convert its values to numbers, or pass --missing (missing) for each text that is none.",
    ),
    "category": (("category", "number", "boolean"), "Convert its values to text."),
    "text": (("category",), "Exclude the column instead."),
    "identifier": (("category", "number", "date"), "Exclude the column instead."),
}


def parse_roles(entries: Sequence[str], names: Sequence[str]) -> dict[str, StatedRole]:
    """Parse entries of the option --as, such as "category:zip,text:note", to roles by name.

    The name begins after the first colon, so it may have colons itself. As in --columns, an entry
    is split at its commas, unless all after its first colon is the name of a column. A name with a
    comma therefore needs an entry of its own. Unknown roles, unknown names and names that occur
    twice raise a `ParameterError`.

    >>> parse_roles(["category:zip,text:note", "number:a,b"], ["zip", "note", "a,b"])
    {'zip': 'category', 'note': 'text', 'a,b': 'number'}
    """
    found: dict[str, StatedRole] = {}
    for entry in entries:
        is_name = entry.partition(":")[2].strip() in names
        for item in [entry] if is_name else entry.split(","):
            role, name = _parse_role(item, names)
            if name in found:
                raise ParameterError(
                    f"--as names column {quote(name)} twice. State one role for each column."
                )
            found[name] = role
    return found


def list_texts(stated: Mapping[str, StatedRole]) -> list[str]:
    """Return the columns that are read as texts where a format has no types, such as CSV.

    Numbers would lose the leading zeros of codes.
    """
    return [name for name, role in stated.items() if role in ("category", "identifier")]


def _parse_role(item: str, names: Sequence[str]) -> tuple[StatedRole, str]:
    """Parse one ROLE:NAME; an unknown role or name raises a `ParameterError`."""
    text, colon, name = (piece.strip() for piece in item.partition(":"))
    role = next((role for role in ROLE_NAMES if role == text), None)
    if not colon or role is None:
        raise ParameterError(
            f"--as: {quote(item)} does not begin with a role. Write ROLE:NAME for each column, "
            f"with one of {', '.join(ROLE_NAMES)}; a name with a comma needs an option of its "
            "own."
        )
    if name not in names:
        raise ParameterError(f"--as names {quote(name)}, but {_describe_names(name, names)}")
    return role, name


def _describe_names(name: str, names: Sequence[str]) -> str:
    """Return that no column has a name, and which names are close to it or exist."""
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"Did you mean {quote(near[0])}?" if near else f"There are {list_names(names)}."
    return f"no column has this name. {hint}"


def check_stated_names(
    stated: Mapping[str, str], names: Sequence[str], not_searched: Collection[str] = ()
) -> None:
    """Raise a `ParameterError` for a role of a column that a table does not have, or not searched.

    `names` are the columns that are searched for outliers, and `not_searched` all others.
    """
    known = set(names)
    for name in stated:
        if name in known:
            continue
        if name in not_searched:
            raise ParameterError(
                f"column_roles (--as): column {quote(name)} is not searched, so it has no role. "
                "Leave out its role, or search the column."
            )
        raise ParameterError(
            f"column_roles names {quote(name)}, but {_describe_names(name, names)}"
        )


def override_role(name: str, stated: StatedRole, kind: Kind, inferred: ColumnRole) -> ColumnRole:
    """Return the role that a user states in place of the `inferred` one.

    A role that is not possible for the kind of the column raises a `ParameterError`.
    """
    kinds, advice = _POSSIBLE[stated]
    if kind not in kinds:
        holds = {"category": "text", "date": "dates", "number": "numbers", "boolean": "booleans"}
        raise ParameterError(
            f"column_roles (--as): column {quote(name)} holds {holds[kind]}, so it cannot have the "
            f"role {stated}. {advice}"
        )
    role: Role = "free text" if stated == "text" else stated
    # Remarks may have values of the column, which identifiers and free text do not store.
    return ColumnRole(
        role=role,
        reason=shorten(f"Stated by the user. Inferred: {inferred.role}. {inferred.reason}", 400),
        n_distinct=inferred.n_distinct,
        is_stated=True,
        is_text=kind == "category",
    )
