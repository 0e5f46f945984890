"""NumPy arrays as tables: which ones hold a table, and their conversion to numbers and to Arrow."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.errors import TableError, describe_cause, shorten

# The Arrow unit for each unit of NumPy; seconds for those that Arrow does not have.
_ARROW_UNITS = {"D": "D", "s": "s", "ms": "ms", "us": "us", "ns": "ns"}
_ARROW_UNITS |= dict.fromkeys("YMWhm", "s")
_COLUMN_KINDS = "biufUMmO"  # Python objects are examined column by column
CONVERSION_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)


def to_number_array(X: object) -> NDArray[Any]:
    """Convert anything that NumPy reads as a 2-D array of real numbers or booleans.

    Masked values become NaN, and arrays of Python objects become float64. Other types and numbers
    of dimensions raise a `TableError`.
    """
    values = read_array(X)
    if values.dtype.kind == "O":
        values = _convert_objects(values)
    if values.dtype.kind not in "biuf":
        raise TableError(
            f"The array holds {values.dtype}, but expected numbers or booleans. "
            "Put dates and texts into a data frame, where each column has its own type."
        )
    if isinstance(values, np.ma.MaskedArray):  # np.asarray would return the hidden values
        return np.ma.filled(values.astype(np.float64), np.nan)
    return values


def array_to_arrow(X: object) -> pa.Table:
    """Convert a 2-D array to an Arrow table with the columns x0, x1, ...

    Besides numbers and booleans, it may hold texts, dates, durations or Python objects. Masked
    values become null. Columns that cannot be converted raise a `TableError`.
    """
    values = read_array(X)
    masks = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else None
    columns = {}
    for index in range(values.shape[1]):
        name = f"x{index}"
        mask = None if masks is None else masks[:, index]
        try:
            columns[name] = to_arrow(np.ma.getdata(values)[:, index], mask)
        except CONVERSION_ERRORS as cause:
            raise TableError(
                f"Column {name!r} of the array cannot be read: {describe_cause(cause)}. Pass a "
                "data frame, where each column has its own type, or convert it to numbers or text."
            ) from cause
    return pa.table(columns)


def read_array(X: object) -> NDArray[Any]:
    """Return anything that NumPy reads as a 2-D array; masked arrays stay masked.

    Another number of dimensions, rows of different lengths, and types that no column can have, such
    as complex numbers and records, raise a `TableError`.
    """
    try:
        values = np.asanyarray(X) if isinstance(X, np.ma.MaskedArray) else np.asarray(X)
    except (TypeError, ValueError, OverflowError) as cause:
        raise TableError(
            f"The {type(X).__name__} cannot be read as an array: {describe_cause(cause)}. Pass a "
            "2-D array or a data frame, with rows of the same length."
        ) from cause
    if values.dtype.kind not in _COLUMN_KINDS:
        raise TableError(
            f"The array holds {shorten(str(values.dtype), 60)}, but expected real numbers or "
            "booleans. Convert it to numbers, or pass a data frame, where each column has its own "
            "type."
        )
    if values.ndim != 2:
        raise TableError(
            f"The input is a {type(X).__name__} with {values.ndim} dimension(s), but expected rows "
            "and columns. Pass a 2-D array (for one column: X.reshape(-1, 1)) or a data frame."
        )
    return values


def _convert_objects(values: NDArray[Any]) -> NDArray[np.float64]:
    """Convert an array of Python objects to numbers; None becomes NaN and "1.5" becomes 1.5.

    A column with another object raises a `TableError` that names the column. Masks are kept.
    """
    numbers = np.ma.getdata(values).astype(object)
    numbers[np.ma.getmaskarray(values)] = None
    converted = np.empty(values.shape, dtype=np.float64)
    for column in range(values.shape[1]):
        try:
            converted[:, column] = numbers[:, column].astype(np.float64)
        except (TypeError, ValueError, OverflowError) as cause:
            raise TableError(
                f"Column {column} of the array (counted from 0) holds values that are not numbers: "
                f"{describe_cause(cause)}. Pass a data frame, where each column has its own type, "
                "or convert the column to numbers."
            ) from cause
    return converted


def get_arrow_type(dtype: np.dtype[Any]) -> pa.DataType | None:
    """Return the Arrow type for real numbers, booleans, text, dates and durations, else None."""
    if dtype.itemsize == 0 or dtype.kind not in "biufUMm":
        return None
    if dtype.kind in "Mm" and np.datetime_data(dtype)[0] not in _ARROW_UNITS:
        return None
    return to_arrow(np.empty(0, dtype=dtype)).type


def to_arrow(values: NDArray[Any], mask: NDArray[np.bool_] | None = None) -> pa.Array:
    """Convert a column to Arrow; NaN stays a number, NaT and values in `mask` become null.

    Half precision becomes float32, and extended precision is rounded to float64. Dates in days
    become date32. Other units that Arrow does not have are converted to seconds. Python objects get
    the type that fits all of them, or raise an error of pyarrow.
    """
    kind, dtype = values.dtype.kind, values.dtype.newbyteorder("=")
    if kind == "f" and dtype.itemsize not in (4, 8):
        dtype = np.dtype(np.float32 if dtype.itemsize < 4 else np.float64)
    if kind in "Mm":
        unit = _ARROW_UNITS[np.datetime_data(dtype)[0]]
        dtype = np.dtype(f"{kind}8[{'s' if kind == 'm' and unit == 'D' else unit}]")
    return pa.array(np.ascontiguousarray(values, dtype=dtype), mask=mask)
