"""The command line: thin commands over the library.

A command imports what it needs when it runs, so that help answers at once.
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

from altbi.cli.parser import build_parser
from altbi.errors import AltbiError
from altbi.terminal import printable

__all__ = ["main", "run_program"]

DONE, AT_FAULT, INTERRUPTED, STOPPED = 0, 1, 130, 143
NO_TRACE = "Nothing half-written is left."
PARTS_STAY = "The parts that were done stay; the same command goes on with the others."

# Where the commands live that are not about tables.
_HOMES = {
    "inspect": ("altbi.cli.models", "inspect"),
    "demo": ("altbi.cli.models", "demo"),
    "completion": ("altbi.cli.completion", "completion"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns
    -------
    int
        0 done, 1 the data or the model is at fault, 130 interrupted, 143 told to stop. Wrong usage
        exits with 2.
    """
    return run_program(build_parser(), _run, argv, _left_by)


def run_program(
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], int],
    argv: Sequence[str] | None,
    left_by: Callable[[argparse.Namespace], str],
) -> int:
    """Parse the arguments, run a command and return its exit code; errors become one sentence.

    `left_by` returns what an interrupted command leaves behind.
    """
    complain = partial(_complain, parser.prog)
    if sys.stdout is None:
        complain("standard output is closed, but the result has to go somewhere")
        return AT_FAULT
    _show_any_letter()
    words = list(sys.argv[1:] if argv is None else argv)
    args = parser.parse_args(words)
    args.words = words
    try:
        with _stoppable():
            code = run(args)
            sys.stdout.flush()
    except BrokenPipeError:
        _let_go_of_stdout()
        return AT_FAULT
    except (AltbiError, OSError) as error:
        complain(_sentence(error))
        return AT_FAULT
    except MemoryError:
        complain("there is not enough memory for this table. Choose fewer with --columns.")
        return AT_FAULT
    except KeyboardInterrupt:
        complain(f"interrupted. {left_by(args)}")
        return INTERRUPTED
    except _Stopped:
        complain(f"told to stop. {left_by(args)}")
        return STOPPED
    return code


def _left_by(args: argparse.Namespace) -> str:
    """Say what a command leaves that was not done to its end."""
    return PARTS_STAY if getattr(args, "engine", None) else NO_TRACE


class _Stopped(BaseException):
    """The process was asked to end; goes through all code that tidies up."""


@contextmanager
def _stoppable() -> Iterator[None]:
    """Tidy up when the process is asked to end, as for Ctrl-C."""

    def stop(signum: int, frame: FrameType | None) -> None:
        raise _Stopped

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(args: argparse.Namespace) -> int:
    """Import what the command needs, and only that; a command may give an exit code."""
    home, name = _HOMES.get(args.run, ("altbi.cli.commands", args.run))
    return getattr(import_module(home), name)(args) or DONE


def _sentence(error: AltbiError | OSError) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _complain(program: str, sentence: str) -> None:
    """Write one line; a message may quote a file, so that it is not trusted with the terminal."""
    over_progress = "\r\x1b[K" if sys.stderr.isatty() else ""
    sys.stderr.write(f"{over_progress}{program}: {printable(' '.join(sentence.split()))}\n")


def _show_any_letter() -> None:
    """Escape the letters that the user's encoding lacks, instead of failing on them."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _let_go_of_stdout() -> None:
    """Point standard output nowhere, so that Python's last flush does not fail as well."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
