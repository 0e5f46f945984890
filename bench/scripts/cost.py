"""Seconds of each system of the paper relative to ALTBI: the same rows, one run, one thread.

    python bench/scripts/cost.py
    python bench/scripts/cost.py --datasets wine --systems "ALTBI,ALTBI-I (reference),DDPM"

Each system is fitted on all rows of a table and scores them. The script prints its seconds, and
their ratio to those of ALTBI-I, the paper's method with the authors' settings, and of the
recommended detector. By default there are two tables, of 768 rows by 8 columns and of 1,831 by 21.
ICL runs a twentieth of its published epochs.
"""

import argparse
import sys

from altbi_bench.catalogue.datasets import is_available, select
from altbi_bench.results_page.deep_baselines import COMPARED
from altbi_bench.runs.measurement import measure
from altbi_bench.runs.records import Job
from altbi_bench.tables.grids import markdown_grid

BASES = ("ALTBI-I (reference)", "ALTBI")


def measure_seconds(system: str, file: str) -> float | None:
    """Return the seconds of fit and scoring; None if the run failed."""
    run = measure(Job(file=file, system=system, seed=0, protocol="transductive"), threads=1)
    if run.fit_seconds is None or run.score_seconds is None:
        sys.stderr.write(f"{file}, {system}: {run.error}\n")
        return None
    return run.fit_seconds + run.score_seconds


def format_row(name: str, costs: dict[str, float | None], bases: list[float]) -> list[str]:
    """Format one row of the table: seconds, and their ratios to the bases."""
    seconds = costs[name]
    if seconds is None:
        return [name, "failed", *("" for _ in bases)]
    return [name, f"{seconds:.2f}", *(f"{seconds / base:.2g}" for base in bases)]


def main() -> None:
    """Measure, then print a table for each data set, the cheapest first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", default="pima,cardio")
    parser.add_argument("--systems", default=",".join(COMPARED))
    args = parser.parse_args()
    for dataset in select(args.datasets.split(",")):
        (file,) = dataset.files
        if not is_available(file):
            parser.error(f"{file.path} is missing: `altbi-bench datasets` shows where to put it")
        costs: dict[str, float | None] = {}
        for name in args.systems.split(","):
            costs[name] = measure_seconds(name, file.path)
            sys.stderr.write(f"{dataset.name}, {name}\n")
        bases = {name: cost for name in BASES if (cost := costs.get(name))}
        order = sorted(costs, key=lambda name: costs[name] or float("inf"))
        head = [dataset.label, "seconds", *(f"times {name}" for name in bases)]
        rows = [format_row(name, costs, list(bases.values())) for name in order]
        sys.stdout.write(markdown_grid([head, *rows]) + "\n\n")


if __name__ == "__main__":
    main()
