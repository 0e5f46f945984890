"""Accuracy of this version and of another one over many seeds, on a few tables.

    git worktree add ../altbi-0.1 0bbe92d
    python bench/scripts/seeds.py --source ../altbi-0.1/src --system ALTBI --tables cardio,vertebral

Two versions that use random numbers differently cannot be compared seed by seed: on one table, the
AUC of a single seed varies more than a small error would change it. Means over many seeds can be
compared. The p-value is that of Welch's t-test for equal means.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ttest_ind

from altbi_bench.catalogue.datasets import load, select
from altbi_bench.tables.grids import markdown_grid
from versions import OTHER, ROOT, SYSTEMS, THIS, measure_jobs, run_both, write_table


def measure_seeds(
    source: Path, detectors: dict[str, str], parameters: dict[str, object], table: Path, seeds: int
) -> dict[str, NDArray[np.float64]]:
    """Return the AUC of each seed by version; both versions run at the same time."""
    jobs = {
        version: [
            {"path": str(table), "detector": name, "seed": seed, "parameters": parameters}
            for seed in range(seeds)
        ]
        for version, name in detectors.items()
    }
    sources = {THIS: ROOT / "src", OTHER: source.resolve()}
    found = run_both(lambda version: list(measure_jobs(sources[version], jobs[version])))
    return {
        version: np.array([each["auc"] for each in results]) for version, results in found.items()
    }


def describe(values: NDArray[np.float64]) -> str:
    """Return the mean and its standard error."""
    return f"{values.mean():.4f} ± {values.std(ddof=1) / len(values) ** 0.5:.4f}"


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, required=True, help="sources of the other version")
    parser.add_argument("--system", choices=SYSTEMS, default="ALTBI")
    parser.add_argument("--tables", default="cardio,vertebral,wbc", help="tables of ADBench")
    parser.add_argument("--seeds", type=int, default=60, help="default: %(default)s")
    parser.add_argument("--parameters", type=json.loads, default={}, help="of both, as JSON")
    args = parser.parse_args()
    detectors = dict(zip((THIS, OTHER), SYSTEMS[args.system], strict=True))
    rows = [["system", "table", "AUC before", "now", "p-value"]]
    with tempfile.TemporaryDirectory() as folder:
        for name in args.tables.split(","):
            (dataset,) = (each for each in select() if each.name == name)
            table = write_table(Path(folder, "table.npz"), *load(dataset.files[0]))
            found = measure_seeds(args.source, detectors, args.parameters, table, args.seeds)
            this, other = found[THIS], found[OTHER]
            p_value = ttest_ind(this, other, equal_var=False).pvalue
            rows.append([args.system, name, describe(other), describe(this), f"{p_value:.2f}"])
    sys.stdout.write(markdown_grid(rows) + "\n")


if __name__ == "__main__":
    main()
