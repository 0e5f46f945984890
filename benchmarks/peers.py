"""Comparison with common alternatives: fit and score 10^3 to 10^7 rows of ten columns.

    python benchmarks/peers.py             run jobs without a record, print the tables
    python benchmarks/peers.py --no-runs   print the tables of the existing records

Each system, with its default parameters, gets the same rows in a process of its own. After a
warm-up on a small table it is fitted and scores the rows of the fit; PyOD's detectors have these
scores from their fit. Short runs are repeated, and the median counts; imports do not. Systems that
exceed the limit of time or memory are not run on more rows. The script reads /proc, so it needs
Linux.
"""

import argparse
import importlib
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise, product
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from altbi_bench.runs.json_records import append_json_record, read_json_records
from altbi_bench.tables.grids import markdown_grid
from measuring import COLUMNS, Record, describe_machine, generate_rows, peak_memory

RECORDS = Path(__file__).parent / "results" / "peers.jsonl"
ROWS = "1e3,3e3,1e4,3e4,1e5,3e5,1e6,3e6,1e7"
WARM_UP = 200
MAX_RUNS, MAX_REPEAT_SECONDS = 3, 10
MAX_PREPARATION_SECONDS = 600
MIN_LARGE = 100_000
# Its name in records.
OURS = "OutlierDetector()"
PACKAGES = ("altbi", "torch", "scikit-learn", "pyod", "numpy")

Rows = NDArray[np.float64]
Seconds = dict[int, float]  # by the number of rows
Records = dict[tuple[str, int], Record]


@dataclass(frozen=True, slots=True)
class Peer:
    """A detector, and the method or attribute with the scores of the rows of the fit."""

    module: str
    name: str
    scores: str
    parameters: dict[str, Any] = field(default_factory=dict)

    def load_class(self) -> Callable[..., Any]:
        """Import and return the class."""
        return getattr(importlib.import_module(self.module), self.name)

    def run(self, X: Rows) -> tuple[float, float]:
        """Return the seconds of fit and of scoring."""
        detector, start = self.load_class()(**self.parameters), time.perf_counter()
        detector.fit(X)
        fitted = time.perf_counter()
        found = getattr(detector, self.scores)
        scores = found(X) if callable(found) else found
        seconds = fitted - start, time.perf_counter() - fitted
        if len(scores) != len(X) or not np.isfinite(scores).all():
            raise ValueError(f"{self.name} returned scores that are not finite")
        return seconds


def pyod(module: str, name: str, **parameters: object) -> Peer:
    """Return one of PyOD's detectors."""
    return Peer(f"pyod.models.{module}", name, "decision_scores_", parameters)


PEERS = {
    OURS: Peer("altbi", "OutlierDetector", "score_samples"),
    "IsolationForest": Peer("sklearn.ensemble", "IsolationForest", "score_samples"),
    "ECOD": pyod("ecod", "ECOD"),
    "KNN": pyod("knn", "KNN"),
    "LOF": pyod("lof", "LOF"),
    "OCSVM": pyod("ocsvm", "OCSVM"),
    "VAE": pyod("vae", "VAE", verbose=0),
    "DeepSVDD": pyod("deep_svdd", "DeepSVDD", n_features=COLUMNS, verbose=0),
}


def measure_in_child(connection: Connection, name: str, n_rows: int) -> None:
    """Measure one system; sends None when it starts, then the result."""
    sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - until the process ends
    peer, X, start = PEERS[name], np.empty((n_rows, COLUMNS)), 0
    for rows in generate_rows(n_rows):
        X[start : start + len(rows)] = rows
        start += len(rows)
    try:
        peer.run(next(generate_rows(WARM_UP, seed=1)))
        connection.send(None)
        runs = [peer.run(X)]
        while len(runs) < MAX_RUNS and sum(map(sum, runs)) < MAX_REPEAT_SECONDS:
            runs.append(peer.run(X))
    except Exception as error:  # noqa: BLE001 - a failure is recorded too
        connection.send({"error": f"{type(error).__name__}: {error}"[:200]})
        return
    fit, score = (statistics.median(times) for times in zip(*runs, strict=True))
    connection.send({"fit": fit, "score": score, "runs": len(runs), "peak": peak_memory()})


def measure(name: str, n_rows: int, seconds: float, gibibytes: float) -> Record:
    """Measure in a child process, and end it at the limits."""
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    arguments = (sender, name, n_rows)
    child = context.Process(target=measure_in_child, args=arguments, daemon=True)
    child.start()
    sender.close()
    try:
        found = wait_for_result(receiver, child.pid or 0, seconds, gibibytes)
    except EOFError:
        child.join()
        found = {"error": f"its process ended with exit code {child.exitcode}"}
    finally:
        child.kill()
        child.join()
    return {"system": name, "rows": n_rows, **found, "machine": describe_machine(*PACKAGES)}


def wait_for_result(receiver: Connection, pid: int, seconds: float, gibibytes: float) -> Record:
    """Return the result of a child process, or an error when it exceeds a limit."""
    deadline = time.monotonic() + MAX_PREPARATION_SECONDS
    while time.monotonic() < deadline:
        if receiver.poll(0.05):
            found = receiver.recv()
            if found is not None:
                return found
            deadline = time.monotonic() + seconds
        elif resident_memory(pid) > gibibytes * 2**30:
            return {"error": f"more than {gibibytes:g} GiB"}
    return {"error": f"more than {seconds:g} s"}


def resident_memory(pid: int) -> int:
    """Return the size of a process in bytes."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def fill(records: Records, args: argparse.Namespace) -> None:
    """Run jobs without a record, small tables first; failed systems get no larger tables."""
    for n_rows, name in product(args.rows, args.systems):
        if (name, n_rows) in records or find_failures(name, n_rows, records):
            continue
        record = measure(name, n_rows, args.seconds, args.gibibytes)
        records[name, n_rows] = record
        append_json_record(args.records, record)
        result = record["error"] if "error" in record else f"{total_seconds(record):.3g} s"
        sys.stderr.write(f"{n_rows:,} rows, {name}: {result}\n")


def find_failures(name: str, max_rows: int, records: Records) -> list[str]:
    """Return where and why a system failed, up to a number of rows."""
    return [
        f"{n_rows:,} rows: {record['error']}"
        for (system, n_rows), record in records.items()
        if system == name and n_rows <= max_rows and "error" in record
    ]


def total_seconds(record: Record) -> float:
    """Return the seconds of fit and scoring."""
    return record["fit"] + record["score"]


def fit_exponent(seconds: Seconds) -> float:
    """Return k of the fit ``seconds = c * rows ** k``."""
    return float(np.polyfit(np.log(list(seconds)), np.log(list(seconds.values())), 1)[0])


def find_crossings(theirs: Seconds, ours: Seconds) -> list[int]:
    """Return the numbers of rows at which two curves cross on logarithmic axes."""
    both = sorted(theirs.keys() & ours.keys())
    ratios = [(np.log(rows), np.log(theirs[rows] / ours[rows])) for rows in both]
    return [
        round(float(np.exp(x + (x_next - x) * ratio / (ratio - ratio_next))))
        for (x, ratio), (x_next, ratio_next) in pairwise(ratios)
        if (ratio < 0) != (ratio_next < 0)
    ]


def describe_comparison(name: str, seconds: dict[str, Seconds], records: Records) -> str:
    """Return a sentence on where a system is faster than ours."""
    theirs, ours = seconds[name], seconds.get(OURS, {})
    both = sorted(theirs.keys() & ours.keys())
    ends = find_failures(name, max(n_rows for _, n_rows in records), records)
    if not both:
        return "; ".join([f"- {name}: no rows in common with ours", *ends])
    found = [f"{rows:,}" for rows in find_crossings(theirs, ours)]
    first = "faster" if theirs[both[0]] < ours[both[0]] else "slower"
    until = f"crosses ours at {' and '.join(found)}" if found else f"so up to {both[-1]:,}"
    return "; ".join([f"- {name}: {first} at {both[0]:,} rows, {until}", *ends])


def format_grid(corner: str, rows: list[int], cells: dict[str, dict[int, str]]) -> str:
    """Format a table with a row for each system and a column for each number of rows."""
    head = [corner, *(f"{count:,}" for count in rows)]
    return markdown_grid(
        [head, *([name, *(found.get(n, "") for n in rows)] for name, found in cells.items())]
    )


def format_tables(records: Records) -> str:
    """Format seconds, ratios, memory and the comparison of the curves."""
    rows = sorted({count for _, count in records})
    names = [name for name in PEERS if any(name == system for system, _ in records)]
    complete = {key: record for key, record in records.items() if "error" not in record}
    seconds = {
        name: {n: total_seconds(complete[name, n]) for n in rows if (name, n) in complete}
        for name in names
    }
    ours = seconds.get(OURS, {})
    alone = {f"{OURS}, fit alone": {n: complete[OURS, n]["fit"] for n in ours}} if ours else {}
    ratios = {
        name: {n: f"{s / ours[n]:.2g}" for n, s in found.items() if n in ours}
        for name, found in seconds.items()
    }
    peaks = {
        name: {n: f"{complete[name, n]['peak'] / 2**20:,.0f}" for n in found}
        for name, found in seconds.items()
    }
    shown = {
        name: {n: f"{s:.3g}" if s < 100 else f"{s:,.0f}" for n, s in found.items()}
        for name, found in (alone | seconds).items()
    }
    texts = [
        *sorted({record["machine"] for record in records.values()}),
        format_grid("seconds", rows, shown),
        format_grid("seconds / ours", rows, ratios),
        format_grid("peak MiB", rows, peaks),
        "\n".join(describe_comparison(name, seconds, records) for name in names if name != OURS),
    ]
    large = [n for n in ours if n >= MIN_LARGE]
    if len(large) > 1:
        both = fit_exponent({n: ours[n] for n in large})
        scoring = fit_exponent({n: complete[OURS, n]["score"] for n in large})
        texts.append(
            f"From {MIN_LARGE:,} rows on our seconds grow as n^{both:.2f}, those of scoring alone "
            f"as n^{scoring:.2f}."
        )
    return "\n\n".join(texts)


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-runs", action="store_true", help="only print the tables")
    parser.add_argument("--rows", default=ROWS, help="default: %(default)s")
    parser.add_argument("--systems", default=",".join(PEERS), help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=600, help="limit of a run (%(default)s)")
    parser.add_argument("--gibibytes", type=float, default=12, help="limit of memory (%(default)s)")
    parser.add_argument("--records", type=Path, default=RECORDS)
    args = parser.parse_args()
    args.rows = sorted(int(float(count)) for count in args.rows.split(","))
    args.systems = args.systems.split(",")
    if unknown := set(args.systems) - set(PEERS):
        parser.error(f"unknown systems {', '.join(sorted(unknown))}; known: {', '.join(PEERS)}")
    return args


def main() -> None:
    """Run, and print the tables."""
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit("ended")
    )  # otherwise its child would continue
    args = parse_arguments()
    records = {(each["system"], each["rows"]): each for each in read_json_records(args.records)}
    if not args.no_runs:
        fill(records, args)
    sys.stdout.write(format_tables(records) + "\n")


if __name__ == "__main__":
    main()
