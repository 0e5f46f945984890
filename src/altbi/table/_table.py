"""Tables in memory with named columns of four kinds, and their conversion from other libraries.

pandas and polars are never imported.
"""

import abc
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self, final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from altbi.errors import ParameterError, TableError, describe_cause, quote, shorten
from altbi.table._arrays import (
    CONVERSION_ERRORS,
    array_to_arrow,
    to_number_array,
)

Kind = Literal["number", "boolean", "date", "category"]

_FEW = msgspec.Meta(max_length=100_000)  # a model file with more is refused
_TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6}
_SECONDS_PER_DAY = 86_400


class TextConventions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How values were written in a text file, so that other files are parsed in the same way."""

    # Description of the text format of each text column that was parsed to another type.
    text_formats: Annotated[Mapping[str, str], _FEW] = msgspec.field(default_factory=dict)
    # Texts that the user declared as missing values.
    missing: Annotated[tuple[str, ...], _FEW] = ()


class Table(abc.ABC):
    """Base class of tables in memory: columns with names and kinds, and rows in order."""

    is_frame: ClassVar[bool] = True  # whether each column has its own type

    names: tuple[str, ...]  # unique
    kinds: tuple[Kind, ...]
    has_names: bool = True  # whether the user chose the names
    first_row: int = 0  # number of the first row in the table that this one was sliced from
    n_source_rows: int | None = None  # if the table is a sample: rows of the sampled table
    conventions: TextConventions = TextConventions()  # if the table was read from a text file

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns."""
        return len(self), len(self.names)

    @abc.abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

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

        `first_row` moves with the slice; all other attributes have their default values.
        """

    @abc.abstractmethod
    def take(self, rows: NDArray[np.int64]) -> Self:
        """Return a copy of the rows with these indices, in this order.

        Attributes such as `first_row` and `conventions` have their default values.
        """


@final
class Matrix(Table):
    """A table over a 2-D array of numbers or booleans; all columns have the same kind.

    The array is not copied. Without names, the columns are called x0, x1, ...
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
        """Return columns ``(n_rows, len(columns))`` as float64; booleans are 0 and 1.

        All columns of a float64 array are not copied, so do not write to the result.
        """
        is_all = np.array_equal(columns, np.arange(len(self.names)))
        values = self._values if is_all else self._values[:, np.asarray(columns, dtype=np.intp)]
        return values.astype(np.float64, copy=False)

    def categories(self, column: int) -> pa.Array:
        """Raise a `TableError`, because an array has no category columns."""
        raise TableError(
            f"Column {quote(self.names[column])} holds numbers, so it has no categories."
        )

    def rename(self, names: Sequence[str]) -> Self:
        """Return the same columns under other names, with the default of all other attributes."""
        return type(self)(self._values, names)

    def slice(self, start: int, stop: int) -> Self:
        """Return a view of the rows from ``start`` up to, but not including, ``stop``.

        `first_row` moves with the slice; all other attributes have their default values.
        """
        rows = type(self)(self._values[start:stop], self.names)
        rows.first_row = self.first_row + start
        return rows

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Return a copy of the rows with these indices, in this order, with default attributes."""
        return type(self)(self._values[rows], self.names)


@final
class ArrowTable(Table):
    """A table over an Arrow table with any number of chunks.

    A column of an unsupported type raises a `TableError`.
    """

    def __init__(self, table: pa.Table) -> None:
        self.names = tuple(table.column_names)
        self.kinds = tuple(require_kind(field) for field in table.schema)
        self._table = table

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._table.num_rows

    def numbers(self, columns: Sequence[int]) -> NDArray[np.float64]:
        """Return a copy ``(n_rows, len(columns))`` of columns as float64; missing values are NaN.

        Dates are seconds since 1970 in UTC, times seconds since midnight, durations seconds.
        """
        values = np.empty((len(self), len(columns)), dtype=np.float64)
        for index, column in enumerate(columns):
            values[:, index] = _to_float64(self._table.column(int(column)))
        return values

    def categories(self, column: int) -> pa.Array:
        """Return the texts of a column as one large_string array; missing values are null."""
        return self._table.column(column).cast(pa.large_string()).combine_chunks()

    def rename(self, names: Sequence[str]) -> Self:
        """Return the same columns under other names, with the default of all other attributes."""
        return type(self)(self._table.rename_columns(list(names)))

    def slice(self, start: int, stop: int) -> Self:
        """Return the rows from ``start`` up to, but not including, ``stop`` without a copy.

        `first_row` moves with the slice; all other attributes have their default values.
        """
        rows = type(self)(self._table.slice(start, max(stop - start, 0)))
        rows.first_row = self.first_row + start
        return rows

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Return a copy of the rows with these indices, in this order, with default attributes."""
        return type(self)(self._table.take(pa.array(rows)))


def require_kind(field: pa.Field) -> Kind:
    """Return the kind of a column; an unsupported type raises a `TableError`."""
    kind = _infer_kind(field.type)
    if kind is None:
        raise TableError(
            f"Column {quote(field.name)} has the type {shorten(str(field.type), 100)}, but "
            "expected numbers, booleans, dates or text. Drop the column, or convert it to numbers "
            "or text."
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

    Dates are seconds since 1970, times seconds since midnight, and durations seconds. Nanoseconds
    are left out. Integers and decimals may be rounded.
    """
    type_ = column.type
    if not pa.types.is_temporal(type_):
        return column.cast(pa.float64(), safe=False).to_numpy()
    ticks = column.cast(pa.int32() if type_.bit_width == 32 else pa.int64())
    unit = "s" if pa.types.is_date(type_) else type_.unit
    if unit == "ns":
        # As microseconds, which float64 holds exactly. The result is then that of the same moment
        # in another unit, to the bit.
        ticks, unit = pc.divide(ticks, 1000), "us"
    values: NDArray[np.float64] = ticks.cast(pa.float64(), safe=False).to_numpy()
    if pa.types.is_date32(type_):
        return values * _SECONDS_PER_DAY
    return values / _TICKS_PER_SECOND["ms" if pa.types.is_date64(type_) else unit]


def is_frame(X: object) -> bool:
    """Return whether the columns of the input have their own names and types, unlike an array.

    This holds for a `Table`, a pandas frame, and objects with Arrow's C data interface.
    """
    is_arrow = hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__")
    return isinstance(X, Table) or is_arrow or _is_pandas(X)


def _is_pandas(X: object) -> bool:
    """Return whether an object looks like a pandas frame, without importing pandas."""
    return hasattr(X, "iloc") and hasattr(X, "columns")


def as_table(X: object, names: Sequence[str] | None = None) -> Table:
    """Convert an array, a data frame or an Arrow object; a `Table` is returned unchanged.

    `names` has the column names of an array; for another input it raises a `ParameterError`. A
    table without rows or columns, with duplicate column names, or with columns of other types than
    numbers, booleans, dates and text raises a `TableError`.
    """
    if not is_frame(X):
        table: Table = _convert_array(X, names)
    elif names is not None:
        raise ParameterError(
            f"names is for arrays only, but the input is a {type(X).__name__} with its own names. "
            "Rename its columns instead."
        )
    else:
        table = X if isinstance(X, Table) else _convert_frame(X)
    if not len(table) or not table.names:
        raise TableError(
            f"The table has {len(table)} row(s) and {len(table.names)} column(s), "
            "but expected at least one of each. Check how it was read or filtered."
        )
    duplicates = [name for name, count in Counter(table.names).items() if count > 1]
    if duplicates:
        raise TableError(
            f"The column names {shorten(str(duplicates), 200)} occur more than once, but expected "
            "each name once. Rename or drop columns."
        )
    return table


def _convert_array(X: object, names: Sequence[str] | None) -> Matrix:
    """Convert anything that NumPy reads as a 2-D array of numbers or booleans.

    Other types and dimensions raise a `TableError`; a wrong number of names raises a
    `ParameterError`.
    """
    values = to_number_array(X)
    if names is not None and len(names) != values.shape[1]:
        raise ParameterError(
            f"names has {len(names)} entries, but expected {values.shape[1]}, one for each column."
        )
    return Matrix(values, names)


def _convert_frame(X: object) -> ArrowTable:
    """Convert a data frame or Arrow object to a table; unsupported types raise a `TableError`."""
    table = as_arrow_table(X)
    for field in table.schema:
        require_kind(field)
    columns = [_simplify_text(*item) for item in zip(table.schema, table.columns, strict=True)]
    return ArrowTable(pa.table(columns, table.column_names))


def as_arrow_table(X: object) -> pa.Table:
    """Convert an array, data frame or object with Arrow's C data interface to a pyarrow table.

    The columns of an array are called x0, x1, ... In pandas frames, NaN becomes null, column names
    become texts, and the index is dropped. Input that cannot be converted raises a `TableError`, as
    do values that are not valid, such as texts that are not UTF-8.
    """
    if not is_frame(X):
        return array_to_arrow(X)
    if _is_pandas(X):
        table = _convert_pandas(X)
    else:
        try:
            table = X if isinstance(X, pa.Table) else pa.table(X)
        except CONVERSION_ERRORS as cause:
            raise TableError(
                f"The {type(X).__name__} cannot be read as a table with columns: "
                f"{describe_cause(cause)}. Pass a 2-D array, a data frame or an Arrow table of "
                "numbers, dates or text."
            ) from cause
    _validate_columns(table)
    return table


def _validate_columns(table: pa.Table) -> None:
    """Raise a `TableError` for the first column with values that are not valid.

    Texts must be UTF-8, and positions of texts and categories must exist: reading others ends the
    process.
    """
    for field, column in zip(table.schema, table.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowException as cause:
            raise TableError(
                f"Column {quote(field.name)} ({shorten(str(field.type), 60)}) holds "
                f"values that are not valid: {describe_cause(cause)}. Write the table again, or "
                "drop the column."
            ) from cause


def _convert_pandas(X: Any) -> pa.Table:  # noqa: ANN401 - pandas is not imported
    """Convert a pandas frame column by column; a column of mixed types raises a `TableError`.

    So does a name that is not valid text.
    """
    names = [str(name) for name in X.columns]
    arrays = []
    for index, name in enumerate(names):
        column = X.iloc[:, index]
        try:
            arrays.append(pa.array(column, from_pandas=True))
        except CONVERSION_ERRORS as cause:
            raise TableError(
                f"Column {quote(name)} ({column.dtype}) mixes types or holds objects that are "
                f"neither numbers, dates nor text: {describe_cause(cause)}. Drop the column, or "
                "convert it to numbers or text."
            ) from cause
    try:
        return pa.table(arrays, names=names)
    except UnicodeError as cause:
        raise TableError(
            f"A column name is not valid text: {describe_cause(cause)}. Rename the column."
        ) from cause


def _simplify_text(field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert text layouts from which Arrow cannot take rows to large strings.

    String views become large strings, and dictionaries get large strings as their values, also if
    the values were numbers. Other columns are returned unchanged. Values that have no form as text
    raise a `TableError`.
    """
    if pa.types.is_string_view(column.type):
        return column.cast(pa.large_string())
    if not pa.types.is_dictionary(column.type):
        return column
    try:
        chunks = [
            pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.large_string()))
            for chunk in column.chunks
        ]
    except pa.ArrowException as cause:
        raise TableError(
            f"Column {quote(field.name)} holds categories that cannot be read as text: "
            f"{describe_cause(cause)}. Drop the column, or convert it to numbers or text."
        ) from cause
    return pa.chunked_array(chunks, pa.dictionary(column.type.index_type, pa.large_string()))
