"""The demonstration: find malignant biopsies in a table that comes with scikit-learn."""

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

MALIGNANT_ROWS = 10
TABLE = "biopsies.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """The result of the demonstration.

    Attributes
    ----------
    summary : Summary
        Counts, threshold and the rows with the highest scores.
    malignant : int
        Number of malignant rows in the table.
    in_top_ten, in_top_twenty : int
        Number of malignant rows among the ten and twenty highest scores.
    files : tuple of str
        The files that were written.
    """

    summary: Summary
    malignant: int
    in_top_ten: int
    in_top_twenty: int
    files: tuple[str, ...]


def run(folder: Path, seed: int = 0, on_progress: ProgressCallback = no_progress) -> Demo:
    """Write the table of biopsies into a folder, and find its outliers.

    The folder is created. It gets the table, scores, reasons, model, and the report page if its
    libraries are installed. The seed determines the rows of the table and the training.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(folder / TABLE) as temporary, report_errors_as(folder / TABLE):
        pyarrow.csv.write_csv(create_table(seed), temporary)
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


def create_table(seed: int) -> pa.Table:
    """Return scikit-learn's breast cancer table with all benign rows and ten malignant ones.

    The malignant rows are sampled, and all rows are shuffled, with this seed. The column
    `diagnosis` has "benign" or "malignant".
    """
    data = load_breast_cancer()
    rng = np.random.default_rng(seed)
    benign = np.flatnonzero(data.target == 1)
    malignant = rng.choice(np.flatnonzero(data.target == 0), MALIGNANT_ROWS, replace=False)
    rows = rng.permutation(np.concatenate([benign, malignant]))
    columns = zip(data.feature_names, data.data[rows].T, strict=True)
    diagnosis = np.where(data.target[rows] == 0, "malignant", "benign")
    return pa.table({str(name): values for name, values in columns} | {"diagnosis": diagnosis})
