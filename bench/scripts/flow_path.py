"""AUC of one flow during its training. Labels are used for this measurement only.

    python bench/scripts/flow_path.py --dataset pendigits --seeds 2

Prints one Markdown row for each seed: AUC of a single light GLOW, after some steps of five updates.
"""

import argparse
import sys
from collections.abc import Generator

import numpy as np
import torch
from numpy.typing import NDArray

from altbi import ALTBI
from altbi.networks import TrainingStep, run_isolated, train
from altbi.torch import Glow
from altbi_bench.catalogue.datasets import Labels, load_table
from odim_rule import compute_auc, encode

STEPS = (1, 9, 17, 33, 49, 65, 89)


def measure_path(dataset: str, seed: int) -> list[float]:
    """Train as ALTBI does, and return the AUC after some of the steps."""
    X, y = load_table(dataset)
    aucs: list[float] = []
    for _ in run_isolated(train_flow(encode(X), y, seed, aucs), is_custom=False, seed=seed):
        pass
    return aucs


def train_flow(
    rows: NDArray[np.float32], y: Labels, seed: int, aucs: list[float]
) -> Generator[TrainingStep, None, None]:
    """Train the flow, and append the AUC after some of the steps."""
    training = ALTBI(backbone=Glow()).settings().training
    model = training.backbone.build(rows.shape[1])
    generator = torch.Generator().manual_seed(seed)
    model.initialize(generator)
    for step in train(
        model,
        torch.from_numpy(rows),
        training.schedule,
        learning_rate=training.backbone.resolve_learning_rate(),
        weight_decay=training.backbone.weight_decay,
        generator=generator,
    ):
        if step.step in STEPS:
            model.resample_noise()
            aucs.append(compute_auc(model, rows, y))
        yield step


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="pendigits", help="a name as in the paper")
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    head = ["seed", *(str(5 * (step + 1)) for step in STEPS)]
    sys.stdout.write(f"| {' | '.join(head)} |\n|{'---:|' * len(head)}\n")
    for seed in range(args.seeds):
        row = [str(seed), *(f"{value:.3f}" for value in measure_path(args.dataset, seed))]
        sys.stdout.write(f"| {' | '.join(row)} |\n")


if __name__ == "__main__":
    main()
