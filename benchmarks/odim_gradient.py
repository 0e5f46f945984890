"""Compare an ODIM fit with and without the selective gradient of many Monte Carlo samples.

    python benchmarks/odim_gradient.py

The script fits ``ODIM(n_models=1)`` on a generated table of 1,000 rows and 200 columns, three times
with each variant in turn. It prints the CPU seconds of the fastest fit, and how far scores differ.
Rounding differs between the variants, and training amplifies it.
"""

import sys
import time

import numpy as np

from altbi import ODIM
from altbi.networks._iwae_network import IWAENetwork

VARIANTS = {"selective": IWAENetwork.is_selective, "full": property(lambda network: False)}


def main() -> None:
    """Fit with both variants, and print the results."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=(1000, 8)) @ rng.normal(size=(8, 200)) + rng.normal(size=(1000, 200))
    seconds: dict[str, list[float]] = {name: [] for name in VARIANTS}
    scores = {}
    for _ in range(3):
        for name, variant in VARIANTS.items():
            IWAENetwork.is_selective = variant  # type: ignore[method-assign, assignment]
            start = time.process_time()
            detector = ODIM(n_models=1).fit(table)
            seconds[name].append(time.process_time() - start)
            scores[name] = detector.outlier_score(table)
    for name, times in seconds.items():
        ratio = min(times) / min(seconds["selective"])
        difference = np.abs(scores[name] - scores["selective"]).max()
        relative = difference / np.abs(scores["selective"]).max()
        sys.stdout.write(
            f"{name}: {min(times):.2f} s, {ratio:.2f} times as long, "
            f"scores differ by {relative:.1e}\n"
        )


if __name__ == "__main__":
    main()
