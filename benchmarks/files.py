"""A file of any size against its rows in memory: seconds and peak memory, in one run.

    python benchmarks/files.py --millions 20 --formats parquet

Makes a table of ten numbers a row in a temporary folder, then, each in a process of its own:
`altbi detect` (fit, score and write every row, no page) on the file, and scikit-learn's
IsolationForest, fitted and scored on the same rows, which it is given in memory.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

COLUMNS = 10
BLOCK = 250_000


def blocks(n_rows: int) -> Iterator[np.ndarray]:
    """Give the rows: two clusters and one row in a hundred anywhere."""
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(2, COLUMNS))
    for start in range(0, n_rows, BLOCK):
        size = min(BLOCK, n_rows - start)
        rows = centres[draw.integers(0, 2, size)] + 0.3 * draw.normal(size=(size, COLUMNS))
        odd = draw.random(size) < 0.01
        rows[odd] = draw.uniform(-4, 4, size=(int(odd.sum()), COLUMNS))
        yield rows


def write(path: Path, format_: str, n_rows: int) -> None:
    """Write the rows as Parquet, Arrow or CSV; runs in a process of its own."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    schema = pa.schema([(f"x{place}", pa.float64()) for place in range(COLUMNS)])
    opened: dict[str, Callable] = {
        "parquet": pyarrow.parquet.ParquetWriter,
        "arrow": pa.ipc.new_file,
        "csv": pyarrow.csv.CSVWriter,
    }
    with opened[format_](str(path), schema) as writer:
        for rows in blocks(n_rows):
            writer.write_table(pa.table(list(rows.T), schema=schema))


def forest(n_rows: int, jobs: int) -> None:
    """Fit and score IsolationForest; its seconds are told without the making of the rows."""
    from sklearn.ensemble import IsolationForest

    rows = np.concatenate(list(blocks(n_rows)))
    start = time.perf_counter()
    scores = IsolationForest(random_state=0, n_jobs=jobs).fit(rows).score_samples(rows)
    sys.stdout.write(json.dumps({"seconds": time.perf_counter() - start, "rows": len(scores)}))


def run(*command: str) -> tuple[float, int, str]:
    """Run a command; gives its seconds, its peak memory in bytes, and what it wrote."""
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    written = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    if status:
        raise SystemExit(f"{' '.join(command)} failed with status {status}")
    return seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024), written


def again(*arguments: str) -> tuple[float, int, str]:
    """Run this file with other arguments."""
    return run(sys.executable, __file__, *arguments)


def compare(folder: Path, format_: str, n_rows: int, jobs: int) -> Iterator[list[str]]:
    """Give one line for the file and one for the rows in memory."""
    path, rows = folder / f"rows.{format_}", str(n_rows)
    again("--write", str(path), format_, rows)
    altbi = str(Path(sys.executable).with_name("altbi"))
    scores = "csv" if format_ == "csv" else "parquet"
    options = ["--no-report", "--json", "--threads", str(jobs), "--format", scores]
    seconds, peak, written = run(
        altbi, "detect", str(path), "--output", str(folder / "found"), *options
    )
    assert json.loads(written)["rows"] == n_rows
    megabytes = path.stat().st_size / 2**20
    yield _line(f"altbi detect, {format_} of {megabytes:,.0f} MiB", n_rows, seconds, peak, 1.0)
    _, peak, written = again("--forest", rows, str(jobs))
    forest_seconds = json.loads(written)["seconds"]
    ratio = forest_seconds / seconds
    yield _line("IsolationForest, in memory", n_rows, forest_seconds, peak, ratio)
    path.unlink()


def _line(system: str, n_rows: int, seconds: float, peak: int, ratio: float) -> list[str]:
    speed = f"{n_rows / seconds:,.0f}"
    return [system, f"{n_rows:,}", f"{seconds:.1f}", speed, f"{peak / 2**20:,.0f}", f"{ratio:.2f}"]


def main() -> None:
    """Write one Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--millions", type=float, default=20, help="rows (default: %(default)s)")
    parser.add_argument("--formats", default="parquet", help="of parquet,arrow,csv")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="threads of both systems")
    parser.add_argument("--write", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--forest", nargs=2, type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.write:
        return write(Path(args.write[0]), args.write[1], int(args.write[2]))
    if args.forest:
        return forest(*args.forest)

    head = "| system | rows | seconds | rows/s | peak MiB | seconds / altbi's |"
    sys.stdout.write(f"{head}\n| --- | ---: | ---: | ---: | ---: | ---: |\n")
    with tempfile.TemporaryDirectory() as folder:
        for format_ in args.formats.split(","):
            for cells in compare(Path(folder), format_, int(args.millions * 1e6), args.jobs):
                sys.stdout.write("| " + " | ".join(cells) + " |\n")
                sys.stdout.flush()
    return None


if __name__ == "__main__":
    main()
