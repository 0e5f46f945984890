"""Columns whose ranges and categories are declared, so that nothing is fitted on the table."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time

from msgspec.structs import replace

from altbi.encoding._column import CATEGORY_WEIGHT, Column
from altbi.errors import ParameterError, list_names, quote
from altbi.table import Kind

# Either one range (low, high) for all number columns, or a range or categories by column name.
Bounds = Sequence[object] | Mapping[str, Sequence[object]]

EXPECTED = {
    "number": "two finite numbers, the smaller one first",
    "boolean": "False and True, or no bounds",
    "date": "two dates such as '2020-01-31', the earlier one first",
    "category": "a list of its categories, texts that all differ",
}


def declare_columns(
    names: Sequence[str], kinds: Sequence[Kind], bounds: Bounds
) -> tuple[Column, ...]:
    """Create the columns of a table from one range, or from ranges and categories by column name.

    One range is valid only if all columns are numbers or booleans. Booleans need no bounds. Missing
    or invalid bounds, and those of unknown columns, raise a `ParameterError`.
    """
    if isinstance(bounds, Mapping):
        known = set(names)
        unknown = [name for name in bounds if name not in known]
        if unknown:
            raise ParameterError(
                f"bounds: the table has no column {quote(unknown[0])}. "
                f"Expected some of: {list_names(names)}."
            )
    return tuple(
        declare_column(name, kind, _select_bounds(name, kind, bounds))
        for name, kind in zip(names, kinds, strict=True)
    )


def _select_bounds(name: str, kind: Kind, bounds: Bounds) -> Sequence[object]:
    """Return the bounds of one column; a boolean column without bounds has (False, True).

    Missing bounds, bounds of a wrong type, and one range for all columns if this one holds dates or
    categories raise a `ParameterError`.
    """
    if kind == "boolean" and not (isinstance(bounds, Mapping) and name in bounds):
        return (False, True)
    if not isinstance(bounds, Mapping):
        if kind == "number":
            return bounds
        raise ParameterError(
            f"bounds: column {quote(name)} holds a {kind}, but bounds are two numbers for all "
            "columns. Pass a dict with the bounds of each column: two dates, or a list of "
            "categories."
        )
    if name not in bounds:
        raise ParameterError(
            f"bounds: column {quote(name)} has no bounds. They cannot be computed from the table "
            "under a privacy budget: declare them, or leave the column out."
        )
    if not _has_valid_types(kind, bounds[name]):
        raise _build_bounds_error(name, kind, bounds[name])
    return bounds[name]


def _has_valid_types(kind: Kind, bounds: object) -> bool:
    """Return whether bounds are a filled list or tuple without values of a wrong type.

    Dates may not be given as numbers, nor numbers as booleans. Booleans must be exactly False and
    True. Everything else is checked later.
    """
    if not isinstance(bounds, list | tuple) or not bounds:
        return False
    if kind == "boolean":
        return list(bounds) == [False, True]
    wrong = {"date": int | float, "number": bool, "category": ()}[kind]
    return not any(isinstance(end, wrong) for end in bounds)


def declare_column(name: str, kind: Kind, bounds: Sequence[object]) -> Column:
    """Create a column from its categories or its range (low, high); its counts are placeholders.

    Missing numbers, booleans and dates are encoded as the middle of the range. Invalid bounds raise
    a `ParameterError`.
    """
    if kind == "category":
        categories = _parse_categories(name, bounds)
        return Column(
            name=name,
            kind=kind,
            n_present=max(len(categories), 1),
            n_missing=0,
            scales=(1.0,) * (len(categories) + 1),
            categories=categories,
            n_categories=len(categories),
            is_declared=True,
        )
    low, high = _parse_range(name, kind, bounds)
    column = Column(
        name=name,
        kind=kind,
        n_present=1,
        n_missing=0,
        low=low,
        high=high,
        fill_value=CATEGORY_WEIGHT / 2 if kind == "boolean" else 0.5,
        median=low / 2 + high / 2,
        is_declared=True,
    )
    return replace(column, scales=(column.divisor,))


def _parse_categories(name: str, bounds: Sequence[object]) -> tuple[str, ...]:
    """Return declared categories; values that are not distinct texts raise a `ParameterError`."""
    is_valid = isinstance(bounds, list | tuple) and all(isinstance(item, str) for item in bounds)
    if not is_valid or len(set(bounds)) < len(bounds):
        raise _build_bounds_error(name, "category", bounds)
    return tuple(map(str, bounds))


def _parse_range(name: str, kind: Kind, bounds: Sequence[object]) -> tuple[float, float]:
    """Return the ends of a declared range as numbers, seconds since 1970 for dates.

    Anything but two finite ends with ``low < high`` raises a `ParameterError`.
    """
    if not isinstance(bounds, list | tuple) or len(bounds) != 2:
        raise _build_bounds_error(name, kind, bounds)
    low, high = (_convert_to_number(end, kind) for end in bounds)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise _build_bounds_error(name, kind, bounds)
    return low, high


def _convert_to_number(end: object, kind: Kind) -> float:
    """Return an end of a range as a number, seconds since 1970 for dates.

    Dates may be ISO texts; without a time zone they are in UTC. Invalid values become NaN.
    """
    if kind == "date" and isinstance(end, str):
        try:
            end = datetime.fromisoformat(end)
        except ValueError:
            return math.nan
    if kind == "date" and isinstance(end, date):
        if not isinstance(end, datetime):
            end = datetime.combine(end, time())
        return (end if end.tzinfo else end.replace(tzinfo=UTC)).timestamp()
    return float(end) if isinstance(end, int | float) else math.nan


def _build_bounds_error(name: str, kind: Kind, bounds: object) -> ParameterError:
    """Return the error for invalid bounds of a column, with what was expected."""
    return ParameterError(
        f"bounds of column {quote(name)}: {quote(bounds)}, but it is a {kind} column. "
        f"Expected {EXPECTED[kind]}."
    )
