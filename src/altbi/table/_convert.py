"""Convert arrays, data frames and Arrow tables. pandas and polars are never imported."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.errors import ParameterError, TableError
from altbi.table._table import ArrowTable, Matrix, Table, require_kind

_CONVERSION_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)


def is_frame(X: object) -> bool:
    """Return whether the columns of the input have their own names and types, unlike an array.

    This holds for a `Table`, a pandas frame, and objects with Arrow's C data interface.
    """
    is_arrow = hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__")
    return isinstance(X, Table) or is_arrow or _is_pandas(X)


def as_table(X: object, names: Sequence[str] | None = None) -> Table:
    """Convert an array, a data frame or an Arrow table; a `Table` is returned unchanged.

    Parameters
    ----------
    X : array, pandas or polars frame, pyarrow.Table or RecordBatch, or Table
        Any other object with ``__arrow_c_stream__`` is accepted as well.
    names : sequence of str, default=None
        Column names for an array. Other inputs have their own names.

    Returns
    -------
    Table
        The table.

    Raises
    ------
    TableError
        If there are no rows, no columns, duplicate column names, or columns of other types than
        numbers, booleans, dates or text.

    Examples
    --------
    >>> as_table([[1.0, 2.0], [3.0, 4.0]], names=["width", "height"]).names
    ('width', 'height')
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
    _check_shape(table)
    return table


def as_arrow_table(X: object) -> pa.Table:
    """Convert a data frame, or any object that streams Arrow record batches, to a pyarrow table.

    In pandas frames, NaN becomes null, column names become texts, and the index is dropped. Input
    that cannot be converted raises a `TableError`.
    """
    return _from_pandas(X) if _is_pandas(X) else _from_arrow_stream(X)


def _is_pandas(X: object) -> bool:
    """Return whether an object looks like a pandas frame, without importing pandas."""
    return hasattr(X, "iloc") and hasattr(X, "columns")


def _check_shape(table: Table) -> None:
    """Raise a `TableError` for a table without rows or columns, or with duplicate column names."""
    if not len(table) or not table.names:
        raise TableError(
            f"The table has {len(table)} row(s) and {len(table.names)} column(s), "
            "but expected at least one of each. Check how it was read or filtered."
        )
    if len(set(table.names)) < len(table.names):
        duplicates = [name for name, count in Counter(table.names).items() if count > 1]
        raise TableError(
            f"The column names {duplicates} occur more than once, but expected each name once. "
            "Rename or drop columns."
        )


def _convert_array(X: object, names: Sequence[str] | None = None) -> Matrix:
    """Convert anything that NumPy reads as a 2-D array of numbers or booleans.

    Masked values become NaN, and arrays of Python objects become numbers. Other dtypes and
    dimensions raise a `TableError`; a wrong number of names raises a `ParameterError`.
    """
    values = _fill_masked(X) if isinstance(X, np.ma.MaskedArray) else np.asarray(X)
    if values.ndim != 2:
        raise TableError(
            f"The input is a {type(X).__name__} with {values.ndim} dimension(s), but expected rows "
            "and columns. Pass a 2-D array (for one column: X.reshape(-1, 1)) or a data frame."
        )
    if values.dtype.kind == "O":
        values = _convert_objects(values)
    if values.dtype.kind not in "biuf":
        raise TableError(
            f"The array holds {values.dtype}, but expected numbers or booleans. "
            "Put dates and texts into a data frame, where each column has its own type."
        )
    if names is not None and len(names) != values.shape[1]:
        raise ParameterError(
            f"names has {len(names)} entries, but expected {values.shape[1]}, one for each column."
        )
    return Matrix(values, names)


def _fill_masked(X: "np.ma.MaskedArray[Any, Any]") -> NDArray[Any]:
    """Return the array as float64 with NaN for masked values.

    If no value is masked, the data is returned with its own dtype. ``np.asarray`` would return the
    hidden values.
    """
    return np.ma.filled(X.astype(np.float64), np.nan) if np.ma.is_masked(X) else X.data


def _convert_objects(values: NDArray[Any]) -> NDArray[np.float64]:
    """Convert an array of Python objects to numbers; None becomes NaN and "1.5" becomes 1.5.

    A column with another object raises a `TableError` that names the column.
    """
    numbers = np.empty(values.shape, dtype=np.float64)
    for column in range(values.shape[1]):
        try:
            numbers[:, column] = values[:, column].astype(np.float64)
        except (TypeError, ValueError) as cause:
            raise TableError(
                f"Column {column} of the array (counted from 0) holds values that are not numbers: "
                f"{cause}. Pass a data frame, where each column has its own type, or convert the "
                "column to numbers."
            ) from cause
    return numbers


def _convert_frame(X: object) -> ArrowTable:
    """Convert a data frame or Arrow object to a table; unsupported types raise a `TableError`."""
    table = as_arrow_table(X)
    for field in table.schema:
        require_kind(field)
    columns = [_simplify_text(column) for column in table.columns]
    return ArrowTable(pa.table(columns, table.column_names))


def _from_pandas(X: Any) -> pa.Table:  # noqa: ANN401 - pandas is not imported
    """Convert a pandas frame to Arrow column by column, so that an error can name the column.

    NaN becomes null, column names become texts, and the index is dropped. A column of mixed types
    raises a `TableError`.
    """
    names = [str(name) for name in X.columns]
    arrays = []
    for index, name in enumerate(names):
        column = X.iloc[:, index]
        try:
            arrays.append(pa.array(column, from_pandas=True))
        except _CONVERSION_ERRORS as cause:
            raise TableError(
                f"Column {name!r} ({column.dtype}) mixes types or holds objects that are neither "
                f"numbers, dates nor text: {_describe_error(cause)}. Drop the column, or convert "
                "it to numbers or text."
            ) from cause
    return pa.table(arrays, names=names)


def _from_arrow_stream(X: object) -> pa.Table:
    """Convert an object with Arrow's C data interface to a pyarrow table.

    A pyarrow table is returned unchanged. Data that cannot be read raises a `TableError`.
    """
    try:
        return X if isinstance(X, pa.Table) else pa.table(X)
    except _CONVERSION_ERRORS as cause:
        raise TableError(
            f"The {type(X).__name__} cannot be read as a table with columns: "
            f"{_describe_error(cause)}. Pass a 2-D array, a data frame or an Arrow table of "
            "numbers, dates or text."
        ) from cause


def _describe_error(cause: BaseException) -> str:
    """Return the first line of another library's message, without a period at its end."""
    return str(cause.args[0] if cause.args else cause).splitlines()[0].rstrip(".")


def _simplify_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert text layouts from which Arrow cannot take rows to large strings.

    String views become large strings, and dictionaries get large strings as their values, also if
    the values were numbers. Other columns are returned unchanged.
    """
    if pa.types.is_string_view(column.type):
        return column.cast(pa.large_string())
    if not pa.types.is_dictionary(column.type):
        return column
    chunks = [
        pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.large_string()))
        for chunk in column.chunks
    ]
    return pa.chunked_array(chunks, pa.dictionary(column.type.index_type, pa.large_string()))
