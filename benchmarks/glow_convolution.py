"""Compare a GLOW fit with hand-written and automatic gradients of the coupling networks.

    python benchmarks/glow_convolution.py

The script fits ``ALTBI(backbone=Glow())`` on two generated tables, three times with each variant in
turn. It prints the CPU seconds of the fastest fit, and how far scores differ. Rounding differs
between the variants, and training amplifies it.
"""

import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from altbi import ALTBI
from altbi.torch import Glow, _flow_steps
from altbi.torch._flow_steps import extract_patches

Layer = tuple[Tensor, Tensor]
TABLES = ((1000, 10), (3000, 60))


def apply_by_autograd(z: Tensor, first: Layer, second: Layer, last: Tensor) -> Tensor:
    """Apply the network by matrix products that torch differentiates."""
    side = z.shape[1]
    hidden = torch.addmm(first[1], first[0], extract_patches(z)).relu()
    hidden = torch.addmm(second[1], second[0], hidden).relu()
    contributions = (last @ hidden).view(3, 3, -1, *z.shape[1:])
    padded = functional.pad(contributions, (0, 0, 1, 1, 1, 1))
    shifted = [padded[i, j, :, i : i + side, j : j + side] for i in range(3) for j in range(3)]
    return torch.stack(shifted).sum(0)


def apply_by_conv2d(z: Tensor, first: Layer, second: Layer, last: Tensor) -> Tensor:
    """Apply the network by torch's convolutions."""
    weight = first[0].view(-1, 3, 3, len(z)).permute(0, 3, 1, 2)
    hidden = functional.conv2d(z.permute(3, 0, 1, 2), weight, first[1][:, 0], padding=1).relu()
    hidden = functional.conv2d(hidden, second[0][:, :, None, None], second[1][:, 0]).relu()
    weight = last.view(3, 3, -1, last.shape[1]).permute(2, 3, 0, 1)
    return functional.conv2d(hidden, weight, padding=1).permute(1, 2, 3, 0)


VARIANTS: dict[str, Callable[..., Tensor]] = {
    "hand-written": _flow_steps.apply_network,
    "autograd": apply_by_autograd,
    "conv2d": apply_by_conv2d,
}


def measure(table: NDArray[np.float64]) -> tuple[dict[str, float], dict[str, NDArray[np.float64]]]:
    """Return the seconds of the fastest fit, and the scores, of each variant."""
    seconds: dict[str, list[float]] = {name: [] for name in VARIANTS}
    scores = {}
    for _ in range(3):
        for name, variant in VARIANTS.items():
            _flow_steps.apply_network = variant
            start = time.process_time()
            detector = ALTBI(backbone=Glow()).fit(table)
            seconds[name].append(time.process_time() - start)
            scores[name] = detector.outlier_score(table)
    return {name: min(times) for name, times in seconds.items()}, scores


def main() -> None:
    """Fit all variants on all tables, and print the results."""
    for n_rows, n_columns in TABLES:
        rng = np.random.default_rng(0)
        table = rng.normal(size=(n_rows, 4)) @ rng.normal(size=(4, n_columns))
        seconds, scores = measure(table + 0.3 * rng.normal(size=table.shape))
        for name in VARIANTS:
            ratio = seconds[name] / seconds["hand-written"]
            difference = np.abs(scores[name] - scores["hand-written"]).max()
            relative = difference / np.abs(scores["hand-written"]).max()
            sys.stdout.write(
                f"{n_rows} x {n_columns}, {name}: {seconds[name]:.2f} s, "
                f"{ratio:.2f} times as long, scores differ by {relative:.1e}\n"
            )


if __name__ == "__main__":
    main()
