"""Accuracy of this version and of another one on the same tables, and their paired differences.

    git worktree add ../altbi-0.1 0bbe92d
    python bench/scripts/versions.py --source ../altbi-0.1/src    run what is missing
    python bench/scripts/versions.py --no-runs                    print the table of the records

The tables are those of ADBench at hand (at most 10,000 rows), and 100 of OddBench and OvRBench
that a hash of the name draws. OddBench is read from ../shared/oddbench, or from --oddbench. Each
table is fitted and scored without labels, with three seeds. Records are appended to
bench/results/versions.jsonl, and existing ones are not run again.
"""

import argparse
import hashlib
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from altbi_bench.catalogue.datasets import is_available, load, select
from altbi_bench.runs.json_records import append_json_record, read_json_records
from altbi_bench.runs.other_version import VersionProcess
from altbi_bench.tables.grids import markdown_grid

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "bench" / "results" / "versions.jsonl"
ODDBENCH = ROOT.parent / "shared" / "oddbench"
N_ODDBENCH = 100
MAX_ROWS = 10_000
SEEDS = 3
POOLS = ("ADBench", "OddBench")
# Names of each system in the two versions.
SYSTEMS = {
    "OutlierDetector": ("OutlierDetector", "ALTBI"),
    "ALTBI": ("ALTBI", "ALTBI.reference"),
    "ODIM": ("ODIM", "ODIM"),
}
THIS, OTHER = "this", "other"
Record = dict[str, object]
Key = tuple[object, ...]
Result = TypeVar("Result")


def write_tables(folder: Path, oddbench: Path) -> Iterator[tuple[str, str, Path]]:
    """Write all tables as npz files, and yield the pool, name and path of each."""
    for dataset in select():
        if not is_available(dataset):
            continue
        X, y = load(dataset.files[0])
        yield "ADBench", dataset.name, write_table(folder / f"{dataset.name}.npz", X, y)
    files = sorted(oddbench.glob("*/*.npz"), key=lambda file: hash_name(file.stem))
    for file in files[:N_ODDBENCH]:
        with np.load(file) as arrays:
            X, y = arrays["X"], arrays["y"]
        yield "OddBench", file.stem, write_table(folder / f"odd-{file.stem}.npz", X, y)


def hash_name(name: str) -> str:
    """Return a digest that draws tables at random, but always the same ones."""
    return hashlib.sha256(f"versions {name}".encode()).hexdigest()


def write_table(path: Path, X: NDArray[np.floating], y: NDArray[np.integer]) -> Path:
    """Write a table, of which at most `MAX_ROWS` rows are sampled."""
    rows = np.random.default_rng(0).permutation(len(X))[:MAX_ROWS]
    np.savez(path, X=X[np.sort(rows)], y=y[np.sort(rows)])
    return path


def get_key(record: Record) -> Key:
    """Return what identifies a run."""
    return tuple(record[name] for name in ("version", "system", "pool", "table", "seed"))


def run_missing(
    source: Path, oddbench: Path, systems: list[str], pools: list[str], seeds: int
) -> None:
    """Run all missing jobs, those of each version in a process of its own at the same time."""
    done = {get_key(record) for record in read_json_records(RECORDS)}
    sources = {THIS: ROOT / "src", OTHER: source.resolve()}
    with tempfile.TemporaryDirectory() as folder:
        # The largest tables come last, so that records of an interrupted run cover most tables.
        tables = sorted(write_tables(Path(folder), oddbench), key=lambda t: t[2].stat().st_size)
        jobs: dict[str, list[Record]] = {THIS: [], OTHER: []}
        for system in systems:
            for pool, table, path in (each for each in tables if each[0] in pools):
                for seed in range(seeds):
                    for version, detector in zip(sources, SYSTEMS[system], strict=True):
                        job = {"version": version, "system": system, "pool": pool, "table": table}
                        job |= {"seed": seed, "path": str(path), "detector": detector}
                        if get_key(job) not in done:
                            jobs[version].append(job)
        run_both(lambda version: run_jobs(sources[version], jobs[version]))


def run_both(function: Callable[[str], Result]) -> dict[str, Result]:
    """Call a function for both versions at the same time, and return the results by version."""
    with ThreadPoolExecutor(2) as pool:
        return dict(zip((THIS, OTHER), pool.map(function, (THIS, OTHER)), strict=True))


def run_jobs(source: Path, jobs: list[Record]) -> None:
    """Run jobs with the sources of a version, and append a record of each."""
    for job, result in zip(jobs, measure_jobs(source, jobs), strict=True):
        kept = {name: value for name, value in job.items() if name not in ("path", "detector")}
        append_json_record(RECORDS, kept | result)


def measure_jobs(source: Path, jobs: list[Record]) -> Iterator[Record]:
    """Yield the accuracy of each job, measured one by one in a process of this version."""
    with VersionProcess(source) as process:
        for job in jobs:
            try:
                result = process.measure(job)
            except (RuntimeError, ChildProcessError) as cause:
                raise SystemExit(f"The run {job} failed: {cause}") from cause
            yield {name: result[name] for name in ("auc", "ap")}


def format_rows() -> Iterator[list[str]]:
    """Yield a row for each system and pool: means of both versions, and the paired difference."""
    by_key = {get_key(record): record for record in read_json_records(RECORDS)}
    for system in SYSTEMS:
        for pool in POOLS:
            found: dict[str, list[tuple[Record, Record]]] = {}
            for key, record in by_key.items():
                other = by_key.get((OTHER, *key[1:]))
                if key[:3] == (THIS, system, pool) and other is not None:
                    found.setdefault(str(record["table"]), []).append((record, other))
            if found:
                yield [system, pool, str(len(found)), *format_measures(found)]


def format_measures(found: dict[str, list[tuple[Record, Record]]]) -> Iterator[str]:
    """Yield both means and the paired difference with its standard error, for AUC and precision."""
    for measure in ("auc", "ap"):
        means = [
            [statistics.fmean(float(str(pair[side][measure])) for pair in pairs) for side in (0, 1)]
            for pairs in found.values()
        ]
        differences = [this - other for this, other in means]
        error = statistics.stdev(differences) / len(differences) ** 0.5
        yield f"{statistics.fmean(other for _, other in means):.4f}"
        yield f"{statistics.fmean(this for this, _ in means):.4f}"
        yield f"{statistics.fmean(differences):+.4f} ± {error:.4f}"


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, help="sources of the other version")
    parser.add_argument("--oddbench", type=Path, default=ODDBENCH)
    parser.add_argument("--systems", default="OutlierDetector,ALTBI", help="default: %(default)s")
    parser.add_argument("--pools", default=",".join(POOLS), help="default: %(default)s")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="default: %(default)s")
    parser.add_argument("--no-runs", action="store_true", help="only print the table")
    args = parser.parse_args()
    if not args.no_runs:
        if args.source is None:
            parser.error("--source is missing: the sources of the other version")
        run_missing(
            args.source, args.oddbench, args.systems.split(","), args.pools.split(","), args.seeds
        )
    head = ["system", "pool", "tables", "AUC before", "now", "difference"]
    head += ["precision before", "now", "difference"]
    sys.stdout.write(markdown_grid([head, *format_rows()]) + "\n")


if __name__ == "__main__":
    main()
