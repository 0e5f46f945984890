"""The command `altbi-bench`.

Commands import what they need when they run, so that help is fast.
"""

import argparse
from collections.abc import Sequence
from importlib import import_module

from altbi.cli import run_program
from altbi_bench.cli.parser import build_parser

__all__ = ["main"]

NO_TRACE = "Nothing half-written is left."
GOES_ON = "The lines of jobs that were done stay; the same command goes on with the others."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command of the benchmark.

    Returns
    -------
    int
        0 done, 1 a job failed or a file is at fault, 130 interrupted, 143 told to stop. Wrong usage
        exits with 2.
    """
    return run_program(build_parser(), _run, argv, _left_by)


def _run(args: argparse.Namespace) -> int:
    """Import the commands and run the one that was asked for."""
    return getattr(import_module("altbi_bench.cli.commands"), args.run)(args) or 0


def _left_by(args: argparse.Namespace) -> str:
    """Return what an interrupted command leaves behind."""
    return GOES_ON if args.run in ("run", "quick", "ablation") else NO_TRACE
