"""Seconds to fit on a table and score all its rows, ALTBI beside others, all in this process.

    python benchmarks/speed.py --tables shuttle,donors --repeats 3

Fast systems run once to warm up, then the median of the repeats counts. PyOD's VAE takes minutes
and runs once, without warm-up, on shuttle as it comes (30 epochs; its `fit` gives the scores of
the rows it was fitted on, so these are not computed again) and on donors fitted on 20,000 sampled
rows, with all rows scored afterwards.
"""

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
from sklearn.ensemble import IsolationForest

from altbi import ALTBI
from altbi.bench.datasets import Rows, load, select
from altbi.errors import need

VAE_ROWS = 50_000
VAE_SAMPLE = 20_000


@dataclass(frozen=True, slots=True)
class Contestant:
    """A system, what it was given, and whether it is fast enough to be run several times."""

    name: str
    work: Callable[[Rows], object]
    fast: bool = True


def altbi(rows: Rows) -> object:
    """Fit and score by ALTBI as the authors' code does."""
    return ALTBI.reference(random_state=0).fit(rows).anomaly_score(rows)


def forest(n_jobs: int) -> Callable[[Rows], object]:
    """Fit and score by scikit-learn's isolation forest on so many workers."""
    return lambda rows: IsolationForest(random_state=0, n_jobs=n_jobs).fit(rows).score_samples(rows)


def pyod_vae(rows: Rows) -> object:
    """Fit and score by PyOD's VAE; a table too large for it gives a sample to fit on."""
    vae = need("pyod.models.vae", extra="pyod").VAE(verbose=0)
    if len(rows) <= VAE_ROWS:
        return vae.fit(rows).decision_scores_
    sample = np.random.default_rng(0).choice(len(rows), VAE_SAMPLE, replace=False)
    return vae.fit(rows[sample]).decision_function(rows)


def contestants(n_rows: int, *, with_vae: bool) -> list[Contestant]:
    """List who runs on a table of this size, ALTBI first."""
    given = "all rows" if n_rows <= VAE_ROWS else f"{VAE_SAMPLE:,} rows"
    vae = Contestant(f"PyOD VAE, 30 epochs on {given}", pyod_vae, fast=False)
    return [
        Contestant("ALTBI.reference()", altbi),
        Contestant("IsolationForest, n_jobs=1", forest(1)),
        Contestant("IsolationForest, n_jobs=2", forest(2)),
        *([vae] if with_vae else []),
    ]


def seconds(contestant: Contestant, rows: Rows, repeats: int) -> list[float]:
    """Time the work; a warm-up takes imports and first-call costs out of a fast system's times."""
    if contestant.fast:
        contestant.work(rows)
    times = []
    for _ in range(repeats if contestant.fast else 1):
        start = time.perf_counter()
        contestant.work(rows)
        times.append(time.perf_counter() - start)
    return times


def machine() -> str:
    """Say what the seconds were measured on."""
    packages = ("altbi", "torch", "scikit-learn", "pyod", "numpy")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    python = f"Python {platform.python_version()}"
    return f"{os.cpu_count()} cores, {platform.machine()}, {python}, {versions}"


def main() -> None:
    """Write one Markdown table; a ratio above 1 means slower than ALTBI."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", default="shuttle,donors", help="default: %(default)s")
    parser.add_argument("--repeats", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--no-vae", action="store_true", help="leave out PyOD's VAE, the slow one")
    args = parser.parse_args()

    sys.stdout.write(f"{machine()}\n\n")
    sys.stdout.write("| table | system | runs | median s | min to max s | seconds / ALTBI's |\n")
    sys.stdout.write("| --- | --- | ---: | ---: | ---: | ---: |\n")
    for dataset in select(args.tables.split(",")):
        rows, _ = load(dataset)
        base = None
        for each in contestants(len(rows), with_vae=not args.no_vae):
            times = seconds(each, rows, args.repeats)
            median = statistics.median(times)
            base = base or median
            sys.stdout.write(
                f"| {dataset.name} ({len(rows):,} x {rows.shape[1]}) | {each.name} | {len(times)} "
                f"| {median:.2f} | {min(times):.2f} to {max(times):.2f} | {median / base:.2f} |\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
