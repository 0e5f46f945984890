"""Fit and score, 10^3 to 10^7 rows of ten columns: ALTBI beside what people take otherwise.

    python benchmarks/peers.py             run what results/peers.jsonl lacks, print the tables
    python benchmarks/peers.py --no-runs   print the tables of the lines that are there

Each system, with its default settings, gets the same rows in a process of its own. After a small
table to warm up it is fitted and scores the rows it was fitted on; PyOD's detectors have these
scores from their fit. Short runs are repeated, and the median counts; imports do not. A system that
takes longer, or holds more memory, than it may is not asked for more rows. Reads /proc: for Linux.
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

from altbi_bench.runs.json_lines import append_json_line, read_json_lines
from altbi_bench.tables.grids import markdown_grid
from measuring import COLUMNS, Line, clusters, machine, peak

LINES = Path(__file__).parent / "results" / "peers.jsonl"
ROWS = "1e3,3e3,1e4,3e4,1e5,3e5,1e6,3e6,1e7"
WARM_UP = 200
RUNS, ENOUGH_SECONDS = 3, 10
PREPARING_SECONDS = 600
LARGE = 100_000
OURS = "ALTBI()"
PACKAGES = ("altbi", "torch", "scikit-learn", "pyod", "numpy")

Rows = NDArray[np.float64]
Seconds = dict[int, float]  # by the number of rows
Lines = dict[tuple[str, int], Line]


@dataclass(frozen=True, slots=True)
class Peer:
    """A detector, and what has the scores of the rows it was fitted on."""

    module: str
    name: str
    scores: str
    parameters: dict[str, Any] = field(default_factory=dict)

    def imported(self) -> Callable[..., Any]:
        """Give the class."""
        return getattr(importlib.import_module(self.module), self.name)

    def run(self, X: Rows) -> tuple[float, float]:
        """Seconds of fit and of scoring."""
        detector, start = self.imported()(**self.parameters), time.perf_counter()
        detector.fit(X)
        fitted = time.perf_counter()
        found = getattr(detector, self.scores)
        scores = found(X) if callable(found) else found
        seconds = fitted - start, time.perf_counter() - fitted
        if len(scores) != len(X) or not np.isfinite(scores).all():
            raise ValueError(f"{self.name} gave scores that are none")
        return seconds


def pyod(module: str, name: str, **parameters: object) -> Peer:
    """Name one of PyOD's detectors."""
    return Peer(f"pyod.models.{module}", name, "decision_scores_", parameters)


PEERS = {
    OURS: Peer("altbi", "ALTBI", "score_samples"),
    "IsolationForest": Peer("sklearn.ensemble", "IsolationForest", "score_samples"),
    "ECOD": pyod("ecod", "ECOD"),
    "KNN": pyod("knn", "KNN"),
    "LOF": pyod("lof", "LOF"),
    "OCSVM": pyod("ocsvm", "OCSVM"),
    "VAE": pyod("vae", "VAE", verbose=0),
    "DeepSVDD": pyod("deep_svdd", "DeepSVDD", n_features=COLUMNS, verbose=0),
}


def work(theirs: Connection, name: str, n_rows: int) -> None:
    """Measure one system; runs in the child. Tells when it begins, then what it found."""
    sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - until the process ends
    peer, X, start = PEERS[name], np.empty((n_rows, COLUMNS)), 0
    for rows in clusters(n_rows):
        X[start : start + len(rows)] = rows
        start += len(rows)
    try:
        peer.run(next(clusters(WARM_UP, seed=1)))
        theirs.send(None)
        runs = [peer.run(X)]
        while len(runs) < RUNS and sum(map(sum, runs)) < ENOUGH_SECONDS:
            runs.append(peer.run(X))
    except Exception as error:  # noqa: BLE001 - a failure is a line too
        theirs.send({"error": f"{type(error).__name__}: {error}"[:200]})
        return
    fit, score = (statistics.median(times) for times in zip(*runs, strict=True))
    theirs.send({"fit": fit, "score": score, "runs": len(runs), "peak": peak()})


def measured(name: str, n_rows: int, seconds: float, gibibytes: float) -> Line:
    """Let a child measure, and end it at the limits."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=work, args=(theirs, name, n_rows), daemon=True)
    child.start()
    theirs.close()
    try:
        found = watched(ours, child.pid or 0, seconds, gibibytes)
    except EOFError:
        child.join()
        found = {"error": f"its process ended with exit code {child.exitcode}"}
    finally:
        child.kill()
        child.join()
    return {"system": name, "rows": n_rows, **found, "machine": machine(*PACKAGES)}


def watched(ours: Connection, pid: int, seconds: float, gibibytes: float) -> Line:
    """Wait for the answer of a child, as long as it keeps within the limits."""
    deadline = time.monotonic() + PREPARING_SECONDS
    while time.monotonic() < deadline:
        if ours.poll(0.05):
            found = ours.recv()
            if found is not None:
                return found
            deadline = time.monotonic() + seconds
        elif resident(pid) > gibibytes * 2**30:
            return {"error": f"more than {gibibytes:g} GiB"}
    return {"error": f"more than {seconds:g} s"}


def resident(pid: int) -> int:
    """Size of a process in bytes."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def fill(lines: Lines, args: argparse.Namespace) -> None:
    """Run what is missing, small tables first; a system that failed is not asked for more."""
    for n_rows, name in product(args.rows, args.systems):
        if (name, n_rows) in lines or failures(name, n_rows, lines):
            continue
        line = measured(name, n_rows, args.seconds, args.gibibytes)
        lines[name, n_rows] = line
        append_json_line(args.lines, line)
        told = line["error"] if "error" in line else f"{total(line):.3g} s"
        sys.stderr.write(f"{n_rows:,} rows, {name}: {told}\n")


def failures(name: str, most: int, lines: Lines) -> list[str]:
    """Say where and why a system failed, up to so many rows."""
    return [
        f"{n_rows:,} rows: {line['error']}"
        for (who, n_rows), line in lines.items()
        if who == name and n_rows <= most and "error" in line
    ]


def total(line: Line) -> float:
    """Seconds of fit and scoring."""
    return line["fit"] + line["score"]


def exponent(seconds: Seconds) -> float:
    """Slope of seconds against rows, both as logarithms."""
    return float(np.polyfit(np.log(list(seconds)), np.log(list(seconds.values())), 1)[0])


def crossings(theirs: Seconds, ours: Seconds) -> list[int]:
    """Numbers of rows at which two lines cross, drawn on logarithmic axes."""
    both = sorted(theirs.keys() & ours.keys())
    gaps = [(np.log(rows), np.log(theirs[rows] / ours[rows])) for rows in both]
    return [
        round(float(np.exp(x + (x_next - x) * gap / (gap - gap_next))))
        for (x, gap), (x_next, gap_next) in pairwise(gaps)
        if (gap < 0) != (gap_next < 0)
    ]


def compared(name: str, seconds: dict[str, Seconds], lines: Lines) -> str:
    """Say in a sentence where a system is faster than ours."""
    theirs, ours = seconds[name], seconds.get(OURS, {})
    both = sorted(theirs.keys() & ours.keys())
    ends = failures(name, max(n_rows for _, n_rows in lines), lines)
    if not both:
        return "; ".join([f"- {name}: no rows in common with ours", *ends])
    found = [f"{rows:,}" for rows in crossings(theirs, ours)]
    first = "faster" if theirs[both[0]] < ours[both[0]] else "slower"
    until = f"crosses ours at {' and '.join(found)}" if found else f"so up to {both[-1]:,}"
    return "; ".join([f"- {name}: {first} at {both[0]:,} rows, {until}", *ends])


def grid(corner: str, rows: list[int], cells: dict[str, dict[int, str]]) -> str:
    """Write systems below each other, numbers of rows beside each other."""
    head = [corner, *(f"{count:,}" for count in rows)]
    return markdown_grid(
        [head, *([name, *(found.get(n, "") for n in rows)] for name, found in cells.items())]
    )


def tables(lines: Lines) -> str:
    """Seconds, ratios, memory, and how the lines run."""
    rows = sorted({count for _, count in lines})
    names = [name for name in PEERS if any(name == who for who, _ in lines)]
    whole = {key: line for key, line in lines.items() if "error" not in line}
    seconds = {
        name: {n: total(whole[name, n]) for n in rows if (name, n) in whole} for name in names
    }
    ours = seconds.get(OURS, {})
    alone = {f"{OURS}, fit alone": {n: whole[OURS, n]["fit"] for n in ours}} if ours else {}
    ratios = {
        name: {n: f"{s / ours[n]:.2g}" for n, s in found.items() if n in ours}
        for name, found in seconds.items()
    }
    peaks = {
        name: {n: f"{whole[name, n]['peak'] / 2**20:,.0f}" for n in found}
        for name, found in seconds.items()
    }
    shown = {
        name: {n: f"{s:.3g}" if s < 100 else f"{s:,.0f}" for n, s in found.items()}
        for name, found in (alone | seconds).items()
    }
    texts = [
        *sorted({line["machine"] for line in lines.values()}),
        grid("seconds", rows, shown),
        grid("seconds / ours", rows, ratios),
        grid("peak MiB", rows, peaks),
        "\n".join(compared(name, seconds, lines) for name in names if name != OURS),
    ]
    large = [n for n in ours if n >= LARGE]
    if len(large) > 1:
        both = exponent({n: ours[n] for n in large})
        scoring = exponent({n: whole[OURS, n]["score"] for n in large})
        texts.append(
            f"From {LARGE:,} rows on our seconds grow as n^{both:.2f}, those of scoring alone as "
            f"n^{scoring:.2f}."
        )
    return "\n\n".join(texts)


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-runs", action="store_true", help="only print the tables")
    parser.add_argument("--rows", default=ROWS, help="default: %(default)s")
    parser.add_argument("--systems", default=",".join(PEERS), help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=600, help="limit of a run (%(default)s)")
    parser.add_argument("--gibibytes", type=float, default=12, help="limit of memory (%(default)s)")
    parser.add_argument("--lines", type=Path, default=LINES)
    args = parser.parse_args()
    args.rows = sorted(int(float(count)) for count in args.rows.split(","))
    args.systems = args.systems.split(",")
    if unknown := set(args.systems) - set(PEERS):
        parser.error(f"no system is called {', '.join(sorted(unknown))}; known: {', '.join(PEERS)}")
    return args


def main() -> None:
    """Run, then print."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # else its child would go on
    args = parsed()
    lines = {(line["system"], line["rows"]): line for line in read_json_lines(args.lines)}
    if not args.no_runs:
        fill(lines, args)
    sys.stdout.write(tables(lines) + "\n")


if __name__ == "__main__":
    main()
