"""Compare a fit with GLOW's hand-written gradient of convolutions with plain autograd.

    python benchmarks/glow_convolution.py

The script fits ``ALTBI(backbone=Glow())`` on two generated tables, three times with each variant in
turn, and prints CPU seconds and their ratio.
"""

import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

import altbi.torch._flow_steps as flow_steps
from altbi import ALTBI
from altbi.torch import Glow
from altbi.torch._convolutions import patches

Layer = tuple[Tensor, Tensor]


def autograd(z: Tensor, first: Layer, second: Layer, last: Tensor) -> Tensor:
    """Matrix products over neighbours, differentiated by torch."""
    hidden = torch.addmm(first[1], first[0], patches(z)).relu()
    hidden = torch.addmm(second[1], second[0], hidden).relu()
    side = z.shape[1]
    nine = (last @ hidden).view(3, 3, -1, *z.shape[1:])
    padded = functional.pad(nine, (0, 0, 1, 1, 1, 1))
    shifted = [
        padded[i, j, :, i : i + side, j : j + side] for i in range(3) for j in range(3)
    ]
    return torch.stack(shifted).sum(0)


def conv2d(z: Tensor, first: Layer, second: Layer, last: Tensor) -> Tensor:
    """torch.nn.functional.conv2d on rows first."""
    channels = z.shape[0]
    rows = z.permute(3, 0, 1, 2)
    weight = first[0].view(-1, 3, 3, channels).permute(0, 3, 1, 2)
    hidden = functional.conv2d(rows, weight, first[1][:, 0], padding=1).relu()
    hidden = functional.conv2d(hidden, second[0][:, :, None, None], second[1][:, 0]).relu()
    weight = last.view(3, 3, -1, last.shape[1]).permute(2, 3, 0, 1)
    return functional.conv2d(hidden, weight, padding=1).permute(1, 2, 3, 0)


VARIANTS: dict[str, Callable[..., Tensor]] = {
    "written": flow_steps.network,
    "autograd": autograd,
    "conv2d": conv2d,
}


def main() -> None:
    """Fit and print."""
    for n_rows, n_columns in ((1000, 10), (3000, 60)):
        rng = np.random.default_rng(0)
        table = rng.normal(size=(n_rows, 4)) @ rng.normal(size=(4, n_columns))
        table += 0.3 * rng.normal(size=table.shape)
        seconds: dict[str, list[float]] = {name: [] for name in VARIANTS}
        scores = {}
        for _ in range(3):
            for name, variant in VARIANTS.items():
                flow_steps.network = variant
                start = time.process_time()
                fitted = ALTBI(backbone=Glow(), random_state=0).fit(table)
                seconds[name].append(time.process_time() - start)
                scores[name] = fitted.outlier_score(table)
        for name in VARIANTS:
            worst = np.abs(scores[name] - scores["written"]).max() / np.abs(scores["written"]).max()
            sys.stdout.write(
                f"{n_rows} x {n_columns} {name}: {min(seconds[name]):.2f} s, all {[round(s, 2) for s in seconds[name]]} "
                f"{min(seconds[name]) / min(seconds['written']):.2f} times, scores {worst:.1e}\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
