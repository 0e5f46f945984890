"""The engine that the arguments ask for."""

import argparse

from altbi.engines import Dask, Engine, Local, Processes

__all__ = ["check_engine", "engine_of"]


def engine_of(args: argparse.Namespace) -> Engine | None:
    """Give the engine, if one is asked for; nothing is started yet."""
    _check_options(args)
    if args.engine == "local":
        return Local()
    if args.engine == "processes":
        return Processes(args.workers)
    if args.engine == "dask":
        return Dask(args.scheduler, args.workers, quiet=True)
    return None


def check_engine(args: argparse.Namespace) -> None:
    """Refuse options that do not go with an engine that writes a folder of Parquet files."""
    _check_options(args)
    if args.engine is None:
        return
    if args.table == "-":
        args.wrong("an engine reads the table in parts, so that it cannot come from stdin")
    if args.output == "-":
        args.wrong("an engine writes a folder, which cannot go to stdout: name an --output")
    if args.format not in (None, "parquet"):
        args.wrong(f"an engine writes Parquet files: leave --format {args.format} out")


def _check_options(args: argparse.Namespace) -> None:
    if args.scheduler is not None and args.engine != "dask":
        args.wrong("--scheduler is for --engine dask")
    if args.workers is not None and args.engine not in ("processes", "dask"):
        args.wrong("--workers is for --engine processes and --engine dask")
    if args.workers is not None and args.scheduler is not None:
        args.wrong("a cluster has its own workers: leave --workers or --scheduler out")
