"""How well systems rank wrong cells of raha's tables beers and hospital.

    python bench/scripts/wrong_cells.py               run what is missing, and print the table
    python bench/scripts/wrong_cells.py --no-runs     print the table of the records
    python bench/scripts/wrong_cells.py --again NAME --systems NAME     run a changed system again

A cell is wrong if it differs from the clean file. "beers, reduced" is without the column ounces,
whose cells are all wrong, and "N/A" in the column ibu is missing. "hospital, typos" are the clean
file with as many typos as the dirty file has errors, in the same columns: insertions, deletions,
transpositions and replacements with random letters. All systems see columns that hold only numbers
as numbers, and others as texts. F1 is at the true number of wrong cells, where it equals precision
and recall; equal scores count with their probability. Records are appended to
bench/results/wrong_cells.jsonl. Files are read from ../shared/mixed/raha, or from --raha. The
system outliertree needs a package that the benchmark does not install.
"""

import argparse
import os
import statistics
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from altbi_bench.mixed.cells import CELL_SYSTEMS, DirtyTable, measure_cells, score_cells
from altbi_bench.runs.json_records import (
    append_json_record,
    read_json_records,
    replace_json_records,
)
from altbi_bench.tables.grids import markdown_grid

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "bench" / "results" / "wrong_cells.jsonl"
RAHA = ROOT.parent / "shared" / "mixed" / "raha"
TYPOS = "hospital, typos"
TABLES = ("beers, reduced", "beers", "hospital", TYPOS)
N_DRAWS = 20
METRICS = ("ap", "f1")


def iterate_tables(raha: Path, n_draws: int) -> Iterator[tuple[str, int, DirtyTable]]:
    """Yield the name and draw of each table with the table; only typos have several draws."""
    beers = read_pair(raha, "beers")
    yield "beers, reduced", 0, beers.drop("ounces").remove_text("ibu", "N/A")
    yield "beers", 0, beers
    hospital = read_pair(raha, "hospital")
    yield "hospital", 0, hospital
    clean = DirtyTable.read(raha / "hospital" / "clean.csv", raha / "hospital" / "clean.csv")
    columns = np.flatnonzero(hospital.wrong.any(axis=0)).tolist()
    for draw in range(n_draws):
        yield TYPOS, draw, clean.write_typos(columns, int(hospital.wrong.sum()), draw)


def read_pair(raha: Path, name: str) -> DirtyTable:
    """Read the dirty and the clean file of a table."""
    return DirtyTable.read(raha / name / "dirty.csv", raha / name / "clean.csv")


def run_missing(path: Path, systems: list[str], raha: Path, n_draws: int) -> None:
    """Run all systems on tables without a record in a file, and append their records."""
    done = {(each["system"], each["table"], each["draw"]) for each in read_json_records(path)}
    for name, draw, table in iterate_tables(raha, n_draws):
        for system in systems:
            if (system, name, draw) not in done:
                found = measure_cells(table.wrong, score_cells(system, table.frame))
                key = {"system": system, "table": name, "draw": draw}
                append_json_record(path, key | {"n_wrong": int(table.wrong.sum())} | found)
                sys.stderr.write(f"{name} {draw} {system}\n")


def grid_rows(records: list[dict[str, Any]]) -> Iterator[list[str]]:
    """Yield a row for each system with average precision / F1 on each table."""
    counts = {each["table"]: each["n_wrong"] for each in records}
    tables = [table for table in TABLES if table in counts]
    yield ["AP / F1", *(f"{table} ({counts[table]})" for table in tables)]
    for system in CELL_SYSTEMS:
        own = [each for each in records if each["system"] == system]
        if own:
            yield [system, *(_format([r for r in own if r["table"] == t]) for t in tables)]


def _format(records: list[dict[str, Any]]) -> str:
    """Return means over draws, with the deviation of the first metric if there are several."""
    if not records:
        return "-"
    by_metric = {metric: [each[metric] for each in records] for metric in METRICS}
    text = " / ".join(f"{statistics.fmean(each):.3f}" for each in by_metric.values())
    return f"{text} ± {statistics.stdev(by_metric['f1']):.3f}" if len(records) > 1 else text


def select_systems(names: list[str]) -> list[str]:
    """Return the systems whose package is installed, and print a sentence on each other one."""
    missing = {n: CELL_SYSTEMS[n].package for n in names if CELL_SYSTEMS[n].package}
    missing = {name: each for name, each in missing.items() if find_spec(each) is None}
    for name, package in missing.items():
        sys.stderr.write(f"{name} is left out: the package {package} is not installed.\n")
    return [name for name in names if name not in missing]


def parse_arguments() -> argparse.Namespace:
    """Return the checked arguments; systems are lists of names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--raha", type=Path, default=RAHA)
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--systems", default="; ".join(CELL_SYSTEMS), help="default: %(default)s")
    parser.add_argument("--draws", type=int, default=N_DRAWS, help="default: %(default)s")
    parser.add_argument("--again", default="", help="systems whose records are removed first")
    parser.add_argument("--no-runs", action="store_true", help="only print the table")
    args = parser.parse_args()
    for name in ("systems", "again"):
        names = [each.strip() for each in getattr(args, name).split(";") if each.strip()]
        if unknown := set(names) - CELL_SYSTEMS.keys():
            parser.error(f"No system is called {', '.join(sorted(unknown))}.")
        setattr(args, name, names)
    if args.no_runs and args.again:
        parser.error("--no-runs keeps all records. Leave out --again.")
    return args


def main() -> None:
    """Run what is missing, and print the table."""
    args = parse_arguments()
    if args.again:
        kept = [r for r in read_json_records(args.records) if r["system"] not in args.again]
        replace_json_records(args.records, kept)
    if not args.no_runs:
        os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
        run_missing(args.records, select_systems(args.systems), args.raha, args.draws)
    sys.stdout.write(markdown_grid(list(grid_rows(read_json_records(args.records)))) + "\n")


if __name__ == "__main__":
    main()
