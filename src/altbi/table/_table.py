"""The table classes: named columns of four kinds over an array or an Arrow table."""

import abc
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Literal, Self, final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.errors import TableError

Kind = Literal["number", "boolean", "date", "category"]

_TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_SECONDS_PER_DAY = 86_400


class TextConventions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How values were written in a text file, so that other files are parsed in the same way.

    Attributes
    ----------
    text_formats : mapping of str to str
        Description of the text format of each text column that was parsed to another type.
    missing : tuple of str
        Texts that the user declared as missing values.
    """

    text_formats: Mapping[str, str] = msgspec.field(default_factory=dict)
    missing: tuple[str, ...] = ()


class Table(abc.ABC):
    """Base class of tables in memory: columns with names and kinds, and rows in order.

    Attributes
    ----------
    names : tuple of str
        Unique column names.
    kinds : tuple of {"number", "boolean", "date", "category"}
        Kind of each column.
    is_frame : bool
        Whether each column has its own type, as in a data frame or a file.
    has_names : bool
        Whether the user chose the names.
    first_row : int
        Number of the first row in the table that this one was sliced from, for messages.
    n_source_rows : int or None
        If the table is a sample: number of rows of the sampled table.
    conventions : TextConventions
        How values were written, if the table was read from a text file.
    """

    is_frame: ClassVar[bool] = True

    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    has_names: bool = True
    first_row: int = 0
    n_source_rows: int | None = None
    conventions: TextConventions = TextConventions()

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns."""
        return len(self), len(self.names)

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def numbers(self, columns: Sequence[int]) -> NDArray[np.float64]:
        """Return columns that are not categories as a float64 array; missing values are NaN.

        Booleans are 0 and 1. Dates are seconds since 1970 in UTC, times of day seconds since
        midnight, and durations seconds. The array has the shape ``(n_rows, len(columns))``. It may
        share memory with the table, so do not write to it.
        """

    @abc.abstractmethod
    def categories(self, column: int) -> pa.Array:
        """Return the texts of a category column as one array; missing values are null."""

    @abc.abstractmethod
    def rename(self, names: Sequence[str]) -> Self:
        """Return a table with the same columns under other names, one name per column.

        Other attributes, such as `first_row` and `conventions`, have their default values.
        """

    @abc.abstractmethod
    def slice(self, start: int, stop: int) -> Self:
        """Return the rows from ``start`` up to, but not including, ``stop`` without a copy.

        `first_row` moves with the slice; `n_source_rows` and `conventions` have their default
        values.
        """

    @abc.abstractmethod
    def take(self, rows: NDArray[np.int64]) -> Self:
        """Return a copy of the rows with these indices, in this order.

        Attributes such as `first_row` and `conventions` have their default values.
        """


@final
class Matrix(Table):
    """A table over a 2-D array of numbers or booleans; all columns have the same kind.

    Parameters
    ----------
    values : array of shape (n_rows, n_columns)
        Numbers or booleans. The array is not copied.
    names : sequence of str, default=None
        One name per column. None names the columns x0, x1, ...

    Examples
    --------
    >>> table = Matrix(np.array([[1, 2], [3, 4]]))
    >>> table.names, table.kinds, len(table)
    (('x0', 'x1'), ('number', 'number'), 2)
    """

    is_frame = False

    def __init__(self, values: NDArray[Any], names: Sequence[str] | None = None) -> None:
        n_columns = values.shape[1]
        kind: Kind = "boolean" if values.dtype == np.bool_ else "number"
        self.names = tuple(names) if names is not None else tuple(f"x{i}" for i in range(n_columns))
        self.kinds = (kind,) * n_columns
        self._values = values

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._values)

    def numbers(self, columns: Sequence[int]) -> NDArray[np.float64]:
        """Return these columns as float64.

        All columns of a float64 array, in order, are returned without a copy.
        """
        is_all = np.array_equal(columns, np.arange(len(self.names)))
        values = self._values if is_all else self._values[:, np.asarray(columns, dtype=np.intp)]
        return values.astype(np.float64, copy=False)

    def categories(self, column: int) -> pa.Array:
        """Raise a `TableError`, because an array has no category columns."""
        raise TableError(f"Column {self.names[column]!r} holds numbers, so it has no categories.")

    def rename(self, names: Sequence[str]) -> Self:
        """Return the same columns under other names."""
        return type(self)(self._values, names)

    def slice(self, start: int, stop: int) -> Self:
        """Return a view of the rows from ``start`` up to ``stop``."""
        rows = type(self)(self._values[start:stop], self.names)
        rows.first_row = self.first_row + start
        return rows

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Return a copy of the rows with these indices, in this order."""
        return type(self)(self._values[rows], self.names)


@final
class ArrowTable(Table):
    """A table over an Arrow table with any number of chunks.

    A column of an unsupported type raises a `TableError`.

    Parameters
    ----------
    table : pyarrow.Table
        Columns of numbers, booleans, dates or text.

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
        self.kinds = tuple(require_kind(field) for field in table.schema)
        self._table = table

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._table.num_rows

    def numbers(self, columns: Sequence[int]) -> NDArray[np.float64]:
        """Return a copy of these columns as float64; null and NaN both become NaN."""
        values = np.empty((len(self), len(columns)), dtype=np.float64)
        for index, column in enumerate(columns):
            values[:, index] = _to_float64(self._table.column(int(column)))
        return values

    def categories(self, column: int) -> pa.Array:
        """Return the texts of a column as one array, without chunks and dictionaries."""
        return self._table.column(column).cast(pa.large_string()).combine_chunks()

    def rename(self, names: Sequence[str]) -> Self:
        """Return the same columns under other names."""
        return type(self)(self._table.rename_columns(list(names)))

    def slice(self, start: int, stop: int) -> Self:
        """Return the rows from ``start`` up to ``stop`` without a copy."""
        rows = type(self)(self._table.slice(start, max(stop - start, 0)))
        rows.first_row = self.first_row + start
        return rows

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Return a copy of the rows with these indices, in this order."""
        return type(self)(self._table.take(pa.array(rows)))


def require_kind(field: pa.Field) -> Kind:
    """Return the kind of a column; an unsupported type raises a `TableError`."""
    kind = _infer_kind(field.type)
    if kind is None:
        raise TableError(
            f"Column {field.name!r} has the type {field.type}, but expected numbers, booleans, "
            "dates or text. Drop the column, or convert it to numbers or text."
        )
    return kind


@lru_cache(maxsize=256)  # called for each column of each slice
def _infer_kind(type_: pa.DataType) -> Kind | None:
    """Return the kind of a column of this type, or None if the type is not supported.

    Times of day are dates, and durations are numbers. Dictionaries are categories if the type of
    their values is supported. Columns of type null are numbers.
    """
    is_a = pa.types
    if is_a.is_boolean(type_):
        return "boolean"
    if is_a.is_timestamp(type_) or is_a.is_date(type_) or is_a.is_time(type_):
        return "date"
    if is_a.is_string(type_) or is_a.is_large_string(type_) or is_a.is_string_view(type_):
        return "category"
    if is_a.is_dictionary(type_):
        return "category" if _infer_kind(type_.value_type) else None
    # All values of a column of type null are missing, so its kind does not matter.
    numeric = (is_a.is_integer, is_a.is_floating, is_a.is_decimal, is_a.is_duration, is_a.is_null)
    return "number" if any(is_numeric(type_) for is_numeric in numeric) else None


def _to_float64(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """Return a column that is not a category as float64; null becomes NaN.

    Dates, times and durations are in seconds. Integers and decimals may be rounded.
    """
    type_ = column.type
    if not pa.types.is_temporal(type_):
        return column.cast(pa.float64(), safe=False).to_numpy()
    ticks = column.cast(pa.int32() if type_.bit_width == 32 else pa.int64())
    values: NDArray[np.float64] = ticks.cast(pa.float64(), safe=False).to_numpy()
    if pa.types.is_date32(type_):
        return values * _SECONDS_PER_DAY
    return values / _TICKS_PER_SECOND["ms" if pa.types.is_date64(type_) else type_.unit]
