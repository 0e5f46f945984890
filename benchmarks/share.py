"""Speed of scoring relative to two limits of the processor.

    python benchmarks/share.py --widths 10,100,500

A detector is fitted on 20,000 normal rows with a short training, because only scoring is measured.
Then it scores new rows, as many as take about a second. The same rounds also run the float32 matrix
products of the same shapes, with the best of some block sizes, and the fastest product of this
machine, that of two square matrices. The table has medians over the rounds.

"of plain products" is the time of the matrix products divided by the time of scoring. "of the best
product" is the multiply-adds per second of scoring divided by those of the best product. The last
columns are the shares of encoding and of computing scores in the time of scoring; the rest is spent
on checks.
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

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from altbi import ALTBI, OutlierDetector, Schedule
from altbi._threads import count_threads, limit_threads, single_blas_thread
from altbi.detectors import Detector
from altbi.scorers import SumScorer
from altbi.table import as_table
from altbi_bench.tables.grids import markdown_grid
from measuring import describe_machine

FIT_ROWS = 20_000
CHUNK_ROWS, CHUNK_VALUES = 1 << 16, 1 << 22  # as the detectors split a table
BLOCKS = (64, 256, 1024, 4096)
SIDE = 2048
DETECTORS: dict[str, Detector] = {
    "distance": OutlierDetector(schedule=Schedule(T0=1, T1=1, T2=2, updates=1)),
    # As many snapshots as after a complete training.
    "loss": ALTBI(schedule=Schedule(T0=1, T1=1, T2=20, updates=1)),
}

Rows = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Product:
    """A number of matrices ``(outputs, inputs)``, each applied to every row `times` times."""

    matrices: int
    outputs: int
    inputs: int
    times: int = 1

    @property
    def multiply_adds(self) -> int:
        """Number of multiply-adds for one row."""
        return prod((self.matrices, self.outputs, self.inputs, self.times))

    def build(self, block: int) -> Callable[[], object]:
        """Return a function that multiplies a block of rows, into the same buffer each time."""
        shapes = (
            (self.matrices, self.outputs, self.inputs),
            (self.matrices, self.inputs, block * self.times),
        )
        left = np.ones(shapes[0], np.float32)
        right = np.ones(shapes[1], np.float32)
        result = np.empty((*shapes[0][:2], shapes[1][2]), np.float32)
        return lambda: np.matmul(left, right, out=result)


def list_products(detector: Detector) -> list[Product]:
    """Return the matrix products that scoring a row needs."""
    scorer = detector.model_.scorer
    if isinstance(scorer, SumScorer):
        n_reference, n_features = scorer.distance.rows.shape
        # Those of a whitening, or of the covariance.
        return [Product(1, n_features, n_features), Product(1, n_reference, n_features)]
    n_samples = detector.model_.settings.training.backbone.n_samples
    found = []
    for name, weights in scorer.arrays.items():
        if name.endswith(".weight"):
            is_decoder = name.startswith(("decoder.", "mean.", "log_variance."))
            matrices, outputs, inputs = weights.shape
            times = n_samples if is_decoder else 1
            found.append(Product(matrices, outputs, inputs, times))
    return found


def measure_products(needed: list[Product], n_rows: int, threads: int) -> float:
    """Return the seconds of the products, for the best block size; threads have separate blocks."""
    return min(_measure_blocks(needed, n_rows, threads, block) for block in BLOCKS)


def _measure_blocks(needed: list[Product], n_rows: int, threads: int, block: int) -> float:
    n_blocks = -(-n_rows // (block * threads))  # of one thread
    functions = [[product.build(block) for product in needed] for _ in range(threads)]

    def run(calls: list[Callable[[], object]], times: int) -> None:
        for _ in range(times):
            for call in calls:
                call()

    for calls in functions:
        run(calls, 1)
    with single_blas_thread(), ThreadPoolExecutor(threads) as pool:
        seconds = measure_seconds(lambda: list(pool.map(run, functions, [n_blocks] * threads)))
    return seconds * n_rows / (n_blocks * block * threads)


def measure_best_product() -> float:
    """Return the multiply-adds per second of the fastest product, on all threads."""
    square = np.ones((SIDE, SIDE), np.float32)
    result = square @ square
    return SIDE**3 / measure_seconds(lambda: np.matmul(square, square, out=result))


def measure_seconds(function: Callable[[], object]) -> float:
    """Return the seconds of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def measure_stages(detector: Detector, X: Rows) -> tuple[float, float]:
    """Return the seconds of encoding and of computing scores, in chunks."""
    scorer, encoder = detector.model_.scorer, detector.encoder_
    encoding = scoring = 0.0
    for chunk in _split(X):
        start = time.perf_counter()
        encoded = scorer.encode(as_table(chunk, encoder.names), encoder)
        encoding += time.perf_counter() - start
        # A sum of scorers has rarities of values besides the rows.
        arguments = encoded if isinstance(encoded, tuple) else (encoded,)
        scoring += measure_seconds(partial(scorer.score, *arguments))
    return encoding, scoring


def _split(X: Rows) -> Iterator[Rows]:
    size = min(CHUNK_VALUES // X.shape[1], CHUNK_ROWS)
    return (X[first : first + size] for first in range(0, len(X), size))


def sample_rows(detector: Detector, rng: np.random.Generator, seconds: float) -> Rows:
    """Sample as many rows as take about `seconds` to score."""
    few = rng.normal(size=(2048, detector.n_features_in_))
    detector.outlier_score(few)
    count = round(len(few) * seconds / measure_seconds(lambda: detector.outlier_score(few)))
    return rng.normal(size=(max(count, 1), detector.n_features_in_))


def measure(scored_by: str, width: int, args: argparse.Namespace) -> list[str]:
    """Return one row of the table."""
    rng = np.random.default_rng(0)
    detector = clone(DETECTORS[scored_by]).fit(rng.normal(size=(args.fitted, width)))
    X, needed = sample_rows(detector, rng, args.seconds), list_products(detector)
    rounds = [
        (
            measure_seconds(lambda: detector.outlier_score(X)),
            measure_products(needed, len(X), args.threads),
            measure_best_product(),
            *measure_stages(detector, X),
        )
        for _ in range(args.rounds)
    ]
    total, plain, best, encoding, scoring = map(statistics.median, zip(*rounds, strict=True))
    multiply_adds = len(X) * sum(product.multiply_adds for product in needed)
    shares = plain / total, multiply_adds / total / best, encoding / total, scoring / total
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
    """Print one Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--widths", default="10,100,500", help="columns (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=count_threads())
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=1, help="of a call, about")
    parser.add_argument("--fitted", type=int, default=FIT_ROWS, help="rows to fit on")
    args = parser.parse_args()
    limit_threads(args.threads)

    sys.stdout.write(f"{describe_machine('altbi', 'numpy')}, threads: {args.threads}\n\n")
    table = [["scored by", "columns", "rows", "rows/s", "GFLOP/s", "best GFLOP/s"]]
    table[0] += ["of plain products", "of the best product", "encoding", "scoring"]
    for scored_by in DETECTORS:
        for width in args.widths.split(","):
            table.append(measure(scored_by, int(width), args))
            sys.stderr.write(f"scored by {scored_by}, {width} columns\n")
    sys.stdout.write(markdown_grid(table) + "\n")


if __name__ == "__main__":
    main()
