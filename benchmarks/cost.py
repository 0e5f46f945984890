"""Seconds and peak memory of GLOW and ODIM against ALTBI-I, in one run.

    python benchmarks/cost.py --systems "ALTBI-I (reference),ALTBI-G (light),ODIM"

5,000 rows of 36 columns, each system in a process of its own: fit, then score all rows. Memory is
what the fit and the scoring add to a process that has everything imported.
"""

import argparse
import json
import subprocess
import sys
import time

import numpy as np

from measuring import peak

ROWS, COLUMNS = 5_000, 36
SYSTEMS = ("ALTBI-I (reference)", "ODIM", "ALTBI-G (light)", "ALTBI-G (reference)")


def table() -> np.ndarray:
    """Correlated normal columns, one row in a hundred odd."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(ROWS, COLUMNS)) @ draw.normal(size=(COLUMNS, COLUMNS)) / 6
    X[::100] *= 3
    return X


def measure(system: str) -> dict[str, float]:
    """Fit and score; runs in the child."""
    from altbi.bench.systems import find_systems, ready_to_fit

    X = table()
    (found,) = find_systems([system])
    fit = ready_to_fit(found, "unsupervised", seed=0)
    before, start = peak(), time.perf_counter()
    score = fit(X)
    fitted = time.perf_counter()
    score(X)
    scored = time.perf_counter()
    return {"fit": fitted - start, "score": scored - fitted, "mebibytes": (peak() - before) / 2**20}


def main() -> None:
    """Print one Markdown row for each system."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        sys.stdout.write(json.dumps(measure(args.child)))
        return
    sys.stdout.write("| system | fit s | score s | ratio to the first | MiB |\n")
    sys.stdout.write("|---|---:|---:|---:|---:|\n")
    first = None
    for system in args.systems.split(","):
        command = [sys.executable, __file__, "--child", system]
        found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        total = found["fit"] + found["score"]
        first = first or total
        sys.stdout.write(
            f"| {system} | {found['fit']:.1f} | {found['score']:.1f} | {total / first:.1f} "
            f"| {found['mebibytes']:.0f} |\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
