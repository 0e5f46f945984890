"""Accuracy under a privacy budget: the paper's Table B.11, and the AUC that a budget costs.

    python bench/scripts/privacy.py             run what is missing in bench/results/privacy.jsonl
    python bench/scripts/privacy.py --no-runs   print the tables of the existing records

The tables of the paper's Table B.11: detectors are fitted on 70 % of the rows without labels, and
evaluated by the AUC of the other 30 %, with three seeds. As in the paper, the smallest and largest
value of each column in the complete table count as public bounds; one setting estimates them.
Census is not ADBench's file: it was rebuilt from its source, in the folder `adbench_rebuilt` next
to ADBench's. It is shown, but is in no average. The noise is secret, so runs cannot be repeated to
the bit.
"""

import argparse
import csv
import statistics
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score

import altbi_bench
from altbi import ALTBI, IWAE, OutlierDetector, Schedule
from altbi.errors import ParameterError, TableWarning
from altbi.model._privacy_accounting import calibrate_noise
from altbi.networks import train
from altbi.torch import PrivacyBudget
from altbi.torch._iwae_module import IWAEModule, build_iwae
from altbi.torch._private_training import NoisyPlan, Tracked, train_privately
from altbi.torch._training import Adam, TorchTraining
from altbi_bench.catalogue.datasets import adbench_folder, is_available, load, select
from altbi_bench.catalogue.protocols import find_protocol
from altbi_bench.runs.json_records import append_json_record, read_json_records
from altbi_bench.statistics import paired_effect
from altbi_bench.tables.grids import markdown_grid
from altbi_bench.truncation import Previous

RECORDS = Path(__file__).parents[1] / "results" / "privacy.jsonl"
PAPER = Path(altbi_bench.__file__).with_name("paper") / "privacy.csv"
CENSUS = "census"
SEEDS = 3
DELTA = 1e-5
MIN_LARGE = 2_000


@dataclass(frozen=True, slots=True)
class Setting:
    """Parameters of a fit: those of the budget, if there is one, and those of the schedule."""

    budget: dict[str, Any] | None = None
    schedule: dict[str, Any] = field(default_factory=dict)


# Without growing batches and without truncation.
NEITHER = {"gamma": 1.0, "rho": 1.0}
FIVE = {"updates": 5}
PUBLISHED = {"epsilon": 10, "noise": 0.7, "clip": 10.0, "truncation": Previous}
DISTANCE = "distance"
# The names are those of the records.
SETTINGS = {
    "loss": Setting(),
    "loss, neither": Setting(schedule=NEITHER),
    "epsilon 10": Setting({"epsilon": 10}),
    "epsilon 10, neither": Setting({"epsilon": 10}, NEITHER),
    "epsilon 3": Setting({"epsilon": 3}),
    "epsilon 1": Setting({"epsilon": 1}),
    "epsilon 1, neither": Setting({"epsilon": 1}, NEITHER),
    "epsilon 10, five updates a step": Setting({"epsilon": 10}, FIVE),
    "epsilon 10, five updates, neither": Setting({"epsilon": 10}, FIVE | NEITHER),
    DISTANCE: Setting(),
    "epsilon 10, trimmed": Setting({"epsilon": 10, "truncation": "trimmed"}),
    "epsilon 10, estimated bounds": Setting({"epsilon": 10, "bounds": "estimate"}),
    "published recipe": Setting(PUBLISHED, FIVE),
    "published recipe, neither": Setting(PUBLISHED, FIVE | NEITHER),
}
B11 = ("loss", "epsilon 10", "loss, neither", "epsilon 10, neither")

Record = dict[str, Any]
Rows = NDArray[np.float64]
Labels = NDArray[np.int64]


def read_published() -> dict[str, list[float]]:
    """Return the paper's four columns, in the order of `B11`."""
    columns: dict[str, list[float]] = {}
    with PAPER.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            columns.setdefault(row["dataset"], []).append(float(row["test_auc"]))
    return columns


def load_tables() -> Iterator[tuple[str, Rows, Labels]]:
    """Yield the available tables, small ones first."""
    names = [name for name in read_published() if name not in (CENSUS, "speech", "Average")]
    for dataset in sorted(select(names), key=lambda each: each.n_cells):
        if is_available(dataset):
            yield dataset.name, *load(dataset.files[0])
    folder = adbench_folder()
    rebuilt = folder.parent / "adbench_rebuilt" / "9_census.npz" if folder else None
    if rebuilt is not None and rebuilt.is_file():
        with np.load(rebuilt) as arrays:
            yield CENSUS, arrays["X"].astype(np.float64), arrays["y"]


def run(settings: Sequence[str], seeds: int, max_values: float) -> None:
    """Fit and evaluate fits without a record."""
    for seed in range(seeds):
        for name, X, y in load_tables():
            if X.size > max_values:
                continue
            split = find_protocol("split").split(y, select(["wine"])[0], seed)
            for setting in settings:
                done = {(each["table"], each["setting"], each["seed"]) for each in read_kind("auc")}
                if (name, setting, seed) not in done:
                    record = {"kind": "auc", "table": name, "setting": setting, "seed": seed}
                    append_json_record(RECORDS, record | evaluate(X, y, split, setting, seed))
                    sys.stderr.write(f"{name}, {setting}, seed {seed}\n")
            # With 500 columns and 200,000 rows, the losses of all steps take too long.
            done = {CENSUS, *(record["table"] for record in read_kind("left out"))}
            if seed == 0 and name not in done:
                append_json_record(
                    RECORDS, {"kind": "left out", "table": name} | measure_left_out(X, y)
                )


def evaluate(X: Rows, y: Labels, split: Any, setting: str, seed: int) -> Record:  # noqa: ANN401
    """Fit on the training rows, and score the others."""
    detector = build_detector(X, setting, seed)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableWarning)
        try:
            detector.fit(X[split.train])
        except ParameterError as cause:  # the published noise may not allow one step
            return {"rows": len(split.train), "auc": None, "error": str(cause)}
        scores = detector.outlier_score(X[split.test])
    seconds = time.perf_counter() - start
    ledger = detector.model_.ledger
    releases = ledger.releases if ledger else ()
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


def build_detector(X: Rows, setting: str, seed: int) -> ALTBI | OutlierDetector:
    """Return the detector of a setting for a table."""
    if setting == DISTANCE:
        return OutlierDetector(max_rows=len(X), random_state=seed)
    chosen, privacy = SETTINGS[setting], None
    if chosen.budget is not None:
        privacy = PrivacyBudget(**{"delta": DELTA, "bounds": find_bounds(X), **chosen.budget})
    schedule = Schedule(**chosen.schedule)
    return ALTBI(schedule=schedule, privacy=privacy, max_rows=len(X), random_state=seed)


def find_bounds(X: Rows) -> dict[str, list[float]]:
    """Return the range of each column; that of a constant one is widened."""
    low, high = X.min(axis=0), X.max(axis=0)
    high = np.where(low < high, high, low + 1)
    ends = zip(low.tolist(), high.tolist(), strict=True)
    return {f"x{index}": list(pair) for index, pair in enumerate(ends)}


def measure_left_out(X: Rows, y: Labels) -> Record:
    """Return the shares of outliers and inliers that truncation leaves out, without and with noise.

    The network is the same. Shares are those of all rows after each step with truncation.
    """
    low, high = X.min(axis=0), X.max(axis=0)
    rows = torch.from_numpy(((X - low) / np.where(low < high, high - low, 1)).astype(np.float32))
    schedule, tracked = Schedule(), Tracked(X.shape[1])
    plan = NoisyPlan(
        schedule=schedule,
        n_rows=len(X),
        clip=1.0,
        noise=1.0,
        count_share=tracked.count_share,
        steps=schedule.n_steps,
    )
    noise = calibrate_noise(lambda noise: replace(plan, noise=noise).releases(), 10, DELTA)
    found: Record = {}
    for name in ("without noise", "with noise"):
        generator = torch.Generator().manual_seed(0)
        model = build_iwae(IWAE().choose_sizes(X.shape[1], batch_norm=False))
        model.initialize(generator)
        model.scoring_noise.zero_()
        if name == "with noise":
            steps = train_privately(
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
            training = TorchTraining(
                model, model, Adam(model.parameters(), 1e-2, 5e-7), rows.device, None
            )
            steps = train(training, rows.numpy(), schedule, None, np.random.default_rng(0))
        shares = []
        for step in steps:
            if schedule.kept_share_at(step.step) < 1:
                losses = compute_losses(model, rows)
                limit = (
                    tracked.per_feature * X.shape[1]
                    if name == "with noise"
                    else np.quantile(losses, schedule.rho)
                )
                shares.append([float((losses[y == label] > limit).mean()) for label in (1, 0)])
        found[name] = np.mean(shares, axis=0).round(4).tolist()
    return found


@torch.no_grad()
def compute_losses(model: IWAEModule, rows: torch.Tensor) -> NDArray[np.float32]:
    """Return the losses of rows under the current network."""
    losses = model.eval()(rows)
    model.train()
    return losses.numpy()


def read_kind(kind: str) -> list[Record]:
    """Read the records of a kind."""
    return [record for record in read_json_records(RECORDS) if record["kind"] == kind]


def compute_means() -> dict[str, dict[str, float]]:
    """Return the mean AUC over seeds by table and setting."""
    found: dict[str, dict[str, list[float]]] = {}
    for record in read_kind("auc"):
        if record["auc"] is not None:
            by_setting = found.setdefault(record["table"], {})
            by_setting.setdefault(record["setting"], []).append(record["auc"])
    return {
        table: {setting: statistics.mean(aucs) for setting, aucs in settings.items()}
        for table, settings in found.items()
    }


def format_b11(found: dict[str, dict[str, float]]) -> str:
    """Format Table B.11, with our numbers and the paper's."""
    theirs = read_published()
    heads = ["(1.03, 0.92)", "(1.03, 0.92), private", "(1, 1)", "(1, 1), private"]
    grid = [
        [
            "table",
            "training rows",
            *(f"{head}, {who}" for head in heads for who in ("ours", "paper")),
        ]
    ]
    shown = [name for name in theirs if name in found and all(s in found[name] for s in B11)]
    sizes = {record["table"]: record["rows"] for record in read_kind("auc")}
    for name in shown:
        ours = [found[name][setting] for setting in B11]
        pairs = [f"{value:.3f}" for both in zip(ours, theirs[name], strict=True) for value in both]
        grid.append([name + (" (rebuilt)" if name == CENSUS else ""), f"{sizes[name]:,}", *pairs])
    counted = [name for name in shown if name != CENSUS]
    columns = [
        statistics.mean(values)
        for index, setting in enumerate(B11)
        for values in ([found[n][setting] for n in counted], [theirs[n][index] for n in counted])
    ]
    grid.append([f"mean of {len(counted)}", "", *(f"{value:.3f}" for value in columns)])
    return markdown_grid(grid)


def format_costs(found: dict[str, dict[str, float]]) -> str:
    """Format the mean of each setting, and its difference from the run without privacy."""
    sizes = {record["table"]: record["rows"] / 0.7 for record in read_kind("auc")}
    grid = [
        [
            "setting",
            "tables",
            "mean AUC",
            "less than by loss",
            f"tables of {MIN_LARGE:,} rows or more",
            "mean AUC",
            "less than by loss",
        ]
    ]
    for setting in SETTINGS:
        row = [setting]
        for least in (0, MIN_LARGE):
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


def format_left_out() -> str:
    """Format the shares of rows that truncation leaves out."""
    grid = [
        [
            "table",
            "outliers left out",
            "inliers left out",
            "outliers, with noise",
            "inliers, with noise",
        ]
    ]
    records = read_kind("left out")
    for record in records:
        shares = [*record["without noise"], *record["with noise"]]
        grid.append([record["table"], *(f"{share:.1%}" for share in shares)])
    columns = zip(*([*r["without noise"], *r["with noise"]] for r in records), strict=True)
    grid.append(["mean", *(f"{statistics.mean(column):.1%}" for column in columns)])
    return markdown_grid(grid)


def format_gains(found: dict[str, dict[str, float]]) -> str:
    """Format the AUC gained by growing batches and truncation, with and without noise."""
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
    parser.add_argument("--max-values", type=float, default=np.inf, help="leave larger tables out")
    args = parser.parse_args()
    if not args.no_runs:
        run(args.settings, args.seeds, args.max_values)
    found = compute_means()
    sys.stdout.write(
        f"{format_b11(found)}\n\n{format_costs(found)}\n\n{format_gains(found)}\n\n{format_left_out()}\n"
    )


if __name__ == "__main__":
    main()
