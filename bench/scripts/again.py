"""Differences between earlier runs and the same runs on another machine or with newer code.

    python bench/scripts/again.py             run what is missing in bench/results/again.jsonl
    python bench/scripts/again.py --no-runs   print the table of the existing records

The earlier runs are in bench/results/transductive.jsonl. Newer code may change scores. Another
processor rounds sums differently, and a difference in the last digit grows during a training.
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


def find_pairs() -> dict[str, list[Pair]]:
    """Return the runs of each system that exist twice, the earlier one first."""
    before, again = (keep_latest(keep_current(read_runs(path))) for path in (BEFORE, AGAIN))
    found: dict[str, list[Pair]] = {system: [] for system in SYSTEMS}
    for job, run in again.items():
        if job.system in found and job in before and not (run.error or before[job].error):
            found[job.system].append((before[job], run))
    return {system: pairs for system, pairs in found.items() if pairs}


def format_row(system: str, pairs: list[Pair]) -> list[str]:
    """Format how often and by how much the second run differs from the first."""
    differences = [(again.auc or 0) - (before.auc or 0) for before, again in pairs]
    largest = max(range(len(pairs)), key=lambda index: abs(differences[index]))
    job = pairs[largest][1].job
    return [
        system,
        f"{len(pairs)}",
        f"{sum(each == 0 for each in differences)}",
        f"{sum(abs(each) <= 0.01 for each in differences)}",
        *(f"{statistics.fmean(pair[side].auc or 0 for pair in pairs):.4f}" for side in (0, 1)),
        f"{differences[largest]:+.3f} ({Path(job.file).stem}, seed {job.seed})",
    ]


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-runs", action="store_true", help="only print the table")
    parser.add_argument("--processes", default="1", help="jobs at once")
    args = parser.parse_args()
    if not args.no_runs:
        options = ["--systems", ",".join(SYSTEMS), "--records", str(AGAIN)]
        if code := run_command(["run", *options, "--processes", args.processes]):
            sys.exit(code)
    found = find_pairs()
    machines = sorted(
        {
            again.versions.get("processor", "not recorded")
            for each in found.values()
            for _, again in each
        }
    )
    sys.stdout.write(f"Again on: {'; '.join(machines)}\n\n")
    sys.stdout.write(markdown_grid([HEAD, *(format_row(*each) for each in found.items())]) + "\n")


if __name__ == "__main__":
    main()
