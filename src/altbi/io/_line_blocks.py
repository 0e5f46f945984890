"""A text cut into blocks of whole lines; one line must fit into memory, and no more."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from altbi.errors import TableError

__all__ = ["LINE_BYTES", "Block", "complete_lines"]

LINE_BYTES = 1 << 24


@dataclass(frozen=True, slots=True)
class Block:
    """Some whole lines of a file, and the number of the first one, counted from 1."""

    data: bytes
    line: int


def complete_lines(
    pieces: Iterator[bytes], cut: Callable[[bytes], int], where: str, newline: bytes = b"\n"
) -> Iterator[Block]:
    """Cut a text into blocks.

    Parameters
    ----------
    pieces : iterator of bytes
        The text, cut anywhere.
    cut : callable
        Gives the place after the last whole line of a text that starts with one.
    where : str
        What messages call the file.
    newline : bytes
        What ends a line; it is counted for the numbers of lines.
    """
    rest, line = b"", 1
    for piece in _ended(pieces, newline):
        rest += piece
        end = cut(rest)
        if end:
            yield Block(rest[:end], line)
            line += rest.count(newline, 0, end)
            rest = rest[end:]
        if len(rest) > LINE_BYTES:
            raise TableError(
                f"{where}: line {line} is longer than {LINE_BYTES >> 20} MiB, or a quote that "
                "opens there is never closed. Shorten its cells, or mend the quote."
            )
    if rest:
        raise TableError(
            f"{where}: a quote that opens in line {line} or later is never closed. Mend it."
        )


def _ended(pieces: Iterator[bytes], newline: bytes) -> Iterator[bytes]:
    """Let the last line end as all others do."""
    last = newline
    for piece in pieces:
        last = piece or last
        yield piece
    if not last.endswith(newline):
        yield newline
