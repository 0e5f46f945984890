"""How well ``contamination="auto"`` guesses the share of outliers, on the ADBench tables at hand.

    python benchmarks/contamination.py

For each table the plain detector is fitted without labels; the share of rows it flags is compared
with the true share. F1 is that of the flagged rows, beside the F1 of flagging a fixed tenth and of
flagging as many rows as there are outliers (an oracle that nobody has).
"""

import argparse
import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import f1_score

from altbi import ALTBI
from altbi.bench.datasets import is_at_hand, load_table, select


@dataclass(frozen=True, slots=True)
class Guess:
    """The true and the guessed share of outliers of one table, and what the flags are worth."""

    dataset: str
    true: float
    guessed: float
    f1_auto: float
    f1_tenth: float
    f1_oracle: float


def guess(name: str, seed: int) -> Guess:
    """Fit the plain detector on one table, and look at what it flags."""
    X, y = load_table(name)
    detector = ALTBI(random_state=seed).fit(X)
    scores = detector.anomaly_score(X)
    flagged = -scores < detector.offset_
    return Guess(
        dataset=name,
        true=float(y.mean()),
        guessed=float(flagged.mean()),
        f1_auto=float(f1_score(y, flagged)),
        f1_tenth=_f1_of_share(y, scores, 0.1),
        f1_oracle=_f1_of_share(y, scores, float(y.mean())),
    )


def _f1_of_share(y: NDArray[np.int64], scores: NDArray[np.float64], share: float) -> float:
    return float(f1_score(y, scores > np.quantile(scores, 1 - share)))


def summary(guesses: list[Guess]) -> str:
    """Say how far off the guesses are, in all."""
    true = np.array([item.true for item in guesses])
    guessed = np.array([item.guessed for item in guesses])
    lines = [
        f"{len(guesses)} tables; true share {true.mean():.3f} on average, "
        f"guessed {guessed.mean():.3f}",
        f"mean |guessed - true|: {np.abs(guessed - true).mean():.3f} "
        f"(median {np.median(np.abs(guessed - true)):.3f}); "
        f"of a fixed tenth: {np.abs(0.1 - true).mean():.3f}",
    ]
    means = [
        np.mean([getattr(g, f) for g in guesses]) for f in ("f1_auto", "f1_tenth", "f1_oracle")
    ]
    lines.append("mean F1: auto {:.3f}, a tenth {:.3f}, oracle {:.3f}".format(*means))
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print a Markdown table and the summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", help="names as in the paper, separated by commas")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    names = (
        args.datasets.split(",")
        if args.datasets
        else [each.name for each in select() if is_at_hand(each)]
    )

    sys.stdout.write("| data set | true share | guessed | F1 auto | F1 tenth | F1 oracle |\n")
    sys.stdout.write("|---|---|---|---|---|---|\n")
    guesses = []
    for name in names:
        found = guess(name, args.seed)
        guesses.append(found)
        cells = (found.true, found.guessed, found.f1_auto, found.f1_tenth, found.f1_oracle)
        sys.stdout.write(f"| {name} | " + " | ".join(f"{cell:.3f}" for cell in cells) + " |\n")
        sys.stdout.flush()
    sys.stdout.write("\n" + summary(guesses))


if __name__ == "__main__":
    main()
