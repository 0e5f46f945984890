"""Seconds to fit on a table and score all its rows, for ALTBI and other systems.

    python benchmarks/speed.py --tables shuttle,donors --repeats 3

Fast systems run once to warm up, then the median of the repeats counts. PyOD's VAE, default
parameters, takes minutes and runs once, without warm-up, on one torch thread. Up to 50,000 rows
(shuttle) it is fitted on all rows, and the scores of its fit are used. On larger tables (donors) it
is fitted on a sample of 20,000 rows and scores all rows.
ALTBI trains on one thread and scores on as many as BLAS has. PyOD's VAE also needs tqdm.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import IsolationForest

from altbi import ALTBI, OutlierDetector
from altbi.errors import import_extra
from altbi.torch._modes import single_thread
from altbi_bench.catalogue.datasets import Rows, load, select
from measuring import describe_machine

PACKAGES = ("altbi", "torch", "scikit-learn", "pyod", "numpy")
MAX_VAE_ROWS = 50_000
VAE_SAMPLE = 20_000


@dataclass(frozen=True, slots=True)
class System:
    """A system, and whether it is fast enough to be run several times."""

    name: str
    run: Callable[[Rows], object]
    fast: bool = True


def run_altbi(detector: ALTBI | OutlierDetector) -> Callable[[Rows], object]:
    """Return a function that fits and scores with a detector of ours."""
    return lambda rows: detector.fit(rows).outlier_score(rows)


def run_forest(n_jobs: int) -> Callable[[Rows], object]:
    """Return a function that fits and scores with scikit-learn's isolation forest."""
    return lambda rows: IsolationForest(random_state=0, n_jobs=n_jobs).fit(rows).score_samples(rows)


def run_vae(epochs: int) -> Callable[[Rows], object]:
    """Return a function that fits and scores with PyOD's VAE; large tables are sampled."""
    model = import_extra("pyod.models.vae", extra="pyod").VAE

    # Its layers are too small for two threads.
    @single_thread()
    def run(rows: Rows) -> object:
        vae = model(verbose=0, epoch_num=epochs)
        if len(rows) <= MAX_VAE_ROWS:
            return vae.fit(rows).decision_scores_
        sample = np.random.default_rng(0).choice(len(rows), VAE_SAMPLE, replace=False)
        return vae.fit(rows[sample]).decision_function(rows)

    return run


def list_systems(n_rows: int, vae_epochs: int) -> list[System]:
    """Return the systems for a table of this size, ours first."""
    first = [
        System("OutlierDetector()", run_altbi(OutlierDetector())),
        System("ALTBI()", run_altbi(ALTBI())),
        System("IsolationForest, n_jobs=1", run_forest(1)),
        System("IsolationForest, n_jobs=2", run_forest(2)),
    ]
    if vae_epochs == 0:
        return first
    fitted = "all" if n_rows <= MAX_VAE_ROWS else f"{VAE_SAMPLE:,}"
    name = f"PyOD VAE, fitted on {fitted} rows, epochs: {vae_epochs}"
    return [*first, System(name, run_vae(vae_epochs), fast=False)]


def measure_seconds(system: System, rows: Rows, repeats: int) -> list[float]:
    """Return the seconds of each run; fast systems have a warm-up before."""
    if system.fast:
        system.run(rows)
    times = []
    for _ in range(repeats if system.fast else 1):
        start = time.perf_counter()
        system.run(rows)
        times.append(time.perf_counter() - start)
    return times


def main() -> None:
    """Print one Markdown table; a ratio above 1 means slower than ours."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", default="shuttle,donors", help="default: %(default)s")
    parser.add_argument("--repeats", type=int, default=3, help="default: %(default)s")
    parser.add_argument(
        "--vae-epochs",
        type=int,
        default=30,
        help="PyOD's own default: %(default)s; 0 leaves it out",
    )
    args = parser.parse_args()

    sys.stdout.write(f"{describe_machine(*PACKAGES)}\n\n")
    sys.stdout.write("| table | system | runs | median s | min to max s | seconds / ours |\n")
    sys.stdout.write("| --- | --- | ---: | ---: | ---: | ---: |\n")
    for dataset in select(args.tables.split(",")):
        rows, _ = load(dataset.files[0])
        base = None
        for each in list_systems(len(rows), args.vae_epochs):
            times = measure_seconds(each, rows, args.repeats)
            median = statistics.median(times)
            base = base or median
            sys.stdout.write(
                f"| {dataset.name} ({len(rows):,} x {rows.shape[1]}) | {each.name} | {len(times)} "
                f"| {median:.2f} | {min(times):.2f} to {max(times):.2f} | {median / base:.2f} |\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
