"""Columns as plain JSON, and back with every field checked: a model file may be hostile."""

import math
import reprlib
import sys
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import get_args

from altbi.encoding._column import Column
from altbi.errors import ModelFileError
from altbi.table import Kind

__all__ = ["columns_from_json", "columns_to_json", "integer_from", "mapping_from"]

MAX_COLUMNS = 100_000
MAX_COUNT = 2**53  # the largest run of integers that every reader of JSON keeps exact


def columns_to_json(columns: tuple[Column, ...]) -> list[dict[str, object]]:
    """Give the columns as lists, dictionaries, texts and finite numbers."""
    return [
        {**asdict(column), "categories": list(column.categories), "scales": list(column.scales)}
        for column in columns
    ]


def columns_from_json(state: object) -> tuple[Column, ...]:
    """Build the columns from a list that nobody has checked yet."""
    if not isinstance(state, list) or not 1 <= len(state) <= MAX_COLUMNS:
        raise _refused("columns", state, f"a list of 1 to {MAX_COLUMNS} columns")
    columns = tuple(_column(item, f"column {place}") for place, item in enumerate(state))
    if len({column.name for column in columns}) < len(columns):
        raise ModelFileError("The encoder's state names two columns alike, but expected each once.")
    if not any(column.present for column in columns):
        raise ModelFileError("The encoder's state has no value in any column, but expected one.")
    return columns


def mapping_from(state: object, keys: set[str], where: str) -> dict[str, object]:
    """Give a dictionary that has these keys and no others."""
    if not isinstance(state, dict) or state.keys() != keys:
        raise _refused(where, state, f"an object with the keys {sorted(keys)} and no others")
    return state


def integer_from(value: object, where: str) -> int:
    """Give a whole number that is not negative."""
    if type(value) is not int or not 0 <= value <= MAX_COUNT:
        raise _refused(where, value, f"a whole number from 0 to {MAX_COUNT}")
    return value


def _column(item: object, where: str) -> Column:
    state = mapping_from(item, {field.name for field in fields(Column)}, where)
    column = Column(**{key: READERS[key](value, f"{where}, {key}") for key, value in state.items()})  # type: ignore[arg-type]
    scalar, category = column.kind != "category", column.kind == "category"
    rules = {
        "at least one row": column.present + column.missing >= 1,
        "low <= high": column.low <= column.high,
        "fill from 0 to 1": 0 <= column.fill <= 1,
        "no categories unless it is a category": category
        or not (column.categories or column.distinct),
        "no range if it is a category": scalar or column.low == column.high == column.fill == 0,
        "no value where all cells are missing": bool(column.present) or column.constant,
        "not more categories than values": len(column.categories)
        <= column.distinct
        <= column.present
        or scalar,
        "a centre within the range": column.low <= column.centre <= column.high,
        "a scale above 0 for each unit": len(column.scales) == column.n_features_encoded
        and min(column.scales) >= sys.float_info.min,
        "no scale of a category or gap below 0.001": min(column.scales[scalar:], default=1)
        >= 0.001,
    }
    for rule, holds in rules.items():
        if not holds:
            raise _refused(where, item, rule)
    return column


def _text(value: object, where: str) -> str:
    """Give a text that can be written as UTF-8; JSON may smuggle in halves of characters."""
    if not isinstance(value, str) or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise _refused(where, value, "a text")
    return value


def _kind(value: object, where: str) -> str:
    if not isinstance(value, str) or value not in get_args(Kind):
        raise _refused(where, value, f"one of {list(get_args(Kind))}")
    return value


def _number(value: object, where: str) -> float:
    # Integers are refused: the encoder writes floats, and a huge integer fits no float.
    if type(value) is not float or not math.isfinite(value):
        raise _refused(where, value, "a finite number written with a decimal point or exponent")
    return value


def _categories(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _refused(where, value, "a list of texts")
    categories = tuple(_text(text, where) for text in value)
    if len(set(categories)) < len(categories):
        raise _refused(where, value, "each category once")
    return categories


def _scales(value: object, where: str) -> tuple[float, ...]:
    if not isinstance(value, list):
        raise _refused(where, value, "a list of numbers")
    return tuple(_number(scale, where) for scale in value)


def _flag(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise _refused(where, value, "true or false")
    return value


READERS: dict[str, Callable[[object, str], object]] = {
    "name": _text,
    "kind": _kind,
    "present": integer_from,
    "missing": integer_from,
    "low": _number,
    "high": _number,
    "fill": _number,
    "centre": _number,
    "scales": _scales,
    "categories": _categories,
    "distinct": integer_from,
    "declared": _flag,
}


def _refused(where: str, value: object, expected: str) -> ModelFileError:
    """Say where the state is wrong, with a short look at what stands there."""
    return ModelFileError(
        f"The encoder's state is broken at {where}: {reprlib.repr(value)}, but expected {expected}."
    )
