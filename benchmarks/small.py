"""What a small job costs: imports, a fit of 1,000 rows, one row scored, the commands.

    python benchmarks/small.py

Processes are timed from their start to their end, in rounds, and compared with one that does
nothing. Fits and scores are timed in one fresh process, in rounds after a warm-up, and compared
with the fit of scikit-learn's IsolationForest. Medians over the rounds.
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
from measuring import altbi_command, clusters, machine, run

ROWS = 1_000
NOTHING = "python -c pass"
FOREST_FIT = "IsolationForest().fit"
IMPORTS = ("import torch", "import sklearn.ensemble", "import altbi", "from altbi import ALTBI")

Seconds = dict[str, list[float]]


def fits(model: Path, repeats: int) -> dict[str, float]:
    """Time fits and scores, and leave a model; runs in the child."""
    from sklearn.ensemble import IsolationForest

    from altbi import ALTBI

    X = next(clusters(ROWS))
    ours, forest = ALTBI().fit(X), IsolationForest().fit(X)
    ours.save(model)
    works: dict[str, Callable[[], object]] = {
        FOREST_FIT: lambda: IsolationForest().fit(X),
        "ALTBI().fit": lambda: ALTBI().fit(X),
        "IsolationForest, one row scored": lambda: forest.score_samples(X[:1]),
        "ALTBI, one row scored": lambda: ours.score_samples(X[:1]),
    }
    for detector in (ours, forest):
        detector.score_samples(X[:1])
    return medians(works, repeats)


def medians(works: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Do all works in turn, several times; gives the median seconds of each."""
    seconds: Seconds = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def processes(model: Path) -> dict[str, Callable[[], object]]:
    """List the processes: nothing, imports, commands."""
    table = model.with_name("small.csv")
    names = ",".join(f"x{place}" for place in range(10))
    np.savetxt(table, next(clusters(ROWS)), delimiter=",", header=names, comments="")
    found, altbi = str(model.with_name("found")), altbi_command()
    commands: dict[str, tuple[str, ...]] = {NOTHING: (sys.executable, "-c", "pass")}
    commands |= {f'python -c "{code}"': (sys.executable, "-c", code) for code in IMPORTS}
    commands |= {
        "altbi --version": (altbi, "--version"),
        "altbi inspect MODEL": (altbi, "inspect", str(model)),
        "altbi detect small.csv": (altbi, "detect", str(table), "-o", found, "--quiet"),
    }
    return {name: partial(run, *command) for name, command in commands.items()}


def main() -> None:
    """Write two Markdown tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        sys.stdout.write(json.dumps(fits(args.child, args.repeats)))
        return
    sys.stdout.write(f"{machine('altbi', 'torch', 'scikit-learn')}\n\n")
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "small.altbi"
        again = (sys.executable, __file__, "--repeats", str(args.repeats))
        inside = json.loads(run(*again, "--child", str(model))[2])
        sys.stdout.write(f"{grid('in one process', inside, FOREST_FIT)}\n\n")
        outside = medians(processes(model), args.repeats)
        sys.stdout.write(f"{grid('processes', outside, NOTHING)}\n")


def grid(corner: str, seconds: dict[str, float], base: str) -> str:
    """Write seconds and their ratio to one of them."""
    rows = [[corner, "seconds", f"/ {base}"]]
    rows += [[name, f"{s:.3g}", f"{s / seconds[base]:.3g}"] for name, s in seconds.items()]
    return markdown_grid(rows)


if __name__ == "__main__":
    main()
