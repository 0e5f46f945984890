"""Accuracy under a privacy budget: the paper's Table B.11 again, and what the budget costs.

    python bench/scripts/privacy.py             run what is missing in bench/results/privacy.jsonl
    python bench/scripts/privacy.py --no-runs   print the tables of the lines that are there

Tables of the paper's Table B.11, fitted on 70 % of the rows without labels, judged by the AUC of
the other 30 %; three seeds. Each column's smallest and largest value in the whole table count as
bounds that were public, as in the paper, but for the setting that estimates them. Census is not
ADBench's file but was rebuilt from its source, if the folder `adbench_rebuilt` lies beside
ADBench's; it is shown, and in no average. Noise comes from the system's secrets: a run cannot be
repeated to the bit.
"""

import argparse
import csv
import statistics
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score

import altbi_bench
from altbi import ALTBI
from altbi.errors import ParameterError, TableWarning
from altbi.networks import IWAE, build_iwae
from altbi.model._privacy_accounting import calibrate_noise
from altbi.torch._private_training import NoisyPlan, private_train
from altbi.torch._truncation import Tracked
from altbi.networks._schedule import Schedule
from altbi.networks._training import train
from altbi_bench.catalogue.datasets import adbench_folder, is_available, load, select
from altbi_bench.catalogue.protocols import find_protocol
from altbi_bench.runs.json_lines import append_json_line, read_json_lines
from altbi_bench.statistics import paired_effect
from altbi_bench.tables.grids import markdown_grid

LINES = Path(__file__).parents[1] / "results" / "privacy.jsonl"
PAPER = Path(altbi_bench.__file__).with_name("paper") / "privacy.csv"
CENSUS = "census"
SEEDS = 3
DELTA = 1e-5
LARGE = 2_000
NEITHER = {"gamma": 1.0, "rho": 1.0}
PUBLISHED = {"noise": 0.7, "clip": 10.0, "truncation": "previous", "updates": 5}

# No privacy, then budgets; what is not said is the detector's own choice.
SETTINGS: dict[str, dict[str, Any]] = {
    "loss": {"score_by": "loss"},
    "loss, neither": {"score_by": "loss", **NEITHER},
    "epsilon 10": {"epsilon": 10},
    "epsilon 10, neither": {"epsilon": 10, **NEITHER},
    "epsilon 3": {"epsilon": 3},
    "epsilon 1": {"epsilon": 1},
    "epsilon 1, neither": {"epsilon": 1, **NEITHER},
    "epsilon 10, five updates a step": {"epsilon": 10, "updates": 5},
    "epsilon 10, five updates, neither": {"epsilon": 10, "updates": 5, **NEITHER},
    "distance": {},
    "epsilon 10, trimmed": {"epsilon": 10, "truncation": "trimmed"},
    "epsilon 10, estimated bounds": {"epsilon": 10, "bounds": "estimate"},
    "published recipe": {"epsilon": 10, **PUBLISHED},
    "published recipe, neither": {"epsilon": 10, **PUBLISHED, **NEITHER},
}
B11 = ("loss", "epsilon 10", "loss, neither", "epsilon 10, neither")

Line = dict[str, Any]
Rows = NDArray[np.float64]
Labels = NDArray[np.int64]


def published() -> dict[str, list[float]]:
    """Give the paper's four columns, in our order."""
    columns: dict[str, list[float]] = {}
    with PAPER.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            columns.setdefault(row["dataset"], []).append(float(row["test_auc"]))
    return columns


def tables() -> Iterator[tuple[str, Rows, Labels]]:
    """Give the tables that are at hand, small ones first."""
    names = [name for name in published() if name not in (CENSUS, "speech", "Average")]
    for dataset in sorted(select(names), key=lambda each: each.n_cells):
        if is_available(dataset):
            yield dataset.name, *load(dataset.parts[0])
    folder = adbench_folder()
    rebuilt = folder.parent / "adbench_rebuilt" / "9_census.npz" if folder else None
    if rebuilt is not None and rebuilt.is_file():
        with np.load(rebuilt) as arrays:
            yield CENSUS, arrays["X"].astype(np.float64), arrays["y"]


def run(settings: Sequence[str], seeds: int, most_cells: float) -> None:
    """Fit and judge what has no line yet."""
    for seed in range(seeds):
        for name, X, y in tables():
            if X.size > most_cells:
                continue
            split = find_protocol("split").split(y, select(["wine"])[0], seed)
            for setting in settings:
                done = {(line["table"], line["setting"], line["seed"]) for line in lines_of("auc")}
                if (name, setting, seed) not in done:
                    line = {"kind": "auc", "table": name, "setting": setting, "seed": seed}
                    append_json_line(LINES, line | judged(X, y, split, setting, seed))
                    sys.stderr.write(f"{name}, {setting}, seed {seed}\n")
            # Of 500 columns and 200,000 rows the losses of all steps take too long.
            left = {CENSUS, *(line["table"] for line in lines_of("left out"))}
            if seed == 0 and name not in left:
                append_json_line(LINES, {"kind": "left out", "table": name} | left_out(X, y))


def judged(X: Rows, y: Labels, split: Any, setting: str, seed: int) -> Line:  # noqa: ANN401
    """Fit on one part, and score the other."""
    changes = {"max_rows": len(X)} | SETTINGS[setting]
    if "epsilon" in changes:
        changes = {"delta": DELTA, "bounds": bounds_of(X)} | changes
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableWarning)
        try:
            detector = ALTBI(random_state=seed, **changes).fit(X[split.train])
        except ParameterError as cause:  # the published noise may not allow a single step
            return {"rows": len(split.train), "auc": None, "error": str(cause)}
        scores = detector.outlier_score(X[split.test])
    seconds = time.perf_counter() - start
    releases = detector.ledger_.releases if detector.ledger_ else ()
    noise = [release.noise for release in releases if "gradients" in release.what]
    return {
        "rows": len(split.train),
        "columns": X.shape[1],
        "auc": round(float(roc_auc_score(y[split.test], scores)), 5),
        "ap": round(float(average_precision_score(y[split.test], scores)), 5),
        "noise": round(noise[0], 4) if noise else None,
        "steps": len(detector.history_),
        "flagged": round(float((scores > -detector.offset_).mean()), 4),
        "seconds": round(seconds, 2),
    }


def bounds_of(X: Rows) -> dict[str, list[float]]:
    """Give each column's range; a constant one gets some room."""
    low, high = X.min(axis=0), X.max(axis=0)
    high = np.where(low < high, high, low + 1)
    ends = zip(low.tolist(), high.tolist(), strict=True)
    return {f"x{place}": list(pair) for place, pair in enumerate(ends)}


def left_out(X: Rows, y: Labels) -> Line:
    """Say which share of outliers and of inliers the truncation leaves out, without and with noise.

    The same network both times; shares of all rows by the model after each truncated step.
    """
    low, high = X.min(axis=0), X.max(axis=0)
    rows = torch.from_numpy(((X - low) / np.where(low < high, high - low, 1)).astype(np.float32))
    schedule, tracked = Schedule(T1=61, first_truncated=2), Tracked(X.shape[1])
    plan = NoisyPlan(
        schedule=schedule,
        n_rows=len(X),
        clip=1.0,
        noise=1.0,
        count_share=tracked.count_share,
        steps=schedule.steps,
    )
    noise = calibrate_noise(lambda noise: replace(plan, noise=noise).releases(), 10, DELTA)
    found: Line = {}
    for name in ("without noise", "with noise"):
        generator = torch.Generator().manual_seed(0)
        model = build_iwae(X.shape[1], "auto", "auto", 2, bounded=True, normed=False)
        model.start(generator)
        if name == "with noise":
            steps = private_train(
                model,
                rows,
                replace(plan, noise=noise),
                tracked,
                learning_rate=1e-2,
                weight_decay=5e-7,
                generator=generator,
                secret=np.random.default_rng(0),
            )
        else:
            steps = train(
                model, rows, schedule, learning_rate=1e-2, weight_decay=5e-7, generator=generator
            )
        shares = []
        for step in steps:
            if schedule.kept_share_at(step.step) < 1:
                losses = losses_of(model, rows)
                limit = (
                    tracked.per_unit * X.shape[1]
                    if name == "with noise"
                    else np.quantile(losses, schedule.rho)
                )
                shares.append([float((losses[y == label] > limit).mean()) for label in (1, 0)])
        found[name] = np.mean(shares, axis=0).round(4).tolist()
    return found


@torch.no_grad()
def losses_of(model: IWAE, rows: torch.Tensor) -> NDArray[np.float32]:
    """Score rows with the model as it is."""
    losses = model.eval()(rows)
    model.train()
    return losses.numpy()


def lines_of(kind: str) -> list[Line]:
    """Read the lines of a kind."""
    return [line for line in read_json_lines(LINES) if line["kind"] == kind]


def means() -> dict[str, dict[str, float]]:
    """Give the mean AUC over seeds by table and setting."""
    found: dict[str, dict[str, list[float]]] = {}
    for line in lines_of("auc"):
        if line["auc"] is not None:
            found.setdefault(line["table"], {}).setdefault(line["setting"], []).append(line["auc"])
    return {
        table: {setting: statistics.mean(aucs) for setting, aucs in settings.items()}
        for table, settings in found.items()
    }


def b11(found: dict[str, dict[str, float]]) -> str:
    """Write Table B.11, ours beside the paper's."""
    theirs = published()
    heads = ["(1.03, 0.92)", "(1.03, 0.92), private", "(1, 1)", "(1, 1), private"]
    grid = [
        [
            "table",
            "training rows",
            *(f"{head}, {who}" for head in heads for who in ("ours", "paper")),
        ]
    ]
    shown = [name for name in theirs if name in found and all(s in found[name] for s in B11)]
    sizes = {line["table"]: line["rows"] for line in lines_of("auc")}
    for name in shown:
        ours = [found[name][setting] for setting in B11]
        pairs = [f"{value:.3f}" for both in zip(ours, theirs[name], strict=True) for value in both]
        grid.append([name + (" (rebuilt)" if name == CENSUS else ""), f"{sizes[name]:,}", *pairs])
    counted = [name for name in shown if name != CENSUS]
    columns = [
        statistics.mean(values)
        for place, setting in enumerate(B11)
        for values in ([found[n][setting] for n in counted], [theirs[n][place] for n in counted])
    ]
    grid.append([f"mean of {len(counted)}", "", *(f"{value:.3f}" for value in columns)])
    return markdown_grid(grid)


def costs(found: dict[str, dict[str, float]]) -> str:
    """Write the mean of each setting, and of its differences from the run without privacy."""
    sizes = {line["table"]: line["rows"] / 0.7 for line in lines_of("auc")}
    grid = [
        [
            "setting",
            "tables",
            "mean AUC",
            "less than by loss",
            f"tables of {LARGE:,} rows or more",
            "mean AUC",
            "less than by loss",
        ]
    ]
    for setting in SETTINGS:
        row = [setting]
        for least in (0, LARGE):
            shown = [
                n
                for n in found
                if n != CENSUS and sizes[n] >= least - 1 and {setting, "loss"} <= found[n].keys()
            ]
            if not shown:
                break
            mean = statistics.mean(found[n][setting] for n in shown)
            loss = statistics.mean(found[n]["loss"] - found[n][setting] for n in shown)
            row += [str(len(shown)), f"{mean:.3f}", f"{loss:+.3f}"]
        grid.append(row + [""] * (len(grid[0]) - len(row)))
    return markdown_grid(grid)


def truncated() -> str:
    """Write which rows the truncation leaves out."""
    grid = [
        [
            "table",
            "outliers left out",
            "inliers left out",
            "outliers, with noise",
            "inliers, with noise",
        ]
    ]
    lines = lines_of("left out")
    for line in lines:
        shares = [*line["without noise"], *line["with noise"]]
        grid.append([line["table"], *(f"{share:.1%}" for share in shares)])
    columns = zip(*([*line["without noise"], *line["with noise"]] for line in lines), strict=True)
    grid.append(["mean", *(f"{statistics.mean(column):.1%}" for column in columns)])
    return markdown_grid(grid)


def worth(found: dict[str, dict[str, float]]) -> str:
    """Write what growing batches and truncation are worth, with and without noise."""
    grid = [["growing batches and truncation", "tables", "AUC gained", "95 % interval over tables"]]
    for title, with_both, neither in (
        ("without noise", "loss", "loss, neither"),
        ("epsilon 10", "epsilon 10", "epsilon 10, neither"),
    ):
        gains = [
            found[name][with_both] - found[name][neither]
            for name in sorted(found)
            if name != CENSUS and {with_both, neither} <= found[name].keys()
        ]
        gain, interval = str(paired_effect(gains)).split(" ", 1)
        grid.append([title, str(len(gains)), gain, interval])
    return markdown_grid(grid)


def main() -> None:
    """Run, then print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-runs", action="store_true", help="only print the tables")
    parser.add_argument(
        "--settings", nargs="+", choices=SETTINGS, default=[*SETTINGS], help="default: all"
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help="default: %(default)s")
    parser.add_argument("--most-cells", type=float, default=np.inf, help="leave larger tables out")
    args = parser.parse_args()
    if not args.no_runs:
        run(args.settings, args.seeds, args.most_cells)
    found = means()
    sys.stdout.write(f"{b11(found)}\n\n{costs(found)}\n\n{worth(found)}\n\n{truncated()}\n")


if __name__ == "__main__":
    main()
