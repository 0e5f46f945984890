"""How near scoring comes to what the processor can do: rows per second as shares of two limits.

    python benchmarks/share.py --widths 10,100,500

A detector is fitted on 20,000 normal rows, with a training cut short, for only scoring counts here.
Fresh rows, all different, are then scored, as many as take about a second. In the same rounds run:
the plain float32 products of the same shapes, their results thrown away, at the best of some block
sizes; and the fastest product this machine can do, of two square matrices. Medians over the rounds.

"of plain products" is the time of those over the time of scoring; "of the best product" is the
multiply-adds of scoring in a second over those of the best product. Of the time of scoring, the
last columns say how much it takes to encode the rows and to measure them (products, then choosing
neighbours or summing up losses), each called by itself; what is missing goes into checks.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from altbi import ALTBI
from altbi.table import as_table
from altbi_bench.tables.grids import markdown_grid
from measuring import machine

FITTED = 20_000
CHUNK_ROWS, CHUNK_CELLS = 1 << 16, 1 << 22  # as the detectors cut a table
BLOCKS = (64, 256, 1024, 4096)
SIDE = 2048
SHORT: dict[str, Any] = {"T0": 1, "T1": 1, "T2": 2, "updates": 1}
# The loss is an average over as many snapshots as the plain training leaves.
DETECTORS: dict[str, dict[str, Any]] = {
    "distance": SHORT,
    "loss": SHORT | {"T2": 20, "score_by": "loss"},
}

Rows = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Product:
    """Matrices ``(outputs, inputs)``, so many of them, each applied to every row so many times."""

    matrices: int
    outputs: int
    inputs: int
    times: int = 1

    @property
    def multiply_adds(self) -> int:
        """Count them for one row."""
        return prod((self.matrices, self.outputs, self.inputs, self.times))

    def work(self, block: int) -> Callable[[], object]:
        """Multiply a block of rows; the result goes where the last one went."""
        shapes = (self.matrices, self.outputs, self.inputs), (self.matrices, self.inputs, -1)
        left = torch.ones(shapes[0])
        right = torch.ones(self.matrices * self.inputs * block * self.times).reshape(shapes[1])
        result = torch.empty(self.matrices, self.outputs, block * self.times)
        return lambda: torch.bmm(left, right, out=result)


def products(detector: ALTBI) -> list[Product]:
    """List the products that scoring a row asks for."""
    if detector.scorer_ is not None:
        n_reference, width = detector.scorer_.rows.shape
        whitening = [] if detector.scorer_.whitening is None else [Product(1, width, width)]
        return [*whitening, Product(1, n_reference, width)]
    found = []
    for name, weights in detector.snapshots_.items():
        if name.endswith(".weight"):
            decoding = name.startswith(("decoder.", "mean.", "log_variance."))
            matrices, outputs, inputs = weights.shape
            times = detector.draws if decoding else 1
            found.append(Product(matrices, outputs, inputs, times))
    return found


def plain_products(asked: list[Product], n_rows: int, threads: int) -> float:
    """Seconds of the products alone, at the best block size, each thread with blocks of its own."""
    return min(_in_blocks(asked, n_rows, threads, block) for block in BLOCKS)


def _in_blocks(asked: list[Product], n_rows: int, threads: int, block: int) -> float:
    share = -(-n_rows // (block * threads))  # blocks of one thread
    works = [[product.work(block) for product in asked] for _ in range(threads)]

    @torch.inference_mode()
    def alone(works: list[Callable[[], object]], times: int) -> None:
        for _ in range(times):
            for work in works:
                work()

    for work in works:
        alone(work, 1)
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        seconds = timed(lambda: list(pool.map(alone, works, [share] * threads)))
    return seconds * n_rows / (share * block * threads)


def best_product() -> float:
    """Multiply-adds in a second of the fastest product, on all threads."""
    square = torch.ones(SIDE, SIDE)
    result = square @ square
    return SIDE**3 / timed(lambda: torch.mm(square, square, out=result))


def timed(work: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def parts(detector: ALTBI, X: Rows) -> tuple[float, float]:
    """Seconds of encoding and of measuring, in the chunks of the detector."""
    by_loss = detector.scorer_ is None
    encode = detector.encoder_.transform if by_loss else detector.encoder_.standardize
    scorer = detector.scorer_ or detector.ensemble_
    encoding = measuring = 0.0
    for chunk in _chunks(X):
        start = time.perf_counter()
        rows = encode(as_table(chunk, detector.encoder_.names))
        encoding += time.perf_counter() - start
        measuring += timed(partial(scorer.score, rows))
    return encoding, measuring


def _chunks(X: Rows) -> Iterator[Rows]:
    size = min(CHUNK_CELLS // X.shape[1], CHUNK_ROWS)
    return (X[first : first + size] for first in range(0, len(X), size))


def enough_rows(detector: ALTBI, draw: np.random.Generator, seconds: float) -> Rows:
    """Draw as many rows as take about so many seconds to score."""
    few = draw.normal(size=(2048, detector.n_features_in_))
    detector.outlier_score(few)
    count = round(len(few) * seconds / timed(lambda: detector.outlier_score(few)))
    return draw.normal(size=(max(count, 1), detector.n_features_in_))


def measure(scored_by: str, width: int, args: argparse.Namespace) -> list[str]:
    """Give one row of the table."""
    draw = np.random.default_rng(0)
    detector = ALTBI(**DETECTORS[scored_by]).fit(draw.normal(size=(args.fitted, width)))
    X, asked = enough_rows(detector, draw, args.seconds), products(detector)
    rounds = [
        (
            timed(lambda: detector.outlier_score(X)),
            plain_products(asked, len(X), args.threads),
            best_product(),
            *parts(detector, X),
        )
        for _ in range(args.rounds)
    ]
    total, plain, best, encoding, measuring = map(statistics.median, zip(*rounds, strict=True))
    multiply_adds = len(X) * sum(product.multiply_adds for product in asked)
    shares = plain / total, multiply_adds / total / best, encoding / total, measuring / total
    return [
        scored_by,
        str(width),
        f"{len(X):,}",
        f"{len(X) / total:,.0f}",
        f"{2 * multiply_adds / total / 1e9:.1f}",
        f"{2 * best / 1e9:.1f}",
        *(f"{100 * share:.1f} %" for share in shares),
    ]


def main() -> None:
    """Write one Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--widths", default="10,100,500", help="columns (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=1, help="of a call, about")
    parser.add_argument("--fitted", type=int, default=FITTED, help="rows to fit on")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    sys.stdout.write(f"{machine('altbi', 'torch', 'numpy')}, threads: {args.threads}\n\n")
    table = [["scored by", "columns", "rows", "rows/s", "GFLOP/s", "best GFLOP/s"]]
    table[0] += ["of plain products", "of the best product", "encoding", "measuring"]
    for scored_by in DETECTORS:
        for width in args.widths.split(","):
            table.append(measure(scored_by, int(width), args))
            sys.stderr.write(f"scored by {scored_by}, {width} columns\n")
    sys.stdout.write(markdown_grid(table) + "\n")


if __name__ == "__main__":
    main()
