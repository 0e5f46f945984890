"""A hundred million rows through the command line: seconds and peak memory by the number of rows.

    python benchmarks/hundred_million.py             run what results/hundred_million.jsonl lacks
    python benchmarks/hundred_million.py --no-runs   print the table of the lines that are there

A folder of Parquet files, at most a million rows of ten float32 numbers each, grows from size to
size. A model is fitted once, on the smallest folder; `altbi score` then reads each folder and
writes all scores as Parquet. Seconds are those of the whole command, from the start of Python to
its end, and files just written may still be in the system's cache. All of it is removed at the end.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from altbi_bench.runs.json_lines import append_json_line, read_json_lines
from altbi_bench.tables.grids import markdown_grid
from measuring import COLUMNS, Line, altbi_command, clusters, machine, run

LINES = Path(__file__).parent / "results" / "hundred_million.jsonl"
PER_FILE = 1_000_000
# Ten numbers of four bytes, and a row's number, score and label; none of it packs well.
BYTES_PER_ROW = 4 * COLUMNS + 24

Lines = dict[tuple[str, int], Line]


def write(folder: Path, first: int, last: int, per_file: int) -> None:
    """Write some of the files; runs in a process of its own."""
    import pyarrow as pa
    import pyarrow.parquet

    schema = pa.schema([(f"x{place}", pa.float32()) for place in range(COLUMNS)])
    for number in range(first, last):
        part = folder / f"part-{number:05}.parquet"
        # Dictionaries of numbers that all differ would make the files half as large again.
        with pyarrow.parquet.ParquetWriter(str(part), schema, use_dictionary=False) as writer:
            for rows in clusters(per_file, seed=number):
                writer.write_table(pa.table(list(rows.astype("f4").T), schema=schema))


def grow(folder: Path, n_rows: int, per_file: int) -> None:
    """Add files until the folder holds so many rows."""
    present, wanted = len(list(folder.iterdir())), n_rows // per_file
    needed, free = BYTES_PER_ROW * n_rows, shutil.disk_usage(folder).free
    needed -= sum(file.stat().st_size for file in folder.iterdir())
    if free < needed:
        raise SystemExit(
            f"{folder}: {n_rows:,} rows and their scores need {needed / 1e9:.1f} GB more, but only "
            f"{free / 1e9:.1f} GB are free. Make room, or name another place with --folder."
        )
    numbers = (str(number) for number in (present, wanted, per_file))
    run(sys.executable, __file__, "--write", str(folder), *numbers)


def measured(step: str, n_rows: int, *arguments: str) -> Line:
    """Run a command of altbi to its end, and check that it has seen every row."""
    seconds, peak, written = run(altbi_command(), step, *arguments, "--json")
    told = json.loads(written)["rows"]
    if told != n_rows:
        raise SystemExit(f"altbi {step} tells of {told:,} rows, but there are {n_rows:,}.")
    on = machine("altbi", "torch", "pyarrow")
    return {"step": step, "rows": n_rows, "seconds": seconds, "peak": peak, "machine": on}


def fill(lines: Lines, sizes: list[int], place: Path, args: argparse.Namespace) -> None:
    """Run what is missing, small folders first."""
    folder, model, scores = place / "rows", str(place / "rows.altbi"), place / "scores.parquet"
    folder.mkdir()
    threads, per_file = ("--threads", str(args.threads)), min(sizes[0], PER_FILE)

    def keep(line: Line) -> None:
        lines[line["step"], line["rows"]] = line
        append_json_line(args.lines, line)
        sys.stderr.write(f"{line['step']}, {line['rows']:,} rows: {line['seconds']:.1f} s\n")

    grow(folder, sizes[0], per_file)
    keep(measured("fit", sizes[0], str(folder), "-o", model, *threads))
    for size in sizes:
        if ("score", size) not in lines:
            grow(folder, size, per_file)
            output = ("-o", str(scores), "--format", "parquet")
            keep(measured("score", size, str(folder), "-m", model, *output, *threads))
            scores.unlink()


def table(lines: Lines) -> str:
    """One row for each command and size."""
    rows = [["command", "rows", "seconds", "rows/s", "rows/s of those added", "peak MiB"]]
    last: Line = {}
    for (step, size), line in sorted(lines.items()):
        seconds, added = line["seconds"], ""
        if last.get("step") == step:
            added = f"{(size - last['rows']) / (seconds - last['seconds']):,.0f}"
        speeds = f"{seconds:,.1f}", f"{size / seconds:,.0f}", added
        rows.append([f"altbi {step}", f"{size:,}", *speeds, f"{line['peak'] / 2**20:,.0f}"])
        last = line
    told = "\n".join(sorted({line["machine"] for line in lines.values()}))
    return f"{told}\n\n{markdown_grid(rows)}"


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-runs", action="store_true", help="only print the table")
    parser.add_argument("--rows", default="1e6,1e7,1e8", help="default: %(default)s")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--folder", type=Path, help="where there is room (default: for temporary)")
    parser.add_argument("--lines", type=Path, default=LINES)
    parser.add_argument("--write", nargs=4, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Run, then print."""
    args = parsed()
    if args.write:
        return write(Path(args.write[0]), *map(int, args.write[1:]))
    lines = {(line["step"], line["rows"]): line for line in read_json_lines(args.lines)}
    sizes = sorted(int(float(size)) for size in args.rows.split(","))
    if any(size % min(sizes[0], PER_FILE) for size in sizes):
        raise SystemExit(f"--rows {args.rows}: expected multiples of the first, or of a million.")
    if not args.no_runs and any(("score", size) not in lines for size in sizes):
        with tempfile.TemporaryDirectory(dir=args.folder) as place:
            fill(lines, sizes, Path(place), args)
    sys.stdout.write(table(lines) + "\n")
    return None


if __name__ == "__main__":
    main()
