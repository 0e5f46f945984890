"""Infer how each column of a training sample is used: as numbers, categories, identifiers, ...

No rule looks at column names, letters or languages. When the values leave a choice, a column keeps
its kind, because a measured column that is left out is a worse error than an identifier in use.
"""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from altbi.encoding._column_profile import (
    MIN_COUNTER_ROWS,
    ColumnProfile,
    create_profile,
    show_value,
)
from altbi.encoding._column_roles import ColumnRole, Role
from altbi.encoding._duplicate_columns import describe_duplicate, find_original
from altbi.encoding._number_roles import infer_number_role, is_integral
from altbi.encoding._stated_roles import StatedRole, override_role
from altbi.encoding._text_roles import infer_text_role
from altbi.errors import quote
from altbi.table import Kind, Table

DOMINATED_SHARE = 0.99  # of the values; a column with such a value gets a remark


def infer_roles(
    table: Table, stated: Mapping[str, StatedRole] | None = None
) -> tuple[ColumnRole, ...]:
    """Return the role of each column of a training sample.

    Columns of an array are not named by a user, who cannot be expected to know what is left out:
    they keep their kind, and the role that a data frame would give is a remark. `stated` has the
    roles, by column name, that the user states; one that is not possible for a column raises a
    `ParameterError`.
    """
    stated = stated or {}
    found: list[ColumnRole] = []
    earlier: dict[tuple[str, bytes], list[tuple[int, ColumnProfile]]] = {}
    for column, name in enumerate(table.names):
        profile = create_profile(table, column)
        role = _infer_role(profile)
        if name in stated:
            # It is no copy. Others are no copies of it either: its values may not be compared.
            found.append(override_role(name, stated[name], profile.kind, role))
            continue
        original = None if role.role == "constant" else find_original(profile, column, earlier)
        if original is not None:
            role = ColumnRole(
                role="duplicate",
                reason=describe_duplicate(profile, quote(table.names[original], 40)),
                n_distinct=profile.n_distinct,
                duplicate_of=original,
                is_text=profile.kind == "category",
            )
        found.append(role if table.is_frame else _keep_kind(role, profile.kind))
    return tuple(found)


def _infer_role(profile: ColumnProfile) -> ColumnRole:
    """Return the role of a column by its own values."""
    n_missing = profile.n_rows - profile.n_present
    if not profile.n_present:
        reason = f"No value in {profile.n_rows:,} rows."
        return ColumnRole(role="constant", reason=reason, is_text=profile.kind == "category")
    if profile.n_distinct == 1 and not n_missing:
        value = show_value(profile, 0)
        reason = f"All {profile.n_rows:,} rows have the value {value}."
        return ColumnRole(
            role="constant", reason=reason, n_distinct=1, is_text=profile.kind == "category"
        )
    role: Role
    if profile.kind == "category":
        role, reason = infer_text_role(profile)
    elif profile.kind == "number":
        role, reason = infer_number_role(profile)
    else:
        role, reason = profile.kind, f"{profile.n_distinct:,} distinct values."
    found = ColumnRole(
        role=role,
        reason=reason,
        remarks=tuple(_describe_remarks(profile, role)),
        n_distinct=profile.n_distinct,
        is_text=profile.kind == "category",
    )
    return replace(found, repeated_share=profile.repeated_share) if role == "identifier" else found


def _keep_kind(role: ColumnRole, kind: Kind) -> ColumnRole:
    """Return the role of a column of an array: its kind, with another role as a remark."""
    if role.role == kind:
        return role
    remark = f"Would be of the role {role.role!r} in a data frame. It is used, as in any array."
    return ColumnRole(
        role=kind,
        reason=role.reason,
        remarks=(remark, *role.remarks),
        n_distinct=role.n_distinct,
        is_text=role.is_text,
    )


def _describe_remarks(profile: ColumnProfile, role: Role) -> Iterator[str]:
    """Yield sentences about a column that do not change its role."""
    share = profile.counts.max() / profile.n_present
    if profile.n_distinct == 1:
        yield f"The only value is {show_value(profile, 0)}; the other rows have none."
    elif share >= DOMINATED_SHARE:
        value = show_value(profile, int(profile.counts.argmax()))
        yield f"{value} has {profile.counts.max():,} of {profile.n_present:,} values."
    if profile.kind == "category" and profile.n_distinct == 2:
        yield f"Two values, like a boolean: {show_value(profile, 0)} and {show_value(profile, 1)}."
    is_key = profile.n_distinct == profile.n_present >= MIN_COUNTER_ROWS
    if role == "number" and is_key and is_integral(profile.numbers):
        yield "No integer occurs twice. If they identify rows, exclude the column."
