"""The command line: thin commands over the library.

Commands import the library when they run, so that ``--help`` is fast.
"""

import argparse
import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.abc import MetaPathFinder
from types import FrameType

from altbi.cli._parser import build_parser
from altbi.errors import AltbiError, escape_text, shorten_message

__all__ = ["main", "run_program"]

DONE, FAILED, INTERRUPTED, TERMINATED = 0, 1, 130, 143
NOTHING_LEFT = "No incomplete file is left."
ALLOCATION_FAILED = "not enough memory for this table. Select fewer columns with --columns."
THREAD_ERRORS = ("can't start new thread", "Failed to launch worker thread")  # Python and Arrow
NO_THREAD_STARTED = (
    "no thread can be started. Free memory, or raise the limit of processes (ulimit -u)."
)
PARTITIONS_LEFT = "Complete partitions are kept; run the same command again to continue."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the `altbi` command that the arguments select, and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments without the program's name; by default those of the process.

    Returns
    -------
    int
        0 for success, 1 for an error in the data or the model, 130 when interrupted, 143 when
        terminated. Wrong usage raises ``SystemExit`` with code 2.
    """
    run = _run_without_pandas if argv is None else _run_command
    return run_program(build_parser(), run, argv, _describe_leftovers)


def _run_without_pandas(args: argparse.Namespace) -> int:
    """Hide pandas from pyarrow in this process, then run a command as `_run_command` does.

    pyarrow imports pandas, if it is installed, when it first converts a value, to find out whether
    the value is a pandas object. Commands have no pandas objects, and the import takes 0.4 seconds.
    """
    if "pandas" not in sys.modules:
        import pyarrow as pa

        finder = _PandasHider()
        sys.meta_path.insert(0, finder)
        pa.array([])
        sys.meta_path.remove(finder)
    return _run_command(args)


class _PandasHider(MetaPathFinder):
    """Finder of modules for which pandas is not installed."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        """Raise an `ImportError` for pandas; leave other modules to the next finder."""
        if name == "pandas":
            raise ImportError(name)


def run_program(
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], int],
    argv: Sequence[str] | None,
    describe_leftovers: Callable[[argparse.Namespace], str],
) -> int:
    """Parse the arguments, call `run` with them, and return its exit code.

    Expected errors are printed to stderr as one line: `AltbiError`, `OSError` and too little memory
    return 1, Ctrl-C 130 and SIGTERM 143. Other exceptions are raised. A pipe that its reader has
    closed returns 1 without a message. Wrong usage exits with code 2.

    If `argv` is None, the arguments are those of the process. They are passed on as text in
    `args.arguments`. `describe_leftovers` returns a sentence about the files that an interrupted
    command leaves.
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
            _flush_stdout()
    except BrokenPipeError:
        _detach_stdout()
        return FAILED
    except Exception as error:
        sentence = _describe_error(error)
        if sentence is None:
            raise
        fail(sentence)
        return FAILED
    except KeyboardInterrupt:
        fail(f"interrupted. {describe_leftovers(args)}")
        return INTERRUPTED
    except _TerminatedError:
        fail(f"terminated. {describe_leftovers(args)}")
        return TERMINATED
    return code


def _run_command(args: argparse.Namespace) -> int:
    """Import the module of a command, call its function `args.run`, and return the exit code.

    A command that returns None has succeeded: the code is 0.
    """
    return getattr(import_module(f"altbi.cli.{args.module}"), args.run)(args) or DONE


def _describe_leftovers(args: argparse.Namespace) -> str:
    """Return the sentence that an interrupted command prints about the files it leaves.

    Only commands with an engine leave files: the partitions that are complete.
    """
    return PARTITIONS_LEFT if getattr(args, "engine", None) else NOTHING_LEFT


class _TerminatedError(BaseException):
    """Raised when the process receives SIGTERM.

    It is a `BaseException`, so that ``except Exception`` does not catch it and clean-up code runs.
    """


@contextmanager
def _raise_on_termination() -> Iterator[None]:
    """Raise `_TerminatedError` on SIGTERM inside the block, so that temporary files are removed.

    The previous signal handler is restored at the end. Outside the main thread, where Python cannot
    set signal handlers, nothing changes.
    """

    def stop(signum: int, frame: FrameType | None) -> None:
        """Raise `_TerminatedError`; called by Python on SIGTERM."""
        raise _TerminatedError

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _flush_stdout() -> None:
    """Flush standard output; a disk error names it."""
    with name_stdout_errors():
        sys.stdout.flush()


@contextmanager
def name_stdout_errors() -> Iterator[None]:
    """Raise disk errors in the block that name no file with the name of standard output.

    After such an error, standard output is the null device.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None or not error.errno:
            raise
        # What is buffered cannot be written either, and Python would try it again at exit.
        _detach_stdout()
        raise OSError(error.errno, os.strerror(error.errno), "standard output") from error


def _describe_error(error: Exception) -> str | None:
    """Return the sentence to print for an expected error; return None for another error.

    For an `OSError` with a path it is ``path: reason``. If too little memory is the cause of an
    error, the sentence is about memory.
    """
    causes = _list_causes(error)
    if any(map(_is_allocation_error, causes)):
        return ALLOCATION_FAILED
    if any(text in str(cause) for cause in causes for text in THREAD_ERRORS):
        return NO_THREAD_STARTED
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error) if isinstance(error, AltbiError | OSError) else None


def _list_causes(error: BaseException) -> list[BaseException]:
    """Return an error and its causes.

    A cause is an error from which another one was raised, or that was handled meanwhile. So the
    list also has an error that a library has converted.
    """
    causes: list[BaseException] = []
    found: BaseException | None = error
    while found is not None:
        causes.append(found)
        found = found.__cause__ or found.__context__
    return causes


def _is_allocation_error(error: BaseException) -> bool:
    """Return whether an error is that memory could not be allocated.

    Errors of NumPy and Arrow are a `MemoryError`. DuckDB has a class of its own, which only exists
    if it is imported.
    """
    of_duckdb = getattr(sys.modules.get("duckdb"), "OutOfMemoryException", MemoryError)
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError | of_duckdb)


def _print_error(program: str, sentence: str) -> None:
    """Print ``program: sentence`` to stderr as one line.

    Line breaks become spaces, control characters are escaped, and the middle of a long sentence is
    left out. On a terminal, the line of a progress bar is cleared first.
    """
    clear_progress = "\r\x1b[K" if sys.stderr.isatty() else ""
    line = shorten_message(escape_text(" ".join(sentence.split())))
    sys.stderr.write(f"{clear_progress}{program}: {line}\n")


def _escape_unprintable_output() -> None:
    """Make standard output escape characters that its encoding lacks, instead of raising an error.

    Streams that are not a `TextIOWrapper`, as in tests, are not changed.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _detach_stdout() -> None:
    """Redirect standard output to the null device, because nothing can be written to it.

    Otherwise Python's flush at exit would print another error.
    """
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
