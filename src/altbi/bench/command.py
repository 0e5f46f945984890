"""The command `altbi bench quick`; what it needs is imported when it runs."""

import argparse
import sys
from pathlib import Path

__all__ = ["add_arguments", "main"]

LINES = Path("benchmarks/results/quick.jsonl")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options of `altbi bench quick` to its parser."""
    parser.add_argument(
        "--lines",
        type=Path,
        default=LINES,
        metavar="FILE",
        help="runs, one a line; those that are there are not run again (default: %(default)s)",
    )
    parser.add_argument(
        "--datasets",
        type=lambda text: text.split(","),
        metavar="A,B",
        help="names as in the paper (default: all 45)",
    )
    parser.add_argument(
        "--seeds",
        type=_positive,
        default=3,
        metavar="N",
        help="runs of each system on each data set (default: %(default)s)",
    )
    parser.add_argument("--only-system", metavar="NAME", help="run and show one system alone")
    parser.add_argument("--markdown", action="store_true", help="write tables as Markdown")


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"{text!r}, but expected a whole number of at least 1")
    return int(text)


def main(args: argparse.Namespace) -> int:
    """Run what is left, write the tables; 1 when a run is missing or failed."""
    from altbi.bench.run import quick
    from altbi.bench.tables import gaps, report

    systems = None if args.only_system is None else [args.only_system]
    jobs, runs = quick(args.lines, args.datasets, args.seeds, _progress, systems)
    sys.stdout.write(report(jobs, runs, markdown=args.markdown))
    return 1 if gaps(jobs, runs) else 0


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(text + "\n")
