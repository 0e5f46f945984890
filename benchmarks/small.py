"""Cost of small jobs: imports, a fit of 1,000 rows, one row scored, the commands.

    python benchmarks/small.py

Processes are timed from start to end, in rounds, and compared with an empty one. Fits and scores
are timed in one new process, in rounds after a warm-up, and compared with the fit of scikit-learn's
IsolationForest. The tables have medians over the rounds.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from altbi_bench.tables.grids import markdown_grid
from measuring import altbi_command, describe_machine, generate_rows, run_command

ROWS = 1_000
NOTHING = "python -c pass"
FOREST_FIT = "IsolationForest().fit"
IMPORTS = (
    "import torch",
    "import sklearn.ensemble",
    "import altbi",
    "from altbi import OutlierDetector",
)

Seconds = dict[str, list[float]]


def measure_fits(model: Path, repeats: int) -> dict[str, float]:
    """Time fits and scores, and save a model; runs in the child process."""
    from sklearn.ensemble import IsolationForest

    from altbi import OutlierDetector

    X = next(generate_rows(ROWS))
    ours, forest = OutlierDetector().fit(X), IsolationForest().fit(X)
    ours.save(model)
    functions: dict[str, Callable[[], object]] = {
        FOREST_FIT: lambda: IsolationForest().fit(X),
        "OutlierDetector().fit": lambda: OutlierDetector().fit(X),
        "IsolationForest, one row scored": lambda: forest.score_samples(X[:1]),
        "OutlierDetector, one row scored": lambda: ours.score_samples(X[:1]),
    }
    for detector in (ours, forest):
        detector.score_samples(X[:1])
    return compute_medians(functions, repeats)


def compute_medians(functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Call all functions in turn, several times; return the median seconds of each."""
    seconds: Seconds = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def build_commands(model: Path) -> dict[str, Callable[[], object]]:
    """Return functions that run the processes: an empty one, imports, commands."""
    table = model.with_name("small.csv")
    names = ",".join(f"x{index}" for index in range(10))
    np.savetxt(table, next(generate_rows(ROWS)), delimiter=",", header=names, comments="")
    found, altbi = str(model.with_name("found")), altbi_command()
    commands: dict[str, tuple[str, ...]] = {NOTHING: (sys.executable, "-c", "pass")}
    commands |= {f'python -c "{code}"': (sys.executable, "-c", code) for code in IMPORTS}
    commands |= {
        "altbi --version": (altbi, "--version"),
        "altbi inspect MODEL": (altbi, "inspect", str(model)),
        "altbi detect small.csv": (altbi, "detect", str(table), "-o", found, "--quiet"),
    }
    return {name: partial(run_command, *command) for name, command in commands.items()}


def main() -> None:
    """Print two Markdown tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        sys.stdout.write(json.dumps(measure_fits(args.child, args.repeats)))
        return
    sys.stdout.write(f"{describe_machine('altbi', 'torch', 'scikit-learn')}\n\n")
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "small.altbi"
        again = (sys.executable, __file__, "--repeats", str(args.repeats))
        inside = json.loads(run_command(*again, "--child", str(model))[2])
        sys.stdout.write(f"{format_grid('in one process', inside, FOREST_FIT)}\n\n")
        outside = compute_medians(build_commands(model), args.repeats)
        sys.stdout.write(f"{format_grid('processes', outside, NOTHING)}\n")


def format_grid(corner: str, seconds: dict[str, float], base: str) -> str:
    """Format seconds and their ratio to one of them."""
    rows = [[corner, "seconds", f"/ {base}"]]
    rows += [[name, f"{s:.3g}", f"{s / seconds[base]:.3g}"] for name, s in seconds.items()]
    return markdown_grid(rows)


if __name__ == "__main__":
    main()
