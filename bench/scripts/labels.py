"""A few labelled outliers, some of them wrong: ignored, left out, or pushed up; on 20 tables.

    python bench/scripts/labels.py             run what is missing in bench/results/labels.jsonl
    python bench/scripts/labels.py --no-runs   print the tables of the lines that are there

Ten rows of each table are labelled as outliers, some of them inliers in truth. All other rows are
scored and compared with their own labels, which no system sees. The weight of the push and the
share of labels that is trusted were chosen on the tables with a star; others are shown apart.
"""

import argparse
import json
import statistics
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score

from altbi import ALTBI
from altbi_bench.catalogue.datasets import Labels, load_table
from altbi_bench.tables.grids import markdown_grid

LINES = Path(__file__).parents[1] / "results" / "labels.jsonl"
DATASETS = (
    "breastw,cardio,cardiotocography,fault,glass,hepatitis,ionosphere,landsat,letter,lymphography,"
    "pageblocks,pendigits,pima,satimage-2,stamps,thyroid,vertebral,vowels,wdbc,wine"
)
SEEDS = 3
N_LABELS = 10
# How many of the labels are wrong.
PROTOCOLS = {"2 of 10 labels wrong": 2, "5 of 10 labels wrong": 5}
SYSTEMS: dict[str, dict[str, Any]] = {
    "labels ignored": {},
    "labelled rows left out": {"push": 0},
    "labelled rows pushed up": {},
}
METRICS = {"auc": "AUC", "average_precision": "Average precision"}
CHOSEN_ON = {"glass", "vowels", "pima", "cardio", "letter", "thyroid"}
# Protocol, data set, system, seed.
Job = tuple[str, str, str, int]
Lines = dict[Job, dict[str, float]]


def labelled(y: Labels, n_wrong: int, seed: int) -> NDArray[np.bool_]:
    """Mark ten rows, or fewer: at most half of a table's outliers are labelled."""
    generator = np.random.default_rng(seed)
    outliers, inliers = np.flatnonzero(y == 1), np.flatnonzero(y == 0)
    n_right = min(N_LABELS - n_wrong, len(outliers) // 2)
    rows = np.concatenate(
        [
            generator.choice(outliers, n_right, replace=False),
            generator.choice(inliers, n_wrong, replace=False),
        ]
    )
    return np.isin(np.arange(len(y)), rows)


def run(job: Job) -> dict[str, float]:
    """Fit on all rows with the labels, then compare the scores of the rows without."""
    protocol, dataset, system, seed = job
    X, y = load_table(dataset)
    marks = labelled(y, PROTOCOLS[protocol], seed)
    known = None if system == "labels ignored" else marks
    detector = ALTBI.reference(random_state=seed, **SYSTEMS[system]).fit(X, known_outlier=known)
    scores = detector.outlier_score(X[~marks])
    return {
        "auc": float(roc_auc_score(y[~marks], scores)),
        "average_precision": float(average_precision_score(y[~marks], scores)),
    }


def read(path: Path) -> Lines:
    """Read the lines that were written to their end."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    runs = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    return {
        (run["protocol"], run["dataset"], run["system"], run["seed"]): {
            metric: run[metric] for metric in METRICS
        }
        for run in runs
    }


def append(path: Path, job: Job, measures: dict[str, float]) -> None:
    """Write one line."""
    names = ("protocol", "dataset", "system", "seed")
    with path.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(dict(zip(names, job, strict=True)) | measures) + "\n")


def table(lines: Lines, protocol: str, metric: str, datasets: list[str]) -> str:
    """One row for each data set, then the means over those that nothing was chosen on, and all."""
    cells: dict[str, list[float]] = {}
    for dataset in datasets:
        jobs = [[(protocol, dataset, system, seed) for seed in range(SEEDS)] for system in SYSTEMS]
        if all(job in lines for each in jobs for job in each):
            cells[dataset] = [statistics.fmean(lines[job][metric] for job in each) for each in jobs]
    unseen = [row for name, row in cells.items() if name not in CHOSEN_ON]
    rows = [["data set", *SYSTEMS]]
    rows += [[name + "*" * (name in CHOSEN_ON), *map(_text, row)] for name, row in cells.items()]
    rows.append([f"mean of the {len(unseen)} without a star", *_means(unseen)])
    rows.append([f"mean of all {len(cells)}", *_means(list(cells.values()))])
    return markdown_grid(rows)


def _means(rows: list[list[float]]) -> list[str]:
    return [_text(statistics.fmean(column)) for column in zip(*rows, strict=True)]


def _text(value: float) -> str:
    return f"{value:.3f}"


def main() -> None:
    """Run, then print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-runs", action="store_true", help="only print tables")
    parser.add_argument("--datasets", default=DATASETS, help="names as in the paper")
    parser.add_argument("--lines", type=Path, default=LINES)
    args = parser.parse_args()
    datasets = args.datasets.split(",")
    jobs = list(product(PROTOCOLS, datasets, SYSTEMS, range(SEEDS)))
    lines = read(args.lines)
    for job in jobs:
        if job not in lines and not args.no_runs:
            lines[job] = run(job)
            append(args.lines, job, lines[job])
            sys.stderr.write(f"{job}\n")
    for protocol, (metric, title) in product(PROTOCOLS, METRICS.items()):
        text = table(lines, protocol, metric, datasets)
        sys.stdout.write(f"### {protocol}: {title}\n\n{text}\n\n")
    for job in jobs:
        if job not in lines:
            sys.stdout.write(f"- missing: {job}\n")


if __name__ == "__main__":
    main()
