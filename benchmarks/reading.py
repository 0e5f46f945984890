"""Seconds and memory of reading files: against pandas and DuckDB, and against version 0.1.

    git worktree add ../altbi-0.1 0bbe92d
    python benchmarks/reading.py --old ../altbi-0.1/src
    python benchmarks/reading.py --only wide --old ../altbi-0.1/src

Four sections, each with its own table:

- csv: two CSV files of 10^6 rows, one of ten numbers and one of 20 mixed columns. Complete commands
  are `altbi detect`, and a program that reads the file with `pandas.read_csv`, and fits and scores
  with scikit-learn's `IsolationForest(n_jobs=2)`; it encodes texts as ordinals and dates as
  integers. The passes alone are timed inside a process, after the imports: the first opens and
  scans the file, the second parses all batches. DuckDB reads all columns as text: it sums their
  lengths, or yields Arrow batches.
- score: `altbi score` of a folder of Parquet files, 10^7 rows of ten numbers, with all scores
  written as Parquet. `score_files.py` has more sizes.
- mixed: `altbi detect` of a Parquet file of 10^6 rows of 20 mixed columns, and a program that reads
  it with pandas, one-hot encodes texts (the 32 most frequent of each column), and fits and scores
  with `IsolationForest(n_jobs=2)`.
- wide: `altbi detect` of a mixed table of 1,500 rows and 400 columns, as CSV and as Parquet.

Versions and programs run in turn, and the median of the rounds counts; the peak is the largest.
Files may still be in the system's cache.
"""

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from altbi_bench.tables.grids import markdown_grid
from measuring import describe_machine, run_command
from score_files import measure_sizes, run_altbi
from start import OURS

SECTIONS = ("csv", "score", "mixed", "wide")
OLD = "version 0.1"
HERE = Path(__file__).parents[1] / "src"
FOREST = "pandas.read_csv + IsolationForest"
ONE_HOT = "pandas + one-hot + IsolationForest"
SCANS = ("DuckDB, sum of lengths", "DuckDB, Arrow batches")
FIRST, SECOND, BOTH = "first pass: open and scan", "second pass: read and parse", "both passes"


@dataclass(frozen=True, slots=True)
class Measured:
    """The median seconds and the largest peak, in MiB, of several runs."""

    seconds: float
    peak: float


def measure_in_turn(
    runs: dict[str, Callable[[], tuple[float, float]]], repeats: int
) -> dict[str, Measured]:
    """Call all functions in turn, several times; each returns its seconds and its peak in MiB."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            found[name].append(run())
            sys.stderr.write(f"{name}: {found[name][-1][0]:.2f} s\n")
    return {
        name: Measured(
            statistics.median(seconds for seconds, _ in results),
            max(peak for _, peak in results),
        )
        for name, results in found.items()
    }


def run_detect(source: Path, table: Path, *options: str) -> tuple[float, float]:
    """Run `altbi detect` with the sources of a version; return its seconds and its peak."""
    with tempfile.TemporaryDirectory(dir=table.parent) as folder:
        return run_altbi(source, "detect", str(table), "-o", folder, *options)


def run_child(activity: str, table: Path, *, inside: bool = False) -> tuple[float, float]:
    """Run an activity of `ACTIVITIES` in a new process; return its seconds and its peak.

    With `inside`, the seconds are those that the process measured after its imports.
    """
    os.environ["PYTHONPATH"] = str(HERE)  # another run may have set it to those of version 0.1
    seconds, peak, output = run_command(sys.executable, __file__, "--child", activity, str(table))
    return float(json.loads(output)) if inside else seconds, peak / 2**20


def fit_forest(path: Path) -> float:
    """Read a CSV file with pandas, and fit and score with an isolation forest."""
    import pandas as pd
    from sklearn.ensemble import IsolationForest

    start = time.perf_counter()
    frame = pd.read_csv(path)
    for name in frame.columns:
        column = frame[name]
        if pd.api.types.is_numeric_dtype(column):
            continue
        if name.startswith("date"):
            frame[name] = pd.to_datetime(column).astype("int64")
        else:
            frame[name] = column.astype("category").cat.codes
    frame = frame.fillna(frame.median())
    IsolationForest(n_jobs=2, random_state=0).fit(frame).score_samples(frame)
    return time.perf_counter() - start


def fit_one_hot_forest(path: Path) -> float:
    """Read a Parquet file with pandas, one-hot encode it, and fit and score an isolation forest."""
    import pandas as pd
    from sklearn.ensemble import IsolationForest

    start = time.perf_counter()
    frame = pd.read_parquet(path)
    parts = []
    for name in frame.columns:
        column = frame[name]
        if pd.api.types.is_datetime64_any_dtype(column):
            parts.append(column.astype("int64"))
        elif pd.api.types.is_numeric_dtype(column):
            parts.append(column)
        else:
            frequent = column.value_counts().index[:32]
            parts.append(pd.get_dummies(column.where(column.isin(frequent)), prefix=name))
    rows = pd.concat(parts, axis=1).astype("float32")
    rows = rows.fillna(rows.median())
    IsolationForest(n_jobs=2, random_state=0).fit(rows).score_samples(rows)
    return time.perf_counter() - start


def scan_by_duckdb(path: Path, *, as_arrow: bool) -> float:
    """Read all columns of a CSV file as text with DuckDB, in two threads."""
    import duckdb

    connection = duckdb.connect(config={"threads": 2})
    start = time.perf_counter()
    relation = connection.read_csv(str(path), all_varchar=True)
    if as_arrow:
        for _ in relation.to_arrow_reader(1 << 16):
            pass
    else:
        sums = ", ".join(f'sum(length("{name}"))' for name in relation.columns)
        relation.aggregate(f"count(*), {sums}").fetchall()
    return time.perf_counter() - start


def read_by_altbi(path: Path, *, second_pass: bool) -> float:
    """Open and scan a file; return the seconds of this, or those of parsing all rows after it.

    The first lines are read before, as a file of their own, to import all modules.
    """
    with tempfile.TemporaryDirectory() as folder, path.open("rb") as file:
        head = Path(folder, path.name)
        head.write_bytes(b"".join(itertools.islice(file, 100)))
        time_passes(head)
    return time_passes(path)[second_pass]


def time_passes(path: Path) -> tuple[float, float]:
    """Return the seconds to open and scan a file, and to read and parse all its rows."""
    from altbi import open_table
    from altbi.io import scan_table

    start = time.perf_counter()
    source = open_table(path)
    names = source.schema.names
    scan = scan_table(source, names, source.batches(names), limit=200_000, seed=0)
    between, first_row = time.perf_counter(), 0
    for batch in source.batches(names):
        scan.parser.parse(batch, first_row)
        first_row += len(batch)
    return between - start, time.perf_counter() - between


ACTIVITIES: dict[str, Callable[[Path], float]] = {
    FOREST: fit_forest,
    ONE_HOT: fit_one_hot_forest,
    SCANS[0]: partial(scan_by_duckdb, as_arrow=False),
    SCANS[1]: partial(scan_by_duckdb, as_arrow=True),
    FIRST: partial(read_by_altbi, second_pass=False),
    SECOND: partial(read_by_altbi, second_pass=True),
}


def write_table(path: Path, n_rows: int, n_columns: int) -> None:
    """Write a table of mixed columns as CSV or Parquet; with ten columns, of numbers only.

    It runs in a process of its own, because the peak of a child starts from its parent's size.
    """
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    from mixed_columns import generate_mixed_blocks, generate_number_blocks

    generate = generate_number_blocks if n_columns == 10 else generate_mixed_blocks
    blocks: Iterator[pa.Table] = generate(n_rows, n_columns)
    first = next(blocks)
    create = pyarrow.csv.CSVWriter if path.suffix == ".csv" else pyarrow.parquet.ParquetWriter
    with create(str(path), first.schema) as writer:
        for block in (first, *blocks):
            writer.write_table(block)


def create_table(path: Path, n_rows: int, n_columns: int) -> Path:
    """Write a table in a new process, and return its path."""
    run_command(sys.executable, __file__, "--write", str(path), str(n_rows), str(n_columns))
    return path


def measure_csv(folder: Path, sources: dict[str, Path], args: argparse.Namespace) -> str:
    """Return a Markdown table for each CSV file."""
    parts = []
    for n_columns, title in ((10, "10 numbers"), (20, "20 mixed columns")):
        path = create_table(folder / f"{n_columns}.csv", args.rows, n_columns)
        runs: dict[str, Callable[[], tuple[float, float]]] = {}
        for version, source in sources.items():
            runs[f"altbi detect, {version}"] = partial(run_detect, source, path)
        runs["altbi detect --no-report"] = partial(run_detect, HERE, path, "--no-report")
        runs[FOREST] = partial(run_child, FOREST, path)
        for activity in (*SCANS, FIRST, SECOND):
            runs[activity] = partial(run_child, activity, path, inside=True)
        found = measure_in_turn(runs, args.repeats)
        megabytes = path.stat().st_size / 1e6
        heading = f"CSV of {args.rows:,} rows x {title}, {megabytes:,.0f} MB"
        parts.append(f"{heading}\n\n{format_csv(found)}")
        path.unlink()
    return "\n\n".join(parts)


def format_csv(found: dict[str, Measured]) -> str:
    """Format the measurements of one CSV file; passes are compared with scans of DuckDB."""
    passes = found[FIRST], found[SECOND]
    found[BOTH] = Measured(sum(each.seconds for each in passes), max(each.peak for each in passes))
    rows = [["", "seconds", "peak MiB", "/ forest", *(f"/ {name}" for name in SCANS)]]
    for name, each in found.items():
        is_command = name == FOREST or name.startswith("altbi")
        ratios = [f"{each.seconds / found[FOREST].seconds:.2f}" if is_command else ""]
        ratios += [
            "" if is_command else f"{each.seconds / found[scan].seconds:.2f}" for scan in SCANS
        ]
        rows.append([name, f"{each.seconds:.2f}", f"{each.peak:,.0f}", *ratios])
    return markdown_grid(rows)


def measure_mixed(folder: Path, sources: dict[str, Path], args: argparse.Namespace) -> str:
    """Return a Markdown table of `altbi detect` on a Parquet file of mixed columns."""
    path = create_table(folder / "mixed.parquet", args.rows, 20)
    runs: dict[str, Callable[[], tuple[float, float]]] = {
        version: partial(run_detect, source, path) for version, source in sources.items()
    }
    runs[ONE_HOT] = partial(run_child, ONE_HOT, path)
    found = measure_in_turn(runs, args.repeats)
    ours = found[OURS].seconds
    rows = [["", "seconds", "peak MiB", "ours / theirs"]]
    for name, each in found.items():
        ratio = "" if name == OURS else f"{ours / each.seconds:.2f}"
        rows.append([name, f"{each.seconds:.2f}", f"{each.peak:,.0f}", ratio])
    return f"Parquet file of {args.rows:,} rows x 20 mixed columns\n\n{markdown_grid(rows)}"


def measure_wide(folder: Path, sources: dict[str, Path], args: argparse.Namespace) -> str:
    """Return a Markdown table of `altbi detect` on wide tables, by format and version."""
    n_rows, n_columns = map(int, args.wide.split("x"))
    rows = [["format", "version", "seconds", "peak MiB", "seconds / ours", "peak / ours"]]
    for ending in ("csv", "parquet"):
        path = create_table(folder / f"wide.{ending}", n_rows, n_columns)
        runs: dict[str, Callable[[], tuple[float, float]]] = {
            version: partial(run_detect, source, path) for version, source in sources.items()
        }
        found = measure_in_turn(runs, args.repeats)
        for version, each in found.items():
            ratios = (each.seconds / found[OURS].seconds, each.peak / found[OURS].peak)
            shown = [f"{ratio:.2f}" for ratio in ratios] if version != OURS else ["", ""]
            rows.append([ending, version, f"{each.seconds:.2f}", f"{each.peak:,.0f}", *shown])
    return f"altbi detect of {n_rows:,} x {n_columns} mixed values\n\n{markdown_grid(rows)}"


def measure_score(sources: dict[str, Path], args: argparse.Namespace) -> str:
    """Return a Markdown table of `altbi score` on Parquet files, by version."""
    table = measure_sizes(sources, [args.score_rows], args.repeats)
    return f"altbi score of Parquet files of 10 numbers\n\n{markdown_grid(table)}"


def count(text: str) -> int:
    """Return a number of rows that is written as 1000000 or as 1e6."""
    return int(float(text))


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--old", type=Path, help="sources of version 0.1 (default: left out)")
    parser.add_argument("--only", choices=SECTIONS, help="one section (default: all)")
    parser.add_argument("--rows", type=count, default=10**6, help="of CSV files (%(default)s)")
    parser.add_argument("--score-rows", type=count, default=10**7, help="default: %(default)s")
    parser.add_argument("--wide", default="1500x400", help="rows x columns (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--write", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Print Markdown tables."""
    args = parse_arguments()
    if args.child:
        sys.stdout.write(json.dumps(ACTIVITIES[args.child[0]](Path(args.child[1]))))
        return
    if args.write:
        write_table(Path(args.write[0]), int(args.write[1]), int(args.write[2]))
        return
    sources = {OURS: HERE} | ({OLD: args.old.resolve()} if args.old else {})
    packages = ("numpy", "pyarrow", "duckdb", "pandas", "scikit-learn")
    sys.stdout.write(f"{describe_machine(*packages)}\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sections: dict[str, Callable[[], str]] = {
            "csv": lambda: measure_csv(folder, sources, args),
            "score": lambda: measure_score(sources, args),
            "mixed": lambda: measure_mixed(folder, sources, args),
            "wide": lambda: measure_wide(folder, sources, args),
        }
        for section in (args.only,) if args.only else SECTIONS:
            sys.stdout.write(f"\n{sections[section]()}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
