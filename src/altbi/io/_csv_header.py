"""The names of the columns of a CSV file, from its first line or made up."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from altbi.errors import TableError

__all__ = ["Columns", "check_names", "name_columns"]

_NUMBER = re.compile(r"\s*[+-]?(\d+([.,]\d*)?|[.,]\d+|inf(inity)?)(e[+-]?\d+)?\s*%?\s*", re.I)
_DATE = re.compile(r"\s*(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3\d{4})\b.*")
_MISSING = re.compile(r"\s*(nan|na|n/a|null|none|[?.-])\s*", re.I)
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Columns:
    """The names, whether the first line holds them, and what was assumed."""

    names: list[str]
    header: bool
    notes: list[str] = field(default_factory=list)


def name_columns(cells: Sequence[str], header: bool | None, where: str) -> Columns:
    """Tell the names of the columns by the first line.

    Parameters
    ----------
    cells : sequence of str
        The first line.
    header : bool, optional
        Whether it holds names; by default, it does unless all its cells are numbers, and that is
        noted if some of them are numbers or dates.
    where : str
        What messages call the file.

    Examples
    --------
    >>> name_columns(["price", ""], None, "a.csv").names
    ['price', 'unnamed_2']
    >>> name_columns(["1.5", "2"], None, "a.csv").names
    ['x0', 'x1']
    """
    made_up = [f"x{place}" for place in range(len(cells))]
    if header is False:
        return Columns(made_up, header=False)
    filled = [cell for cell in cells if cell.strip() and not _MISSING.fullmatch(cell)]
    if header is None and filled and all(map(_NUMBER.fullmatch, filled)):
        if not _counts_up(filled):
            note = f"The first line of {where} holds numbers only, so it was read as a row"
            return Columns(made_up, header=False, notes=[f"{note}: the columns are x0, x1, …"])
        note = f"The first line of {where} counts 0, 1, 2, …, so it was read as names of columns."
        return _named(cells, where, [note])
    values = [cell for cell in filled if _NUMBER.fullmatch(cell) or _DATE.fullmatch(cell)]
    doubtful = header is None and values
    return _named(cells, where, [_find_problem(values, where)] if doubtful else [])


def _find_problem(values: Sequence[str], where: str) -> str:
    more = ", …" if len(values) > _SHOWN else ""
    return (
        f"The first line of {where} was read as names of columns, among them "
        f"{', '.join(map(repr, values[:_SHOWN]))}{more}. If it is a row, say --no-header; if not, "
        "--header."
    )


def check_names(names: Sequence[str], where: str) -> None:
    """Refuse columns that cannot be told apart, or no columns at all."""
    if not names:
        raise TableError(f"{where}: it holds no columns. Expected at least one.")
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        more = f" and {len(twice) - _SHOWN} more" if len(twice) > _SHOWN else ""
        raise TableError(
            f"{where}: several columns have the same name: "
            f"{', '.join(map(repr, twice[:_SHOWN]))}{more}. Give each column a name of its own."
        )


def _named(cells: Sequence[str], where: str, notes: list[str]) -> Columns:
    names = [
        cell if cell.strip() else f"unnamed_{place}" for place, cell in enumerate(cells, start=1)
    ]
    new = [name for name, cell in zip(names, cells, strict=True) if name != cell]
    if new:
        more = ", …" if len(new) > _SHOWN else ""
        notes = [*notes, f"Columns of {where} without a name are {', '.join(new[:_SHOWN])}{more}."]
    check_names(names, where)
    return Columns(names, header=True, notes=notes)


def _counts_up(cells: Sequence[str]) -> bool:
    """Tell the header of a data frame without names, 0, 1, 2, …, from a row of numbers."""
    return len(cells) > 1 and list(cells) == [str(place) for place in range(len(cells))]
