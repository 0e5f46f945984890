"""Rows with the explanation of their scores, and the table of their reasons (reasons.csv)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.explain import Explanation
from altbi.io import ColumnParser, SelectedColumns
from altbi.model import FittedModel
from altbi.report._formatting import format_expected, format_nearest, format_value

# The largest number of reasons of a row.
MAX_REASONS = 5
# The number of similar reference rows that are shown with a row.
N_NEAREST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedRows:
    """Rows of a table with the explanation of their scores.

    Attributes
    ----------
    rows : ndarray of int
        Their numbers in the table, counted from 0.
    cells : pyarrow.Table
        Their values as the source has them.
    flagged : ndarray of bool
        Whether their scores are above the threshold.
    explanation : Explanation
        Their scores, split by column.
    """

    rows: NDArray[np.int64]
    cells: pa.Table
    flagged: NDArray[np.bool_]
    explanation: Explanation


def explain_rows(
    cells: pa.Table, rows: NDArray[np.int64], parser: ColumnParser, model: FittedModel
) -> ExplainedRows:
    """Parse the values of some rows, compute their scores, and explain these by column.

    Parameters
    ----------
    cells : pyarrow.Table
        The rows, with the columns as the source has them.
    rows : ndarray of int
        Their numbers in the table.
    parser : ColumnParser
        Converts the values to the types that the model expects.
    model : FittedModel
        Scores the rows; those above its threshold are flagged.

    Returns
    -------
    ExplainedRows
        The rows with their explanation, in the same order.
    """
    explanation = model.explain(parser.parse(cells, 0, model.encoder.names))
    flagged = explanation.score > model.threshold
    return ExplainedRows(rows=rows, cells=cells, flagged=flagged, explanation=explanation)


def build_reasons_table(explained: ExplainedRows, selected: SelectedColumns) -> pa.Table:
    """Return a table with one record for each row and reason, as in ``reasons.csv``.

    A row has at most `MAX_REASONS` reasons, and those of a row have consecutive records. Values are
    formatted as text. Id columns get the prefix ``id_``. For scores by distance, ``nearest_1`` to
    ``nearest_3`` are the values of the most similar reference rows.
    """
    explanation = explained.explanation
    records: list[dict[str, Any]] = []
    for index, row in enumerate(explained.rows.tolist()):
        ids = {name: explained.cells[name][index].as_py() for name in selected.ids}
        common = {
            "row": row,
            **{f"id_{name}": format_id(value) for name, value in ids.items()},
            "score": float(explanation.score[index]),
            "outlier": bool(explained.flagged[index]),
        }
        for rank, reason in enumerate(explanation.reasons(index, MAX_REASONS), start=1):
            column = explanation.columns.index(reason.column)
            nearest = enumerate(format_nearest_values(explanation, index, column), start=1)
            records.append(
                {
                    **common,
                    "reason": rank,
                    "column": reason.column,
                    "value": format_value(reason.value, digits=None),
                    "expected": format_expected(reason.expected, reason.value),
                    "z_score": reason.z_score,
                    "contribution": reason.contribution,
                    **{f"nearest_{number}": value for number, value in nearest},
                }
            )
    return pa.Table.from_pylist(records)


def format_id(value: object) -> str:
    """Format a value of an id column; an empty text stays empty, unlike in `format_value`."""
    return "" if value == "" else format_value(value)


def format_nearest_values(explanation: Explanation, index: int, column: int) -> tuple[str, ...]:
    """Return the formatted values of one column in the reference rows most similar to a row.

    `index` is the row's index in the explanation, and `column` the column's index. There are at
    most `N_NEAREST` values, most similar first. The result is empty for scores by loss.
    """
    if explanation.neighbours is None:
        return ()
    value = explanation.values[column][index].as_py()
    indices = pa.array(explanation.neighbours[index, :N_NEAREST])
    nearest = explanation.reference[column].take(indices).to_pylist()
    return tuple(format_nearest(each, value) for each in nearest)
