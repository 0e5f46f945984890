"""Accuracy of OutlierDetector and of other systems on tables with texts, dates and missing values.

    git worktree add ../altbi-0.1 0bbe92d
    python bench/scripts/mixed.py --old ../altbi-0.1/src     run what is missing, print the tables
    python bench/scripts/mixed.py --no-runs                  print the tables of the records
    python bench/scripts/mixed.py --again OutlierDetector --systems OutlierDetector
                                                             run a changed system again
    python bench/scripts/mixed.py --candidate FILE           compare a changed OutlierDetector

All systems fit and score the same rows without labels, at most 5,000 of each table. Records are
appended to bench/results/mixed.jsonl, and existing ones are not run again. Tables are read from
../shared/mixed, or from --mixed. Values are means over seeds; ± is the standard error of a paired
difference. Two systems need a package that the benchmark does not install: isotree, outliertree.
"""

import argparse
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from altbi_bench.mixed.jobs import get_key, list_mixed_jobs, run_mixed_jobs
from altbi_bench.mixed.systems import OLD, OURS, ROW_SYSTEMS, find_missing_packages
from altbi_bench.mixed.tables import list_mixed_tables
from altbi_bench.runs.json_records import (
    append_json_record,
    read_json_records,
    replace_json_records,
)
from altbi_bench.tables.grids import markdown_grid
from altbi_bench.tables.pools import Difference

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "bench" / "results" / "mixed.jsonl"
MIXED = ROOT.parent / "shared" / "mixed"
CANDIDATE = "candidate"
METRICS = ("auc", "ap")
# In the names of tables that are made from raha's, whose outliers are rows with wrong values.
RAHA = ("beers", "hospital")
SEEDS = 3
# Seconds that a job may take.
LIMIT = 600

# Metrics by system and table: means over seeds.
Values = dict[str, dict[str, dict[str, float]]]


def collect_values(records: Sequence[dict[str, Any]]) -> Values:
    """Return the metrics of each system and table; tables where a seed failed are left out."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        found[record["system"]][record["table"]].append(record)
    return {
        system: {
            table: {metric: statistics.fmean(run[metric] for run in runs) for metric in METRICS}
            for table, runs in by_table.items()
            if not any("error" in run for run in runs)
        }
        for system, by_table in found.items()
    }


def list_known(values: Values) -> list[str]:
    """Return the systems with values, in their usual order."""
    return [name for name in [*ROW_SYSTEMS, CANDIDATE] if values.get(name)]


def format_pair(by_metric: dict[str, float]) -> str:
    """Return AUC / average precision."""
    return " / ".join(f"{by_metric[metric]:.3f}" for metric in METRICS)


def leave_out_raha(values: Values) -> Values:
    """Return the values on tables that are not made from raha's."""
    return {
        system: {
            table: each for table, each in by_table.items() if not any(n in table for n in RAHA)
        }
        for system, by_table in values.items()
    }


def system_rows(values: Values, title: str = "") -> Iterator[list[str]]:
    """Yield a row for each system, with its means and its differences to `OURS`."""
    yield [title, "tables", "AUC / average precision", f"AUC - {OURS}", f"precision - {OURS}"]
    ours = values.get(OURS, {})
    for name in list_known(values):
        own = values[name]
        means = {m: statistics.fmean(each[m] for each in own.values()) for m in METRICS}
        differences = [
            str(Difference.of([own[t][m] - ours[t][m] for t in own if t in ours])) for m in METRICS
        ]
        if name == OURS:
            differences = [""] * len(METRICS)
        yield [name, str(len(own)), format_pair(means), *differences]


def table_rows(values: Values) -> Iterator[list[str]]:
    """Yield a row for each table, with AUC / average precision of all systems."""
    names = list_known(values)
    yield ["", *names]
    for table in sorted({table for name in names for table in values[name]}):
        found = [values[name].get(table) for name in names]
        yield [table, *("-" if each is None else format_pair(each) for each in found)]


def format_failures(records: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a sentence for each failed run."""
    for record in records:
        if "error" in record:
            yield f"{record['system']} failed on {record['table']}: {record['error']}."


def select_systems(names: Sequence[str]) -> list[str]:
    """Return the systems whose packages are installed, and print a sentence on each other one."""
    missing = find_missing_packages(names)
    for name, package in missing.items():
        sys.stderr.write(f"{name} is left out: the package {package} is not installed.\n")
    return [name for name in names if name not in missing]


def run_missing(path: Path, systems: Sequence[str], args: argparse.Namespace) -> None:
    """Run all jobs without a record in a file, and append a record of each."""
    os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
    jobs = list_mixed_jobs(
        list_mixed_tables(args.mixed),
        select_systems(systems),
        n_seeds=args.seeds,
        done={get_key(record) for record in read_json_records(path)},
        old=None if args.old is None else args.old.resolve(),
    )
    sys.stderr.write(f"{len(jobs)} jobs\n")
    for record in run_mixed_jobs(jobs, seconds=LIMIT):
        append_json_record(path, record)


def parse_arguments() -> argparse.Namespace:
    """Return the checked arguments; systems are lists of names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--old", type=Path, help="sources of version 0.1")
    parser.add_argument("--mixed", type=Path, default=MIXED)
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--systems", default="; ".join(ROW_SYSTEMS), help="default: %(default)s")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="default: %(default)s")
    parser.add_argument("--again", default="", help="systems whose records are removed first")
    parser.add_argument("--no-runs", action="store_true", help="only print the tables")
    parser.add_argument("--candidate", type=Path, help="records of a changed OutlierDetector")
    args = parser.parse_args()
    for name in ("systems", "again"):
        names = [each.strip() for each in getattr(args, name).split(";") if each.strip()]
        if unknown := set(names) - ROW_SYSTEMS.keys():
            parser.error(f"No system is called {', '.join(sorted(unknown))}.")
        setattr(args, name, names)
    if args.no_runs and args.again:
        parser.error("--no-runs keeps all records. Leave out --again.")
    if not (args.no_runs or args.candidate) and args.old is None and OLD in args.systems:
        parser.error("--old is missing: the sources of version 0.1")
    return args


def run_requested(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Run what the arguments request, and return all records."""
    if args.candidate:
        if not args.no_runs:
            run_missing(args.candidate, [OURS], args)
        candidate = [each | {"system": CANDIDATE} for each in read_json_records(args.candidate)]
        return [*read_json_records(args.records), *candidate]
    if args.again:
        records = read_json_records(args.records)
        replace_json_records(args.records, [r for r in records if r["system"] not in args.again])
    if not args.no_runs:
        run_missing(args.records, args.systems, args)
    return read_json_records(args.records)


def main() -> None:
    """Run what is missing, and print the tables."""
    records = run_requested(parse_arguments())
    values = collect_values(records)
    others = system_rows(leave_out_raha(values), "without raha's tables")
    tables = [system_rows(values), others, table_rows(values)]
    grids = [markdown_grid(list(rows)) for rows in tables]
    sys.stdout.write("\n\n".join([*grids, *format_failures(records)]) + "\n")


if __name__ == "__main__":
    main()
