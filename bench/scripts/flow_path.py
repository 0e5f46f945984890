"""AUC of one flow during its training. Labels are used for this measurement only.

    python bench/scripts/flow_path.py --dataset pendigits --seeds 2

Prints one Markdown row for each seed: AUC of a single light GLOW, after some steps of five updates.
"""

import argparse
import sys

import numpy as np

from altbi import ALTBI
from altbi.networks import train
from altbi.torch import Glow
from altbi_bench.catalogue.datasets import load_table
from odim_rule import compute_auc, encode

STEPS = (1, 9, 17, 33, 49, 65, 89)


def measure_path(dataset: str, seed: int) -> list[float]:
    """Train as ALTBI does, and return the AUC after some of the steps."""
    X, y = load_table(dataset)
    rows = encode(X)
    training = ALTBI(backbone=Glow()).settings().training
    generator = np.random.default_rng(seed)
    network = training.backbone.start_training(rows.shape[1], generator)
    aucs = []
    for step in train(network, rows, training.schedule, None, generator):
        if step.step in STEPS:
            network.resample_noise()
            aucs.append(compute_auc(network, rows, y))
    return aucs


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
