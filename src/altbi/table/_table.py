"""What every source of rows offers: columns with names and kinds, rows in order."""

import abc
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.errors import ModelFileError

__all__ = ["Kind", "Table", "TextConventions"]

Kind = Literal["number", "boolean", "date", "category"]


@final
@dataclass(frozen=True, slots=True)
class TextConventions:
    """How cells stood in a file, so that other files are read in the same way.

    Attributes
    ----------
    readings : mapping of str to str
        For columns that were texts and are something else: what, in the words of the reader.
    missing : tuple of str
        Texts that stand for a missing cell because someone said so.
    """

    readings: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Give the same as dictionary, list and texts."""
        return {"readings": dict(self.readings), "missing": list(self.missing)}

    @classmethod
    def from_json(cls, state: object) -> Self:
        """Build it from what nobody has checked yet; None, of older files, says nothing."""
        if state is None:
            return cls()
        if isinstance(state, dict) and state.keys() == {"readings", "missing"}:
            readings, missing = state["readings"], state["missing"]
            if isinstance(readings, dict) and isinstance(missing, list):
                texts = [*readings, *readings.values(), *missing]
                if all(isinstance(text, str) for text in texts):
                    return cls(readings, tuple(missing))
        raise ModelFileError(
            f"The cells' writing is {reprlib.repr(state)}, but expected readings by column, and "
            "texts that are missing."
        )


class Table(abc.ABC):
    """Columns with names and kinds, and rows in order.

    Attributes
    ----------
    names : tuple of str
        One name per column, no two alike.
    kinds : tuple of {"number", "boolean", "date", "category"}
        What each column holds.
    is_frame : bool
        Whether columns have types of their own, as in a data frame or a file.
    has_names : bool
        Whether the names are the user's own.
    first_row : int
        Number of the first row in the table that this one was sliced from; messages count from it.
    drawn_from : int or None
        If the table is a sample: rows of the table that it was drawn from.
    conventions : TextConventions
        If it was read from a file: how its cells stood there.
    """

    is_frame: ClassVar[bool] = True

    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    has_names: bool = True
    first_row: int = 0
    drawn_from: int | None = None
    conventions: TextConventions = TextConventions()

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
    def categories(self, column: int) -> pa.Array:
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
