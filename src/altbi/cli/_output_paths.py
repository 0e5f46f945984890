"""Where a command writes: the --output path, or a default path next to the table."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from altbi.io import is_table_file

# Outputs for the result of --sql are named after it: query-altbi.
QUERY_NAME = "query"
COMPRESSIONS = (".gz", ".bz2", ".zst", ".lz4", ".xz", ".zip")
TABLE_SUFFIXES = (
    *(".csv", ".tsv", ".txt", ".parquet", ".pq", ".arrow", ".feather", ".ipc"),
    *(".jsonl", ".ndjson", ".json", ".npz", ".npy"),
    *(".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"),
)


def resolve_output(
    args: argparse.Namespace,
    suffix: str,
    names: Sequence[str] = ("",),
    *,
    stdout_for_stdin: bool = False,
) -> Path | None:
    """Return the path that a command writes to, or None for stdout.

    The path is --output. Without this option, it is a path next to the table, named after the
    table: `altbi detect payments.csv` writes to the folder ``payments-altbi``, with the `suffix`
    "-altbi", and ``query-altbi`` for --sql. A table from stdin goes to stdout with
    `stdout_for_stdin`; else it needs --output.

    `names` are the files that the command writes into an output folder; the default stands for the
    output itself. A path that is an input, or cannot be the output, exits with code 2. So does a
    path next to the table that may be the output for another table.
    """
    output = args.output
    if output is None and args.table == "-":
        if not stdout_for_stdin:
            args.wrong("the table comes from stdin: pass a path with --output")
        output = "-"
    if output == "-":
        if args.json:
            args.wrong("--json and the output both go to stdout: pass another --output")
        return None
    table = QUERY_NAME if args.table is None else args.table
    path = _build_default_path(Path(table), suffix) if output is None else Path(output)
    for name in names:
        _check_not_input(args, path / name)
    if path.is_file() and (names != ("",) or getattr(args, "engine", None)):
        args.wrong(f"{path} is a file, but the output is a folder: pass another --output")
    if output is None and args.table is not None:
        _check_not_of_other_table(args, Path(table), path)
    return path


def _build_default_path(table: Path, suffix: str) -> Path:
    """Return a path next to the table: its name without ``.csv``, ``.gz`` etc., plus `suffix`.

    A name that is nothing but a suffix, such as ``.csv``, is kept. ``.`` and ``..`` are resolved to
    the folder's name first.
    """
    table = table if table.name not in ("", "..") else table.resolve()
    return table.with_name(_remove_suffixes(table.name) + suffix)


def _check_not_of_other_table(args: argparse.Namespace, table: Path, path: Path) -> None:
    """Exit with code 2 if a default output exists, and another table has the same default output.

    It may be that of the other table: ``pay.csv``, ``pay.csv.gz`` and ``pay.zip`` have the same.
    """
    if not path.exists():
        return
    stem = _remove_suffixes(table.name)
    endings = (*(each + packed for each in TABLE_SUFFIXES for packed in ("", *COMPRESSIONS)), "")
    for ending in (*endings, *COMPRESSIONS):
        other = table.with_name(stem + ending)
        if other.name != table.name and other.exists():
            args.wrong(
                f"{path} exists, and may be the output for {other}: pass an --output, or remove it"
            )


def _remove_suffixes(name: str) -> str:
    """Return the name of a table without ``.csv``, ``.gz`` etc.; a mere suffix is kept."""
    stem = name
    for suffixes in (COMPRESSIONS, TABLE_SUFFIXES):
        stem = next((stem[: -len(each)] for each in suffixes if stem.lower().endswith(each)), stem)
    return stem or name


def _check_not_input(args: argparse.Namespace, path: Path) -> None:
    """Exit with code 2 if writing `path` would overwrite an input, or add a file to the input.

    Inputs are the table and the model. A table may be a folder: an output file in it, with the
    suffix of a table, would be read as rows of the table next time.
    """
    for name in (args.table or "-", getattr(args, "model", None) or "-"):
        if name != "-" and path.exists() and Path(name).exists() and path.samefile(name):
            args.wrong(f"{path} is an input, so it cannot be the output: pass another --output")
    # An engine writes a folder of Parquet files.
    file = path if getattr(args, "engine", None) is None or path.suffix else path / "0.parquet"
    folder = Path(args.table or "-").resolve()
    file = file.resolve()
    if args.table in ("-", None) or not folder.is_dir() or not file.is_relative_to(folder):
        return
    if is_table_file(file.relative_to(folder)):
        args.wrong(f"{path} would become part of the table: pass another --output")
