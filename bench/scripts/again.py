"""Runs done again, on another machine or with newer code: how far they are from those of before.

    python bench/scripts/again.py             run what is missing in bench/results/again.jsonl
    python bench/scripts/again.py --no-runs   print the table of the lines that are there

Before is bench/results/transductive.jsonl. Newer code may move scores, another processor rounds
sums otherwise: early in a training a difference in the last digit grows.
"""

import argparse
import statistics
import sys
from pathlib import Path

from altbi_bench.cli import main as run_command
from altbi_bench.runs.records import Run, keep_latest, read_runs
from altbi_bench.runs.runner import keep_current
from altbi_bench.tables.grids import markdown_grid

RESULTS = Path(__file__).parents[1] / "results"
AGAIN, BEFORE = RESULTS / "again.jsonl", RESULTS / "transductive.jsonl"
SYSTEMS = ("ALTBI", "ALTBI-I (reference)", "ALTBI-I (paper)", "IForest", "kNN")
HEAD = ["system", "runs", "same AUC", "within 0.01", "mean AUC before", "again", "furthest"]

Pair = tuple[Run, Run]


def pairs() -> dict[str, list[Pair]]:
    """Give the runs of each system that were done twice, before and again."""
    before, again = (keep_latest(keep_current(read_runs(path))) for path in (BEFORE, AGAIN))
    found: dict[str, list[Pair]] = {system: [] for system in SYSTEMS}
    for job, run in again.items():
        if job.system in found and job in before and not (run.error or before[job].error):
            found[job.system].append((before[job], run))
    return {system: twice for system, twice in found.items() if twice}


def row(system: str, twice: list[Pair]) -> list[str]:
    """Say how often and how far the second run is from the first."""
    gaps = [(again.auc or 0) - (before.auc or 0) for before, again in twice]
    furthest = max(range(len(twice)), key=lambda place: abs(gaps[place]))
    job = twice[furthest][1].job
    return [
        system,
        f"{len(twice)}",
        f"{sum(gap == 0 for gap in gaps)}",
        f"{sum(abs(gap) <= 0.01 for gap in gaps)}",
        *(f"{statistics.fmean(pair[side].auc or 0 for pair in twice):.4f}" for side in (0, 1)),
        f"{gaps[furthest]:+.3f} ({Path(job.file).stem}, seed {job.seed})",
    ]


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-runs", action="store_true", help="print the lines that are there")
    parser.add_argument("--processes", default="1", help="jobs at once")
    args = parser.parse_args()
    if not args.no_runs:
        words = ["--systems", ",".join(SYSTEMS), "--lines", str(AGAIN)]
        if code := run_command(["run", *words, "--processes", args.processes]):
            sys.exit(code)
    found = pairs()
    machines = sorted(
        {
            again.versions.get("processor", "not written down")
            for each in found.values()
            for _, again in each
        }
    )
    sys.stdout.write(f"Again on: {'; '.join(machines)}\n\n")
    sys.stdout.write(markdown_grid([HEAD, *(row(*each) for each in found.items())]) + "\n")


if __name__ == "__main__":
    main()
