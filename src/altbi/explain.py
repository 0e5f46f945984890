"""Why a row has its score: what each column adds, and what was expected there."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.encode import TableEncoder
from altbi.ensemble import Ensemble
from altbi.errors import ParameterError
from altbi.table import Table

__all__ = ["Explanation", "Reason", "explain_rows"]

REMAINDER = "(remainder)"


@dataclass(frozen=True, slots=True)
class Reason:
    """One column's part in one row's score."""

    column: str
    part: float
    expected: object


@dataclass(frozen=True, slots=True)
class Explanation:
    """The scores of some rows, taken apart by columns.

    For every row, ``parts.sum() + remainder == score`` up to rounding. A part is what a column's
    cell adds to the loss: the further it is from what the model expected, and the surer the model
    was, the more. The remainder is what belongs to no single column.

    Attributes
    ----------
    columns : tuple of str
        Names of the columns.
    score : ndarray of shape (n_rows,)
        High means outlier.
    parts : ndarray of shape (n_rows, n_columns)
        What each column adds.
    remainder : ndarray of shape (n_rows,)
        What no column adds.
    expected : tuple of pyarrow.Array
        For each column what the model expected in its cells, in the column's own units.
    """

    columns: tuple[str, ...]
    score: NDArray[np.float64]
    parts: NDArray[np.float64]
    remainder: NDArray[np.float64]
    expected: tuple[pa.Array, ...]

    def __len__(self) -> int:
        return len(self.score)

    def reasons(self, row: int, top: int = 3) -> list[Reason]:
        """Name the columns that add most to a row's score, largest first."""
        if not -len(self) <= row < len(self):
            raise ParameterError(f"row={row}, but the explanation has {len(self)} rows.")
        order = np.argsort(-self.parts[row], kind="stable")[:top]
        return [
            Reason(
                self.columns[column],
                float(self.parts[row, column]),
                self.expected[column][row].as_py(),
            )
            for column in order
        ]

    def remainder_share(self) -> float:
        """Share of the scores' variation over rows that no column accounts for."""
        total = np.abs(self.parts - self.parts.mean(0)).sum()
        rest = np.abs(self.remainder - self.remainder.mean()).sum()
        return float(rest / (total + rest)) if total + rest > 0 else 0.0

    def to_arrow(self) -> pa.Table:
        """Give a table with a column for each column's part, ``(remainder)`` and ``score``."""
        table = {name: self.parts[:, column] for column, name in enumerate(self.columns)}
        return pa.table({**table, REMAINDER: self.remainder, "(score)": self.score})


def explain_rows(table: Table, ensemble: Ensemble, encoder: TableEncoder) -> Explanation:
    """Take the scores of a table's rows apart."""
    found = ensemble.parts(encoder.transform(table))
    return Explanation(
        columns=encoder.names,
        score=found.score,
        parts=encoder.fold(found.cells),
        remainder=found.rest,
        expected=tuple(encoder.expected(found.expected)),
    )
