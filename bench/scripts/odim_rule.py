"""AUC at the update that ODIM's rule selects, compared with all other checks.

    python bench/scripts/odim_rule.py --models 3

For each table some networks are trained as by ODIM. At every check all rows are scored with the
current network; labels are used for this measurement only. "chosen" is the AUC at the check that
the rule selects, "best" the highest of all checks, "median" the median over all checks.
"""

import argparse
import statistics
import sys

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from altbi import ODIM
from altbi.encoding import TableEncoder
from altbi.networks import PeakCheck, TrainedNetwork, train_until_peak
from altbi.table import as_table
from altbi_bench.catalogue.datasets import Labels, load_table
from labels import DATASETS


def compute_auc(network: TrainedNetwork, rows: NDArray[np.float32], y: Labels) -> float:
    """Compute the AUC of one network's losses."""
    return float(roc_auc_score(y, network.evaluate_losses(rows)))


def search(rows: NDArray[np.float32], y: Labels, seed: int) -> tuple[list[PeakCheck], list[float]]:
    """Train one network of ODIM, and return all checks and the AUC at each."""
    checks: list[PeakCheck] = []
    aucs: list[float] = []
    training = ODIM(spread="variance").settings().training
    generator = np.random.default_rng(seed)
    network = training.backbone.start_training(rows.shape[1], generator)
    for check in train_until_peak(
        network,
        rows,
        batch_size=training.batch_size,
        check_every=training.check_every,
        patience=training.patience,
        max_updates=training.max_updates,
        spread=training.spread,
        generator=generator,
    ):
        checks.append(check)
        aucs.append(compute_auc(network, rows, y))
    return checks, aucs


def encode(X: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return rows as the network gets them."""
    return TableEncoder().fit_transform(as_table(X))


def main() -> None:
    """Print one Markdown row for each table, then the means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", default=DATASETS, help="names as in the paper")
    parser.add_argument("--models", type=int, default=3, help="networks for each table")
    args = parser.parse_args()
    head = ["data set", "chosen update", "best update", "chosen", "best", "median", "lost"]
    sys.stdout.write(f"| {' | '.join(head)} |\n|---|{'---:|' * (len(head) - 1)}\n")
    means = []
    for name in args.datasets.split(","):
        X, y = load_table(name)
        rows = encode(X)
        found = [summarize(*search(rows, y, seed)) for seed in range(args.models)]
        means.append([statistics.fmean(column) for column in zip(*found, strict=True)])
        sys.stdout.write(format_row(name, means[-1]))
        sys.stdout.flush()
    total = [statistics.fmean(column) for column in zip(*means, strict=True)]
    sys.stdout.write(format_row("mean", total))


def summarize(checks: list[PeakCheck], aucs: list[float]) -> list[float]:
    """Return the numbers of one network for the table."""
    chosen = max(i for i, check in enumerate(checks) if check.is_best)
    best = int(np.argmax(aucs))
    updates = [checks[chosen].update, checks[best].update]
    median = statistics.median(aucs)
    return [*updates, aucs[chosen], aucs[best], median, aucs[best] - aucs[chosen]]


def format_row(name: str, values: list[float]) -> str:
    """Format one row of the table."""
    updates, measures = values[:2], values[2:]
    numbers = [f"{value:.0f}" for value in updates] + [f"{value:.3f}" for value in measures]
    return f"| {name} | {' | '.join(numbers)} |\n"


if __name__ == "__main__":
    main()
