"""An attack on private training: how much of a row the released sums tell.

    python bench/scripts/attack.py

Many small trainings, half of them with one more row, the canary. The attacker knows everything but
that: the model, the other rows, all released sums. How far these lie along the canary's own
gradient is looked at, and a threshold for it is chosen on one half of the trainings. On the other
half, false alarms and hits bound epsilon from below, at 95 % confidence (Clopper and Pearson). With
the noise of the ledger that bound must lie below its epsilon; with a quarter of the noise the same
attack must prove the claim wrong, or it would be too weak to say anything.
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

from altbi.networks import IWAENetwork
from altbi.privacy import training
from altbi.model._privacy_accounting import compute_epsilons, calibrate_noise
from altbi.torch._private_training import NoisyPlan, release_noisy_sum, attach_per_row_gradients, train_privately
from altbi.torch._truncation import COUNT_SHARE, Tracked
from altbi.networks._schedule import Schedule
from altbi_bench.tables.grids import markdown_grid

EPSILON, DELTA = 3.0, 1e-5
CLIP = 0.5
N_UNITS = 4

Runs = NDArray[np.float64]


def model_of() -> IWAENetwork:
    """Build the same small model each time."""
    model = IWAENetwork(N_UNITS, (8, 6), 3, 2, bounded=True, batch_norm=False)
    model.initialize_weights(torch.Generator().manual_seed(0))
    return still(model)


def still(model: IWAENetwork) -> IWAENetwork:
    """Give every row the same draws: its loss is then its own, in any company."""
    noise = torch.randn(model.scoring_noise.shape, generator=torch.Generator().manual_seed(1))
    model._sample_noise = lambda rows: noise.expand(len(rows), *noise.shape)  # type: ignore[method-assign]
    return model


def plan_of(noise: float) -> NoisyPlan:
    """Plan three updates with growing batches, the last two with losses left out."""
    schedule = Schedule(n0=12, gamma=1.25, T0=1, T1=1, T2=2)
    return NoisyPlan(
        schedule=schedule, n_rows=15, clip=CLIP, noise=noise, count_share=COUNT_SHARE, steps=3
    )


def attacked(noise_factor: float, runs: int) -> tuple[float, float]:
    """Let an attacker tell tables with a canary from those without.

    Gives the epsilon that a ledger claims with all of its noise, and what the attack proves of a
    training with a share of that noise.
    """
    noise = calibrate_noise(lambda noise: plan_of(noise).releases(), EPSILON, DELTA)
    claimed = compute_epsilons(plan_of(noise).releases(), DELTA)[1]
    noisy = plan_of(noise * noise_factor)
    # A promise about every table is one about the smallest: the canary, or nothing at all.
    canary = torch.tensor([[0.6, 0.4, 0.6, 0.4]])
    with attach_per_row_gradients(model_of(), torch.Generator()) as gradients:
        own = gradients.clipped_sum(canary, torch.ones(1, dtype=torch.bool), CLIP)
    secret = np.random.default_rng(0)
    found = [
        np.array([float(sum(sums(noisy, rows, secret)) @ own) for _ in range(runs)])
        for rows in (canary[:0], canary)
    ]
    return claimed, bound_of(*found)


def sums(plan: NoisyPlan, rows: Tensor, secret: np.random.Generator) -> list[Tensor]:
    """Train, and listen to what is released."""
    heard: list[Tensor] = []

    def overheard(*arguments: Any) -> Tensor:  # noqa: ANN401 - handed on
        heard.append(release_noisy_sum(*arguments))
        return heard[-1].clone()

    with patch.object(training, "release_noisy_sum", overheard):
        steps = train_privately(
            model_of(), rows, plan, Tracked(N_UNITS),
            learning_rate=1e-4, weight_decay=0.0, generator=torch.Generator(), secret=secret,
        )  # fmt: skip
        for _ in steps:
            pass
    return heard


def bound_of(without: Runs, with_canary: Runs) -> float:
    """Choose a threshold on one half of the runs, and bound epsilon on the other, at 95 %."""
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
    """Attack with all of the noise, and with less."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000, help="of each kind; default: %(default)s")
    runs = parser.parse_args().runs
    grid = [["noise", "epsilon of the ledger", "epsilon proved by the attack"]]
    for factor, name in ((1.0, "all"), (0.5, "half"), (0.25, "a quarter"), (0.01, "hardly any")):
        claimed, bound = attacked(factor, runs)
        grid.append([name, f"{claimed:.2f}", f"at least {max(bound, 0):.2f}"])
    sys.stdout.write(markdown_grid(grid) + "\n")


if __name__ == "__main__":
    main()
