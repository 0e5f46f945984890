"""How many injected errors of each kind are among the rows with the highest scores.

    git worktree add ../altbi-0.1 0bbe92d
    python bench/scripts/injected_errors.py --old ../altbi-0.1/src   run what is missing, print
    python bench/scripts/injected_errors.py --no-runs                print the tables of the records
    python bench/scripts/injected_errors.py --again OutlierDetector --systems OutlierDetector
                                                                     run a changed system again
    python bench/scripts/injected_errors.py --lists                  run missing lists of duplicates

Into at most 6,000 rows of four tables, 15 errors of each kind that the table admits are written,
each into a row of its own. All systems fit and score the same rows. A row is found if it is among
the n or 2 n rows with the highest scores, where n is the number of erroneous rows; rows with equal
scores count with their probability. Records are appended to bench/results/injected_errors.jsonl,
and those of the lists of duplicates to injected_duplicates.jsonl.
Tables are read from ../shared/mixed, or from --mixed; payments are generated.
"""

import argparse
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi_bench.mixed.duplicates import COPIES, count_listed, list_duplicates
from altbi_bench.mixed.errors import ERROR_PLANS, KINDS, Injected, inject_errors
from altbi_bench.mixed.payments import build_payments
from altbi_bench.mixed.ranking import compute_top_weights
from altbi_bench.mixed.systems import OLD, OURS, ROW_SYSTEMS, score_rows
from altbi_bench.mixed.tables import MixedTable
from altbi_bench.runs.json_records import (
    append_json_record,
    read_json_records,
    replace_json_records,
)
from altbi_bench.tables.grids import markdown_grid

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "bench" / "results" / "injected_errors.jsonl"
LISTS = ROOT / "bench" / "results" / "injected_duplicates.jsonl"
MIXED = ROOT.parent / "shared" / "mixed"
SYSTEMS = (OURS, OLD, "IForest, frequency codes", "ECOD, frequency codes", "kNN 32, one-hot")
MAX_ROWS = 6_000
N_DRAWS = 5
# The errors are searched in n and in 2 n rows.
FACTORS = (1, 2)
ALL = "all kinds"

Record = dict[str, Any]


def load_frame(name: str, mixed: Path, draw: int) -> pa.Table:
    """Return the rows of a table without labels; the draw samples or generates them."""
    if name == "payments":
        return build_payments(draw, MAX_ROWS)
    return MixedTable(name, mixed / f"{name}.parquet").load(MAX_ROWS, draw)[0]


def count_found(injected: Injected, scores: NDArray[np.float64]) -> dict[str, list[float]]:
    """Return for each kind the expected number of errors in the top n and 2 n rows."""
    tops = [compute_top_weights(scores, factor * injected.n_errors) for factor in FACTORS]
    return {
        kind: [round(float(top[rows].sum()), 3) for top in tops]
        for kind, rows in injected.rows.items()
    }


def run_missing(path: Path, systems: Iterable[str], args: argparse.Namespace) -> None:
    """Run all draws, tables and systems without a record in a file, and append their records."""
    done = {(each["system"], each["table"], each["draw"]) for each in read_json_records(path)}
    old = None if args.old is None else args.old.resolve()
    for draw in range(args.draws):
        for name, plan in ERROR_PLANS.items():
            missing = [system for system in systems if (system, name, draw) not in done]
            if not missing:
                continue
            injected = inject_errors(load_frame(name, args.mixed, draw), plan, draw)
            for system in missing:
                scores = score_rows(system, injected.frame, draw, old)
                found = count_found(injected, scores)
                sizes = {kind: len(rows) for kind, rows in injected.rows.items()}
                key = {"system": system, "table": name, "draw": draw}
                append_json_record(path, key | {"found": found, "sizes": sizes})
                sys.stderr.write(f"{draw} {name} {system}\n")


def run_lists(path: Path, args: argparse.Namespace) -> None:
    """List the duplicates of all draws and tables without a record, and append their records."""
    done = {(each["table"], each["draw"]) for each in read_json_records(path)}
    for draw in range(args.draws):
        for name, plan in ERROR_PLANS.items():
            if (name, draw) not in done:
                injected = inject_errors(load_frame(name, args.mixed, draw), plan, draw)
                found = count_listed(injected, list_duplicates(injected.frame, draw))
                append_json_record(path, {"table": name, "draw": draw, **found})
                sys.stderr.write(f"{draw} {name} duplicates\n")


def count_lists(records: list[Record], lists: list[Record]) -> list[Record]:
    """Return records of our system in which copies are found if the list of duplicates has them.

    Only tables and draws with a record of the list are returned.
    """
    found = {(each["table"], each["draw"]): each["found"] for each in lists}
    own = [each for each in records if each["system"] == OURS]
    return [
        each | {"found": each["found"] | {COPIES: [found[each["table"], each["draw"]]] * 2}}
        for each in own
        if (each["table"], each["draw"]) in found
    ]


def list_rows(records: list[Record], lists: list[Record]) -> Iterator[list[str]]:
    """Yield a row for each table about the list of duplicates: copies found, rows, other rows.

    Rows of the list are given per draw. The last row has the share of all errors found if copies
    count as found in the list.
    """
    yield ["duplicates.csv", "copies found", "rows listed", "without injected errors"]
    for table in ERROR_PLANS:
        own = [each for each in lists if each["table"] == table]
        if own:
            found, copies = (sum(each[name] for each in own) for name in ("found", "copies"))
            listed = statistics.fmean(each["listed"] for each in own)
            others = statistics.fmean(each["not_injected"] for each in own)
            yield [table, f"{found} of {copies}", f"{listed:.0f}", f"{others:.0f}"]
    shares = compute_shares(count_lists(records, lists))
    yield ["all kinds, in n / 2 n rows and the list", _format(shares.get(ALL)), "", ""]


def compute_shares(records: Iterable[Record]) -> dict[str, tuple[float, ...]]:
    """Return for each kind, and for all, the shares found in the top n and 2 n rows, in percent."""
    found: dict[str, list[list[float]]] = defaultdict(list)
    sizes: dict[str, list[int]] = defaultdict(list)
    for record in records:
        for kind, counts in record["found"].items():
            for name in (kind, ALL):
                found[name].append(counts)
                sizes[name].append(record["sizes"][kind])
    return {
        kind: tuple(100 * sum(each) / sum(sizes[kind]) for each in zip(*counts, strict=True))
        for kind, counts in found.items()
    }


def grid_rows(records: list[Record], table: str | None) -> Iterator[list[str]]:
    """Yield a row for each kind of error with the shares that systems find; None: all tables."""
    chosen = [each for each in records if table in (None, each["table"])]
    systems = [name for name in ROW_SYSTEMS if any(each["system"] == name for each in chosen)]
    shares = {name: compute_shares(r for r in chosen if r["system"] == name) for name in systems}
    yield [table or "all tables", *systems]
    for kind in [*KINDS, ALL]:
        if any(kind in each for each in shares.values()):
            yield [kind, *(_format(shares[name].get(kind)) for name in systems)]


def _format(shares: tuple[float, ...] | None) -> str:
    return "-" if shares is None else " / ".join(f"{each:.0f}" for each in shares)


def draw_rows(records: list[Record]) -> Iterator[list[str]]:
    """Yield for each system the shares found of all kinds, with the deviation over draws."""
    yield ["", "draws", "top n", "top 2 n"]
    for name in ROW_SYSTEMS:
        own = [each for each in records if each["system"] == name]
        draws = sorted({each["draw"] for each in own})
        if not own:
            continue
        by_draw = [compute_shares(r for r in own if r["draw"] == draw)[ALL] for draw in draws]
        yield [name, str(len(draws)), *map(_describe, zip(*by_draw, strict=True))]


def _describe(shares: tuple[float, ...]) -> str:
    deviation = statistics.stdev(shares) if len(shares) > 1 else 0.0
    return f"{statistics.fmean(shares):.1f} ± {deviation:.1f}"


def parse_arguments() -> argparse.Namespace:
    """Return the checked arguments; systems are lists of names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--old", type=Path, help="sources of version 0.1")
    parser.add_argument("--mixed", type=Path, default=MIXED)
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--systems", default="; ".join(SYSTEMS), help="default: %(default)s")
    parser.add_argument("--draws", type=int, default=N_DRAWS, help="default: %(default)s")
    parser.add_argument("--again", default="", help="systems whose records are removed first")
    parser.add_argument("--lists", action="store_true", help="only run lists of duplicates")
    parser.add_argument("--no-runs", action="store_true", help="only print the tables")
    args = parser.parse_args()
    for name in ("systems", "again"):
        names = [each.strip() for each in getattr(args, name).split(";") if each.strip()]
        if unknown := set(names) - ROW_SYSTEMS.keys():
            parser.error(f"No system is called {', '.join(sorted(unknown))}.")
        setattr(args, name, names)
    if args.no_runs and args.again:
        parser.error("--no-runs keeps all records. Leave out --again.")
    if args.lists:
        args.systems = []
    if not args.no_runs and args.old is None and OLD in args.systems:
        parser.error("--old is missing: the sources of version 0.1")
    return args


def main() -> None:
    """Run what is missing, and print the tables."""
    args = parse_arguments()
    if args.again:
        kept = [r for r in read_json_records(args.records) if r["system"] not in args.again]
        replace_json_records(args.records, kept)
    if not args.no_runs:
        os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
        run_lists(LISTS, args) if args.lists else run_missing(args.records, args.systems, args)
    records = read_json_records(args.records)
    lists = list_rows(records, read_json_records(LISTS))
    grids = [
        draw_rows(records),
        lists,
        *(grid_rows(records, table) for table in (None, *ERROR_PLANS)),
    ]
    sys.stdout.write("\n\n".join(markdown_grid(list(rows)) for rows in grids) + "\n")


if __name__ == "__main__":
    main()
