"""Why a row has its score: what each column adds, and what was expected there."""

import itertools
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.encode import TableEncoder
from altbi.ensemble import Ensemble
from altbi.errors import ParameterError
from altbi.memory import Memory
from altbi.table import Table

__all__ = [
    "Explanation",
    "Reason",
    "Typical",
    "explain_by_memory",
    "explain_rows",
    "typical_of",
]

REMAINDER = "(remainder)"
SCORE = "(score)"
_USUAL = 0.9
_CELLS_AT_ONCE = 1 << 22
# From so many deviations on, a cell is odd beside the nearest remembered rows.
_STANDS_OUT = 3.0
# Remembered rows whose middle says what is expected.
_ALIKE = 10


@dataclass(frozen=True, slots=True)
class Typical:
    """What is usual in the training sample.

    Attributes
    ----------
    baseline : ndarray of shape (n_columns,)
        What the parts of columns are measured against. For columns of one unit, all numbers without
        missing cells, it is one value, their mean: the model's doubt about a noisy column stays a
        part of its part. A column of several units, such as a category, adds several terms, and is
        measured against its own mean.
    usual : ndarray of shape (n_units,)
        The term of a unit's cell that nine of ten training rows do not exceed.
    neutral : ndarray of shape (n_units,)
        The median of each unit.
    """

    baseline: NDArray[np.float64]
    usual: NDArray[np.float64]
    neutral: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Reason:
    """One column's part in one row's score.

    Attributes
    ----------
    column : str
        The column's name.
    value : object
        What stands in the cell; None where it is missing.
    expected : object
        What was expected there.
    deviations : float
        How many deviations lie between the two.
    part : float
        What the column adds to the score.
    """

    column: str
    value: object
    expected: object
    deviations: float
    part: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """The scores of some rows, taken apart by columns.

    For every row, ``parts.sum() + remainder == score`` up to rounding. Where rows are scored by
    their distance, a part is the column's share of it: the squared difference from the nearest
    remembered rows; nothing remains. Where they are scored by loss, a part is what a column's cell
    adds to it: the further it is from what the model expected, and the surer the model was, the
    more; it is measured against what cells add to an average training row's. The remainder is what
    belongs to no single column.

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
    values : tuple of pyarrow.Array
        The rows' own cells, as the model was given them.
    deviations : ndarray of shape (n_rows, n_columns)
        How many deviations a cell is away from what was expected in it: deviations of the column,
        or, where rows are scored by loss, the model's own.
    expected : tuple of pyarrow.Array
        For each column what was expected in its cells: the middle of the remembered rows that are
        most like the row in all cells that do not stand out; or what the model expected, after the
        cells that stand out were made neutral.
        Numbers as float64, dates as timestamps (in UTC, without a zone), durations in seconds,
        booleans, and the text of categories.
    neighbours : ndarray of shape (n_rows, n_neighbours) or None
        Numbers of these remembered rows, the most alike first; None where rows are scored by loss.
    remembered : tuple of pyarrow.Array
        For each column the cells of all remembered rows.

    Examples
    --------
    >>> from altbi import ALTBI
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> X[17, 1] = 9.0
    >>> explanation = ALTBI().fit(X).explain(X)
    >>> explanation
    Explanation of 200 rows by 3 columns
    >>> reason = explanation.reasons(17)[0]
    >>> reason.column, reason.value
    ('x1', 9.0)
    >>> explanation.nearest(17, top=2).shape
    (2, 3)
    """

    columns: tuple[str, ...]
    score: NDArray[np.float64]
    parts: NDArray[np.float64]
    remainder: NDArray[np.float64]
    values: tuple[pa.Array, ...]
    deviations: NDArray[np.float64]
    expected: tuple[pa.Array, ...]
    neighbours: NDArray[np.intp] | None = None
    remembered: tuple[pa.Array, ...] = ()

    def __len__(self) -> int:
        return len(self.score)

    def __repr__(self) -> str:
        return f"Explanation of {len(self)} rows by {len(self.columns)} columns"

    def reasons(self, row: int, top: int = 3) -> list[Reason]:
        """Name the columns whose cells are furthest from what was expected, furthest first.

        At most `top`, and only cells that are at least one deviation off; but always one.
        """
        self._check_row(row)
        ranked = np.argsort(-self.deviations[row])
        far = (self._reason(row, column) for column in ranked if self.deviations[row, column] >= 1)
        other = (reason for reason in far if reason.value != reason.expected)
        return list(itertools.islice(other, top)) or [self._reason(row, ranked[0])]

    def nearest(self, row: int, top: int = 3) -> pa.Table:
        """Show the remembered rows that are most like a row, but for the cells that stand out."""
        self._check_row(row)
        if self.neighbours is None:
            raise ParameterError(
                "The rows were scored by loss, and no others are remembered. "
                "Fit with score_by='distance'."
            )
        numbers = pa.array(self.neighbours[row, :top])
        return pa.Table.from_arrays(
            [column.take(numbers) for column in self.remembered], names=list(self.columns)
        )

    def _check_row(self, row: int) -> None:
        if not -len(self) <= row < len(self):
            raise ParameterError(f"row={row}, but the explanation has {len(self)} rows.")

    def _reason(self, row: int, column: int) -> Reason:
        return Reason(
            column=self.columns[column],
            value=self.values[column][row].as_py(),
            expected=self.expected[column][row].as_py(),
            deviations=float(self.deviations[row, column]),
            part=float(self.parts[row, column]),
        )

    def remainder_share(self) -> float:
        """Share of the scores' variation over rows that no column accounts for.

        One row has no variation: its share is 0.
        """
        total = np.abs(self.parts - self.parts.mean(0)).sum()
        rest = np.abs(self.remainder - self.remainder.mean()).sum()
        return float(rest / (total + rest)) if total + rest > 0 else 0.0

    def to_arrow(self) -> pa.Table:
        """Give a table: each column's part under its name, then ``(remainder)``, ``(score)``."""
        return pa.Table.from_arrays(
            [pa.array(part) for part in (*self.parts.T, self.remainder, self.score)],
            names=[*self.columns, REMAINDER, SCORE],
        )


def typical_of(ensemble: Ensemble, encoder: TableEncoder, rows: NDArray[np.float32]) -> Typical:
    """Learn from training rows what is usual, so that explanations can name what is not."""
    some = rows[:: -(-len(rows) // ensemble.stacked.typical_rows)]
    cells = ensemble.parts(some).cells
    baseline = encoder.fold(cells).mean(axis=0)
    single = np.bincount(encoder.unit_columns) == 1
    if single.any():
        baseline[single] = baseline[single].mean()
    return Typical(
        baseline, np.quantile(cells, _USUAL, axis=0), np.median(some, axis=0).astype(np.float64)
    )


def explain_rows(
    table: Table, ensemble: Ensemble, encoder: TableEncoder, typical: Typical
) -> Explanation:
    """Take the scores of a table's rows apart."""
    rows = encoder.transform(table)
    found = ensemble.parts(rows)
    # Asked about an odd row as it is, the model expects nothing in particular, and doubts all of
    # it. Asked about the row with its odd cells made neutral, it says what belongs into them.
    known = np.where(found.cells > typical.usual, typical.neutral, rows).astype(np.float32)
    expected, distance = ensemble.expect(known, rows)
    return Explanation(
        columns=encoder.names,
        score=found.score,
        parts=encoder.fold(found.cells) - typical.baseline,
        remainder=found.rest + typical.baseline.sum(),
        values=tuple(encoder.cells(table)),
        deviations=np.sqrt(2 * encoder.fold(distance)),
        expected=tuple(encoder.expected(expected)),
    )


def explain_by_memory(table: Table, memory: Memory, encoder: TableEncoder) -> Explanation:
    """Take the distances of a table's rows to the nearest remembered ones apart."""
    rows = encoder.standardize(table)
    parts = encoder.fold(memory.parts(rows))
    # The rows nearest to an odd one share its oddity as far as they can. Those that are like it in
    # all other columns show what belongs into the odd ones.
    ordinary = _ordinary(parts)[:, encoder.unit_columns].astype(np.float32)
    alike = memory.alike(rows, ordinary, _ALIKE)
    middles = _middles(memory, encoder, alike)
    apart = np.nan_to_num(middles.astype(np.float64) - rows)
    return Explanation(
        columns=encoder.names,
        score=memory.score(rows),
        parts=parts,
        remainder=np.zeros(len(rows)),
        values=tuple(encoder.cells(table)),
        deviations=np.sqrt(encoder.fold(apart**2)),
        expected=tuple(encoder.recover(middles)),
        neighbours=alike,
        remembered=tuple(encoder.recover(memory.rows)),
    )


def _ordinary(parts: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Tell the columns that do not stand out in a row; at least half of them do not."""
    ranked = np.argsort(np.argsort(-parts, axis=1), axis=1)
    return (parts < _STANDS_OUT**2) | (ranked >= parts.shape[1] // 2)


def _middles(
    memory: Memory, encoder: TableEncoder, numbers: NDArray[np.intp]
) -> NDArray[np.floating]:
    """Give the middle of each row's neighbours, some rows at a time."""
    at_once = max(_CELLS_AT_ONCE // (numbers.shape[1] * encoder.width), 1)
    parts = np.split(numbers, range(at_once, len(numbers), at_once))
    return np.concatenate([encoder.middle(memory.rows[part]) for part in parts])
