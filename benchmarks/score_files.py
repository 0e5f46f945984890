"""Rows per second of `altbi score` on Parquet files, compared with another version in one run.

    git worktree add ../altbi-0.1 0bbe92d
    python benchmarks/score_files.py --source ../altbi-0.1/src --rows 1e6,1e7

A folder of Parquet files with a million rows of ten numbers each grows from size to size. Each
version fits a model on the first file, then scores the folder and writes all scores as Parquet.
Both run in turn with the same Python, and the median counts. Seconds are those of the complete
command, including the start of Python. Files may still be in the system's cache.
"""

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

from altbi_bench.tables.grids import markdown_grid
from hundred_million import PER_FILE, grow
from measuring import describe_machine, run_command
from start import OURS, RUN


def run_altbi(source: Path, *arguments: str) -> tuple[float, float]:
    """Run a command with the sources of a version; return its seconds and its peak in MiB."""
    os.environ["PYTHONPATH"] = str(source)
    seconds, peak, _ = run_command(sys.executable, "-c", RUN, *arguments, "--quiet")
    return seconds, peak / 2**20


def measure_size(
    sources: dict[str, Path], folder: Path, n_rows: int, per_file: int, repeats: int
) -> dict[str, tuple[float, float]]:
    """Return the median seconds and the largest peak of each version for a number of rows."""
    table, scores = folder / "rows", folder / "scores.parquet"
    os.environ.pop("PYTHONPATH", None)
    grow(table, n_rows, per_file)
    found: dict[str, list[tuple[float, float]]] = {version: [] for version in sources}
    for _ in range(repeats):
        for version, source in sources.items():
            model = folder / f"{version}.altbi"
            if not model.exists():
                run_altbi(source, "fit", str(next(table.iterdir())), "-o", str(model))
            found[version].append(
                run_altbi(source, "score", str(table), "-m", str(model), "-o", str(scores))
            )
            scores.unlink()
    return {
        version: (statistics.median(seconds for seconds, _ in runs), max(peak for _, peak in runs))
        for version, runs in found.items()
    }


def measure_sizes(sources: dict[str, Path], sizes: list[int], repeats: int) -> list[list[str]]:
    """Return a table of seconds and memory by version and number of rows, small tables first.

    Files have a million rows each, or as many as the smallest table.
    """
    table = [["version", "rows", "seconds", "rows/s", "peak MiB", "rows/s, ours / theirs"]]
    per_file = min(*sizes, PER_FILE)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "rows").mkdir()
        for n_rows in sorted(sizes):
            found = measure_size(sources, Path(folder), n_rows, per_file, repeats)
            for version, (seconds, peak) in found.items():
                ratio = f"{seconds / found[OURS][0]:.2f}" if version != OURS else ""
                cells = [f"{n_rows:,}", f"{seconds:.2f}", f"{n_rows / seconds:,.0f}", f"{peak:.0f}"]
                table.append([version, *cells, ratio])
    return table


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, help="sources of the version to compare with")
    parser.add_argument("--rows", default="1e6,1e7", help="default: %(default)s")
    parser.add_argument("--repeats", type=int, default=3, help="default: %(default)s")
    args = parser.parse_args()
    sources = {OURS: Path(__file__).parents[1] / "src"}
    if args.source:
        sources["other version"] = args.source.resolve()
    sizes = [int(float(size)) for size in args.rows.split(",")]
    table = measure_sizes(sources, sizes, args.repeats)
    sys.stdout.write(f"{describe_machine('numpy', 'pyarrow')}\n\n{markdown_grid(table)}\n")


if __name__ == "__main__":
    main()
