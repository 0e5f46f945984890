"""Some rows of a table, explained."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.detectors import GenerativeDetector
from altbi.explain import Explanation
from altbi.files import Columns
from altbi.jobs.choice import Chosen, Label
from altbi.jobs.passes import Scan
from altbi.report import Metrics, cell_text

__all__ = ["CLUES", "Findings", "explain_rows", "metrics_of", "reasons_table"]

# The most columns that are named as reasons for a row's score.
CLUES = 5


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
    """Give one line for each row and reason: where, how odd, what stands there, what should."""
    lines = []
    for place, row in enumerate(findings.rows.tolist()):
        ids = {name: findings.cells[name][place].as_py() for name in chosen.ids}
        for rank, reason in enumerate(findings.explanation.reasons(place, CLUES), start=1):
            lines.append(
                {
                    "row": row,
                    **{f"id_{name}": cell_text(value) for name, value in ids.items()},
                    "score": float(findings.explanation.score[place]),
                    "outlier": bool(findings.flagged[place]),
                    "reason": rank,
                    "column": reason.column,
                    "value": cell_text(reason.value, digits=None),
                    "expected": cell_text(reason.expected),
                    "deviations": reason.deviations,
                    "part": reason.part,
                }
            )
    return pa.Table.from_pylist(lines)


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
