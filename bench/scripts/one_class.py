"""OutlierDetector and nearest neighbours, fitted on normal rows only, on ADBench's tables.

    python bench/scripts/one_class.py             run what is missing, and print the table
    python bench/scripts/one_class.py --no-runs   print the table of the records

A random half of the normal rows of each table (at most 5,000 rows) is the training set, and the
other rows are scored. OutlierDetector has keep=1, so that no training row is left out. The others
are fitted on columns that are standardised by the training rows. Records are in
bench/results/one_class.jsonl. No setting is chosen on these tables, so all 45 are used.
"""

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from altbi import OutlierDetector
from altbi_bench.catalogue.datasets import Labels, Rows
from altbi_bench.catalogue.pools import list_tables
from altbi_bench.catalogue.systems import SYSTEMS, build_fit
from altbi_bench.runs.json_records import read_json_records
from altbi_bench.tables.grids import markdown_grid
from altbi_bench.trials.records import Trials, measure_accuracy, run_missing

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "bench" / "results" / "one_class.jsonl"
ODDBENCH = ROOT.parent / "shared" / "oddbench"
POOL = "adbench"
OURS = "OutlierDetector(keep=1)"

Scores = NDArray[np.floating]


def split_one_class(y: Labels) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return positions of a random half of the normal rows, and of all other rows."""
    normal = np.random.default_rng(0).permutation(np.flatnonzero(y == 0))
    training = np.sort(normal[: len(normal) // 2])
    return training, np.setdiff1d(np.arange(len(y)), training)


def score_by_detector(training: Rows, others: Rows) -> Scores:
    """Return outlier scores by the sum of scorers."""
    return -OutlierDetector(keep=1.0, random_state=0).fit(training).score_samples(others)


def score_by_detector_with_five_groups(training: Rows, others: Rows) -> Scores:
    """Return outlier scores with fewer groups of reference rows."""
    detector = OutlierDetector(keep=1.0, n_groups=5, random_state=0)
    return -detector.fit(training).score_samples(others)


def score_by_detector_with_filter(training: Rows, others: Rows) -> Scores:
    """Return outlier scores with the filter of reference rows, which is not needed here."""
    return -OutlierDetector(random_state=0).fit(training).score_samples(others)


def score_by_distance(training: Rows, others: Rows) -> Scores:
    """Return outlier scores by the distance alone."""
    model = OutlierDetector(keep=1.0, random_state=0).fit(training).model_
    rows = model.encoder.standardize(model.prepare(others))
    return np.asarray(model.scorer.distance.score(rows))


def score_by_system(name: str) -> Callable[[Rows, Rows], Scores]:
    """Return a function that scores rows by a system of the catalogue for normal training rows."""

    def score(training: Rows, others: Rows) -> Scores:
        center, spread = training.mean(axis=0), training.std(axis=0)
        spread = np.where(spread > 0, spread, 1)
        fit = build_fit(SYSTEMS[name], "semisupervised", 0)
        return fit((training - center) / spread)((others - center) / spread)

    return score


DETECTORS: dict[str, Callable[[Rows, Rows], Scores]] = {
    OURS: score_by_detector,
    "OutlierDetector(keep=1, n_groups=5)": score_by_detector_with_five_groups,
    "OutlierDetector()": score_by_detector_with_filter,
    "distance alone (keep=1)": score_by_distance,
    "DTE-NP": score_by_system("DTE-NP"),
    "kNN (5)": score_by_system("kNN"),
}


def measure(X: Rows, y: Labels, names: Sequence[str]) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the accuracy of each detector on the rows that are not in its training set."""
    training, others = split_one_class(y)
    for name in names:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scores = DETECTORS[name](X[training], X[others])
        yield name, measure_accuracy(y[others], scores)


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--oddbench", type=Path, default=ODDBENCH)
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--no-runs", action="store_true", help="only print the table")
    args = parser.parse_args()
    if not args.no_runs:
        os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
        tables = [table for table in list_tables(args.oddbench) if table.pool == POOL]
        for done in run_missing(args.records, tables, list(DETECTORS), measure):
            sys.stderr.write(f"{done.name}\n")
    trials = Trials(read_json_records(args.records))
    rows = list(trials.format_rows(DETECTORS, OURS, [POOL]))
    # The mean over pools repeats the only pool.
    sys.stdout.write(markdown_grid([[*row[:2], *row[3:]] for row in rows]) + "\n")


if __name__ == "__main__":
    main()
