"""What one can say to the command: its names, options, examples. Imports nothing heavy."""

import argparse
import math
from collections.abc import Collection
from typing import Any

from altbi._version import __version__
from altbi.cli._engine_options import add_engine

__all__ = ["SHELLS", "build_parser", "complete_files"]

MAX_SEED = 2**32 - 1
INPUTS = ("csv", "parquet", "arrow", "jsonl", "npz", "npy")
OUTPUTS = ("csv", "parquet", "arrow", "jsonl")
METHODS = ("recommended", "altbi", "altbi-paper", "altbi-glow", "odim")
TABLE = (
    "CSV or Parquet (a file or a folder), Arrow, JSON lines or npz, compressed or not; - for stdin"
)
Commands = Any  # argparse keeps the type of its sub-parsers to itself

# How shells complete the name of a file, in the terms of shtab, which is not imported here.
_FILE = {
    "bash": "_shtab_compgen_files",
    "zsh": "_files",
    "tcsh": "f",
    "fish": "(__fish_complete_path (commandline -ct))",
}
SHELLS = tuple(_FILE)
_FILE_NAMES = {"table", "file", "output", "model"}


def build_parser() -> argparse.ArgumentParser:
    """Describe the whole command line."""
    parser = argparse.ArgumentParser(
        prog="altbi",
        description="Find the odd rows in tables that nobody has labelled, and say why.",
        epilog="exit codes: 0 done, 1 the data or the model is at fault, 2 wrong usage\n\n"
        "example:\n  altbi detect payments.csv",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"altbi {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (_detect, _fit, _score, _explain, _report, _inspect, _demo, _completion):
        add(commands)
    complete_files(parser, _FILE_NAMES)
    return parser


def complete_files(parser: argparse.ArgumentParser, names: Collection[str]) -> None:
    """Make shells complete file names for the arguments of these names."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                complete_files(command, names)
        elif action.dest in names:
            action.complete = _FILE  # type: ignore[attr-defined]


def _detect(commands: Commands) -> None:
    added = _add(
        commands,
        "detect",
        "find the odd rows of a table: fit, score, explain, report",
        "detect payments.csv --id invoice --output found",
    )
    _add_table(added)
    added.add_argument(
        "--output",
        "-o",
        metavar="FOLDER",
        help="where scores, reasons, model and report go (default: NAME-altbi beside the table); "
        "- writes the scores to stdout, and nothing else",
    )
    _add_columns(added)
    _add_fit(added)
    _add_scores(added)
    added.add_argument("--no-report", action="store_true", help="write no report.html")
    added.add_argument(
        "--release-scores",
        action="store_true",
        help="with --epsilon: write the scores of the table's own rows, which no budget covers",
    )
    _add_top(added, 200)
    _add_run(added)
    add_engine(added, "the table: scores become a folder of Parquet files")


def _fit(commands: Commands) -> None:
    about = "learn a model from a table"
    added = _add(commands, "fit", about, "fit payments.csv --output payments.altbi")
    _add_table(added)
    added.add_argument(
        "--output", "-o", metavar="FILE", help="the model (default: NAME.altbi beside the table)"
    )
    _add_columns(added)
    _add_fit(added)
    _add_run(added)


def _score(commands: Commands) -> None:
    about = "score a table with a model"
    added = _add(
        commands, "score", about, "score new.csv --model payments.altbi --output new.parquet"
    )
    _add_table(added)
    _add_model(added)
    added.add_argument(
        "--output",
        "-o",
        metavar="FILE",
        help="the scores (default: NAME-scores.csv beside the table); - for stdout",
    )
    _add_columns(added)
    _add_scores(added)
    _add_run(added)
    add_engine(added, "the table: scores become a folder of Parquet files")


def _explain(commands: Commands) -> None:
    about = "say why rows have their scores"
    added = _add(commands, "explain", about, "explain new.csv --model payments.altbi --rows 3,17")
    _add_table(added)
    _add_model(added)
    added.add_argument(
        "--rows", type=_rows, metavar="N,N,…", help="these rows, counted from 0 (default: the top)"
    )
    _add_top(added, 10)
    added.add_argument(
        "--output", "-o", metavar="FILE", help="one line for each reason, as CSV, Parquet, …"
    )
    _add_columns(added)
    _add_run(added)


def _report(commands: Commands) -> None:
    about = "score a table with a model and write the page about it"
    added = _add(commands, "report", about, "report new.csv --model payments.altbi")
    _add_table(added)
    _add_model(added)
    added.add_argument(
        "--output",
        "-o",
        metavar="FILE",
        help="the page (default: NAME-report.html beside the table); - for stdout",
    )
    _add_columns(added)
    _add_top(added, 200)
    _add_run(added)


def _inspect(commands: Commands) -> None:
    added = _add(commands, "inspect", "say what a model file holds", "inspect model.altbi")
    added.add_argument("file", metavar="FILE", help="a file written by altbi or by ALTBI.save")
    _add_json(added)


def _demo(commands: Commands) -> None:
    about = "find malignant biopsies in an embedded table"
    added = _add(commands, "demo", about, "demo --output altbi-demo")
    added.add_argument(
        "--output", "-o", metavar="FOLDER", default="altbi-demo", help="(default: %(default)s)"
    )
    _add_seed(added)
    _add_json(added)


def _completion(commands: Commands) -> None:
    added = _add(
        commands,
        "completion",
        "print what makes a shell complete these commands",
        "completion bash >> ~/.bash_completion",
    )
    added.add_argument("shell", choices=SHELLS)


def _add(commands: Commands, name: str, about: str, example: str) -> argparse.ArgumentParser:
    """Add a command with its one line of description and its example."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=about,
        description=f"{about[0].upper()}{about[1:]}.",
        epilog=f"example:\n  altbi {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=name, wrong=parser.error)
    return parser


def _add_table(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", metavar="TABLE", help=TABLE)
    group = parser.add_argument_group("how to read the table, if it does not show")
    group.add_argument("--input-format", choices=INPUTS, help="(default: what the content says)")
    group.add_argument("--delimiter", metavar="C", help="between the cells of a CSV line")
    group.add_argument("--encoding", metavar="NAME", help="of a CSV file, such as latin-1")
    group.add_argument(
        "--header",
        action=argparse.BooleanOptionalAction,
        help="whether the first line of a CSV file names the columns",
    )
    group.add_argument(
        "--missing",
        action="append",
        default=[],
        metavar="TEXT",
        help="a text that means a missing cell; may be given again",
    )


def _add_columns(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("columns (several with commas, or the option again)")
    names: dict[str, Any] = {"action": "append", "default": [], "metavar": "NAME"}
    group.add_argument("--columns", help="search only these", **names)
    group.add_argument("--exclude", help="leave these out", **names)
    group.add_argument("--id", help="names a row: not searched, kept in the output", **names)
    group.add_argument(
        "--label",
        metavar="NAME[=VALUE]",
        help="known labels (1 or VALUE for outliers): not searched, never trained on, only "
        "compared with scores at the end",
    )


def _add_fit(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the model")
    group.add_argument(
        "--contamination",
        type=_share,
        default="auto",
        metavar="SHARE",
        help="share of outliers in (0, 0.5], sets the threshold (default: estimated)",
    )
    group.add_argument(
        "--method",
        choices=METHODS,
        help="the recommended detector; or the paper's method as in the authors' code (altbi), as "
        "printed (altbi-paper) or with a flow (altbi-glow); or ODIM (default: recommended, and "
        "altbi with --epsilon)",
    )
    group.add_argument(
        "--max-rows",
        type=_count,
        default=200_000,
        metavar="N",
        help="rows to learn from, drawn at random from larger tables (default: %(default)s)",
    )
    group.add_argument(
        "--threshold",
        type=_finite,
        metavar="SCORE",
        help="flag rows with a score above it; --contamination is then not used",
    )
    _add_seed(group)
    _add_privacy(parser)


def _add_privacy(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("privacy")
    group.add_argument(
        "--epsilon", type=_above_zero, metavar="E", help="privacy budget (default: no privacy)"
    )
    group.add_argument(
        "--delta",
        type=_below_one,
        metavar="D",
        help="of the budget (default: 1e-06)",
    )
    group.add_argument(
        "--bounds",
        nargs="+",
        metavar="BOUND",
        help="two numbers for all columns; a JSON file with the bounds or levels of each; or "
        "estimate, which takes a tenth of the budget",
    )
    group.add_argument(
        "--truncation",
        choices=("tracked", "trimmed"),
        help="the losses left out: above a noisy threshold, or the largest of each batch with twice "
        "the noise (default: tracked)",
    )
    group.add_argument(
        "--noise",
        type=_above_zero,
        metavar="SIGMA",
        help="train with so much noise until the budget is spent (default: the least with which it "
        "lasts)",
    )
    group.add_argument(
        "--clip", type=_above_zero, metavar="C", help="norm of gradients (default: 1)"
    )


def _add_scores(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=OUTPUTS, help="of the scores (default: csv)")
    parser.add_argument(
        "--keep-columns", action="store_true", help="write the table's columns beside the scores"
    )


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", "-m", required=True, metavar="FILE", help="a file written by detect or fit"
    )


def _add_top(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument(
        "--top",
        type=_count,
        default=default,
        metavar="N",
        help="explain so many of the highest scores (default: %(default)s)",
    )


def _add_run(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the run")
    group.add_argument("--threads", type=_count, metavar="N", help="(default: all cores)")
    group.add_argument("--quiet", "-q", action="store_true", help="write nothing but errors")
    _add_json(group)


def _add_seed(parser: Any) -> None:  # noqa: ANN401 - a parser or a group of one
    parser.add_argument(
        "--seed", type=_seed, default=0, metavar="N", help="another draw (default: %(default)s)"
    )


def _add_json(parser: Any) -> None:  # noqa: ANN401
    parser.add_argument("--json", action="store_true", help="write JSON instead of text")


def _seed(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= MAX_SEED):
        raise argparse.ArgumentTypeError(
            f"{text!r}, but expected a whole number from 0 to {MAX_SEED}"
        )
    return int(text)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= MAX_SEED):
        raise argparse.ArgumentTypeError(f"{text!r}, but expected a whole number of at least 1")
    return int(text)


def _rows(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r}, but expected row numbers such as 3,17")
    return [int(part) for part in parts]


def _share(text: str) -> float | str:
    if text == "auto":
        return text
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 0.5:
        raise argparse.ArgumentTypeError(f"{text!r}, but expected a share in (0, 0.5] or auto")
    return share


def _number(text: str, expected: str, low: float, high: float) -> float:
    """Read a number between two others, neither of which will do."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not low < number < high:
        raise argparse.ArgumentTypeError(f"{text!r}, but expected {expected}")
    return number


def _above_zero(text: str) -> float:
    return _number(text, "a number above 0", 0, math.inf)


def _below_one(text: str) -> float:
    return _number(text, "a number between 0 and 1", 0, 1)


def _finite(text: str) -> float:
    return _number(text, "a finite number", -math.inf, math.inf)
