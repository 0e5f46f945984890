"""How the AUC of one flow changes while it trains; labels are looked at only here.

    python bench/scripts/flow_path.py --dataset pendigits --seeds 2

One Markdown row for each seed: AUC of the light GLOW alone, after so many steps of five updates.
"""

import argparse
import sys

import torch

from altbi import ALTBI
from altbi.networks._training import train
from altbi_bench.catalogue.datasets import load_table
from odim_rule import auc, encoded

STEPS = (1, 9, 17, 33, 49, 65, 89)


def path(dataset: str, seed: int) -> list[float]:
    """Train as ALTBI does, and look after some of the steps."""
    X, y = load_table(dataset)
    rows, detector = encoded(X), ALTBI(backbone="glow", score_by="loss")
    generator = torch.Generator().manual_seed(seed)
    model = detector._fresh_model(rows.shape[1], generator)
    found = []
    for progress in train(
        model,
        rows,
        detector._schedule(),
        learning_rate=detector._learning_rate(),
        weight_decay=detector.weight_decay,
        generator=generator,
    ):
        if progress.step in STEPS:
            model.resample_noise()
            found.append(auc(model, rows, y))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="pendigits", help="a name as in the paper")
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    head = ["seed", *(str(5 * (step + 1)) for step in STEPS)]
    sys.stdout.write(f"| {' | '.join(head)} |\n|{'---:|' * len(head)}\n")
    for seed in range(args.seeds):
        cells = [str(seed), *(f"{value:.3f}" for value in path(args.dataset, seed))]
        sys.stdout.write(f"| {' | '.join(cells)} |\n")


if __name__ == "__main__":
    main()
