"""TrainingStep on a terminal: what goes on, how fast, how long it will take."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO, final

__all__ = ["ProgressLine", "line_of"]

_PAUSE = 0.1  # seconds between two looks: a terminal is slower than the work
_WIDTH = 79
UNITS = {"training": "steps", "running": "jobs"}


@final
class ProgressLine:
    """Watches items go by, and writes one line about them, again and again, to a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def __call__(
        self, what: str, items: Iterable[Any], total: int | None, size: Callable[[Any], int]
    ) -> Iterator[Any]:
        """Give the items as they are."""
        start = shown = time.monotonic()
        done = 0
        try:
            for item in items:
                yield item
                done += size(item)
                now = time.monotonic()
                if now - shown >= _PAUSE:
                    shown = now
                    self._show(line_of(what, done, total, now - start))
        finally:
            self._show("")

    def _show(self, line: str) -> None:
        self.stream.write(f"\r{line[:_WIDTH]:{_WIDTH}}\r{line[:_WIDTH]}")
        self.stream.flush()


def line_of(what: str, done: int, total: int | None, seconds: float) -> str:
    """Say how far the work has come.

    >>> line_of("scoring", 500_000, 2_000_000, seconds=5.0)
    'scoring  500,000 of 2,000,000 rows  25 %  100,000 rows/s  0:15 left'
    >>> line_of("reading", 500, None, seconds=2.0)
    'reading  500 rows  250 rows/s'
    """
    unit = UNITS.get(what, "rows")
    speed = done / max(seconds, 1e-9)
    if total is None or done > total:
        return f"{what}  {done:,} {unit}  {speed:,.0f} {unit}/s"
    left = round((total - done) / max(speed, 1e-9))
    time_left = f"{left // 60}:{left % 60:02} left"
    share = f"{done / max(total, 1):.0%}".replace("%", " %")
    return f"{what}  {done:,} of {total:,} {unit}  {share}  {speed:,.0f} {unit}/s  {time_left}"


def terminal_progress(*, quiet: bool) -> ProgressLine | None:
    """Give a meter if a person watches: none in a pipe, none if quiet is asked for."""
    watched = sys.stderr is not None and sys.stderr.isatty() and not quiet
    return ProgressLine(sys.stderr) if watched else None
