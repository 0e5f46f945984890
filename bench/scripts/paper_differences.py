"""Differences of our ALTBI-I from the paper's: effects of seeds and of single settings.

    python bench/scripts/paper_differences.py --datasets hepatitis,wine --seeds 10

For each table: AUC of the authors' settings over many seeds (mean, standard deviation, range), the
mean AUC with one setting changed, and the paper's value. A value inside the range of seeds can be
explained by the seed alone.
"""

import argparse
import sys
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from altbi import ALTBI, IWAE, Schedule
from altbi_bench.catalogue.datasets import Labels, Rows, load_table
from altbi_bench.tables.comparison import paper_table

DATASETS = "hepatitis,wine,vertebral,wilt,optdigits,ionosphere"
CHANGES: dict[str, dict[str, Any]] = {
    "K = 1": {"backbone": IWAE(n_samples=1)},
    "K = 50": {"backbone": IWAE(n_samples=50)},
    "one update a step": {"schedule": Schedule(updates=1)},
    "plain mean": {"average": "plain"},
    "no truncation": {"schedule": Schedule(rho=1.0)},
}


def measure_auc(X: Rows, y: Labels, seed: int, **changes: Any) -> float:  # noqa: ANN401
    """Fit with some parameters changed, and compare the scores with the labels."""
    detector = ALTBI(random_state=seed, **changes).fit(X)
    return float(roc_auc_score(y, detector.outlier_score(X)))


def main() -> None:
    """Print one Markdown row for each table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", default=DATASETS, help="names as in the paper")
    parser.add_argument("--seeds", type=int, default=10, help="seeds of the authors' settings")
    parser.add_argument("--change-seeds", type=int, default=3, help="seeds of each change; 0: none")
    args = parser.parse_args()
    paper = paper_table("auc")

    changes = CHANGES if args.change_seeds else {}
    head = ["data set", "paper", "mean ± std", "range", *changes]
    sys.stdout.write(f"| {' | '.join(head)} |\n|{'---|' * len(head)}\n")
    for name in args.datasets.split(","):
        X, y = load_table(name)
        ours = [measure_auc(X, y, seed) for seed in range(args.seeds)]
        row = [
            name,
            f"{paper[name]['ALTBI-I']:.3f}",
            f"{np.mean(ours):.3f} ± {np.std(ours, ddof=1):.3f}",
            f"{min(ours):.3f} to {max(ours):.3f}",
        ]
        for change in changes.values():
            runs = [measure_auc(X, y, seed, **change) for seed in range(args.change_seeds)]
            row.append(f"{np.mean(runs):.3f}")
        sys.stdout.write(f"| {' | '.join(row)} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
