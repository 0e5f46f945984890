"""A few labelled outliers, some of them wrong: ignored, left out, or with larger losses; 20 tables.

    python bench/scripts/labels.py             run what is missing in bench/results/labels.jsonl
    python bench/scripts/labels.py --no-runs   print the tables of the existing records

Ten rows of each table are labelled as outliers, some of them inliers in truth. All other rows are
scored and compared with their own labels, which no system sees. `outlier_weight` and `label_trust`
were chosen on the tables with a star, so the mean over the other tables is shown too.
"""

import argparse
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
from altbi_bench.runs.json_records import append_json_record, read_json_records
from altbi_bench.tables.grids import markdown_grid

RECORDS = Path(__file__).parents[1] / "results" / "labels.jsonl"
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
    "labelled rows left out": {"outlier_weight": 0},
    "labelled rows pushed up": {},
}
METRICS = {"auc": "AUC", "average_precision": "Average precision"}
CHOSEN_ON = {"glass", "vowels", "pima", "cardio", "letter", "thyroid"}
# Protocol, data set, system, seed.
Job = tuple[str, str, str, int]
Records = dict[Job, dict[str, float]]


def choose_labelled(y: Labels, n_wrong: int, seed: int) -> NDArray[np.bool_]:
    """Return which rows are labelled: ten, but at most half of a table's outliers."""
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


def measure(job: Job) -> dict[str, float]:
    """Fit on all rows with the labels, and compare the scores of the rows without a label."""
    protocol, dataset, system, seed = job
    X, y = load_table(dataset)
    labelled = choose_labelled(y, PROTOCOLS[protocol], seed)
    known = None if system == "labels ignored" else labelled
    detector = ALTBI(random_state=seed, **SYSTEMS[system]).fit(X, known_outlier=known)
    scores = detector.outlier_score(X[~labelled])
    return {
        "auc": float(roc_auc_score(y[~labelled], scores)),
        "average_precision": float(average_precision_score(y[~labelled], scores)),
    }


def read(path: Path) -> Records:
    """Read all complete records."""
    return {
        (run["protocol"], run["dataset"], run["system"], run["seed"]): {
            metric: run[metric] for metric in METRICS
        }
        for run in read_json_records(path)
    }


def append(path: Path, job: Job, measures: dict[str, float]) -> None:
    """Add one record."""
    names = ("protocol", "dataset", "system", "seed")
    append_json_record(path, dict(zip(names, job, strict=True)) | measures)


def format_table(records: Records, protocol: str, metric: str, datasets: list[str]) -> str:
    """Format one row for each data set, then the means without the starred ones and over all."""
    means: dict[str, list[float]] = {}
    for dataset in datasets:
        jobs = [[(protocol, dataset, system, seed) for seed in range(SEEDS)] for system in SYSTEMS]
        if all(job in records for each in jobs for job in each):
            means[dataset] = [
                statistics.fmean(records[job][metric] for job in each) for each in jobs
            ]
    unseen = [row for name, row in means.items() if name not in CHOSEN_ON]
    rows = [["data set", *SYSTEMS]]
    rows += [[name + "*" * (name in CHOSEN_ON), *map(_format, row)] for name, row in means.items()]
    rows.append([f"mean of the {len(unseen)} without a star", *_average(unseen)])
    rows.append([f"mean of all {len(means)}", *_average(list(means.values()))])
    return markdown_grid(rows)


def _average(rows: list[list[float]]) -> list[str]:
    return [_format(statistics.fmean(column)) for column in zip(*rows, strict=True)]


def _format(value: float) -> str:
    return f"{value:.3f}"


def main() -> None:
    """Run, then print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-runs", action="store_true", help="only print tables")
    parser.add_argument("--datasets", default=DATASETS, help="names as in the paper")
    parser.add_argument("--records", type=Path, default=RECORDS)
    args = parser.parse_args()
    datasets = args.datasets.split(",")
    jobs = list(product(PROTOCOLS, datasets, SYSTEMS, range(SEEDS)))
    records = read(args.records)
    for job in jobs:
        if job not in records and not args.no_runs:
            records[job] = measure(job)
            append(args.records, job, records[job])
            sys.stderr.write(f"{job}\n")
    for protocol, (metric, title) in product(PROTOCOLS, METRICS.items()):
        text = format_table(records, protocol, metric, datasets)
        sys.stdout.write(f"### {protocol}: {title}\n\n{text}\n\n")
    for job in jobs:
        if job not in records:
            sys.stdout.write(f"- missing: {job}\n")


if __name__ == "__main__":
    main()
