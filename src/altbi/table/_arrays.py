"""Arrays of numbers as tables."""

from collections.abc import Sequence
from typing import Any, Self, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.errors import ParameterError, TableError
from altbi.table._table import Kind, Table

__all__ = ["Matrix", "as_matrix"]


@final
class Matrix(Table):
    """A 2-D array of numbers or booleans; its columns are called x0, x1, … unless named.

    Parameters
    ----------
    values : array of shape (n_rows, n_columns)
        Numbers or booleans, kept as they are.
    names : sequence of str, default=None
        One name per column.

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
        return len(self._values)

    def numbers(self, columns: Sequence[int]) -> NDArray[np.float64]:
        """Give these columns as float64; all of them in order without a copy where possible."""
        everything = np.array_equal(columns, np.arange(len(self.names)))
        values = self._values if everything else self._values[:, np.asarray(columns, dtype=np.intp)]
        return values.astype(np.float64, copy=False)

    def categories(self, column: int) -> pa.Array:
        """Refuse: an array has no category columns."""
        raise TableError(
            f"Column {self.names[column]!r} holds numbers; only categories have categories."
        )

    def renamed(self, names: Sequence[str]) -> Self:
        """Give the same columns under other names."""
        return type(self)(self._values, names)

    def slice(self, start: int, stop: int) -> Self:
        """Give a view of the rows from ``start`` up to ``stop``."""
        part = type(self)(self._values[start:stop], self.names)
        part.first_row = self.first_row + start
        return part

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Give these rows, in this order."""
        return type(self)(self._values[rows], self.names)


def as_matrix(X: object, names: Sequence[str] | None = None) -> Matrix:
    """Take anything that NumPy reads as a 2-D array of numbers or booleans."""
    values = _filled(X) if isinstance(X, np.ma.MaskedArray) else np.asarray(X)
    if values.ndim != 2:
        raise TableError(
            f"The input is a {type(X).__name__} with {values.ndim} dimension(s), but expected rows "
            "and columns. Pass a 2-D array (of one column: X.reshape(-1, 1)) or a data frame."
        )
    if values.dtype.kind == "O":
        values = _unboxed(values)
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


def _filled(X: "np.ma.MaskedArray[Any, Any]") -> NDArray[Any]:
    """Turn masked cells into missing ones; plain conversion would bring the hidden values back."""
    return np.ma.filled(X.astype(np.float64), np.nan) if np.ma.is_masked(X) else X.data


def _unboxed(values: NDArray[Any]) -> NDArray[np.float64]:
    """Turn Python objects into numbers, or name the first column that holds something else."""
    numbers = np.empty(values.shape, dtype=np.float64)
    for column in range(values.shape[1]):
        try:
            numbers[:, column] = values[:, column].astype(np.float64)
        except (TypeError, ValueError) as cause:
            raise TableError(
                f"Column {column} of the array (counted from 0) holds something else than numbers: "
                f"{cause}. Pass a data frame, where each column has its own type, or turn the "
                "column into numbers."
            ) from cause
    return numbers
