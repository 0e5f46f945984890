"""What one can say about where the work runs. Imports nothing heavy."""

import argparse

__all__ = ["add_engine"]

ENGINES = ("local", "dask")
MOST_WORKERS = 10_000


def add_engine(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the options that choose an engine."""
    group = parser.add_argument_group("where the work runs")
    group.add_argument(
        "--engine",
        choices=ENGINES,
        help=f"work on partitions of {what}; in this process, or on Dask workers (default: none)",
    )
    group.add_argument(
        "--workers",
        type=_workers,
        metavar="N",
        help="Dask workers on this machine (default: one for each core)",
    )
    group.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="of a Dask cluster, such as tcp://10.0.0.1:8786 (default: one of this machine)",
    )


def _workers(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= MOST_WORKERS):
        raise argparse.ArgumentTypeError(
            f"{text!r}, but expected a whole number from 1 to {MOST_WORKERS}"
        )
    return int(text)
