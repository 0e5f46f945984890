"""Accuracy of OutlierDetector and of other systems on four pools of tables.

    git worktree add ../altbi-0.1 0bbe92d
    python bench/scripts/pools.py --old ../altbi-0.1/src         run what is missing, print tables
    python bench/scripts/pools.py --no-runs                      print the tables of the records
    python bench/scripts/pools.py --no-runs --page PAGE          and write them to a page of docs
    python bench/scripts/pools.py --again OutlierDetector --systems OutlierDetector
                                                                 run a changed system again
    python bench/scripts/pools.py --list                         list the tables and their sizes
    python bench/scripts/pools.py --candidate FILE               compare a changed OutlierDetector

All systems fit and score identical rows without labels. Records are appended to
bench/results/pools.jsonl, and existing ones are not run again. OddBench and OvRBench are read from
../shared/oddbench, or from --oddbench. docs/benchmark/pools.md describes pools and halves.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from altbi_bench.catalogue.pools import (
    CONFIRM,
    HALVES,
    SELECT,
    PoolTable,
    is_in_half,
    list_tables,
    load_pool_table,
)
from altbi_bench.runs.json_records import (
    append_json_record,
    read_json_records,
    replace_json_records,
)
from altbi_bench.runs.pools import OLD, OURS, POOL_SYSTEMS, get_key, list_jobs, run_pool_jobs
from altbi_bench.tables.grids import markdown_grid, plain_grid
from altbi_bench.tables.pools import (
    CANDIDATE,
    PoolScores,
    apply_rule,
    left_out_rows,
    metric_rows,
    slow_rows,
)

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "bench" / "results" / "pools.jsonl"
ODDBENCH = ROOT.parent / "shared" / "oddbench"
SEEDS = 3
# Seconds that a job may take.
LIMIT = 1_200
MARKS = ("<!-- tables of pools.py -->", "<!-- end of tables -->")
METRICS = {"AUC": "auc", "Average precision": "ap"}


def remove_records(systems: list[str], *, failed: bool) -> None:
    """Remove the records of some systems, and those of all failed runs if `failed`."""
    kept = [
        record
        for record in read_json_records(RECORDS)
        if record["system"] not in systems and not (failed and "error" in record)
    ]
    replace_json_records(RECORDS, kept)


def run_missing(
    path: Path, tables: list[PoolTable], systems: list[str], n_seeds: int, old: Path | None = None
) -> None:
    """Run all jobs without a record in a file, and append a record of each."""
    os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
    done = {get_key(record) for record in read_json_records(path)}
    with tempfile.TemporaryDirectory() as folder:
        jobs = list_jobs(
            tables,
            Path(folder),
            systems=systems,
            n_seeds=n_seeds,
            done=done,
            old=None if old is None else old.resolve(),
        )
        sys.stderr.write(f"{len(jobs)} jobs\n")
        for record in run_pool_jobs(jobs, seconds=LIMIT):
            append_json_record(path, record)


def compare_candidate(path: Path, oddbench: Path, n_seeds: int) -> Iterator[str]:
    """Run OutlierDetector on the select pools only, and yield its tables and the rule's verdict.

    Its records are in a file of their own. The other systems, and the earlier OutlierDetector, have
    those of `RECORDS`.
    """
    tables = [each for each in list_tables(oddbench) if is_in_half(each.pool, each.half, SELECT)]
    run_missing(path, tables, [OURS], n_seeds)
    candidate = [record | {"system": CANDIDATE} for record in read_json_records(path)]
    records = [*read_json_records(RECORDS), *candidate]
    for title, metric in METRICS.items():
        scores = PoolScores(records, metric, SELECT)
        yield f"{title}, half: {SELECT}\n\n{markdown_grid(metric_rows(scores))}"
        yield f"{title}: {apply_rule(scores)}"


def format_tables(records: list[dict[str, Any]], half: str) -> Iterator[str]:
    """Yield a title and a Markdown table for each metric, for slow systems, and for failures."""
    scores = {metric: PoolScores(records, metric, half) for metric in METRICS.values()}
    for title, metric in METRICS.items():
        yield f"{title}, half: {half}\n\n{markdown_grid(metric_rows(scores[metric]))}"
    slow = markdown_grid(slow_rows([scores["auc"], scores["ap"]]))
    yield f"Slow systems, on tables selected by hash\n\n{slow}"
    rows = left_out_rows(scores["auc"])
    yield f"Tables that are left out\n\n{markdown_grid(rows) if len(rows) > 1 else 'none'}"


def write_page(page: Path, tables: str) -> None:
    """Replace the text between the two marks of a page by tables, below their command."""
    before, rest = page.read_text(encoding="utf-8").split(MARKS[0])
    _, after = rest.split(MARKS[1])
    command = "    python bench/scripts/pools.py --no-runs   # prints bench/results/pools.jsonl"
    text = f"{before}{MARKS[0]}\n\n{command}\n\n{tables}\n\n{MARKS[1]}{after}"
    page.write_text(text, encoding="utf-8")


def list_sizes(oddbench: Path) -> list[list[str]]:
    """Return a grid of all tables with their halves, sizes and outliers."""
    rows = [["pool", "half", "table", "rows", "columns", "outliers"]]
    for table in list_tables(oddbench):
        X, y = load_pool_table(table)
        rows.append([table.pool, table.half, table.name, *map(str, (*X.shape, y.sum()))])
    return rows


def main() -> None:
    """Run what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--old", type=Path, help="sources of version 0.1")
    parser.add_argument("--oddbench", type=Path, default=ODDBENCH)
    parser.add_argument("--systems", default=",".join(POOL_SYSTEMS), help="default: %(default)s")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="default: %(default)s")
    parser.add_argument("--again", default="", help="systems whose records are removed first")
    parser.add_argument("--retry", action="store_true", help="remove records of failed runs first")
    parser.add_argument("--half", choices=HALVES, default=CONFIRM, help="default: %(default)s")
    parser.add_argument("--no-runs", action="store_true", help="only print the tables")
    parser.add_argument("--page", type=Path, help="page of the docs to write the tables to")
    parser.add_argument("--list", action="store_true", help="only list the pools' tables")
    parser.add_argument("--candidate", type=Path, help="records of a changed OutlierDetector")
    args = parser.parse_args()
    if args.list:
        output = [plain_grid(list_sizes(args.oddbench))]
    elif args.candidate:
        output = list(compare_candidate(args.candidate, args.oddbench, args.seeds))
    else:
        run_requested(parser, args)
        output = list(format_tables(read_json_records(RECORDS), args.half))
        if args.page:
            write_page(args.page, "\n\n".join(output))
    sys.stdout.write("\n\n".join(output) + "\n")


def run_requested(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Check the arguments and run what is missing; with --no-runs, nothing is run."""
    systems, again = args.systems.split(","), [name for name in args.again.split(",") if name]
    if unknown := {*systems, *again} - POOL_SYSTEMS.keys():
        parser.error(f"No system is called {', '.join(sorted(unknown))}.")
    if args.no_runs and (again or args.retry):
        parser.error("--no-runs keeps all records. Leave out --again and --retry.")
    if args.no_runs:
        return
    if args.old is None and OLD in systems:
        parser.error("--old is missing: the sources of version 0.1")
    remove_records(again, failed=args.retry)
    run_missing(RECORDS, list_tables(args.oddbench), systems, args.seeds, args.old)


if __name__ == "__main__":
    main()
