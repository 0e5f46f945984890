"""Rows per second of scoring in memory, compared with another version of the sources.

    python benchmarks/scoring.py --source ../altbi-0.1/src --tables 1000000x10,200000x500

An `OutlierDetector` (with 1,000 reference rows) is fitted on 2,000 random rows, and scores other
random rows. Both versions run in alternation, each in its own process, and the best of the rounds
counts. The last columns are GFLOP/s of one thread for the bare float32 matrix product of a tile,
by NumPy's BLAS and by PyTorch, if it is installed.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from measuring import describe_machine, run_command

HERE = Path(__file__).resolve().parents[1] / "src"
FIT_ROWS = 2_000
N_REFERENCE = 1_000
TILE = 320
SECONDS = 0.3  # of a bare product, about


def measure_scoring(n_rows: int, n_columns: int) -> float:
    """Return the rows per second of one call, after a short one to warm up."""
    import altbi

    rng = np.random.default_rng(0)
    create = getattr(altbi, "OutlierDetector", None) or altbi.ALTBI  # its name in version 0.1
    detector = create().fit(rng.normal(size=(FIT_ROWS, n_columns)))
    X = rng.normal(size=(n_rows, n_columns))
    detector.score_samples(X[: n_rows // 20])
    start = time.perf_counter()
    detector.score_samples(X)
    return n_rows / (time.perf_counter() - start)


def measure_in_process(source: Path, table: str) -> float:
    """Return the rows per second of the sources in a folder, measured in a new process."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(source), str(Path(__file__).parent)])
    _, _, output = run_command(sys.executable, __file__, "--one", table)
    return float(json.loads(output))


def measure_products(n_columns: int) -> list[float]:
    """Return GFLOP/s of NumPy's and PyTorch's product of a tile; NaN without PyTorch."""
    left = np.ones((N_REFERENCE, n_columns + 1), dtype=np.float32)
    right = np.ones((n_columns + 1, TILE), dtype=np.float32)
    result = np.empty((N_REFERENCE, TILE), dtype=np.float32)
    work = 2 * left.size * TILE / 1e9
    with threadpool_limits(1, "blas"):
        numpy_rate = work / measure_call(lambda: np.matmul(left, right, out=result))
    try:
        import torch
    except ImportError:
        return [numpy_rate, np.nan]
    torch.set_num_threads(1)
    tensors = [torch.from_numpy(array) for array in (left, right, result)]
    return [numpy_rate, work / measure_call(lambda: torch.mm(*tensors[:2], out=tensors[2]))]


def measure_call(function: Callable[[], object]) -> float:
    """Return the seconds of the fastest call within `SECONDS`."""
    function()
    times, end = [], time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Print one Markdown table; a ratio above 1 means that this version is faster."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, default=HERE, help="folder of the other version")
    parser.add_argument("--tables", default="1000000x10,1000000x100,200000x500")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--one", metavar="TABLE", help="print rows/s for one table, and end")
    args = parser.parse_args()
    if args.one:
        sys.stdout.write(json.dumps(measure_scoring(*map(int, args.one.split("x")))))
        return

    sys.stdout.write(f"{describe_machine('altbi', 'numpy')}\n\n")
    sys.stdout.write("| rows x columns | other rows/s | this rows/s | ratio | NumPy | PyTorch |\n")
    sys.stdout.write("| --- | ---: | ---: | ---: | ---: | ---: |\n")
    for table in args.tables.split(","):
        rounds = [
            [measure_in_process(source, table) for source in (args.source, HERE)]
            for _ in range(args.rounds)
        ]
        other, this = np.max(rounds, axis=0)
        products = measure_products(int(table.split("x")[1]))
        rates = " | ".join(f"{rate:.0f}" for rate in products)
        sys.stdout.write(
            f"| {table} | {other:,.0f} | {this:,.0f} | {this / other:.2f} | {rates} |\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
