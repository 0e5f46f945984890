"""Kept inliers and outliers, and the bounds of Proposition 1, in a model with known risks.

    python bench/scripts/theory.py

Inliers are normal around 0, outliers around another point. The model is one learned point, and the
loss of a row is ``1 - exp(-distance² / (2 width²))``, between 0 and 1. Risks have a closed form, so
the threshold can be the inlier risk itself, as in the theory. Batches grow from 128 rows (`--n0`)
by 3 %; the optimizer is gradient descent on the kept rows of a batch. For some steps the script
prints the smallest number of kept inliers and the largest number of kept outliers in 300 runs, the
printed and the corrected bound, and the largest possible number of outliers. Then it repeats the
trainings with the 92 % smallest losses kept, as in practice.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from altbi_bench.tables.grids import markdown_grid
from altbi_bench.theory import Conditions

ALPHA, DELTA, WIDTH, RATE, STEPS, RUNS = 0.1, 0.05, 2.0, 1.0, 80, 300
N0, GAMMA, RHO = 128, 1.03, 0.92
SHOWN = (1, 10, 20, 40, 60, 80)
# Mean of the outliers; training starts on the other side, at half the distance.
OUTLIER_MEAN, START = np.array([4.0, 0.0]), np.array([-2.0, 0.0])

Points = NDArray[np.float64]


def compute_losses(centre: Points, rows: Points) -> Points:
    """Return the loss of each row."""
    return 1 - np.exp(-((rows - centre) ** 2).sum(1) / (2 * WIDTH**2))


def risk(centre: Points, mean: Points) -> float:
    """Return the expected loss of rows that are normal around a mean, in closed form."""
    spread = WIDTH**2 + 1
    factor = (WIDTH**2 / spread) ** (len(mean) / 2)
    return float(1 - factor * np.exp(-((centre - mean) ** 2).sum() / (2 * spread)))


def gradient(centre: Points, rows: Points) -> Points:
    """Return the gradient of the mean loss of some rows."""
    weights = (1 - compute_losses(centre, rows))[:, None]
    return (weights * (centre - rows)).mean(0) / WIDTH**2


@dataclass(frozen=True, slots=True)
class Step:
    """Measures of one update."""

    inlier_risk: float
    gap: float
    c: float
    n_rows: int
    kept_inliers: int
    kept_outliers: int


def train(
    threshold: Callable[[Points, float], float], rng: np.random.Generator, n0: int = N0
) -> list[Step]:
    """Train once; the threshold is a function of the batch's losses and the inlier risk."""
    centre, steps = START, []
    for step in range(1, STEPS + 1):
        n_rows = round(n0 * GAMMA ** (step - 1))
        is_outlier = rng.random(n_rows) < ALPHA
        rows = rng.normal(size=(n_rows, 2)) + np.where(is_outlier[:, None], OUTLIER_MEAN, 0.0)
        losses, inlier_risk = compute_losses(centre, rows), risk(centre, np.zeros(2))
        kept = losses <= threshold(losses, inlier_risk)
        c = 1 - np.sqrt(losses[~is_outlier]).mean() ** 2 / losses[~is_outlier].mean()
        gap = risk(centre, OUTLIER_MEAN) - inlier_risk
        counts = int((kept & ~is_outlier).sum()), int((kept & is_outlier).sum())
        steps.append(Step(inlier_risk, gap, float(c), n_rows, *counts))
        centre = centre - RATE * gradient(centre, rows[kept])
    return steps


def find_conditions(runs: list[list[Step]]) -> Conditions:
    """Return the constants that hold in all steps of all runs."""
    seen = [step for run in runs for step in run]
    return Conditions(
        a1=min(step.inlier_risk for step in seen),
        a2=max(step.inlier_risk for step in seen),
        a3=min(step.gap for step in seen),
        # It is noisy for one batch, so it is averaged over the runs of a step.
        c=min(float(np.mean([run[step].c for run in runs])) for step in range(STEPS)),
        alpha=ALPHA,
        delta=DELTA,
        n0=runs[0][0].n_rows,
        gamma=GAMMA,
    )


def format_table(runs: list[list[Step]], conditions: Conditions) -> str:
    """Format one row for each step in `SHOWN`."""
    head = [
        "step", "batch", "inlier risk", "gap", "fewest kept inliers", "corrected bound",
        "printed bound", "most kept outliers", "corrected bound", "all outliers", "printed bound",
        "outliers among kept",
    ]  # fmt: skip
    rows = []
    for number in SHOWN:
        seen = [run[number - 1] for run in runs]
        share = np.mean([s.kept_outliers / (s.kept_outliers + s.kept_inliers) for s in seen])
        rows.append(
            [
                str(number),
                str(seen[0].n_rows),
                f"{np.mean([s.inlier_risk for s in seen]):.3f}",
                f"{np.mean([s.gap for s in seen]):.3f}",
                str(min(s.kept_inliers for s in seen)),
                f"{conditions.kept_inliers(number):.0f}",
                f"{conditions.printed_c3 * conditions.batch(number):.0f}",
                str(max(s.kept_outliers for s in seen)),
                f"{conditions.kept_outliers(number):.0f}",
                f"{conditions.outliers(number):.0f}",
                f"{conditions.printed_c4 * conditions.n0:.0f}",
                f"{share:.1%}",
            ]
        )
    return markdown_grid([head, *rows])


def describe(conditions: Conditions, runs: list[list[Step]]) -> str:
    """Return a sentence with the constants, and for how many steps the premise holds."""
    premise = [
        sum(step.inlier_risk <= conditions.a2 * GAMMA**-t for t, step in enumerate(run))
        for run in runs
    ]
    return (
        f"a1 = {conditions.a1:.3f}, a2 = {conditions.a2:.3f}, a3 = {conditions.a3:.3f}, "
        f"c = {conditions.c:.3f}; the risk can stay below a2 / gamma^(t-1) for "
        f"{conditions.longest_run + 1} steps at most, and does for {min(premise)} to "
        f"{max(premise)} of {STEPS}."
    )


def main() -> None:
    """Train with both thresholds, and print a table for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=RUNS, help="default: %(default)s")
    parser.add_argument("--n0", type=int, default=N0, help="rows of the first batch")
    args = parser.parse_args()
    rules: dict[str, Callable[[Points, float], float]] = {
        "The threshold is the inlier risk": lambda losses, inlier_risk: inlier_risk,
        f"The {RHO:.0%} of the smallest losses are kept": lambda losses, inlier_risk: float(
            np.quantile(losses, RHO)
        ),
    }
    for title, threshold in rules.items():
        seeds = map(np.random.default_rng, range(args.runs))
        runs = [train(threshold, rng, args.n0) for rng in seeds]
        conditions = find_conditions(runs)
        sys.stdout.write(
            f"{title}: {describe(conditions, runs)}\n\n{format_table(runs, conditions)}\n\n"
        )


if __name__ == "__main__":
    main()
