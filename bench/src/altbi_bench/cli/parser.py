"""The parser of `altbi-bench`: commands and options. It is fast to import."""

import argparse
from pathlib import Path
from typing import Any

from altbi.cli._parser import SHELLS, add_engine_options, complete_files
from altbi_bench import __version__

__all__ = ["build_parser"]

FOLDER = Path("bench/results")
AUTO, MIN_ROWS, ROWS = 0, 10, 20_000
MAX_COUNT, MAX_SEEDS = 10**9, 1000
PROTOCOLS = ("transductive", "official", "dte", "semi", "semi-code", "semi-dte", "split")
SUITES = ("smoke", "small", "tables", "embeddings", "all")
# Defaults of `tables`.
TABLE_DEFAULTS = {
    "datasets": None,
    "suite": "all",
    "systems": None,
    "seeds": None,
    "rows": AUTO,
    "protocol": "transductive",
    "markdown": False,
}
Commands = Any  # the type of argparse's sub-parsers is private
FILE_ARGUMENTS = ("records", "page")


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="altbi-bench",
        description="Repeat the paper's experiments.",
        epilog="exit codes: 0 success, 1 a job failed or a file is wrong, 2 wrong usage\n\n"
        "example:\n  altbi-bench datasets",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"altbi-bench {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (
        _add_datasets,
        _add_systems,
        _add_run,
        _add_tables,
        _add_records,
        _add_quick,
        _add_ablation,
        _add_figures,
        _add_completion,
    ):
        add(commands)
    complete_files(parser, FILE_ARGUMENTS)
    return parser


def _add_completion(commands: Commands) -> None:
    about = "print a script for shell completion"
    added = _add_command(commands, "completion", about, "completion bash >> ~/.bash_completion")
    added.add_argument("shell", choices=SHELLS)


def _add_datasets(commands: Commands) -> None:
    about = "list the data sets, which are available, and where to put the others"
    added = _add_command(commands, "datasets", about, "datasets")
    added.add_argument("--files", action="store_true", help="list every file")
    added.add_argument("--json", action="store_true", help="write JSON")
    added.add_argument(
        "--check",
        action="store_true",
        help="read the available files, and report those that differ from ADBench's",
    )


def _add_systems(commands: Commands) -> None:
    about = "list the systems with source, parameters and version"
    added = _add_command(commands, "systems", about, "systems")
    added.add_argument("--json", action="store_true", help="write JSON")


def _add_run(commands: Commands) -> None:
    about = "run systems on data sets, one record for each job; existing records are not run again"
    example = "run --suite small --systems IForest,kNN --processes 2"
    added = _add_command(commands, "run", about, example)
    _add_question(added)
    _add_suite(
        added,
        "available data sets; smoke: six small ones with systems made fast and inaccurate, whose "
        "records are left out of tables",
        "tables",
    )
    _add_machine(added)


def _add_tables(commands: Commands) -> None:
    about = "print tables and statistics of the records, with the paper's numbers"
    added = _add_command(commands, "tables", about, "tables --protocol dte")
    _add_question(added)
    _add_suite(added, "which data sets are shown", str(TABLE_DEFAULTS["suite"]))
    added.add_argument(
        "--page",
        type=Path,
        metavar="FILE",
        help="write the page of all results as Markdown, tables and figures in a folder next to "
        "it; without it one protocol is printed",
    )
    added.add_argument("--markdown", action="store_true", help="print Markdown")


def _add_records(commands: Commands) -> None:
    about = "show the records behind a number: line, versions, and the command to repeat the runs"
    example = "records --datasets cardio --systems LOF"
    added = _add_command(commands, "records", about, example)
    _add_question(added)
    _add_suite(added, "data sets of the records", "all")


def _add_quick(commands: Commands) -> None:
    about = "compare ALTBI with two classical systems on the available tables: run, then tables"
    added = _add_command(commands, "quick", about, "quick --processes 2")
    _add_selection(added)
    _add_machine(added)
    added.add_argument("--markdown", action="store_true", help="print Markdown")


def _add_ablation(commands: Commands) -> None:
    about = "change one parameter of ALTBI-I at a time, observe trainings, and print tables"
    added = _add_command(commands, "ablation", about, "ablation --settings rho,gamma")
    _add_folder(added)
    added.add_argument(
        "--datasets",
        type=_parse_names,
        metavar="A,B",
        help="names as in the paper (default: all tables)",
    )
    added.add_argument(
        "--settings",
        type=_parse_names,
        metavar="A,B",
        help="of rho, gamma, n_samples, learning_rate, n0 (default: all); with it no training is "
        "observed",
    )
    added.add_argument(
        "--seeds",
        type=_parse_seeds,
        default=(0,),
        metavar="N",
        help="number of seeds, or a list such as 0,1 (default: 1; 10 for figures of single tables)",
    )
    added.add_argument("--no-runs", action="store_true", help="only print existing records")
    added.add_argument("--markdown", action="store_true", help="print Markdown")
    _add_jobs(added)


def _add_figures(commands: Commands) -> None:
    about = "draw the paper's figures from the records, and write a page about them"
    added = _add_command(commands, "figures", about, "figures --page figures.md")
    _add_folder(added)
    added.add_argument(
        "--page",
        type=Path,
        default=Path("docs/figures.md"),
        metavar="FILE",
        help="Markdown file, images in a folder next to it (default: %(default)s)",
    )


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--records",
        type=Path,
        default=FOLDER,
        metavar="FOLDER",
        help="folder of records (default: %(default)s)",
    )


def _add_command(
    commands: Commands, name: str, about: str, example: str
) -> argparse.ArgumentParser:
    """Add a command with its description and example."""
    added: argparse.ArgumentParser = commands.add_parser(
        name,
        help=about,
        description=f"{about[0].upper()}{about[1:]}.",
        epilog=f"example:\n  altbi-bench {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    added.set_defaults(run=name, wrong=added.error)
    return added


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--records",
        type=Path,
        metavar="FILE",
        help=f"file of records (default: {FOLDER}/PROTOCOL.jsonl); a folder of them for --page",
    )
    parser.add_argument(
        "--datasets",
        type=_parse_names,
        metavar="A,B",
        help="names as in the paper, or files as `altbi-bench datasets --files` lists them, "
        "instead of a suite",
    )
    parser.add_argument(
        "--seeds",
        type=_parse_seeds,
        metavar="N",
        help="number of seeds, or a list such as 0,1,6 or 4, with a comma (default: 3; under dte "
        "those of the paper's table)",
    )
    parser.add_argument(
        "--rows",
        type=_parse_rows,
        default=AUTO,
        metavar="N",
        help="sample of larger tables, the same for all systems, or all (default: "
        f"{ROWS}; all under dte and semi-dte, which sample themselves)",
    )


def _add_suite(parser: argparse.ArgumentParser, about: str, default: str) -> None:
    parser.add_argument(
        "--suite", choices=SUITES, default=default, help=f"{about} (default: {default})"
    )


def _add_question(parser: argparse.ArgumentParser) -> None:
    _add_selection(parser)
    parser.add_argument(
        "--systems",
        type=_parse_names,
        metavar="A,B",
        help="names as `altbi-bench systems` lists them (default: all but those on request only)",
    )
    parser.add_argument(
        "--protocol",
        choices=PROTOCOLS,
        default=TABLE_DEFAULTS["protocol"],
        help="(default: %(default)s)",
    )


def _add_machine(parser: argparse.ArgumentParser) -> None:
    _add_jobs(parser)
    add_engine_options(parser, "the jobs, each in a process of its own, instead of --processes")


def _add_jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--processes",
        type=_parse_positive,
        default=1,
        metavar="N",
        help="jobs at once (default: 1)",
    )
    parser.add_argument(
        "--threads",
        type=_parse_positive,
        default=1,
        metavar="N",
        help="in each process (default: 1)",
    )
    parser.add_argument(
        "--limit",
        type=_parse_positive,
        default=600,
        metavar="SECONDS",
        help="time limit of one job, including reading its file (default: %(default)s)",
    )
    parser.add_argument("--retry", action="store_true", help="run failed jobs again")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def _parse_names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _parse_seeds(text: str) -> tuple[int, ...]:
    numbers = text.removesuffix(",").split(",")
    if not all(number.isascii() and number.isdigit() for number in numbers):
        raise argparse.ArgumentTypeError(f"{text!r}, but expected 3, or a list such as 0,1,6 or 4,")
    if "," in text:
        return tuple(map(int, numbers))
    if not 1 <= int(text) <= MAX_SEEDS:
        raise argparse.ArgumentTypeError(f"{text!r}, but expected 1 to {MAX_SEEDS} seeds")
    return tuple(range(int(text)))


def _parse_rows(text: str) -> int | None:
    return None if text == "all" else _parse_count(text, MIN_ROWS)


def _parse_positive(text: str) -> int:
    return _parse_count(text, 1)


def _parse_count(text: str, least: int) -> int:
    if not (text.isascii() and text.isdigit() and least <= int(text) <= MAX_COUNT):
        raise argparse.ArgumentTypeError(
            f"{text!r}, but expected a whole number from {least} to {MAX_COUNT}"
        )
    return int(text)
