"""The command line: thin commands over the library.

Commands import the library when they run, so that ``--help`` is fast.
"""

import argparse
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import FrameType

from altbi._terminal import escape_text
from altbi.cli._parser import build_parser
from altbi.errors import AltbiError

__all__ = ["main", "run_program"]

DONE, FAILED, INTERRUPTED, TERMINATED = 0, 1, 130, 143
NOTHING_LEFT = "No incomplete file is left."
PARTITIONS_LEFT = "Complete partitions are kept; run the same command again to continue."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; by default those of the process.

    Returns
    -------
    int
        0 for success, 1 for an error in the data or the model, 130 when interrupted, 143 when
        terminated. Wrong usage exits with 2.
    """
    return run_program(build_parser(), _run_command, argv, _describe_leftovers)


def run_program(
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], int],
    argv: Sequence[str] | None,
    describe_leftovers: Callable[[argparse.Namespace], str],
) -> int:
    """Parse the arguments, run a command, and return its exit code.

    Parameters
    ----------
    parser : ArgumentParser
        The parser of the program.
    run : callable
        Runs the command of the parsed arguments.
    argv : sequence of str or None
        The arguments.
    describe_leftovers : callable
        Returns a sentence about the files that an interrupted command leaves.

    Returns
    -------
    int
        The exit code; errors are printed as one sentence.
    """
    fail = partial(_print_error, parser.prog)
    if sys.stdout is None:
        fail("standard output is closed, but the command has to print its result")
        return FAILED
    _escape_unprintable_output()
    arguments = list(sys.argv[1:] if argv is None else argv)
    args = parser.parse_args(arguments)
    args.arguments = arguments
    try:
        with _raise_on_termination():
            code = run(args)
            sys.stdout.flush()
    except BrokenPipeError:
        _detach_stdout()
        return FAILED
    except (AltbiError, OSError) as error:
        fail(_format_error(error))
        return FAILED
    except MemoryError:
        fail("not enough memory for this table. Select fewer columns with --columns.")
        return FAILED
    except KeyboardInterrupt:
        fail(f"interrupted. {describe_leftovers(args)}")
        return INTERRUPTED
    except _TerminatedError:
        fail(f"terminated. {describe_leftovers(args)}")
        return TERMINATED
    return code


def _run_command(args: argparse.Namespace) -> int:
    """Import the commands and run the one of the arguments."""
    return getattr(import_module("altbi.cli._commands"), args.run)(args) or DONE


def _describe_leftovers(args: argparse.Namespace) -> str:
    return PARTITIONS_LEFT if getattr(args, "engine", None) else NOTHING_LEFT


class _TerminatedError(BaseException):
    """The process received SIGTERM; passes through all code that cleans up."""


@contextmanager
def _raise_on_termination() -> Iterator[None]:
    """Raise an exception on SIGTERM, so that temporary files are removed as for Ctrl-C."""

    def stop(signum: int, frame: FrameType | None) -> None:
        raise _TerminatedError

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _format_error(error: AltbiError | OSError) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _print_error(program: str, sentence: str) -> None:
    """Print one line to stderr; escape text from files that a terminal would act on."""
    clear_progress = "\r\x1b[K" if sys.stderr.isatty() else ""
    sys.stderr.write(f"{clear_progress}{program}: {escape_text(' '.join(sentence.split()))}\n")


def _escape_unprintable_output() -> None:
    """Escape characters that the encoding of standard output lacks, instead of failing."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _detach_stdout() -> None:
    """Point standard output to the null device, so that Python's last flush does not fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
