"""The command line: thin commands over the library.

A command imports what it needs when it runs, so that help answers at once.
"""

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from altbi.bench import command as bench
from altbi.errors import AltbiError
from altbi.terminal import printable
from altbi.version import __version__

__all__ = ["main"]

DONE, AT_FAULT, INTERRUPTED = 0, 1, 130
MAX_SEED = 2**32 - 1

Command = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns
    -------
    int
        0 done, 1 the data or the model is at fault, 130 interrupted. Wrong usage exits with 2.
    """
    if sys.stdout is None:
        _complain("standard output is closed, but the result has to go somewhere")
        return AT_FAULT
    _show_any_letter()
    args = _parser().parse_args(argv)
    try:
        code = args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        _let_go_of_stdout()
        return AT_FAULT
    except (AltbiError, OSError) as error:
        _complain(_sentence(error))
        return AT_FAULT
    except KeyboardInterrupt:
        _complain("interrupted")
        return INTERRUPTED
    return code


def demo(args: argparse.Namespace) -> int:
    """Search the embedded table."""
    from altbi.demo import render, run

    found = run(args.seed)
    sys.stdout.write(_json(asdict(found)) if args.json else render(found))
    return DONE


def inspect(args: argparse.Namespace) -> int:
    """Say what a model file says of itself."""
    from altbi.inspection import read_facts, render

    facts = read_facts(args.file)
    sys.stdout.write(_json(asdict(facts)) if args.json else render(facts))
    return DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="altbi",
        description="Find the odd rows in tables that nobody has labelled, and say why.",
        epilog="exit codes: 0 done, 1 the data or the model is at fault, 2 wrong usage\n\n"
        "example:\n  altbi demo",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"altbi {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    added = _add(commands, "demo", "find malignant biopsies in an embedded table", "demo", demo)
    added.add_argument(
        "--seed", type=_seed, default=0, metavar="N", help="another draw (default: %(default)s)"
    )
    _add_json(added)

    added = _add(commands, "inspect", "say what a model file holds", "inspect model.altbi", inspect)
    added.add_argument("file", metavar="FILE", help="a file written by ALTBI.save")
    _add_json(added)

    _add_bench(commands)
    return parser


def _add_bench(commands: Any) -> None:  # noqa: ANN401 - argparse keeps this type to itself
    """Add `bench`, whose experiments are commands of their own."""
    group = _add(commands, "bench", "repeat the paper's experiments", "bench quick --seeds 1")
    experiments = group.add_subparsers(title="experiments", metavar="EXPERIMENT", required=True)
    about = "compare detectors on the data sets at hand"
    added = _add(experiments, "quick", about, "bench quick --seeds 1", bench.main)
    bench.add_arguments(added)


def _add(
    commands: Any,  # noqa: ANN401
    name: str,
    about: str,
    example: str,
    run: Command | None = None,
) -> argparse.ArgumentParser:
    """Add a command with its one line of description and its example."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=about,
        description=_title(about),
        epilog=f"example:\n  altbi {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    return parser


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="write JSON instead of text")


def _title(about: str) -> str:
    return f"{about[0].upper()}{about[1:]}."


def _seed(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= MAX_SEED):
        raise argparse.ArgumentTypeError(
            f"{text!r}, but expected a whole number from 0 to {MAX_SEED}"
        )
    return int(text)


def _json(facts: dict[str, Any]) -> str:
    return json.dumps(facts, indent=2, allow_nan=False) + "\n"


def _sentence(error: AltbiError | OSError) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _complain(sentence: str) -> None:
    """Write one line; a message may quote a file, so that it is not trusted with the terminal."""
    sys.stderr.write(f"altbi: {printable(' '.join(sentence.split()))}\n")


def _show_any_letter() -> None:
    """Escape the letters that the user's encoding lacks, instead of failing on them."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _let_go_of_stdout() -> None:
    """Point standard output nowhere, so that Python's last flush does not fail as well."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
