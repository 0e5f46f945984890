"""Standard deviation of OutlierDetector's accuracy over five seeds.

    python bench/scripts/seed_spread.py             run what is missing, and print the table
    python bench/scripts/seed_spread.py --small     also run hepatitis, wine and glass
    python bench/scripts/seed_spread.py --no-runs   print the table of the records

The tables are 60 of the select pools with more than 500 rows, which a hash selects. The three small
tables of ADBench are in the confirm half, so their labels are read only if that is asked for.
Standard deviations are recorded in bench/results/seed_spread.jsonl, without the accuracies.
"""

import argparse
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from altbi import OutlierDetector
from altbi_bench.catalogue.datasets import Labels, Rows
from altbi_bench.catalogue.pools import PoolTable, list_tables, load_pool_table, select_by_hash
from altbi_bench.runs.json_records import read_json_records
from altbi_bench.tables.grids import markdown_grid
from altbi_bench.trials.records import METRICS, list_select_tables, measure_accuracy, run_missing

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "bench" / "results" / "seed_spread.jsonl"
ODDBENCH = ROOT.parent / "shared" / "oddbench"
SMALL = ("14_glass", "15_Hepatitis", "45_wine")
N_TABLES, MIN_ROWS, N_SEEDS = 60, 500, 5
NAME = f"{N_SEEDS} seeds"


def list_spread_tables(oddbench: Path, *, with_small: bool) -> Iterator[PoolTable]:
    """Yield the tables that a hash selects, and the small ones if asked for."""
    selected = list_select_tables(oddbench)
    ordered = select_by_hash(selected, len(selected))
    large = (table for table in ordered if len(load_pool_table(table)[0]) > MIN_ROWS)
    yield from islice(large, N_TABLES)
    if with_small:
        yield from (table for table in list_tables(oddbench) if table.name in SMALL)


def measure(X: Rows, y: Labels, names: Sequence[str]) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the sample standard deviation of each metric over seeds, and the number of rows."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(N_SEEDS):
            scores = -OutlierDetector(random_state=seed).fit(X).score_samples(X)
            found.append(measure_accuracy(y, scores))
    spreads = {
        f"{metric}_std": float(np.std([each[metric] for each in found], ddof=1))
        for metric in METRICS
    }
    for name in names:
        yield name, {**spreads, "n_rows": len(X)}


def format_rows(records: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    """Yield the mean and the largest spread of the large tables, and those of each small one."""
    yield ["tables", "standard deviation of AUC", "of average precision"]
    large = [record for record in records if record["table"] not in SMALL]
    spreads = np.array([[record[f"{metric}_std"] for metric in METRICS] for record in large])
    yield [f"mean of {len(large)}", *(f"{value:.4f}" for value in spreads.mean(axis=0))]
    yield [f"largest of {len(large)}", *(f"{value:.4f}" for value in spreads.max(axis=0))]
    for record in records:
        if record["table"] in SMALL:
            yield [record["table"], *(f"{record[f'{metric}_std']:.4f}" for metric in METRICS)]


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--oddbench", type=Path, default=ODDBENCH)
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--small", action="store_true", help="also read labels of small tables")
    parser.add_argument("--no-runs", action="store_true", help="only print the table")
    args = parser.parse_args()
    if not args.no_runs:
        os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
        tables = list_spread_tables(args.oddbench, with_small=args.small)
        for done in run_missing(args.records, tables, [NAME], measure):
            sys.stderr.write(f"{done.pool} {done.name}\n")
    rows = list(format_rows(read_json_records(args.records)))
    sys.stdout.write(markdown_grid(rows) + "\n")


if __name__ == "__main__":
    main()
