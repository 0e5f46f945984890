"""AUC at the update that ODIM's rule selects, compared with all other checks.

    python bench/scripts/odim_rule.py --models 3

For each table some networks are trained as by ODIM. At every check all rows are scored with the
current network; labels are used for this measurement only. "chosen" is the AUC at the check that
the rule selects, "best" the highest of all checks, "median" the median over all checks.
"""

import argparse
import statistics
import sys
from collections.abc import Generator

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from altbi import ODIM
from altbi.encoding import TableEncoder
from altbi.networks import GenerativeModel, PeakCheck, TrainingStep, run_isolated, search_peak
from altbi.table import as_table
from altbi_bench.catalogue.datasets import Labels, load_table
from labels import DATASETS

BLOCK_ROWS = 1000


@torch.no_grad()
def compute_auc(model: GenerativeModel, rows: NDArray[np.float32], y: Labels) -> float:
    """Compute the AUC of one network's losses."""
    blocks = torch.from_numpy(rows).split(BLOCK_ROWS)
    losses = torch.cat([model.eval()(block) for block in blocks])
    return float(roc_auc_score(y, losses.numpy()))


def search(rows: NDArray[np.float32], y: Labels, seed: int) -> tuple[list[PeakCheck], list[float]]:
    """Train one network, and return all checks and the AUC at each."""
    checks: list[PeakCheck] = []
    aucs: list[float] = []
    steps = train_network(rows, y, seed, checks, aucs)
    for _ in run_isolated(steps, is_custom=False, seed=seed):
        pass
    return checks, aucs


def train_network(
    rows: NDArray[np.float32], y: Labels, seed: int, checks: list[PeakCheck], aucs: list[float]
) -> Generator[TrainingStep, None, None]:
    """Train one network of ODIM, and append all checks and the AUC at each."""
    training = ODIM(spread="variance").settings().training
    model = training.backbone.build(rows.shape[1])
    generator = torch.Generator().manual_seed(seed)
    model.initialize(generator)
    for check in search_peak(
        model,
        torch.from_numpy(rows),
        batch_size=training.batch_size,
        check_every=training.check_every,
        patience=training.patience,
        max_updates=training.max_updates,
        spread=training.spread,
        learning_rate=training.backbone.resolve_learning_rate(),
        weight_decay=training.backbone.weight_decay,
        generator=generator,
    ):
        checks.append(check)
        aucs.append(compute_auc(model, rows, y))
        yield TrainingStep(len(checks) - 1, check.batch_size, 1.0, check.loss)


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
