"""Seconds of a fit, compared with another version of the sources in one run.

    git worktree add ../altbi-0.1 0bbe92d
    python benchmarks/fitting.py --source ../altbi-0.1/src
    python benchmarks/fitting.py --source ../altbi-0.1/src --tables internetads --rounds 1

A table is generated ("1000x10"), or one of ADBench by its name. Both versions run in turn, each in
its own process after a short fit to warm up, and the fastest of the rounds counts.
"""

import argparse
import json
import os
import sys
import time
from operator import attrgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from measuring import describe_machine, run_command

HERE = Path(__file__).resolve().parents[1] / "src"
# Names of each detector in this version and in version 0.1.
DETECTORS = {"OutlierDetector": ("OutlierDetector", "ALTBI"), "ALTBI": ("ALTBI", "ALTBI.reference")}


def load_table(name: str) -> NDArray[np.float64]:
    """Return a table of ADBench, or normal rows of a size such as "1000x10"."""
    rows, _, columns = name.partition("x")
    if rows.isdecimal() and columns.isdecimal():
        return np.random.default_rng(0).normal(size=(int(rows), int(columns)))
    from altbi_bench.catalogue.datasets import load, select

    (dataset,) = (each for each in select() if each.name == name)
    return load(dataset.files[0])[0].astype(np.float64)


def measure_fit(detector: str, table: str) -> float:
    """Return the seconds of one fit, after a fit on few rows to warm up."""
    import altbi

    create, X = attrgetter(detector)(altbi), load_table(table)
    create().fit(np.random.default_rng(0).normal(size=(50, 3)))
    start = time.perf_counter()
    create().fit(X)
    return time.perf_counter() - start


def measure_in_process(source: Path, detector: str, table: str) -> float:
    """Return the seconds of a fit with the sources in a folder, measured in a new process."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(source), str(Path(__file__).parent)])
    _, _, output = run_command(sys.executable, __file__, "--one", detector, table)
    return float(json.loads(output))


def main() -> None:
    """Print one Markdown table; a ratio below 1 means that this version is faster."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, help="sources of version 0.1")
    parser.add_argument("--tables", default="1000x10,internetads", help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        sys.stdout.write(json.dumps(measure_fit(*args.one)))
        return
    if args.source is None:
        parser.error("--source is missing: the sources of version 0.1")

    sys.stdout.write(f"{describe_machine('numpy')}\n\n")
    sys.stdout.write("| table | detector | 0.1, seconds | this version | ratio |\n")
    sys.stdout.write("| --- | --- | ---: | ---: | ---: |\n")
    for table in args.tables.split(","):
        for detector, (this_name, other_name) in DETECTORS.items():
            pairs = (HERE, this_name), (args.source.resolve(), other_name)
            rounds = [
                [measure_in_process(source, name, table) for source, name in pairs]
                for _ in range(args.rounds)
            ]
            this, other = np.min(rounds, axis=0)
            sys.stdout.write(
                f"| {table} | {detector} | {other:.2f} | {this:.2f} | {this / other:.2f} |\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
