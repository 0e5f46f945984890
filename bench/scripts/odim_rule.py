"""Does ODIM's rule stop at the right update? AUC there against AUC at every other check.

    python bench/scripts/odim_rule.py --models 3

For each table some models are trained as ODIM trains them. At every check all rows are scored by
the model as it is then; labels are looked at only here. "chosen" is the AUC at the check that the
rule takes, "best" the highest of all checks, "median" the median over all checks.
"""

import argparse
import statistics
import sys

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from altbi import ODIM
from altbi.encoding import TableEncoder
from altbi.networks import GenerativeModel
from altbi.networks._peak_search import Check
from altbi.table import as_table
from altbi_bench.catalogue.datasets import Labels, load_table
from labels import DATASETS

ROWS_AT_ONCE = 1000


@torch.no_grad()
def auc(model: GenerativeModel, rows: torch.Tensor, y: Labels) -> float:
    """Score all rows with one model."""
    losses = torch.cat([model.eval()(some) for some in rows.split(ROWS_AT_ONCE)])
    return float(roc_auc_score(y, losses.numpy()))


def searched(
    detector: ODIM, rows: torch.Tensor, y: Labels, seed: int
) -> tuple[list[Check], list[float]]:
    """Train one model; give all checks and the AUC at each."""
    generator = torch.Generator().manual_seed(seed)
    model = detector._fresh_model(rows.shape[1], generator)
    checks, found = [], []
    for check in detector._search(model, rows, generator):
        checks.append(check)
        found.append(auc(model, rows, y))
    return checks, found


def encoded(X: NDArray[np.float64]) -> torch.Tensor:
    """Rows as the model gets them."""
    table = as_table(X)
    return torch.from_numpy(TableEncoder().fit(table).transform(table))


def main() -> None:
    """Print one Markdown row for each table, then the means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", default=DATASETS, help="names as in the paper")
    parser.add_argument("--models", type=int, default=3, help="models for each table")
    args = parser.parse_args()
    torch.set_num_threads(1)
    head = ["data set", "chosen update", "best update", "chosen", "best", "median", "lost"]
    sys.stdout.write(f"| {' | '.join(head)} |\n|---|{'---:|' * (len(head) - 1)}\n")
    lines = []
    for name in args.datasets.split(","):
        X, y = load_table(name)
        rows, means = encoded(X), []
        for seed in range(args.models):
            checks, found = searched(ODIM.reference(), rows, y, seed)
            chosen = max(i for i, check in enumerate(checks) if check.is_best)
            best = int(np.argmax(found))
            means.append(
                (
                    checks[chosen].update,
                    checks[best].update,
                    found[chosen],
                    found[best],
                    statistics.median(found),
                    found[best] - found[chosen],
                )
            )
        lines.append([statistics.fmean(column) for column in zip(*means, strict=True)])
        sys.stdout.write(_row(name, lines[-1]))
        sys.stdout.flush()
    sys.stdout.write(_row("mean", [statistics.fmean(c) for c in zip(*lines, strict=True)]))


def _row(name: str, values: list[float]) -> str:
    updates, measures = values[:2], values[2:]
    cells = [f"{value:.0f}" for value in updates] + [f"{value:.3f}" for value in measures]
    return f"| {name} | {' | '.join(cells)} |\n"


if __name__ == "__main__":
    main()
