"""Where a command writes: the --output path, or a default path next to the table."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from altbi.io import is_table_file

COMPRESSIONS = (".gz", ".bz2", ".zst", ".lz4", ".xz", ".zip")
TABLE_SUFFIXES = (
    *(".csv", ".tsv", ".txt", ".parquet", ".pq", ".arrow", ".feather", ".ipc"),
    *(".jsonl", ".ndjson", ".json", ".npz", ".npy"),
)


def resolve_output(
    args: argparse.Namespace,
    suffix: str,
    names: Sequence[str] = ("",),
    *,
    stdout_for_stdin: bool = False,
) -> Path | None:
    """Return the path of the output; None is stdout. The default is next to the table.

    Parameters
    ----------
    args : Namespace
        The arguments.
    suffix : str
        Added to the table's name for the default path.
    names : sequence of str
        The files in the output, if it is a folder. None of them may be an input.
    stdout_for_stdin : bool, default=False
        Whether the default for a table from stdin is stdout.

    Returns
    -------
    Path or None
        The path.
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
    path = _default_path(Path(args.table), suffix) if output is None else Path(output)
    for name in names:
        _check_not_input(args, path / name)
    return path


def _default_path(table: Path, suffix: str) -> Path:
    """Return a path named after the table, without its file name suffixes."""
    table = table if table.name not in ("", "..") else table.resolve()
    stem = table.name
    for suffixes in (COMPRESSIONS, TABLE_SUFFIXES):
        stem = next((stem[: -len(each)] for each in suffixes if stem.lower().endswith(each)), stem)
    return table.with_name((stem or table.name) + suffix)


def _check_not_input(args: argparse.Namespace, path: Path) -> None:
    """Report an output that is an input of the command, or would be read as one."""
    for name in (args.table, getattr(args, "model", "-")):
        if name != "-" and path.exists() and Path(name).exists() and path.samefile(name):
            args.wrong(f"{path} is an input, so it cannot be the output: pass another --output")
    # An engine writes a folder of Parquet files.
    file = path if getattr(args, "engine", None) is None or path.suffix else path / "0.parquet"
    folder = Path(args.table).resolve()
    file = file.resolve()
    if args.table == "-" or not folder.is_dir() or not file.is_relative_to(folder):
        return
    if is_table_file(file.relative_to(folder)):
        args.wrong(f"{path} would become part of the table: pass another --output")
