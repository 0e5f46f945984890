"""Where a command writes its output."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from altbi.io import is_table_file

__all__ = ["check_not_input", "resolve_output"]

COMPRESSIONS = (".gz", ".bz2", ".zst", ".lz4", ".xz", ".zip")
TABLE_ENDINGS = (
    *(".csv", ".tsv", ".txt", ".parquet", ".pq", ".arrow", ".feather", ".ipc"),
    *(".jsonl", ".ndjson", ".json", ".npz", ".npy"),
)


def resolve_output(
    args: argparse.Namespace,
    ending: str,
    names: Sequence[str] = ("",),
    *,
    stdout_for_stdin: bool = False,
) -> Path | None:
    """Return the path of the output; None is stdout. The default is beside the table.

    Parameters
    ----------
    args : Namespace
        The arguments.
    ending : str
        What the default name adds to the table's name.
    names : sequence of str
        The files in it, if it is a folder. None of them may be an input.
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
            args.wrong("--output is needed when the table comes from stdin")
        output = "-"
    if output == "-":
        if args.json:
            args.wrong("--json and the output both go to stdout: pass another --output")
        return None
    path = _place_beside(Path(args.table), ending) if output is None else Path(output)
    for name in names:
        check_not_input(args, path / name)
    return path


def _place_beside(table: Path, ending: str) -> Path:
    """Return a path named after the table, without its endings."""
    table = table if table.name not in ("", "..") else table.resolve()
    stem = table.name
    for endings in (COMPRESSIONS, TABLE_ENDINGS):
        stem = next((stem[: -len(e)] for e in endings if stem.lower().endswith(e)), stem)
    return table.with_name((stem or table.name) + ending)


def check_not_input(args: argparse.Namespace, path: Path) -> None:
    """Report an output that is an input of the command, or would become part of it."""
    for read in (args.table, getattr(args, "model", "-")):
        if read != "-" and path.exists() and Path(read).exists() and path.samefile(read):
            args.wrong(f"{path} is an input, so it cannot be the output: pass another --output")
    # An engine writes a folder of Parquet files.
    file = path if getattr(args, "engine", None) is None or path.suffix else path / "0.parquet"
    if args.table != "-" and Path(args.table).is_dir() and _is_inside(Path(args.table), file):
        args.wrong(f"{path} would become part of the table: pass another --output")


def _is_inside(folder: Path, path: Path) -> bool:
    """Return whether a file at this path would be read as part of a folder."""
    folder, path = folder.resolve(), path.resolve()
    return path.is_relative_to(folder) and is_table_file(path.relative_to(folder))
