"""Convert parsed arguments into library objects: detector, engine, table."""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from altbi.errors import ParameterError, TableError
from altbi.io import ColumnSelection, PrivateFolder, Source, open_sql, open_table

if TYPE_CHECKING:  # these load torch
    from altbi.distributed import Engine
    from altbi.model import FitSettings
    from altbi.torch import PrivacyBudget

BUDGET_OPTIONS = ("delta", "truncation", "noise", "clip")
BOUNDS = "two numbers, the smaller one first, a JSON file, or estimate"
BOUNDS_FILE = (
    'Expected bounds or categories by column, such as {"age": [0, 120], "colour": ["red", "blue"]}.'
)


@contextmanager
def open_input(args: argparse.Namespace) -> Iterator[Source]:
    """Open the table or run the query of the arguments, and yield the result.

    Standard input is copied to a temporary file, because tables may be read twice. The copy is
    removed at the end of the block. A closed standard input raises a `TableError`, a failed copy an
    `OSError`. Options that are invalid, or not for this format or a query, exit with code 2.
    """
    options = {
        "format": args.input_format,
        "encoding": args.encoding,
        "delimiter": args.delimiter,
        "header": args.header,
        "skip": args.skip,
    }
    if args.sql is not None:
        for name, value in options.items():
            if value is not None:
                args.wrong(f"--{name.replace('format', 'input-format')} is not for --sql")
        yield open_sql(args.sql)
        return
    if args.table != "-":
        yield _open_file(args, args.table, **options)
        return
    if sys.stdin is None:
        raise TableError("standard input: it is closed, but expected a table. Pass a file.")
    folder = PrivateFolder()
    copy = folder.path / "table"
    try:
        _copy_stdin(copy)
        yield _open_file(args, copy, name="standard input", **options)
    finally:
        folder.close()


def _open_file(args: argparse.Namespace, path: str | Path, **options: Any) -> Source:  # noqa: ANN401
    """Open a table; options with an invalid value, or not for its format, exit with code 2."""
    try:
        return open_table(path, **options)
    except ParameterError as error:
        args.wrong(str(error))
        raise


def _copy_stdin(path: Path) -> None:
    """Copy standard input to a file; a disk error names standard input."""
    try:
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
    except OSError as error:
        reason = f"{error.strerror} (while copying it to {path})"
        raise OSError(error.errno, reason, "standard input") from error


def read_selection(args: argparse.Namespace) -> ColumnSelection:
    """Return the selection of columns that the options state.

    Columns that are neither features nor ids are kept in the output only with --keep-columns.
    """
    return ColumnSelection(
        columns=tuple(args.columns),
        exclude=tuple(args.exclude),
        ids=tuple(args.id),
        label=args.label,
        missing=tuple(args.missing),
        keep=getattr(args, "keep_columns", False),
    )


def create_engine(args: argparse.Namespace) -> Engine | None:
    """Create the engine of --engine; return None without this option.

    Workers are started later, by the first pass. Engine options that contradict each other exit
    with code 2.
    """
    check_engine_options(args)
    if args.engine is None:
        return None
    from altbi.distributed import TLS, Dask, Local

    if args.engine == "local":
        return Local()
    files = [getattr(args, f"tls_{name}") for name in TLS._fields]
    tls = None if files[0] is None else TLS(*files)
    return Dask(args.scheduler, args.workers, tls=tls, quiet=True)


def check_engine(args: argparse.Namespace) -> None:
    """Exit with code 2 if the input, the output or the options do not suit the engine.

    An engine cannot read stdin or a query, write to stdout, or write another format than Parquet.
    Without an engine, only the options of engines are checked.
    """
    check_engine_options(args)
    if args.engine is None:
        return
    if args.table == "-":
        args.wrong("an engine reads the table in partitions, so it cannot come from stdin")
    if args.sql is not None:
        args.wrong("an engine reads the table in partitions, so it cannot come from --sql")
    if args.output == "-":
        args.wrong("an engine writes a folder, which cannot go to stdout: pass an --output")
    if args.format not in (None, "parquet"):
        args.wrong(f"an engine writes Parquet files: omit --format {args.format}")


def check_engine_options(args: argparse.Namespace) -> None:
    """Exit with code 2 for --workers or --scheduler without Dask, or for both together.

    So do TLS files without a scheduler, and some of the three TLS files without the others.
    """
    for name in ("scheduler", "workers"):
        if getattr(args, name) is not None and args.engine != "dask":
            args.wrong(f"--{name} is for --engine dask")
    if args.workers is not None and args.scheduler is not None:
        args.wrong("a cluster has its own workers: omit --workers or --scheduler")
    n_files = sum(getattr(args, name) is not None for name in ("tls_ca", "tls_cert", "tls_key"))
    if n_files and args.scheduler is None:
        args.wrong("--tls-ca, --tls-cert and --tls-key are for --scheduler")
    if n_files not in (0, 3):
        args.wrong("TLS needs three files: pass --tls-ca, --tls-cert and --tls-key")


def read_settings(args: argparse.Namespace, names: Sequence[str] = ()) -> FitSettings:
    """Build the settings of the detector that --method and the other options select.

    `names` are the columns of the table, to which --as refers. The default method is the
    recommended detector; with --epsilon it is ALTBI. Options that contradict each other exit with
    code 2. Invalid values raise a `ParameterError`.
    """
    from altbi.encoding import parse_roles
    from altbi.model import build_settings

    method = args.method or ("recommended" if args.epsilon is None else "altbi")
    _check_column_roles(args, method)
    _check_method(args, method)
    parameters: dict[str, Any] = {
        "contamination": args.contamination,
        "max_rows": args.max_rows,
        "random_state": args.seed,
    }
    if args.threshold is not None:
        parameters["threshold"] = args.threshold
    if method == "recommended":
        parameters["column_roles"] = parse_roles(args.column_roles, names) or None
        return build_settings("OutlierDetector", parameters)
    if method == "odim":
        return build_settings("ODIM", parameters)
    return build_settings("ALTBI", parameters | _read_altbi_parameters(args, method))


def _read_altbi_parameters(args: argparse.Namespace, method: str) -> dict[str, Any]:
    """Return the parameters in which a variant of ALTBI differs from the defaults.

    The variants are the paper's settings and the Glow backbone. Plain ALTBI only differs by its
    privacy budget, if --epsilon is given.
    """
    if method == "altbi-paper":
        from altbi.networks import IWAE, Schedule

        return {
            "schedule": Schedule(T1=60, updates=1, first_truncated=1),
            "backbone": IWAE(hidden=(100, 50), latent=10, network="paper", weight_decay=0.0),
            "average": "plain",
        }
    if method == "altbi-glow":
        from altbi.torch import Glow

        return {"backbone": Glow()}
    return {} if args.epsilon is None else {"privacy": _read_budget(args)}


def _check_method(args: argparse.Namespace, method: str) -> None:
    """Exit with code 2 for options that the method does not have, or that contradict each other."""
    given = [name for name in ("bounds", *BUDGET_OPTIONS) if getattr(args, name) is not None]
    if given and args.epsilon is None:
        args.wrong(f"--{given[0]} belongs to a privacy budget: pass --epsilon too")
    if args.epsilon is not None and method != "altbi":
        args.wrong(f"--epsilon is for --method altbi, not for {method}")
    if args.threshold is not None and method == "odim":
        args.wrong("--threshold is not for odim")
    if args.threshold is not None and args.contamination != "auto":
        args.wrong("--contamination and --threshold both set the threshold: omit one of them")


def _check_column_roles(args: argparse.Namespace, method: str) -> None:
    """Exit with code 2 if --as is given for a method that infers no roles."""
    if args.column_roles and args.epsilon is not None:
        args.wrong(
            "--as is not for a privacy budget, under which columns are declared and no role is "
            "inferred: declare categories with --bounds, and leave out columns with --exclude"
        )
    if args.column_roles and method != "recommended":
        args.wrong(f"--as is for --method recommended: {method} uses each column by its type")


def _read_budget(args: argparse.Namespace) -> PrivacyBudget:
    """Build the privacy budget from --epsilon, --bounds and the other budget options.

    Options that were not given keep the defaults of `PrivacyBudget`.
    """
    from altbi.torch import PrivacyBudget

    options = {name: getattr(args, name) for name in BUDGET_OPTIONS}
    given = {name: value for name, value in options.items() if value is not None}
    return PrivacyBudget(args.epsilon, bounds=_read_bounds(args), **given)


def _read_bounds(args: argparse.Namespace) -> Any:  # noqa: ANN401 - a pair, a dict or a string
    """Return the value of --bounds: a pair of numbers, a dict by column, or "estimate".

    One argument that is an existing path is read as a JSON file. Absent or invalid bounds exit with
    code 2; an invalid file raises a `ParameterError`.
    """
    texts = args.bounds
    if texts is None:
        args.wrong(f"--epsilon needs --bounds: {BOUNDS}")
    if texts == ["estimate"]:
        return "estimate"
    if len(texts) == 1 and Path(texts[0]).exists():
        return _read_bounds_file(texts[0])
    numbers = [_parse_number(text) for text in texts]
    # The comparison is false for NaN, the value of texts that are not numbers.
    if len(texts) != 2 or not numbers[0] < numbers[1]:
        args.wrong(f"--bounds {' '.join(texts)}: expected {BOUNDS}. Put the table before --bounds")
    return tuple(numbers)


def _parse_number(text: str) -> float:
    """Parse a finite number; return NaN for any other text."""
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def _read_bounds_file(path: str) -> dict[str, Any]:
    """Read the bounds of each column from a JSON file, without validating them.

    A file that is not a JSON object raises a `ParameterError`. The fit validates the bounds.
    """
    try:
        bounds = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ParameterError(f"{path}: not valid JSON ({error}). {BOUNDS_FILE}") from None
    if not isinstance(bounds, dict):
        raise ParameterError(f"{path}: a JSON {type(bounds).__name__}. {BOUNDS_FILE}")
    return bounds
