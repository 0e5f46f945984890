"""The engine that the arguments ask for."""

import argparse

from altbi.distributed import Dask, Engine, Local

__all__ = ["check_engine", "create_engine"]


def create_engine(args: argparse.Namespace) -> Engine:
    """Return the engine; it starts workers when they are needed."""
    _check_options(args)
    if args.engine == "dask":
        return Dask(args.scheduler, args.workers, quiet=True)
    return Local()


def check_engine(args: argparse.Namespace) -> None:
    """Report options that do not go with an engine as wrong usage."""
    _check_options(args)
    if args.engine is None:
        return
    if args.table == "-":
        args.wrong("an engine reads the table in partitions, so it cannot come from stdin")
    if args.output == "-":
        args.wrong("an engine writes a folder, which cannot go to stdout: pass an --output")
    if args.format not in (None, "parquet"):
        args.wrong(f"an engine writes Parquet files: leave out --format {args.format}")


def _check_options(args: argparse.Namespace) -> None:
    if args.scheduler is not None and args.engine != "dask":
        args.wrong("--scheduler is for --engine dask")
    if args.workers is not None and args.engine != "dask":
        args.wrong("--workers is for --engine dask")
    if args.workers is not None and args.scheduler is not None:
        args.wrong("a cluster has its own workers: leave out --workers or --scheduler")
