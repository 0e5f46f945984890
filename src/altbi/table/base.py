"""What every source of rows offers: columns with names and kinds, rows in order."""

import abc
from collections.abc import Sequence
from typing import Literal, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["Kind", "Table"]

Kind = Literal["number", "boolean", "date", "category"]


class Table(abc.ABC):
    """Columns with names and kinds, and rows in order.

    Attributes
    ----------
    names : tuple of str
        One name per column, no two alike.
    kinds : tuple of {"number", "boolean", "date", "category"}
        What each column holds.
    first_row : int
        Number of the first row in the table that this one was sliced from; messages count from it.
    drawn_from : int or None
        If the table is a sample: rows of the table that it was drawn from.
    """

    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    first_row: int = 0
    drawn_from: int | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self), len(self.names)

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def numbers(self, columns: Sequence[int]) -> NDArray[np.float64]:
        """Give columns that are no categories as ``(n_rows, len(columns))``; missing is NaN.

        Booleans are 0 and 1, dates are seconds since 1970 in UTC. The result may share memory
        with the source: read it, do not write to it.
        """

    @abc.abstractmethod
    def levels(self, column: int) -> pa.Array:
        """Give the texts of a category column as one array; missing is null."""

    @abc.abstractmethod
    def renamed(self, names: Sequence[str]) -> Self:
        """Give the same columns under other names."""

    @abc.abstractmethod
    def slice(self, start: int, stop: int) -> Self:
        """Give the rows from ``start`` up to ``stop``, without a copy."""

    @abc.abstractmethod
    def take(self, rows: NDArray[np.int64]) -> Self:
        """Give these rows, in this order."""
