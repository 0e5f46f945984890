"""An attack on private training: a lower bound of epsilon from the released sums.

    python bench/scripts/attack.py

Half of many small trainings have one more row, the canary. The attacker knows everything else: the
network, the other rows and all released sums. The statistic is the projection of the sums onto the
canary's own gradient. Its threshold is chosen on one half of the trainings. On the other half,
false positives and true positives bound epsilon from below, at 95 % confidence (Clopper and
Pearson). With the noise of the ledger, this bound must be below the ledger's epsilon. With a
quarter of the noise, the bound must be above it; otherwise the attack would be too weak to be
informative.
"""

import argparse
import math
import sys
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import beta
from torch import Tensor

from altbi import Schedule
from altbi.model._privacy_accounting import calibrate_noise, compute_epsilons
from altbi.networks._iwae import NetworkSizes
from altbi.torch import _private_training
from altbi.torch._iwae_module import IWAEModule, build_iwae
from altbi.torch._private_training import (
    COUNT_SHARE,
    NoisyPlan,
    Tracked,
    attach_per_row_gradients,
    release_noisy_sum,
    train_privately,
)
from altbi_bench.tables.grids import markdown_grid

EPSILON, DELTA = 3.0, 1e-5
CLIP = 0.5
N_FEATURES = 4

Runs = NDArray[np.float64]


def build_model() -> IWAEModule:
    """Return the same small network each time."""
    model = build_iwae(NetworkSizes(N_FEATURES, (8, 6), 3, 2, bounded=True, batch_norm=False))
    model.initialize(torch.Generator().manual_seed(0))
    return fix_noise(model)


def fix_noise(model: IWAEModule) -> IWAEModule:
    """Use the same noise for every row, so that its loss does not depend on other rows."""
    noise = torch.randn(model.scoring_noise.shape, generator=torch.Generator().manual_seed(1))
    model._sample_noise = lambda rows: noise.expand(len(rows), *noise.shape)  # type: ignore[method-assign]  # patched
    return model


def build_plan(noise: float) -> NoisyPlan:
    """Return a plan of three updates with growing batches, the last two with truncation."""
    schedule = Schedule(n0=12, gamma=1.25, T0=1, T1=1, T2=2, updates=1, first_truncated=1)
    return NoisyPlan(
        schedule=schedule, n_rows=15, clip=CLIP, noise=noise, count_share=COUNT_SHARE, steps=3
    )


def attack(noise_factor: float, runs: int) -> tuple[float, float]:
    """Attack trainings with a multiple of the ledger's noise.

    Returns the epsilon of the ledger with all of its noise, and the lower bound by the attack.
    """
    noise = calibrate_noise(lambda noise: build_plan(noise).releases(), EPSILON, DELTA)
    claimed = compute_epsilons(build_plan(noise).releases(), DELTA)[1]
    noisy = build_plan(noise * noise_factor)
    # The guarantee holds for every table, so also for the smallest: the canary, or no row at all.
    canary = torch.tensor([[0.6, 0.4, 0.6, 0.4]])
    with attach_per_row_gradients(build_model(), torch.Generator()) as gradients:
        own = gradients.clipped_sum(canary, torch.ones(1, dtype=torch.bool), CLIP)
    secret = np.random.default_rng(0)
    found = [
        np.array([float(sum(record_sums(noisy, rows, secret)) @ own) for _ in range(runs)])
        for rows in (canary[:0], canary)
    ]
    return claimed, bound_epsilon(*found)


def record_sums(plan: NoisyPlan, rows: Tensor, secret: np.random.Generator) -> list[Tensor]:
    """Train, and return the released sums."""
    released: list[Tensor] = []

    def record(*arguments: Any) -> Tensor:  # noqa: ANN401 - passed on
        released.append(release_noisy_sum(*arguments))
        return released[-1].clone()

    with patch.object(_private_training, "release_noisy_sum", record):
        steps = train_privately(
            build_model(), rows, plan, Tracked(N_FEATURES),
            learning_rate=1e-4, weight_decay=0.0, generator=torch.Generator(), secret=secret,
        )  # fmt: skip
        for _ in steps:
            pass
    return released


def bound_epsilon(without: Runs, with_canary: Runs) -> float:
    """Choose a threshold on one half of the runs, and bound epsilon by the other, at 95 %."""
    half = len(without) // 2

    def bound(threshold: float, first: Runs, second: Runs) -> float:
        false, true = (int((runs > threshold).sum()) for runs in (first, second))
        most_false = beta.ppf(0.975, false + 1, len(first) - false)
        least_true = beta.ppf(0.025, true, len(second) - true + 1) if true else 0.0
        return math.log(max(least_true - DELTA, 1e-12) / most_false)

    candidates = np.concatenate([without[:half], with_canary[:half]])
    best = max(candidates, key=lambda each: bound(each, without[:half], with_canary[:half]))
    return bound(best, without[half:], with_canary[half:])


def main() -> None:
    """Attack with all of the noise, and with less, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000, help="of each kind; default: %(default)s")
    runs = parser.parse_args().runs
    grid = [["noise", "epsilon of the ledger", "epsilon proved by the attack"]]
    for factor, name in ((1.0, "all"), (0.5, "half"), (0.25, "a quarter"), (0.01, "hardly any")):
        claimed, bound = attack(factor, runs)
        grid.append([name, f"{claimed:.2f}", f"at least {max(bound, 0):.2f}"])
    sys.stdout.write(markdown_grid(grid) + "\n")


if __name__ == "__main__":
    main()
