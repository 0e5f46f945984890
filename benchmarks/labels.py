"""A few labelled outliers, some of them wrong: ignored, left out, or pushed up; on 20 tables.

    python benchmarks/labels.py             run what results/labels.jsonl lacks, print the tables
    python benchmarks/labels.py --no-runs   print the tables of the lines that are there

Ten rows of each table are labelled as outliers, some of them inliers in truth. All other rows are
scored and compared with their own labels, which no system sees. The weight of the push and the
share of labels that is trusted were chosen on the tables with a star; others are shown apart.
"""

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from altbi import ALTBI
from altbi.bench.datasets import Labels, load, select
from altbi.bench.run import Job
from altbi.bench.tables import METRICS, compare, gaps
from novelty import DATASETS, ProtocolRun, measured, plan, read, run_all

LINES = Path(__file__).parent / "results" / "labels.jsonl"
N_LABELS = 10
# How many of the labels are wrong.
PROTOCOLS = {"2 of 10 labels wrong": 2, "5 of 10 labels wrong": 5}
SYSTEMS: dict[str, dict[str, Any]] = {
    "labels ignored": {},
    "labelled rows left out": {"push": 0},
    "labelled rows pushed up": {},
}
CHOSEN_ON = {"glass", "vowels", "pima", "cardio", "letter", "thyroid"}


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


def run_job(job: Job, protocol: str) -> ProtocolRun:
    """Fit on all rows with the labels, then compare the scores of the rows without."""
    X, y = load(*select([job.dataset]))
    marks = labelled(y, PROTOCOLS[protocol], job.seed)
    detector = ALTBI(random_state=job.seed, **SYSTEMS[job.system])
    known = None if job.system == "labels ignored" else marks
    return measured(
        job, protocol, X[~marks], y[~marks], lambda: detector.fit(X, known_outlier=known)
    )


def table(jobs: list[Job], runs: list[ProtocolRun], metric: str) -> str:
    """One row for each data set, then the means over those that nothing was chosen on, and all."""
    systems = list(SYSTEMS)
    cells: dict[str, list[float]] = {}
    for line in compare(jobs, runs, metric).lines:
        found = [line.ours[system] for system in systems]
        if all(found):
            cells[line.dataset.name] = [cell.mean for cell in found if cell]
    unseen = [row for name, row in cells.items() if name not in CHOSEN_ON]
    lines = [["data set", *systems], ["---", *["---:"] * len(systems)]]
    lines += [[name + "*" * (name in CHOSEN_ON), *map(_text, row)] for name, row in cells.items()]
    lines.append([f"mean of the {len(unseen)} without a star", *_means(unseen)])
    lines.append([f"mean of all {len(cells)}", *_means(list(cells.values()))])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _means(rows: list[list[float]]) -> list[str]:
    return [_text(statistics.fmean(column)) for column in zip(*rows, strict=True)]


def _text(value: float) -> str:
    return f"{value:.3f}"


def main() -> None:
    """Run, then print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-runs", action="store_true", help="only print tables")
    parser.add_argument("--datasets", default=DATASETS, help="names as in the paper")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--lines", type=Path, default=LINES)
    args = parser.parse_args()
    jobs = plan(args.datasets.split(","), list(SYSTEMS), args.seeds)
    if not args.no_runs:
        run_all(args.lines, jobs, PROTOCOLS, run_job)
    for protocol in PROTOCOLS:
        runs = read(args.lines, protocol)
        for metric, title in METRICS.items():
            sys.stdout.write(f"### {protocol}: {title}\n\n{table(jobs, runs, metric)}\n\n")
        for gap in gaps(jobs, runs):
            sys.stdout.write(f"- missing in {protocol}: {gap}\n")


if __name__ == "__main__":
    main()
