"""Progress bars on a terminal. Rich is imported only if one is shown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress

    from altbi.io import ProgressCallback

UNITS = {"training": "steps", "running": "jobs"}


def terminal_progress(*, quiet: bool) -> ProgressCallback | None:
    """Return `show_progress` if standard error is a terminal and `quiet` is False, else None."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    return show_progress if is_terminal and not quiet else None


def show_progress(
    activity: str, items: Iterable[Any], total: int | None, size: Callable[[Any], int]
) -> Iterator[Any]:
    """Yield the items unchanged, and show a progress bar on stderr meanwhile.

    After each item the bar advances by ``size(item)``, until `total`; None means unknown. Training
    counts steps, "running" counts jobs, and other activities count rows.
    """
    with _create_progress(UNITS.get(activity, "rows")) as progress:
        task = progress.add_task(activity, total=total)
        for item in items:
            yield item
            progress.advance(task, size(item))


def _create_progress(unit: str) -> Progress:
    """Create a rich progress bar on stderr for counts of `unit`. It disappears at the end."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(separator=" of "),
        TextColumn(unit),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        # Commands print their result to stdout, which may be a file: do not redirect it.
        redirect_stdout=False,
        redirect_stderr=False,
    )
