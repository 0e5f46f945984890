"""Compare the scores of this checkout with those of version 0.1 on the same machine.

    python tools/compare_scores.py                  # all tables, all detectors
    python tools/compare_scores.py --tables glass,sine --detectors plain,odim

The script checks version 0.1 (commit 0bbe92d) out into a git worktree, fits every detector on every
table with both versions, and prints the largest relative difference. It exits with 1 if one is
above the tolerance. Scores of version 0.1 are cached, because they do not change.

Since the IWAE is computed by NumPy, with NumPy's random numbers, scores differ as those of two
seeds do. The last commit whose scores are those of version 0.1 to the bit is c9df6a6.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

BASELINE = "0bbe92d"
ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
CACHE = Path(tempfile.gettempdir(), "altbi-compare-scores")
MOST_ROWS = 800

Jobs = list[tuple[str, str]]
TableLike = NDArray[np.float64] | pa.Table

ADBENCH = {
    "glass": "14_glass",
    "ionosphere": "18_Ionosphere",
    "stamps": "37_Stamps",
    "vertebral": "39_vertebral",
    "wbc": "42_WBC",
    "yeast": "47_yeast",
}
MIXED = ("german_credit", "chronic_kidney", "dirty_hospital")
GENERATED = ("sine", "wide", "gaps")
TABLES = (*ADBENCH, *MIXED, *GENERATED)
DETECTORS = ("plain", "reference", "paper", "glow", "odim", "private")


def read_table(name: str) -> TableLike:
    """Return a table by its name: an array, or a pyarrow table if it has columns of other types."""
    if name in ADBENCH:
        with np.load(SHARED / "adbench" / "Classical" / f"{ADBENCH[name]}.npz") as file:
            return file["X"][:MOST_ROWS].astype(np.float64)
    if name in MIXED:
        table = pq.read_table(SHARED / "mixed" / f"{name}.parquet")
        return table.drop_columns(["__label__"]).slice(0, MOST_ROWS)
    return generate_table(name)


def generate_table(name: str) -> TableLike:
    """Return one of the generated tables."""
    rng = np.random.default_rng(GENERATED.index(name))
    if name == "sine":
        x = rng.uniform(0, 6, 600)
        return np.column_stack([x, np.sin(x) + 0.1 * rng.normal(size=600), rng.normal(size=600)])
    if name == "wide":  # wide enough for whitened distances
        return rng.normal(size=(300, 8)) @ rng.normal(size=(8, 120)) + rng.normal(size=(300, 120))
    numbers = rng.lognormal(size=400)
    return pa.table(
        {
            "amount": pa.array(numbers, mask=rng.random(400) < 0.1),
            "city": pa.array(
                rng.choice(["Rome", "Oslo", "Lima", None], 400, p=[0.6, 0.3, 0.05, 0.05])
            ),
            "paid": pa.array(rng.random(400) < 0.8),
            "day": pa.array(rng.integers(0, 10**9, 400), pa.timestamp("s")),
        }
    )


def build_baseline(name: str) -> Any:  # noqa: ANN401 - a detector of either version
    """Return a detector of version 0.1."""
    from altbi import ALTBI, ODIM

    return {
        "plain": lambda: ALTBI(),
        "reference": lambda: ALTBI.reference(),
        "paper": lambda: ALTBI.paper(),
        "glow": lambda: ALTBI(backbone="glow", score_by="loss"),
        "odim": lambda: ODIM(n_models=3),
        "private": lambda: ALTBI(epsilon=5.0, delta=1e-5, bounds="estimate"),
    }[name]()


def build_current(name: str) -> Any:  # noqa: ANN401
    """Return the detector of this checkout that is configured as that of version 0.1."""
    from altbi import ALTBI, ODIM, OutlierDetector
    from altbi.torch import Glow, PrivacyBudget

    return {
        "plain": lambda: OutlierDetector(),
        "reference": lambda: ALTBI(),
        "paper": lambda: ALTBI.paper(),
        "glow": lambda: ALTBI(backbone=Glow()),
        "odim": lambda: ODIM(n_models=3),
        "private": lambda: ALTBI(privacy=PrivacyBudget(epsilon=5.0, delta=1e-5, bounds="estimate")),
    }[name]()


def fit_and_score(table: TableLike, detector: Any) -> dict[str, NDArray[Any]]:  # noqa: ANN401
    """Return the scores of a table's own rows, its contributions and the threshold."""
    import secrets

    # The noise of a private fit cannot be repeated unless its source is replaced.
    rng = np.random.default_rng(7)
    secrets.randbits = lambda bits: int.from_bytes(rng.bytes(-(-bits // 8))) >> (-bits % 8)
    detector.fit(table)
    score = getattr(detector, "outlier_score", None) or detector.anomaly_score
    explanation = detector.explain(
        table[:20] if isinstance(table, np.ndarray) else table.slice(0, 20)
    )
    contributions = getattr(explanation, "contributions", None)
    if contributions is None:
        contributions = explanation.parts
    return {
        "scores": score(table),
        "contributions": contributions,
        "offset": np.array(detector.offset_),
    }


def run_worker(version: str, folder: Path, jobs: Jobs) -> None:
    """Fit detectors in this process, and write one file for each."""
    build = build_baseline if version == "baseline" else build_current
    for table, detector in jobs:
        found = fit_and_score(read_table(table), build(detector))
        np.savez(folder / f"{table}-{detector}.npz", **found)
        sys.stderr.write(f"{version} {table} {detector}\n")


def start_worker(version: str, source: Path, folder: Path, jobs: Jobs) -> None:
    """Run a worker on the package in a folder of sources."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, __file__, "--worker", version, "--folder", str(folder)]
    subprocess.run(command, input=json.dumps(jobs), text=True, env=environment, check=True)


def check_out_baseline() -> Path:
    """Return the folder with the sources of version 0.1."""
    folder = CACHE / BASELINE
    if not folder.exists():
        command = ["git", "-C", str(ROOT), "worktree", "add", "--detach", str(folder), BASELINE]
        subprocess.run(["git", "-C", str(ROOT), "worktree", "prune"], check=True)
        subprocess.run(command, check=True)
    return folder / "src"


def largest_difference(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Return the largest difference of two arrays, relative to the size of the first."""
    if first.shape != second.shape or (np.isnan(first) != np.isnan(second)).any():
        return np.inf
    size = np.nanmax(np.abs(first), initial=1e-300)
    return float(np.nanmax(np.abs(first - second), initial=0.0) / size)


def compare(jobs: Jobs, current: Path, tolerance: float) -> int:
    """Print a line for each job; return how many differ by more than the tolerance."""
    failed = 0
    for table, detector in jobs:
        name = f"{table}-{detector}.npz"
        with np.load(CACHE / "baseline" / name) as old, np.load(current / name) as new:
            worst = {key: largest_difference(old[key], new[key]) for key in old.files}
        bad = any(value > tolerance for value in worst.values())
        failed += bad
        values = "  ".join(f"{key} {value:.1e}" for key, value in worst.items())
        sys.stdout.write(f"{'DIFFERS' if bad else 'same':8}{table:16}{detector:11}{values}\n")
    sys.stdout.write(f"{len(jobs) - failed} of {len(jobs)} within {tolerance:g}\n")
    return failed


def main() -> int:
    """Run both versions and compare them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--detectors", default=",".join(DETECTORS))
    parser.add_argument(
        "--tolerance", type=float, default=0.0, help="relative; default: to the bit"
    )
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        run_worker(args.worker, args.folder, json.load(sys.stdin))
        return 0
    jobs = [(t, d) for d in args.detectors.split(",") for t in args.tables.split(",")]
    missing = [job for job in jobs if not (CACHE / "baseline" / "{}-{}.npz".format(*job)).exists()]
    if missing:
        start_worker("baseline", check_out_baseline(), CACHE / "baseline", missing)
    with tempfile.TemporaryDirectory(prefix="altbi-") as folder:
        start_worker("current", ROOT / "src", Path(folder), jobs)
        return 1 if compare(jobs, Path(folder), args.tolerance) else 0


if __name__ == "__main__":
    sys.exit(main())
