"""What of the facts the page has room for, and how numbers and texts of the table are written."""

import bisect
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from altbi._terminal import escape_text, shorten
from altbi.report._facts import Summary, TopRow

__all__ = ["LADDER", "Limits", "filters", "view"]

_MOST_LEVELS = 1_000
_MOST_FILTERS = 50
# Scores as large as this are written with an exponent.
_LARGE = 1e7


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much of a table one page shows.

    Attributes
    ----------
    rows, cells, clues : int
        Rows in the list, cells and clues of each.
    text : int
        Letters of a text.
    columns, leading : int
        Columns in the overview, and how many of them are seen at once.
    ids : int
        Id columns in the list.
    notes, note : int
        Notes, and letters of each.
    """

    rows: int
    cells: int
    reasons: int
    text: int
    columns: int = 200
    leading: int = 12
    ids: int = 3
    notes: int = 60
    note: int = 600


# From all that can be wanted to what always fits: the first that fits is taken.
LADDER = (
    Limits(rows=500, cells=100, reasons=8, text=300),
    Limits(rows=500, cells=100, reasons=8, text=100),
    Limits(rows=500, cells=60, reasons=6, text=40),
    Limits(rows=300, cells=30, reasons=5, text=32, columns=100),
    Limits(rows=100, cells=15, reasons=3, text=24, columns=50),
)


def view(summary: Summary, limits: Limits) -> dict[str, Any]:
    """Choose what is shown; the page's template writes it."""
    rows = summary.top[: limits.rows]
    suspects = _suspects(rows, limits)
    return {
        "summary": summary,
        "limits": limits,
        "rows": rows,
        "suspects": suspects,
        "full": _full(rows, limits),
        "places": {name: place for place, (name, _) in enumerate(suspects)},
        "data": _data(summary, rows, limits),
    }


def filters(summary: Summary, limits: Limits) -> dict[str, Callable[..., str]]:
    """Give the ways in which the template writes values."""

    def text(value: str, width: int = limits.text) -> str:
        # Cut before, too: a cell may hold a whole book, and escapes only make texts longer.
        return shorten(escape_text(value[: width + 1]), width)

    def score(value: float) -> str:
        return _score(value, summary.threshold)

    return {"text": text, "score": score, "count": _count, "share": _share, "times": _times}


def _suspects(rows: tuple[TopRow, ...], limits: Limits) -> list[tuple[str, int]]:
    """Name the columns by which the list can be filtered, and in how many rows each is a clue."""
    named = Counter(
        name
        for row in rows
        for name in {clue.column: None for clue in row.reasons[: limits.reasons]}
    )
    return named.most_common(_MOST_FILTERS)


def _full(rows: tuple[TopRow, ...], limits: Limits) -> float:
    """Choose how many z_scores fill a bar: most clues have room, and a few extreme ones do not.

    >>> from altbi.report._facts import ReasonFact, TopRow
    >>> clue = ReasonFact(column="a", value="9", expected="1", z_score=14.2)
    >>> row = TopRow(number=0, ids=(), score=1.0, label=None, reasons=(clue,), cells=())
    >>> _full((row,), LADDER[0])
    20.0
    """
    far = sorted(clue.z_score for row in rows for clue in row.reasons[: limits.reasons])
    usual = far[int(0.9 * (len(far) - 1))] if far else 1.0
    if not 1 < usual < math.inf:
        return 1.0
    power = 10.0 ** math.floor(math.log10(usual))
    return next(step * power for step in (1, 2, 5, 10) if usual <= step * power)


def _data(summary: Summary, rows: tuple[TopRow, ...], limits: Limits) -> dict[str, Any]:
    """Collect what the page's program needs: levels to move through, and the cells of rows."""
    write = filters(summary, limits)["text"]
    levels, own = _levels(summary)
    columns = (summary.id_columns + summary.shown_columns)[: limits.cells]
    return {
        "rows": summary.rows,
        "own": own,
        "levels": [
            [level, _score(level, summary.threshold), above, _share(above / max(summary.rows, 1))]
            for level, above in levels
        ],
        "columns": [write(name) for name in columns],
        "cells": [
            [] if row.nearest else [write(cell) for cell in (row.ids + row.cells)[: limits.cells]]
            for row in rows
        ],
        "suspicious": [_places(row, columns, limits) for row in rows],
        "beside": [_beside(row, columns, limits, write) for row in rows],
    }


def _levels(summary: Summary) -> tuple[list[tuple[float, int]], int]:
    """Thin out the levels to what a hand can choose from; the model's own one stays."""
    mine = (summary.threshold, summary.flagged)
    others = [level for level in summary.levels if level[0] != summary.threshold]
    stride = math.ceil(len(others) / _MOST_LEVELS) or 1
    # The highest and the lowest stay, too: they are the ends of the way.
    levels = others[::stride] + (others[-1:] if (len(others) - 1) % stride else [])
    place = bisect.bisect_left(levels, -summary.threshold, key=lambda level: -level[0])
    return [*levels[:place], mine, *levels[place:]], place


def _places(row: TopRow, columns: tuple[str, ...], limits: Limits) -> list[int]:
    reasons = {clue.column for clue in row.reasons[: limits.reasons]}
    return [place for place, name in enumerate(columns) if name in reasons]


def _beside(
    row: TopRow, columns: tuple[str, ...], limits: Limits, write: Callable[[str], str]
) -> list[list[list[str | int | None]]]:
    """Set a row beside the nearest normal ones: its clues by name, other columns by their place.

    Normal rows have no ids: None stands there.
    """
    if not row.nearest:
        return []
    reasons = row.reasons[: limits.reasons]
    suspicious = _places(row, columns, limits)
    no_ids = (None,) * len(row.ids)
    rows = [row.ids + row.cells, *(no_ids + cells for cells in row.nearest)]
    return [
        [[write(cell) for cell in (clue.column, clue.value, *clue.nearest)] for clue in reasons],
        [
            [place, *(cell if cell is None else write(cell) for cell in cells)]
            for place, *cells in zip(range(len(columns)), *rows, strict=False)
            if place not in suspicious
        ],
    ]


def _score(value: float, threshold: float) -> str:
    """Write all scores of a page with as many decimals as give the threshold four digits."""
    if abs(value) >= _LARGE or not math.isfinite(value):
        return f"{value:.4g}"
    size = math.floor(math.log10(abs(threshold))) if threshold else 0
    return f"{value:,.{min(max(3 - size, 0), 6)}f}"


def _count(value: int) -> str:
    return f"{value:,}"


def _share(value: float) -> str:
    """Write a share in per cent: few digits, but never "0 %" of what is there.

    >>> _share(0.0), _share(0.00001), _share(0.0312), _share(0.5)
    ('0%', 'under 0.01%', '3.1%', '50%')
    """
    if 0 < value < 0.0001:
        return "under 0.01%"
    decimals = 0 if value == 0 or abs(value) >= 0.1 else 1 if abs(value) >= 0.01 else 2
    return f"{100 * value:.{decimals}f}%"


def _times(value: float) -> str:
    return f"{value:,.1f}" if abs(value) < 100 else f"{value:,.0f}"
