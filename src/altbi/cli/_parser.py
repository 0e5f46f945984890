"""The commands and their options. Imports nothing heavy, so that help is fast."""

import argparse
import math
from collections.abc import Collection
from typing import Any, NoReturn, final

from altbi._version import __version__
from altbi.errors import escape_text, quote, shorten_message

MAX_SEED = 2**32 - 1
MAX_WORKERS = 10_000
MAX_DIGITS = 1000  # Python refuses to convert much longer texts to integers
INPUTS = ("csv", "parquet", "arrow", "jsonl", "npz", "npy", "excel")
OUTPUTS = ("csv", "parquet", "arrow", "jsonl")
ENGINES = ("local", "dask")
TLS_FILES = {
    "ca": "certificate of the authority of the cluster",
    "cert": "certificate of this machine",
    "key": "key of this certificate",
}
METHODS = ("recommended", "altbi", "altbi-paper", "altbi-glow", "odim")
TABLE = (
    "CSV or Parquet (a file or a folder), Arrow, JSON lines or npz, compressed or not; - for stdin"
)
SEVERAL_FILES = (
    "Expected one table: for several files, pass their folder, or for Parquet files --sql "
    "\"select * from '*.parquet'\""
)
Commands = Any  # the type of sub-parsers is private to argparse

# How shells complete a file name, as shtab expects it; shtab is not imported here.
_FILE = {
    "bash": "_shtab_compgen_files",
    "zsh": "_files",
    "tcsh": "f",
    "fish": "(__fish_complete_path (commandline -ct))",
}
SHELLS = tuple(_FILE)
_FILE_NAMES = {"table", "file", "output", "model", "tls_ca", "tls_cert", "tls_key"}


@final
class Parser(argparse.ArgumentParser):
    """An argument parser whose error messages are short and printable, whatever the arguments."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message to stderr, and exit with code 2.

        A shell replaces *.csv by many arguments, so a message about more than one path says how to
        pass several files.
        """
        kind, _, extra = message.partition("unrecognized arguments: ")
        if not kind and extra and not any(each.startswith("-") for each in extra.split()):
            message += f". {SEVERAL_FILES}"
        super().error(shorten_message(escape_text(message)))


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the program `altbi`, with all commands and options.

    Parsed arguments have `run`, the name of the command, `module`, the module of `altbi.cli` with
    its function, and `wrong`, a function that prints a message and exits with code 2.
    """
    parser = Parser(
        prog="altbi",
        description="Find outliers in tables that nobody has labelled, and explain them.",
        epilog="exit codes: 0 success, 1 error in the data or the model, 2 wrong usage,\n"
        "130 interrupted (Ctrl-C), 143 terminated (SIGTERM)\n\n"
        "example:\n  altbi detect payments.csv",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"altbi {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (
        _add_detect_command,
        _add_fit_command,
        _add_score_command,
        _add_explain_command,
        _add_cells_command,
        _add_report_command,
        _add_inspect_command,
        _add_demo_command,
        _add_completion_command,
    ):
        add(commands)
    complete_files(parser, _FILE_NAMES)
    return parser


def complete_files(parser: argparse.ArgumentParser, names: Collection[str]) -> None:
    """Make shells complete file names for the arguments with these names, in commands as well.

    Sets the attribute `complete`, which shtab reads, on the parser's actions.
    """
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                complete_files(command, names)
        elif action.dest in names:
            action.complete = _FILE  # type: ignore[attr-defined]


def _add_detect_command(commands: Commands) -> None:
    """Add the command `altbi detect` with its options to the sub-parsers."""
    added = _add_command(
        commands,
        "detect",
        "find the outliers of a table: fit, score, explain, report",
        "detect payments.csv --id invoice --output found",
    )
    _add_table_arguments(added)
    added.add_argument(
        "--output",
        "-o",
        metavar="FOLDER",
        help="folder for scores, reasons, model and report (default: NAME-altbi next to the "
        "table), or - to write only the scores, to stdout",
    )
    _add_column_options(added, is_fit=True)
    _add_model_options(added)
    _add_scores_options(added)
    added.add_argument("--no-report", action="store_true", help="do not write report.html")
    added.add_argument(
        "--release-scores",
        action="store_true",
        help="with --epsilon: write scores of the training rows, which the budget does not cover",
    )
    _add_top_option(added, 200)
    _add_duplicates_option(added)
    _add_execution_options(added)
    add_engine_options(added, "the table; the scores are a folder of Parquet files")


def _add_fit_command(commands: Commands) -> None:
    """Add the command `altbi fit` with its options to the sub-parsers."""
    about = "fit a model to a table"
    added = _add_command(commands, "fit", about, "fit payments.csv --output payments.altbi")
    _add_table_arguments(added)
    added.add_argument(
        "--output", "-o", metavar="FILE", help="the model (default: NAME.altbi next to the table)"
    )
    _add_column_options(added, is_fit=True)
    _add_model_options(added)
    _add_execution_options(added)


def _add_score_command(commands: Commands) -> None:
    """Add the command `altbi score` with its options to the sub-parsers."""
    about = "score a table with a model"
    added = _add_command(
        commands, "score", about, "score new.csv --model payments.altbi --output new.parquet"
    )
    _add_table_arguments(added)
    _add_model_file_option(added)
    added.add_argument(
        "--output",
        "-o",
        metavar="FILE",
        help="the scores (default: NAME-scores.csv next to the table); - for stdout",
    )
    _add_column_options(added)
    _add_scores_options(added)
    _add_execution_options(added)
    add_engine_options(added, "the table; the scores are a folder of Parquet files")


def _add_explain_command(commands: Commands) -> None:
    """Add the command `altbi explain` with its options to the sub-parsers."""
    about = "explain the scores of rows"
    note = (
        "The z-score of a value is its distance to the expected value, divided by IQR / 1.349 of\n"
        "the column (robust z-score), or by the model's standard deviation for scores by loss.\n"
        "Robust z-scores beyond 20 grow with their logarithm; two categories differ by 2 to 6.\n\n"
    )
    example = "explain new.csv --model payments.altbi --rows 3,17"
    added = _add_command(commands, "explain", about, example, note)
    _add_table_arguments(added)
    _add_model_file_option(added)
    rows = added.add_mutually_exclusive_group()
    rows.add_argument(
        "--rows",
        type=_parse_rows,
        metavar="N,N,...",
        help="numbers of the rows, counted from 0 (default: those with the highest scores)",
    )
    _add_top_option(rows, 10)
    added.add_argument(
        "--output",
        "-o",
        metavar="FILE",
        help="write one record for each reason to a file (CSV, Parquet, ...)",
    )
    _add_raw_option(added)
    _add_column_options(added)
    _add_execution_options(added)


def _add_cells_command(commands: Commands) -> None:
    """Add the command `altbi cells` with its options to the sub-parsers."""
    about = "list the cells of a table that are most likely wrong"
    note = (
        "The score of a cell says how rare its value is, by itself or beside another value of the\n"
        "row. Cells with a score below 2 are not rare, and not listed.\n\n"
    )
    added = _add_command(commands, "cells", about, "cells customers.csv --id customer", note)
    _add_table_arguments(added)
    added.add_argument(
        "--model", "-m", metavar="FILE", help="a model file (default: fit a model to the table)"
    )
    added.add_argument(
        "--output",
        "-o",
        metavar="FILE",
        help="the cells, in the format of the suffix (default: NAME-cells.csv next to the table); "
        "- for stdout",
    )
    _add_column_options(added, is_fit=True)
    _add_raw_option(added)
    _add_top_option(added, 1000, "cells with the highest scores to list")
    group = added.add_argument_group("fit", "not used with --model")
    _add_max_rows_option(group)
    _add_seed_option(group)
    _add_execution_options(added)
    added.set_defaults(module="_cells_command")


def _add_report_command(commands: Commands) -> None:
    """Add the command `altbi report` with its options to the sub-parsers."""
    about = "score a table with a model and write the report page"
    added = _add_command(commands, "report", about, "report new.csv --model payments.altbi")
    _add_table_arguments(added)
    _add_model_file_option(added)
    added.add_argument(
        "--output",
        "-o",
        metavar="FILE",
        help="the page (default: NAME-report.html next to the table); - for stdout",
    )
    _add_column_options(added)
    _add_top_option(added, 200)
    _add_duplicates_option(added)
    _add_execution_options(added)


def _add_inspect_command(commands: Commands) -> None:
    """Add the command `altbi inspect` with its options to the sub-parsers."""
    added = _add_command(
        commands, "inspect", "show the content of a model file", "inspect model.altbi"
    )
    added.add_argument(
        "file",
        metavar="FILE",
        help="a model file, written by altbi detect, altbi fit or a detector's save",
    )
    _add_json_option(added)


def _add_demo_command(commands: Commands) -> None:
    """Add the command `altbi demo` with its options to the sub-parsers."""
    about = "find malignant biopsies in an embedded table"
    added = _add_command(commands, "demo", about, "demo --output altbi-demo")
    added.add_argument(
        "--output",
        "-o",
        metavar="FOLDER",
        default="altbi-demo",
        help="output folder (default: %(default)s)",
    )
    _add_seed_option(added)
    _add_json_option(added)


def _add_completion_command(commands: Commands) -> None:
    """Add the command `altbi completion` with its options to the sub-parsers."""
    added = _add_command(
        commands,
        "completion",
        "print a script for command completion in a shell",
        "completion bash >> ~/.bash_completion",
    )
    added.add_argument("shell", choices=SHELLS)


def _add_command(
    commands: Commands, name: str, about: str, example: str, note: str = ""
) -> argparse.ArgumentParser:
    """Add a command with its description, an example and a note, and return its parser.

    `about` is the help text without capital letter and full stop. The example omits "altbi".
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=about,
        description=f"{about[0].upper()}{about[1:]}.",
        epilog=f"{note}example:\n  altbi {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=name, module="_commands", wrong=parser.error)
    return parser


def _add_table_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the argument TABLE or --sql, and the options about the format and missing values."""
    table = parser.add_mutually_exclusive_group(required=True)
    table.add_argument("table", nargs="?", type=_parse_path, metavar="TABLE", help=TABLE)
    table.add_argument(
        "--sql",
        metavar="QUERY",
        help='instead of TABLE: one SELECT statement of DuckDB, such as "select * from '
        "'folder/*.parquet'\"; it may read all files that you may read",
    )
    group = parser.add_argument_group("format of the table (detected by default)")
    group.add_argument("--input-format", choices=INPUTS, help="file format")
    group.add_argument("--delimiter", metavar="C", help="separator of a CSV file")
    group.add_argument("--encoding", metavar="NAME", help="encoding of a CSV file, such as latin-1")
    group.add_argument(
        "--header",
        action=argparse.BooleanOptionalAction,
        help="whether the first line of a CSV file has the column names",
    )
    group.add_argument(
        "--skip",
        type=_parse_lines,
        metavar="N",
        help="lines to skip above the table in a CSV file (default: title lines)",
    )
    group.add_argument(
        "--missing",
        action="append",
        default=[],
        metavar="TEXT",
        help="text to treat as a missing value; may be repeated",
    )


def _add_column_options(parser: argparse.ArgumentParser, *, is_fit: bool = False) -> None:
    """Add the options about columns: --columns, --exclude, --id, --label and --as.

    Commands that load a model show no help for --as, and refuse it with a message of their own.
    """
    group = parser.add_argument_group("columns (names separated by commas, or repeat the option)")
    names: dict[str, Any] = {"action": "append", "default": [], "metavar": "NAME"}
    group.add_argument("--columns", help="columns to search for outliers (default: all)", **names)
    group.add_argument("--exclude", help="columns not to search", **names)
    group.add_argument(
        "--id", help="columns that identify a row: not searched, kept in the output", **names
    )
    group.add_argument(
        "--label",
        metavar="NAME[=VALUE]",
        help="column with known labels (1 or VALUE for outliers): not used for training, only "
        "compared with the scores",
    )
    about = (
        "how to use columns, instead of what their values suggest: number, category, text (not "
        "compared) or identifier (only repeats count); such as category:zip,text:note"
    )
    group.add_argument(
        "--as",
        dest="column_roles",
        action="append",
        default=[],
        metavar="ROLE:NAME",
        help=about if is_fit else argparse.SUPPRESS,
    )


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a fit: detector, contamination, threshold, sample, seed, privacy."""
    group = parser.add_argument_group("model")
    group.add_argument(
        "--contamination",
        type=_parse_share,
        default="auto",
        metavar="SHARE",
        help="share of outliers in (0, 0.5], which sets the threshold (default: estimated)",
    )
    group.add_argument(
        "--method",
        choices=METHODS,
        help="the recommended detector; or ALTBI as in the authors' code (altbi), as in the paper "
        "(altbi-paper) or with a normalizing flow (altbi-glow); or ODIM (default: recommended; "
        "with --epsilon altbi)",
    )
    _add_max_rows_option(group)
    group.add_argument(
        "--threshold",
        type=_parse_finite,
        metavar="SCORE",
        help="flag rows with a score above it, instead of --contamination",
    )
    _add_seed_option(group)
    _add_privacy_options(parser)


def _add_privacy_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a privacy budget: --epsilon, --delta, --bounds and others."""
    group = parser.add_argument_group("privacy")
    group.add_argument(
        "--epsilon", type=_parse_positive, metavar="E", help="privacy budget (default: no privacy)"
    )
    group.add_argument(
        "--delta",
        type=_parse_probability,
        metavar="D",
        help="delta of the budget (default: 1e-06)",
    )
    group.add_argument(
        "--bounds",
        nargs="+",
        metavar="BOUND",
        help="two numbers for all columns; a JSON file with bounds or categories by column; or "
        "estimate, which uses a tenth of the budget",
    )
    group.add_argument(
        "--truncation",
        choices=("tracked", "trimmed"),
        help="truncate the losses above a noisy threshold (tracked), or the largest losses of each "
        "batch, with twice the noise (trimmed) (default: tracked)",
    )
    group.add_argument(
        "--noise",
        type=_parse_positive,
        metavar="SIGMA",
        help="noise multiplier; training stops when the budget is spent (default: the smallest "
        "with which the budget lasts)",
    )
    group.add_argument(
        "--clip",
        type=_parse_positive,
        metavar="C",
        help="maximum norm of a row's gradient (default: 1)",
    )


def _add_scores_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the scores file: --format, --keep-columns and --raw."""
    parser.add_argument("--format", choices=OUTPUTS, help="format of the scores (default: csv)")
    parser.add_argument(
        "--keep-columns", action="store_true", help="add all columns of the table to the scores"
    )
    _add_raw_option(parser)


def _add_raw_option(parser: argparse.ArgumentParser) -> None:
    """Add the option --raw of commands that write CSV."""
    parser.add_argument(
        "--raw",
        action="store_true",
        help="write texts such as =1+1 to CSV unchanged (default: with an apostrophe before them, "
        "so that no spreadsheet runs them)",
    )


def _add_model_file_option(parser: argparse.ArgumentParser) -> None:
    """Add the required option --model, the path of a model file."""
    parser.add_argument(
        "--model",
        "-m",
        required=True,
        metavar="FILE",
        help="a model file, written by detect or fit",
    )


def _add_max_rows_option(parser: Any) -> None:  # noqa: ANN401
    """Add the option --max-rows, the size of the training sample, to a parser or a group."""
    parser.add_argument(
        "--max-rows",
        type=_parse_count,
        default=200_000,
        metavar="N",
        help="size of the training sample of larger tables (default: %(default)s)",
    )


def _add_top_option(
    parser: Any,  # noqa: ANN401
    default: int,
    what: str = "rows with the highest scores to explain",
) -> None:
    """Add the option --top with this default to a parser or a group: the number of `what`."""
    parser.add_argument(
        "--top",
        type=_parse_count,
        default=str(default),  # as text, so that --top 10 differs from a default of 10 in a group
        metavar="N",
        help=f"number of {what} (default: %(default)s)",
    )


def _add_duplicates_option(parser: argparse.ArgumentParser) -> None:
    """Add the option --duplicates to a parser."""
    parser.add_argument(
        "--duplicates",
        type=_parse_lines,
        metavar="N",
        help="number of rows, from the first one on, to check for duplicates; 0 for none "
        "(default: 1000000)",
    )


def _add_execution_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the execution: --threads, --quiet and --json."""
    group = parser.add_argument_group("execution")
    group.add_argument(
        "--threads", type=_parse_count, metavar="N", help="number of threads (default: all cores)"
    )
    group.add_argument("--quiet", "-q", action="store_true", help="print only errors")
    _add_json_option(group)


def _add_seed_option(parser: Any) -> None:  # noqa: ANN401 - a parser or a group of one
    """Add the option --seed to a parser or a group."""
    parser.add_argument(
        "--seed",
        type=_parse_seed,
        default=0,
        metavar="N",
        help="random seed (default: %(default)s)",
    )


def _add_json_option(parser: Any) -> None:  # noqa: ANN401
    """Add the option --json to a parser or a group."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def add_engine_options(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the options --engine, --workers and --scheduler, and those of its TLS files.

    `what` completes the help text "process partitions of ...".
    """
    group = parser.add_argument_group("engine")
    group.add_argument(
        "--engine",
        choices=ENGINES,
        help=f"process partitions of {what}; in this process, or on Dask workers (default: none)",
    )
    group.add_argument(
        "--workers",
        type=_parse_workers,
        metavar="N",
        help="number of Dask workers on this machine (default: one for each core)",
    )
    group.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="address of a Dask cluster, such as tls://10.0.0.1:8786 (default: start a cluster on "
        "this machine)",
    )
    for name, what in TLS_FILES.items():
        group.add_argument(
            f"--tls-{name}", metavar="FILE", help=f"{what}, for a scheduler with TLS"
        )


def _parse_integer(text: str, low: int, high: int, expected: str) -> int:
    """Parse an integer from `low` to `high`, written in ASCII digits without a sign.

    Any other text raises an `ArgumentTypeError` that states what was `expected`.
    """
    is_integer = text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
    if not (is_integer and low <= int(text) <= high):
        raise argparse.ArgumentTypeError(f"{quote(text)}, but expected {expected}")
    return int(text)


def _parse_seed(text: str) -> int:
    """Parse a seed from 0 to 2**32 - 1; other text raises an `ArgumentTypeError`."""
    return _parse_integer(text, 0, MAX_SEED, f"an integer from 0 to {MAX_SEED}")


def _parse_count(text: str) -> int:
    """Parse an integer from 1 to 2**32 - 1; other text raises an `ArgumentTypeError`."""
    return _parse_integer(text, 1, MAX_SEED, "an integer of at least 1")


def _parse_path(text: str) -> str:
    """Return a path unchanged; an empty text raises an `ArgumentTypeError`."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty, but expected the path of a table")
    return text


def _parse_lines(text: str) -> int:
    """Parse an integer from 0 to 2**32 - 1; other text raises an `ArgumentTypeError`."""
    return _parse_integer(text, 0, MAX_SEED, "an integer of at least 0")


def _parse_workers(text: str) -> int:
    """Parse an integer from 1 to 10,000; other text raises an `ArgumentTypeError`."""
    return _parse_integer(text, 1, MAX_WORKERS, f"an integer from 1 to {MAX_WORKERS}")


def _parse_rows(text: str) -> list[int]:
    """Parse row numbers separated by commas, such as 3,17; spaces are ignored.

    Other text raises an `ArgumentTypeError`.
    """
    numbers = [number.strip() for number in text.split(",")]
    return [_parse_integer(number, 0, 2**63 - 1, "row numbers such as 3,17") for number in numbers]


def _parse_number(text: str, low: float, high: float, expected: str) -> float:
    """Parse a number strictly between `low` and `high`.

    Any other text, and NaN, raises an `ArgumentTypeError` that states what was `expected`.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not low < number < high:
        raise argparse.ArgumentTypeError(f"{quote(text)}, but expected {expected}")
    return number


def _parse_share(text: str) -> float | str:
    """Parse a share in (0, 0.5], or "auto", which is returned unchanged.

    Other text raises an `ArgumentTypeError`.
    """
    expected = "a share in (0, 0.5] or auto"
    return text if text == "auto" else _parse_number(text, 0, math.nextafter(0.5, 1), expected)


def _parse_positive(text: str) -> float:
    """Parse a finite number above 0; other text raises an `ArgumentTypeError`."""
    return _parse_number(text, 0, math.inf, "a number above 0")


def _parse_probability(text: str) -> float:
    """Parse a number strictly between 0 and 1; other text raises an `ArgumentTypeError`."""
    return _parse_number(text, 0, 1, "a number between 0 and 1")


def _parse_finite(text: str) -> float:
    """Parse a finite number; other text raises an `ArgumentTypeError`."""
    return _parse_number(text, -math.inf, math.inf, "a finite number")
