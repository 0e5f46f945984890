"""The cells of a table that the encoder meets after fit, if they are of the known columns."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from altbi.encoding._column import Column, own_terms
from altbi.errors import TableError
from altbi.table import Table

__all__ = ["check_columns", "codes_of", "numbers_of", "own_cells"]


def check_columns(table: Table, columns: tuple[Column, ...]) -> None:
    """Refuse a table with other columns than the sample had."""
    names = tuple(column.name for column in columns)
    if table.names != names:
        raise _other_names(names, table.names)
    if table.kinds != tuple(column.kind for column in columns):
        for number, column in enumerate(columns):
            _check_kind(table, number, column)


def numbers_of(table: Table, scalars: NDArray[np.intp]) -> NDArray[np.float64]:
    """Give the cells of the columns that were numbers at fit, whatever they are now."""
    odd = np.isin(scalars, [n for n, kind in enumerate(table.kinds) if kind == "category"])
    if not odd.any():
        return table.numbers(scalars.tolist())
    cells = np.empty((len(table), len(scalars)))
    cells[:, ~odd] = table.numbers(scalars[~odd].tolist())
    for place in np.flatnonzero(odd):
        cells[:, place] = np.where(_is_missing(table, int(scalars[place])), np.nan, 0.0)
    return cells


def codes_of(table: Table, number: int, column: Column) -> NDArray[np.int64]:
    """Give each cell the number of its category; the last one is for others, -1 for missing."""
    other = len(column.categories)
    if table.kinds[number] != "category":
        return np.where(_is_missing(table, number), -1, other)
    texts = table.categories(number)
    found = pc.index_in(texts, value_set=pa.array(column.categories, pa.large_string()))
    codes = found.fill_null(other).to_numpy().astype(np.int64)
    codes[_nulls(texts)] = -1
    return codes


def own_cells(table: Table, number: int, column: Column) -> pa.Array:
    """Give the cells of a column in its own terms; missing is null."""
    if table.kinds[number] == "category":
        return table.categories(number)
    return own_terms(column.kind, table.numbers([number])[:, 0])


def _is_missing(table: Table, number: int) -> NDArray[np.bool_]:
    if table.kinds[number] == "category":
        return _nulls(table.categories(number))
    return np.isnan(table.numbers([number])[:, 0])


def _nulls(texts: pa.Array) -> NDArray[np.bool_]:
    return texts.is_null().to_numpy(zero_copy_only=False)


def _check_kind(table: Table, number: int, column: Column) -> None:
    """Refuse a column of another kind, unless one of the two never had a value."""
    kinds = {column.kind, table.kinds[number]}
    if len(kinds) == 1 or kinds == {"number", "boolean"} or not column.present:
        return
    if not _is_missing(table, number).all():
        raise TableError(
            f"Column {column.name!r} is a {table.kinds[number]} column, but expected a "
            f"{column.kind} column as at fit. Convert it, or fit again."
        )


def _other_names(fitted: tuple[str, ...], given: tuple[str, ...]) -> TableError:
    known, there = set(fitted), set(given)
    missing = [name for name in fitted if name not in there]
    unexpected = [name for name in given if name not in known]
    if missing or unexpected:
        found = f"columns {missing} are missing and columns {unexpected} are unexpected"
    else:
        found = "only the order of the columns is another"
    return TableError(
        f"The table differs from the one at fit: {found}. "
        f"Pass the columns {_short(fitted)}, in this order."
    )


def _short(names: tuple[str, ...]) -> str:
    shown = ", ".join(repr(name) for name in names[:10])
    return shown if len(names) <= 10 else f"{shown}, … ({len(names)} in all)"
