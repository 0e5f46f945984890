"""The command `altbi cells`: list the cells of a table that are most likely wrong."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from altbi.cli._commands import (
    load_model,
    open_output,
    open_pipeline,
    print_result,
    print_warnings,
)
from altbi.cli._output_paths import resolve_output

if TYPE_CHECKING:
    from altbi.cells import WrongCells
    from altbi.model import FitSettings, FittedModel


def cells(args: argparse.Namespace) -> None:
    """Run `altbi cells`: fit or load a model, write the highest cells, and print the first ones.

    If the cells go to stdout, only warnings are printed, to stderr.
    """
    path = resolve_output(args, "-cells.csv", stdout_for_stdin=True)
    with open_output(path, None, raw=args.raw) as output:
        with open_pipeline(args) as pipeline:
            from altbi.cells import find_pipeline_cells

            found = find_pipeline_cells(pipeline, _read_fit(args, pipeline.source.schema.names))
        with output(found.table.schema) as writer:
            writer.write(found.table)
    if path is None:
        print_warnings(args, found.notes)
        return
    _print_found(args, pipeline.source.name, found, path)


def _read_fit(args: argparse.Namespace, names: Sequence[str]) -> FittedModel | FitSettings:
    """Return the model of --model, or the settings of a fit.

    `names` are the columns of the table, to which --as refers; with --model it exits with code 2.
    """
    if args.model is not None:
        return load_model(args)
    from altbi.encoding import parse_roles
    from altbi.model import build_settings

    options: dict[str, Any] = {"max_rows": args.max_rows, "random_state": args.seed}
    options["column_roles"] = parse_roles(args.column_roles, names) or None
    return build_settings("OutlierDetector", options)


def _print_found(args: argparse.Namespace, name: str, found: WrongCells, path: Path) -> None:
    """Print the number of cells, the first ones, warnings, and the path of the file."""
    from altbi.cli._printing import cells_to_json, print_cells

    print_result(
        args,
        lambda: print_cells(name, found, str(path)),
        lambda: cells_to_json(name, found, str(path)),
    )
