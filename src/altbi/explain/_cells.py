"""What is expected instead of the values of single cells."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from altbi.encoding import OTHER, TableEncoder
from altbi.explain._explanation import MIN_RARITY, explain
from altbi.scorers import SumScorer
from altbi.table import Table

Indices = NDArray[np.int64]


@final
@dataclass(frozen=True, slots=True)
class CellReason:
    """Why a cell is unusual."""

    value: object  # the cell's value; None where it is missing
    # What the cell probably should have: one value, or the range of the most similar normal rows.
    # None where it is unknown.
    expected: object
    expected_high: object  # end of the range; None for one value
    # In words, such as "looks like 'Leeds' (50 rows)". A range of numbers is given instead.
    note: str
    usual_low: object  # the usual range of a number that no note describes; None elsewhere
    usual_high: object


@final
class CellExplainer:
    """Explains cells of a table; `scorer` and `encoder` belong to the same fitted model."""

    def __init__(self, table: Table, scorer: SumScorer, encoder: TableEncoder) -> None:
        self.table, self.scorer, self.encoder = table, scorer, encoder
        self.explanation = explain(table, scorer, encoder)
        self.rarities = None if scorer.values is None else scorer.values.score(table)
        self.limits = _decode_limits(scorer, encoder)

    def explain(self, rows: Indices, columns: Indices) -> Iterator[CellReason]:
        """Yield the reason of each cell, given by the indices of its row and its column."""
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            yield self._explain_cell(row, column)

    def _explain_cell(self, row: int, column: int) -> CellReason:
        """Return the reason of one cell: in words if its text, date or sign is rare."""
        value = self.explanation.values[column][row].as_py()
        note, suggestion = self._describe(row, column)
        low, high = self._read_similar(row, column)
        if suggestion is not None or self.encoder.kinds[column] == "boolean":
            low, high = (suggestion if suggestion is not None else not value), None
        if low == value and high is None:
            low = None
        usual = (None, None) if note else self.limits.get(column, (None, None))
        return CellReason(value, low, high, note, *usual)

    def _describe(self, row: int, column: int) -> tuple[str, str | None]:
        """Return a note, or "", and the value that is probably right, or None."""
        values = self.scorer.values
        if values is None or self.rarities is None or self.rarities[row, column] < MIN_RARITY:
            return "", None
        note = values.find_note(self.table, row, column)
        return (f"{note.verb} {note.text}".strip() if note.text else ""), note.value

    def _read_similar(self, row: int, column: int) -> tuple[object, object]:
        """Return the range of a number in the most similar reference rows.

        The second value is None if there is only one. Instead of a missing category, it is that of
        these rows. Other categories are not compared: a rare one says little about the right one.
        """
        if self.encoder.kinds[column] != "number":
            expected = self.explanation.expected[column][row].as_py()
            is_missing = self.explanation.values[column][row].as_py() is None
            return (expected if is_missing and expected != OTHER else None), None
        assert self.explanation.neighbours is not None
        indices = pa.array(self.explanation.neighbours[row])
        bounds = pc.min_max(self.explanation.reference[column].take(indices)).as_py()
        low, high = bounds["min"], bounds["max"]
        return low, (high if high != low else None)


def _decode_limits(scorer: SumScorer, encoder: TableEncoder) -> dict[int, tuple[object, object]]:
    """Return the limits of the usual values of each column of numbers."""
    rows = np.zeros((2, encoder.n_features_encoded))
    rows[:, scorer.numbers] = scorer.usual_limits
    decoded = encoder.decode(rows)
    columns = encoder.feature_columns[scorer.numbers].tolist()
    is_number = [encoder.kinds[column] == "number" for column in columns]
    return {
        column: tuple(decoded[column].to_pylist())
        for column, chosen in zip(columns, is_number, strict=True)
        if chosen
    }
