"""Standard input as a table, standard output for bytes."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from altbi.errors import TableError
from altbi.io import Source, open_table

__all__ = ["binary_stdout", "open_input"]


@contextmanager
def open_input(args: argparse.Namespace) -> Iterator[Source]:
    """Open the table that the arguments name."""
    how = {
        "format": args.input_format,
        "encoding": args.encoding,
        "delimiter": args.delimiter,
        "header": args.header,
    }
    if args.table != "-":
        yield open_table(args.table, **how)
        return
    if sys.stdin is None:
        raise TableError("standard input: it is closed, but expected a table. Name a file.")
    # A table is read twice, a stream only once.
    with tempfile.NamedTemporaryFile(prefix="altbi-") as spool:
        try:
            shutil.copyfileobj(sys.stdin.buffer, spool)
            spool.flush()
        except OSError as error:
            why = f"{error.strerror} (it is copied to {spool.name}, to be read twice)"
            raise OSError(error.errno, why, "standard input") from error
        yield open_table(spool.name, name="standard input", **how)


def binary_stdout() -> BinaryIO:
    """Give standard output for bytes, with what was written as text before."""
    sys.stdout.flush()
    return sys.stdout.buffer
