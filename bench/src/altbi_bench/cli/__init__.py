"""The command `altbi-bench`.

Commands import what they need when they run, so that help is fast.
"""

import argparse
from collections.abc import Sequence
from importlib import import_module

from altbi.cli import run_program
from altbi_bench.cli.parser import build_parser

__all__ = ["main"]

NOTHING_LEFT = "No incomplete file is left."
RECORDS_KEPT = "Records of finished jobs are kept; the same command runs the others."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command of the benchmark.

    Returns
    -------
    int
        0 success, 1 a job failed or a file is wrong, 130 interrupted, 143 terminated. Wrong usage
        exits with 2.
    """
    return run_program(build_parser(), _run, argv, _describe_interruption)


def _run(args: argparse.Namespace) -> int:
    """Import the commands and run one."""
    return getattr(import_module("altbi_bench.cli.commands"), args.run)(args) or 0


def _describe_interruption(args: argparse.Namespace) -> str:
    """Return what an interrupted command leaves behind."""
    return RECORDS_KEPT if args.run in ("run", "quick", "ablation") else NOTHING_LEFT
