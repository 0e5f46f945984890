"""All scores and sums of scores that were tried for OutlierDetector, on the select pools.

    python bench/scripts/trials.py                run what is missing, and print the tables
    python bench/scripts/trials.py --no-runs      print the tables of the records

Only tables on which settings may be chosen are used. Each is fitted and scored without labels, with
seed 0. Records are appended to bench/results/trials.jsonl, and existing ones are not run again.
OddBench and OvRBench are read from ../shared/oddbench, or from --oddbench. The table has AUC /
average precision by pool, their means over pools, and paired differences: to the distance alone,
and of a sum to the sum without its last term or with the default of what it changes. A second table
has the changes of the detector.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from altbi_bench.catalogue.datasets import Labels, Rows
from altbi_bench.catalogue.pools import POOLS
from altbi_bench.runs.json_records import read_json_records
from altbi_bench.tables.grids import markdown_grid
from altbi_bench.trials.encoded_table import EncodedTable
from altbi_bench.trials.records import (
    Trials,
    list_select_tables,
    measure_accuracy,
    run_missing,
)
from altbi_bench.trials.scores import ABLATIONS, SCORES
from altbi_bench.trials.sums import DETECTOR, SUMS, add_terms

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "bench" / "results" / "trials.jsonl"
ODDBENCH = ROOT.parent / "shared" / "oddbench"
DISTANCE = "distance"
# Single scores that are the detector with one change are compared with it.
BASES = {name: DETECTOR for name in SCORES if name.startswith((f"{DETECTOR}, ", "groups: "))}

ABLATION = {
    DETECTOR: DETECTOR,
    **ABLATIONS,
    "without the filter (keep 1)": "detector, keep 1",
    "without the selection by distance": "detector, one selection",
    "mean of 3 seeds": "detector, mean of 3 seeds",
}


def measure(X: Rows, y: Labels, names: Sequence[str]) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the accuracy of each score and sum on a table."""
    table = EncodedTable.encode(X)
    found: dict[str, NDArray[np.float64]] = {}

    def score(name: str) -> NDArray[np.float64]:
        if name not in found:
            found[name] = SCORES[name](table)
        return found[name]

    for name in names:
        if name in SUMS:
            scores = add_terms(SUMS[name].terms, score, table.n_features)
        else:
            scores = score(name)
        yield name, measure_accuracy(y, scores)


def list_pools(trials: Trials) -> list[str]:
    """Return the pools with records, in their usual order."""
    return [pool for pool in POOLS if pool in trials.list_pools(DISTANCE)]


def format_rows(trials: Trials) -> Iterator[list[str]]:
    """Yield a row for each score and sum with records."""
    pools = list_pools(trials)
    head = ["score", *(f"{pool} ({trials.count(DISTANCE, pool)})" for pool in pools), "mean"]
    yield [
        *head,
        "AUC - distance",
        "precision - distance",
        "base",
        "AUC - base",
        "precision - base",
    ]
    for name in filter(trials.has, [*SCORES, *SUMS]):
        base = SUMS[name].base if name in SUMS else BASES.get(name, "")
        differences = [""] * 2
        if base:
            differences = list(trials.format_differences(name, base, pools))
        yield [
            name,
            *trials.format_accuracy(name, pools),
            *trials.format_differences(name, DISTANCE, pools),
            base,
            *differences,
        ]


def format_ablation(trials: Trials) -> Iterator[list[str]]:
    """Yield a row for each change of the detector, with its differences to it."""
    header, *rows = trials.format_rows(ABLATION.values(), DETECTOR, list_pools(trials))
    labels = {name: label for label, name in ABLATION.items()}
    yield ["ablation", *header[1:]]
    yield from ([labels[name], *cells] for name, *cells in rows)


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--oddbench", type=Path, default=ODDBENCH)
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--no-runs", action="store_true", help="only print the table")
    args = parser.parse_args()
    if not args.no_runs:
        os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
        # Embeddings come last, because they take longest.
        tables = sorted(list_select_tables(args.oddbench), key=lambda t: t.pool == "embeddings")
        for done in run_missing(args.records, tables, [*SCORES, *SUMS], measure):
            sys.stderr.write(f"{done.pool} {done.name}\n")
    trials = Trials(read_json_records(args.records))
    grids = [markdown_grid(list(rows)) for rows in (format_rows(trials), format_ablation(trials))]
    sys.stdout.write("\n\n".join(grids) + "\n")


if __name__ == "__main__":
    main()
