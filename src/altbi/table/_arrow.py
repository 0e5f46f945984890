"""Data frames and Arrow tables, by Arrow's own interface: pandas and polars are never imported."""

import functools
from collections.abc import Sequence
from typing import Any, Self, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.errors import TableError
from altbi.table._table import Kind, Table

__all__ = ["ArrowTable", "as_arrow", "kind_of"]

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
SECONDS_PER_DAY = 86_400
FIX = "Drop the column, or turn it into numbers or text."
REFUSALS = (pa.ArrowException, TypeError, ValueError, OverflowError)


@final
class ArrowTable(Table):
    """An Arrow table, in any chunking.

    Parameters
    ----------
    table : pyarrow.Table
        Its columns must be of types that `kind_of` knows; `as_arrow` sees to that.

    Examples
    --------
    >>> table = ArrowTable(pa.table({"price": [1.5, None], "colour": ["red", "blue"]}))
    >>> table.kinds
    ('number', 'category')
    >>> table.numbers([0]).ravel()
    array([1.5, nan])
    """

    def __init__(self, table: pa.Table) -> None:
        self.names = tuple(table.column_names)
        self.kinds = tuple(_known_kind(field) for field in table.schema)
        self._table = table

    def __len__(self) -> int:
        return self._table.num_rows

    def numbers(self, columns: Sequence[int]) -> NDArray[np.float64]:
        """Give these columns as float64; null and NaN are both NaN."""
        values = np.empty((len(self), len(columns)), dtype=np.float64)
        for place, column in enumerate(columns):
            values[:, place] = _numbers(self._table.column(int(column)))
        return values

    def categories(self, column: int) -> pa.Array:
        """Give the column's texts as one array, whatever its chunks and dictionaries."""
        return self._table.column(column).cast(pa.large_string()).combine_chunks()

    def renamed(self, names: Sequence[str]) -> Self:
        """Give the same columns under other names."""
        return type(self)(self._table.rename_columns(list(names)))

    def slice(self, start: int, stop: int) -> Self:
        """Give the rows from ``start`` up to ``stop``, without a copy."""
        part = type(self)(self._table.slice(start, max(stop - start, 0)))
        part.first_row = self.first_row + start
        return part

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Give these rows, in this order."""
        return type(self)(self._table.take(pa.array(rows)))


@functools.lru_cache(maxsize=256)  # slices of a wide table ask for the same few types again
def kind_of(type_: pa.DataType) -> Kind | None:
    """Tell what a column of this type holds; None when it is nothing that can be compared."""
    is_a = pa.types
    if is_a.is_boolean(type_):
        return "boolean"
    if is_a.is_timestamp(type_) or is_a.is_date(type_) or is_a.is_time(type_):
        return "date"
    if is_a.is_string(type_) or is_a.is_large_string(type_) or is_a.is_string_view(type_):
        return "category"
    if is_a.is_dictionary(type_):
        return "category" if kind_of(type_.value_type) else None
    # A column of type null has no cell with a value: as good a number as anything.
    others = (is_a.is_integer, is_a.is_floating, is_a.is_decimal, is_a.is_duration, is_a.is_null)
    return "number" if any(holds(type_) for holds in others) else None


def as_arrow_table(X: object) -> pa.Table:
    """Return a data frame, or anything that streams Arrow record batches, as a pyarrow table."""
    return _from_pandas(X) if hasattr(X, "iloc") and hasattr(X, "columns") else _from_stream(X)


def as_arrow(X: object) -> ArrowTable:
    """Return a data frame, or anything that streams Arrow record batches, as a table."""
    table = as_arrow_table(X)
    for field in table.schema:
        _known_kind(field)
    return ArrowTable(pa.table([_plain(column) for column in table.columns], table.column_names))


def _from_pandas(X: Any) -> pa.Table:  # noqa: ANN401 - pandas is not imported
    """Read a pandas frame by columns, so that an error can name the one that Arrow refuses."""
    names = [str(name) for name in X.columns]
    arrays = []
    for place, name in enumerate(names):
        column = X.iloc[:, place]
        try:
            arrays.append(pa.array(column, from_pandas=True))
        except REFUSALS as cause:
            raise TableError(
                f"Column {name!r} ({column.dtype}) mixes types or holds objects that are neither "
                f"numbers, dates nor text: {_first_line(cause)}. {FIX}"
            ) from cause
    return pa.table(arrays, names=names)


def _from_stream(X: object) -> pa.Table:
    """Read anything that Arrow can import without a copy."""
    try:
        return X if isinstance(X, pa.Table) else pa.table(X)
    except REFUSALS as cause:
        raise TableError(
            f"The {type(X).__name__} cannot be read as a table with columns: {_first_line(cause)}. "
            "Pass a 2-D array, a data frame or an Arrow table of numbers, dates or text."
        ) from cause


def _first_line(cause: BaseException) -> str:
    """Give the part of a foreign message that says what was wrong."""
    return str(cause.args[0] if cause.args else cause).splitlines()[0].rstrip(".")


def _known_kind(field: pa.Field) -> Kind:
    """Give the kind of a column, or refuse it by name."""
    kind = kind_of(field.type)
    if kind is None:
        raise TableError(
            f"Column {field.name!r} has the type {field.type}, but expected numbers, booleans, "
            f"dates or text. {FIX}"
        )
    return kind


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Turn the layouts of text that Arrow cannot yet pick rows from into one that it can."""
    if pa.types.is_string_view(column.type):
        return column.cast(pa.large_string())
    if not pa.types.is_dictionary(column.type):
        return column
    chunks = [
        pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.large_string()))
        for chunk in column.chunks
    ]
    return pa.chunked_array(chunks, pa.dictionary(column.type.index_type, pa.large_string()))


def _numbers(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """Give one column as float64, moments and spans of time in seconds."""
    type_ = column.type
    if not pa.types.is_temporal(type_):
        return column.cast(pa.float64(), safe=False).to_numpy()
    ticks = column.cast(pa.int32() if type_.bit_width == 32 else pa.int64())
    values: NDArray[np.float64] = ticks.cast(pa.float64(), safe=False).to_numpy()
    if pa.types.is_date32(type_):
        return values * SECONDS_PER_DAY
    return values / PER_SECOND["ms" if pa.types.is_date64(type_) else type_.unit]
