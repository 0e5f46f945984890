"""Seconds and peak memory of the command line, for up to a hundred million rows.

    python benchmarks/hundred_million.py             run sizes without a record
    python benchmarks/hundred_million.py --no-runs   print the table of the existing records

A folder of Parquet files, at most a million rows of ten float32 numbers each, grows from size to
size. A model is fitted once, on the smallest folder; `altbi score` then reads each folder and
writes all scores as Parquet. Seconds are those of the complete command, including the start of
Python. Files just written may still be in the system's cache. All files are removed at the end.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from altbi_bench.runs.json_records import append_json_record, read_json_records
from altbi_bench.tables.grids import markdown_grid
from measuring import COLUMNS, Record, altbi_command, describe_machine, generate_rows, run_command

RECORDS = Path(__file__).parent / "results" / "hundred_million.jsonl"
PER_FILE = 1_000_000
# Ten numbers of four bytes; row number, score and label. None of them compresses well.
BYTES_PER_ROW = 4 * COLUMNS + 24

Records = dict[tuple[str, int], Record]


def write_files(folder: Path, first: int, last: int, per_file: int) -> None:
    """Write some of the files; runs in a process of its own."""
    import pyarrow as pa
    import pyarrow.parquet

    schema = pa.schema([(f"x{index}", pa.float32()) for index in range(COLUMNS)])
    for number in range(first, last):
        path = folder / f"part-{number:05}.parquet"
        # With dictionaries of numbers that all differ, files would be 1.5 times as large.
        with pyarrow.parquet.ParquetWriter(str(path), schema, use_dictionary=False) as writer:
            for rows in generate_rows(per_file, seed=number):
                writer.write_table(pa.table(list(rows.astype("f4").T), schema=schema))


def grow(folder: Path, n_rows: int, per_file: int) -> None:
    """Add files until the folder has a number of rows."""
    present, wanted = len(list(folder.iterdir())), n_rows // per_file
    needed, free = BYTES_PER_ROW * n_rows, shutil.disk_usage(folder).free
    needed -= sum(file.stat().st_size for file in folder.iterdir())
    if free < needed:
        raise SystemExit(
            f"{folder}: {n_rows:,} rows and their scores need {needed / 1e9:.1f} GB more, but only "
            f"{free / 1e9:.1f} GB are free. Delete files, or pass another folder with --folder."
        )
    numbers = (str(number) for number in (present, wanted, per_file))
    run_command(sys.executable, __file__, "--write", str(folder), *numbers)


def measure(step: str, n_rows: int, *arguments: str) -> Record:
    """Run a command of altbi, and check that it has read every row."""
    seconds, peak, output = run_command(altbi_command(), step, *arguments, "--json")
    found = json.loads(output)["rows"]
    if found != n_rows:
        raise SystemExit(f"altbi {step} read {found:,} rows, but there are {n_rows:,}.")
    machine = describe_machine("altbi", "numpy", "pyarrow")
    return {"step": step, "rows": n_rows, "seconds": seconds, "peak": peak, "machine": machine}


def fill(records: Records, sizes: list[int], folder: Path, args: argparse.Namespace) -> None:
    """Run sizes without a record, small ones first."""
    rows, model, scores = folder / "rows", str(folder / "rows.altbi"), folder / "scores.parquet"
    rows.mkdir()
    threads, per_file = ("--threads", str(args.threads)), min(sizes[0], PER_FILE)

    def add(record: Record) -> None:
        records[record["step"], record["rows"]] = record
        append_json_record(args.records, record)
        sys.stderr.write(f"{record['step']}, {record['rows']:,} rows: {record['seconds']:.1f} s\n")

    grow(rows, sizes[0], per_file)
    add(measure("fit", sizes[0], str(rows), "-o", model, *threads))
    for size in sizes:
        if ("score", size) not in records:
            grow(rows, size, per_file)
            output = ("-o", str(scores), "--format", "parquet")
            add(measure("score", size, str(rows), "-m", model, *output, *threads))
            scores.unlink()


def format_table(records: Records) -> str:
    """Format one row for each command and size."""
    rows = [["command", "rows", "seconds", "rows/s", "rows/s of those added", "peak MiB"]]
    last: Record = {}
    for (step, size), record in sorted(records.items()):
        seconds, added = record["seconds"], ""
        if last.get("step") == step:
            added = f"{(size - last['rows']) / (seconds - last['seconds']):,.0f}"
        speeds = f"{seconds:,.1f}", f"{size / seconds:,.0f}", added
        rows.append([f"altbi {step}", f"{size:,}", *speeds, f"{record['peak'] / 2**20:,.0f}"])
        last = record
    machines = "\n".join(sorted({record["machine"] for record in records.values()}))
    return f"{machines}\n\n{markdown_grid(rows)}"


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-runs", action="store_true", help="only print the table")
    parser.add_argument("--rows", default="1e6,1e7,1e8", help="default: %(default)s")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--folder", type=Path, help="for temporary files (default: the system's)")
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--write", nargs=4, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Run, and print the table."""
    args = parse_arguments()
    if args.write:
        return write_files(Path(args.write[0]), *map(int, args.write[1:]))
    records = {(each["step"], each["rows"]): each for each in read_json_records(args.records)}
    sizes = sorted(int(float(size)) for size in args.rows.split(","))
    if any(size % min(sizes[0], PER_FILE) for size in sizes):
        raise SystemExit(f"--rows {args.rows}: expected multiples of the first, or of a million.")
    if not args.no_runs and any(("score", size) not in records for size in sizes):
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            fill(records, sizes, Path(folder), args)
    sys.stdout.write(format_table(records) + "\n")
    return None


if __name__ == "__main__":
    main()
