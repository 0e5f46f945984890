"""The main job on a table that comes with scikit-learn: which rows stand out, and why."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
from sklearn.datasets import load_breast_cancer

from altbi.io import ProgressCallback, atomic_file, no_progress, report_errors_as
from altbi.model import build_settings
from altbi.pipeline import detect
from altbi.report import Summary, can_report

__all__ = ["TABLE", "Demo", "biopsies", "run"]

MALIGNANT_ROWS = 10
TABLE = "biopsies.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """What the demonstration found.

    Attributes
    ----------
    summary : Summary
        What a report says of it.
    malignant : int
        Malignant rows in the table.
    in_top_ten, in_top_twenty : int
        Malignant rows among the ten and twenty highest scores.
    files : tuple of str
        What was written.
    """

    summary: Summary
    malignant: int
    in_top_ten: int
    in_top_twenty: int
    files: tuple[str, ...]


def run(folder: Path, seed: int = 0, on_progress: ProgressCallback = no_progress) -> Demo:
    """Search the biopsy table; the seed sets the malignant rows, their places and the training."""
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(folder / TABLE) as draft, report_errors_as(folder / TABLE):
        pyarrow.csv.write_csv(biopsies(seed), draft)
    page = can_report()
    summary = detect(
        folder / TABLE,
        folder,
        detector=build_settings("OutlierDetector", {"random_state": seed}),
        label="diagnosis=malignant",
        report=page,
        command=f"altbi demo --seed {seed}",
        on_progress=on_progress,
    ).summary
    names = (TABLE, "scores.csv", "reasons.csv", "model.altbi", *(("report.html",) if page else ()))
    return Demo(
        summary=summary,
        malignant=MALIGNANT_ROWS,
        in_top_ten=sum(row.label is True for row in summary.top[:10]),
        in_top_twenty=sum(row.label is True for row in summary.top[:20]),
        files=tuple(str(folder / name) for name in names),
    )


def biopsies(seed: int) -> pa.Table:
    """Mix ten malignant rows among all benign ones; the diagnosis is for the check at the end."""
    data = load_breast_cancer()
    rng = np.random.default_rng(seed)
    benign = np.flatnonzero(data.target == 1)
    malignant = rng.choice(np.flatnonzero(data.target == 0), MALIGNANT_ROWS, replace=False)
    rows = rng.permutation(np.concatenate([benign, malignant]))
    columns = zip(data.feature_names, data.data[rows].T, strict=True)
    diagnosis = np.where(data.target[rows] == 0, "malignant", "benign")
    return pa.table({str(name): cells for name, cells in columns} | {"diagnosis": diagnosis})
