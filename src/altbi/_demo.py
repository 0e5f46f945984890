"""The demonstration: find malignant biopsies in a table that comes with scikit-learn."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from altbi.errors import TableError
from altbi.io import ProgressCallback, atomic_file, no_progress, report_errors_as
from altbi.model import build_settings
from altbi.pipeline import detect
from altbi.report import Summary

MALIGNANT_ROWS = 10
TABLE = "biopsies.csv"
# The data file of scikit-learn has no column names. Each of ten measurements has three columns.
BREAST_CANCER_FILE = "datasets/data/breast_cancer.csv"
MEASUREMENTS = (
    "radius",
    "texture",
    "perimeter",
    "area",
    "smoothness",
    "compactness",
    "concavity",
    "concave points",
    "symmetry",
    "fractal dimension",
)
FEATURES = (
    *(f"mean {name}" for name in MEASUREMENTS),
    *(f"{name} error" for name in MEASUREMENTS),
    *(f"worst {name}" for name in MEASUREMENTS),
)


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


def run_demo(folder: Path, seed: int = 0, on_progress: ProgressCallback = no_progress) -> Demo:
    """Write the table of biopsies into a folder, detect its outliers, and return their summary.

    The folder is created. It gets the table, scores, reasons, model and report page. The seed
    determines the rows of the table and the training.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(folder / TABLE) as temporary, report_errors_as(folder / TABLE):
        pyarrow.csv.write_csv(create_table(seed), temporary)
    summary = detect(
        folder / TABLE,
        folder,
        detector=build_settings("OutlierDetector", {"random_state": seed}),
        label="diagnosis=malignant",
        command=f"altbi demo --seed {seed}",
        on_progress=on_progress,
    ).summary
    names = (TABLE, "scores.csv", "reasons.csv", "duplicates.csv", "model.altbi", "report.html")
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
    data = read_breast_cancer()
    is_benign = data["benign"].to_numpy() == 1
    rng = np.random.default_rng(seed)
    malignant = rng.choice(np.flatnonzero(~is_benign), MALIGNANT_ROWS, replace=False)
    rows = rng.permutation(np.concatenate([np.flatnonzero(is_benign), malignant]))
    diagnosis = np.where(is_benign[rows], "benign", "malignant")
    return data.drop(["benign"]).take(rows).append_column("diagnosis", pa.array(diagnosis))


def read_breast_cancer() -> pa.Table:
    """Return the breast cancer table of scikit-learn, with a column `benign` of 0 and 1.

    The file is read without importing scikit-learn, which takes 2 s. If it is missing, a
    `TableError` is raised.
    """
    sklearn = find_spec("sklearn")
    folder = Path(sklearn.origin).parent if sklearn is not None and sklearn.origin else Path()
    path = folder / BREAST_CANCER_FILE
    if not path.exists():
        raise TableError(
            "The demo needs the breast cancer table of scikit-learn, but its file "
            f"{BREAST_CANCER_FILE} is missing. Install scikit-learn again."
        )
    names = [*FEATURES, "benign"]
    return pyarrow.csv.read_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(column_names=names, skip_rows=1),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(FEATURES, pa.float64())
        ),
    )
