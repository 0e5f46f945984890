"""Columns whose ranges and categories were declared beforehand: nothing of them is learned."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time

from altbi.encoding._column import CATEGORY_WEIGHT, Column
from altbi.errors import ParameterError
from altbi.table import Kind

__all__ = ["Bounds", "declared_column", "declared_columns"]

_PLURAL = {"date": "dates", "number": "numbers", "category": "texts"}
# For all columns alike, or by name: two ends of a range, or the categories of a category.
Bounds = Sequence[object] | Mapping[str, Sequence[object]]


def declared_columns(
    names: Sequence[str], kinds: Sequence[Kind], bounds: Bounds
) -> tuple[Column, ...]:
    """Make columns of a table's names and kinds, and of what was declared about them."""
    if isinstance(bounds, Mapping):
        unknown = [name for name in bounds if name not in names]
        if unknown:
            raise ParameterError(
                f"bounds name a column {unknown[0]!r}, but the table has none of that name. "
                f"Expected some of: {', '.join(map(repr, names))}."
            )
    return tuple(
        declared_column(name, kind, _of_column(name, kind, bounds))
        for name, kind in zip(names, kinds, strict=True)
    )


def _of_column(name: str, kind: Kind, bounds: Bounds) -> Sequence[object]:
    if kind == "boolean":
        if isinstance(bounds, Mapping) and list(bounds.get(name, (False, True))) != [False, True]:
            raise ParameterError(
                f"bounds of column {name!r}: {bounds[name]!r}, but it holds true and false. Leave "
                "it out of the bounds."
            )
        return (False, True)
    if not isinstance(bounds, Mapping):
        if kind == "number":
            return bounds
        raise ParameterError(
            f"Column {name!r} holds a {kind}, but bounds are two numbers for all columns alike. "
            "Give bounds by column: two dates, or the categories of a category."
        )
    if name not in bounds:
        raise ParameterError(
            f"Column {name!r} has no bounds. Under a privacy budget they cannot be read from the "
            "table: declare them, or leave the column out."
        )
    declared = bounds[name]
    plain = isinstance(declared, list | tuple)
    strange = {"date": int | float, "number": bool, "category": ()}[kind]
    if not plain or not declared or any(isinstance(end, strange) for end in declared):
        expected = {
            "date": "two dates, such as '2020-01-31'",
            "number": "two finite numbers, the smaller one first",
            "category": "a list of its categories",
        }[kind]
        raise ParameterError(
            f"bounds of column {name!r}: {declared!r}, but it holds {_PLURAL[kind]}. "
            f"Expected {expected}."
        )
    return declared


def declared_column(name: str, kind: Kind, declared: Sequence[object]) -> Column:
    """Make a column of its range or its categories; counts in it are placeholders."""
    if kind == "category":
        categories = _categories(name, declared)
        scales = (1.0,) * (len(categories) + 1)
        return Column(
            name=name, kind=kind, present=max(len(categories), 1), missing=0, scales=scales,
            categories=categories, distinct=len(categories), declared=True,
        )  # fmt: skip
    low, high = _ends(name, kind, declared)
    bare = Column(name=name, kind=kind, present=1, missing=0, low=low, high=high)
    middle = CATEGORY_WEIGHT / 2 if kind == "boolean" else 0.5
    return Column(
        name=name, kind=kind, present=1, missing=0, low=low, high=high, fill=middle,
        centre=low / 2 + high / 2, scales=(bare.span,), declared=True,
    )  # fmt: skip


def _categories(name: str, declared: Sequence[object]) -> tuple[str, ...]:
    texts = isinstance(declared, list | tuple) and all(isinstance(item, str) for item in declared)
    if not texts or len(set(declared)) < len(declared):
        raise ParameterError(
            f"bounds of column {name!r}: {declared!r}, but it is a category. "
            "Expected a list of its categories, texts that all differ."
        )
    return tuple(map(str, declared))


def _ends(name: str, kind: Kind, declared: Sequence[object]) -> tuple[float, float]:
    ends = (
        [_seconds(end) if kind == "date" else end for end in declared] if _is_pair(declared) else []
    )
    plain = [float(end) for end in ends if isinstance(end, int | float)]
    if len(plain) != 2 or not all(map(math.isfinite, plain)) or not plain[0] < plain[1]:
        kinds = "two dates, such as '2020-01-31'" if kind == "date" else "two finite numbers"
        raise ParameterError(
            f"bounds of column {name!r}: {declared!r}, but it holds {kind}s. "
            f"Expected {kinds}, the smaller one first."
        )
    return plain[0], plain[1]


def _is_pair(declared: object) -> bool:
    return isinstance(declared, list | tuple) and len(declared) == 2


def _seconds(end: object) -> object:
    """Turn a date, or its ISO text, into seconds since 1970; anything else stays as it is."""
    if isinstance(end, str):
        try:
            end = datetime.fromisoformat(end)
        except ValueError:
            return end
    if isinstance(end, date) and not isinstance(end, datetime):
        end = datetime.combine(end, time())
    if not isinstance(end, datetime):
        return end
    return (end if end.tzinfo else end.replace(tzinfo=UTC)).timestamp()
