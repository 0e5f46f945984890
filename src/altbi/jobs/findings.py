"""Some rows of a table, explained."""

from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.detectors import GenerativeDetector
from altbi.explain import Explanation, Reason
from altbi.files import Columns
from altbi.jobs.choice import Chosen, Label
from altbi.jobs.passes import Scan
from altbi.report import Metrics, cell_text

__all__ = [
    "CLUES",
    "Findings",
    "expected_text",
    "explain_rows",
    "id_text",
    "metrics_of",
    "nearest_texts",
    "reasons_table",
]

# The most columns that are named as reasons for a row's score.
CLUES = 5
# The most remembered rows that a row is shown beside.
NEAREST = 3
_HALF_A_DAY = timedelta(hours=12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
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
    cells: pa.Table, rows: NDArray[np.int64], columns: Columns, detector: GenerativeDetector
) -> Findings:
    """Explain rows of a source."""
    table = columns.table(cells, 0, detector.encoder_.names)
    explanation = detector.explain(table)
    flagged = -explanation.score < detector.offset_
    return Findings(rows=rows, cells=cells, flagged=flagged, explanation=explanation)


def reasons_table(findings: Findings, chosen: Chosen) -> pa.Table:
    """Give one line for each row and reason: where, how odd, what stands there, what should.

    Where rows are scored by distance, ``nearest_1`` and so on hold the column's cells in the
    nearest remembered rows.
    """
    explanation, lines = findings.explanation, []
    for place, row in enumerate(findings.rows.tolist()):
        ids = {name: findings.cells[name][place].as_py() for name in chosen.ids}
        start = {
            "row": row,
            **{f"id_{name}": id_text(value) for name, value in ids.items()},
            "score": float(explanation.score[place]),
            "outlier": bool(findings.flagged[place]),
        }
        for rank, reason in enumerate(explanation.reasons(place, CLUES), start=1):
            nearest = nearest_texts(explanation, place, explanation.columns.index(reason.column))
            lines.append({**start, "reason": rank, **_told(reason, nearest)})
    return pa.Table.from_pylist(lines)


def id_text(value: object) -> str:
    """Give the name of a row as it is written."""
    return "" if value == "" else cell_text(value)


def _told(reason: Reason, nearest: tuple[str, ...]) -> dict[str, Any]:
    return {
        "column": reason.column,
        "value": cell_text(reason.value, digits=None),
        "expected": expected_text(reason.expected, reason.value),
        "deviations": reason.deviations,
        "part": reason.part,
        **{f"nearest_{number}": cell for number, cell in enumerate(nearest, start=1)},
    }


def nearest_texts(explanation: Explanation, place: int, column: int) -> tuple[str, ...]:
    """Give a column's cells in the remembered rows nearest to a row; none if it has none."""
    if explanation.neighbours is None:
        return ()
    value = explanation.values[column][place].as_py()
    # Not of all columns, as `Explanation.nearest` does: few are shown of a wide table.
    cells = explanation.remembered[column].take(pa.array(explanation.neighbours[place, :NEAREST]))
    return tuple(_beside(cell, value) for cell in cells.to_pylist())


def _beside(cell: object, value: object) -> str:
    """Put a cell into words: where it and the value beside it are days, as a day."""
    if isinstance(cell, datetime) and isinstance(value, datetime):
        cell = cell.date() if cell.time() == value.time() == time() else cell
    return cell_text(cell, 6)


def expected_text(cell: object, value: object, digits: int = 6) -> str:
    """Put what is expected beside a value into words: beside a day, the nearest day."""
    if isinstance(cell, datetime) and isinstance(value, datetime) and value.time() == time():
        cell = (min(cell, datetime.max - _HALF_A_DAY) + _HALF_A_DAY).date()
    return cell_text(cell, digits)


def metrics_of(found: Scan, label: Label | None) -> Metrics | None:
    """Compare scores with known labels; None unless there are labels of both kinds."""
    if label is None:
        return None
    from sklearn.metrics import average_precision_score, roc_auc_score

    scores = np.concatenate([scores for scores, _ in found.labelled])
    labels = np.concatenate([labels for _, labels in found.labelled])
    if not 0 < labels.sum() < len(labels):
        return None
    return Metrics(
        label=label.column,
        outliers=int(labels.sum()),
        auc=float(roc_auc_score(labels, scores)),
        average_precision=float(average_precision_score(labels, scores)),
    )
