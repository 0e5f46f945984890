"""Seconds to fit on a table and score all its rows, ALTBI beside others, all in this process.

    python benchmarks/speed.py --tables shuttle,donors --repeats 3

Fast systems run once to warm up, then the median of the repeats counts. PyOD's VAE, default
parameters, takes minutes and runs once, without warm-up, on one torch thread. Up to 50,000 rows
(shuttle) it is fitted on all of them, and its `fit` gives their scores, so that they are not
computed twice. A larger table (donors) gives it 20,000 sampled rows to fit on, all rows to score.
ALTBI trains on one thread and scores on as many as torch has. PyOD's VAE also needs tqdm.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import IsolationForest

from altbi import ALTBI
from altbi.errors import import_extra
from altbi.networks._torch_modes import single_thread
from altbi_bench.catalogue.datasets import Rows, load, select
from measuring import machine

PACKAGES = ("altbi", "torch", "scikit-learn", "pyod", "numpy")
VAE_ROWS = 50_000
VAE_SAMPLE = 20_000


@dataclass(frozen=True, slots=True)
class Contestant:
    """A system, what it was given, and whether it is fast enough to be run several times."""

    name: str
    work: Callable[[Rows], object]
    fast: bool = True


def altbi(detector: ALTBI) -> Callable[[Rows], object]:
    """Fit and score by ALTBI."""
    return lambda rows: detector.fit(rows).outlier_score(rows)


def forest(n_jobs: int) -> Callable[[Rows], object]:
    """Fit and score by scikit-learn's isolation forest on so many workers."""
    return lambda rows: IsolationForest(random_state=0, n_jobs=n_jobs).fit(rows).score_samples(rows)


def pyod_vae(epochs: int) -> Callable[[Rows], object]:
    """Fit and score by PyOD's VAE; a table too large for it gives a sample to fit on."""
    model = import_extra("pyod.models.vae", extra="pyod").VAE

    # Its layers are too small for two threads, which on a busy machine wait for each other.
    @single_thread()
    def work(rows: Rows) -> object:
        vae = model(verbose=0, epoch_num=epochs)
        if len(rows) <= VAE_ROWS:
            return vae.fit(rows).decision_scores_
        sample = np.random.default_rng(0).choice(len(rows), VAE_SAMPLE, replace=False)
        return vae.fit(rows[sample]).decision_function(rows)

    return work


def contestants(n_rows: int, vae_epochs: int) -> list[Contestant]:
    """List who runs on a table of this size, ALTBI first."""
    first = [
        Contestant("ALTBI()", altbi(ALTBI())),
        Contestant("ALTBI.reference()", altbi(ALTBI.reference())),
        Contestant("IsolationForest, n_jobs=1", forest(1)),
        Contestant("IsolationForest, n_jobs=2", forest(2)),
    ]
    if vae_epochs == 0:
        return first
    given = "all" if n_rows <= VAE_ROWS else f"{VAE_SAMPLE:,}"
    name = f"PyOD VAE, fitted on {given} rows, epochs: {vae_epochs}"
    return [*first, Contestant(name, pyod_vae(vae_epochs), fast=False)]


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


def main() -> None:
    """Write one Markdown table; a ratio above 1 means slower than ALTBI."""
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

    sys.stdout.write(f"{machine(*PACKAGES)}\n\n")
    sys.stdout.write("| table | system | runs | median s | min to max s | seconds / ALTBI's |\n")
    sys.stdout.write("| --- | --- | ---: | ---: | ---: | ---: |\n")
    for dataset in select(args.tables.split(",")):
        rows, _ = load(dataset.parts[0])
        base = None
        for each in contestants(len(rows), args.vae_epochs):
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
