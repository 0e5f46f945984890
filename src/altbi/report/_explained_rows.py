"""Some rows of a table, explained."""

from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.explain import Explanation, Reason
from altbi.io import ColumnParser, Label, SelectedColumns
from altbi.model import FittedModel
from altbi.model._score_source import ScoreSummary
from altbi.report._facts import Metrics
from altbi.report._formatting import cell_text

__all__ = [
    "MAX_REASONS",
    "ExplainedRows",
    "build_reasons_table",
    "compute_metrics",
    "expected_text",
    "explain_rows",
    "id_text",
    "nearest_texts",
]

# The most columns that are named as reasons for a row's score.
MAX_REASONS = 5
# The most reference rows that a row is shown beside.
NEAREST = 3
_HALF_A_DAY = timedelta(hours=12)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedRows:
    """Rows, and why they have their scores.

    Attributes
    ----------
    rows : ndarray of int
        Their numbers in the table, counted from 0.
    cells : pyarrow.Table
        Their cells as the source has them.
    flagged : ndarray of bool
        Whether their scores are above the threshold.
    explanation : Explanation
        Their scores, taken apart.
    """

    rows: NDArray[np.int64]
    cells: pa.Table
    flagged: NDArray[np.bool_]
    explanation: Explanation


def explain_rows(
    cells: pa.Table, rows: NDArray[np.int64], parser: ColumnParser, model: FittedModel
) -> ExplainedRows:
    """Explain rows of a source."""
    explanation = model.explain(parser.parse(cells, 0, model.encoder.names))
    flagged = explanation.score > model.threshold
    return ExplainedRows(rows=rows, cells=cells, flagged=flagged, explanation=explanation)


def build_reasons_table(explained: ExplainedRows, selected: SelectedColumns) -> pa.Table:
    """Return a table with one line for each row and reason.

    For scores by distance, ``nearest_1`` and so on hold the values of the most similar reference
    rows.
    """
    explanation, lines = explained.explanation, []
    for index, row in enumerate(explained.rows.tolist()):
        ids = {name: explained.cells[name][index].as_py() for name in selected.ids}
        start = {
            "row": row,
            **{f"id_{name}": id_text(value) for name, value in ids.items()},
            "score": float(explanation.score[index]),
            "outlier": bool(explained.flagged[index]),
        }
        for rank, reason in enumerate(explanation.reasons(index, MAX_REASONS), start=1):
            nearest = nearest_texts(explanation, index, explanation.columns.index(reason.column))
            lines.append({**start, "reason": rank, **_format_reason(reason, nearest)})
    return pa.Table.from_pylist(lines)


def id_text(value: object) -> str:
    """Give the name of a row as it is written."""
    return "" if value == "" else cell_text(value)


def _format_reason(reason: Reason, nearest: tuple[str, ...]) -> dict[str, Any]:
    return {
        "column": reason.column,
        "value": cell_text(reason.value, digits=None),
        "expected": expected_text(reason.expected, reason.value),
        "z_score": reason.z_score,
        "contribution": reason.contribution,
        **{f"nearest_{number}": cell for number, cell in enumerate(nearest, start=1)},
    }


def nearest_texts(explanation: Explanation, index: int, column: int) -> tuple[str, ...]:
    """Give a column's cells in the reference rows nearest to a row; none if it has none."""
    if explanation.neighbours is None:
        return ()
    value = explanation.values[column][index].as_py()
    # Not of all columns, as `Explanation.nearest` does: few are shown of a wide table.
    cells = explanation.reference[column].take(pa.array(explanation.neighbours[index, :NEAREST]))
    return tuple(_format_beside(cell, value) for cell in cells.to_pylist())


def _format_beside(cell: object, value: object) -> str:
    """Put a cell into words: where it and the value beside it are days, as a day."""
    if isinstance(cell, datetime) and isinstance(value, datetime):
        cell = cell.date() if cell.time() == value.time() == time() else cell
    return cell_text(cell, 6)


def expected_text(cell: object, value: object, digits: int = 6) -> str:
    """Put what is expected beside a value into words: beside a day, the nearest day."""
    if isinstance(cell, datetime) and isinstance(value, datetime) and value.time() == time():
        cell = (min(cell, datetime.max - _HALF_A_DAY) + _HALF_A_DAY).date()
    return cell_text(cell, digits)


def compute_metrics(scored: ScoreSummary, label: Label | None) -> Metrics | None:
    """Compare scores with known labels; None unless there are labels of both kinds."""
    if label is None:
        return None
    from sklearn.metrics import average_precision_score, roc_auc_score

    scores = np.concatenate([scores for scores, _ in scored.labelled])
    labels = np.concatenate([labels for _, labels in scored.labelled])
    if not 0 < labels.sum() < len(labels):
        return None
    return Metrics(
        label=label.column,
        outliers=int(labels.sum()),
        auc=float(roc_auc_score(labels, scores)),
        average_precision=float(average_precision_score(labels, scores)),
    )
