"""Groups of similar rows, so that many copies of one case are one entry of the page."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from altbi.report._summary import TopRow

# A reason leads if its z-score is at least this share of the row's largest.
LEADING_SHARE = 0.5
DATE_LENGTH = len("2024-01-31")


@final
@dataclass(frozen=True, slots=True)
class ListedRow:
    """A row of the page, and the rows that are listed below it because they are similar."""

    index: int  # 0 for the highest score
    row: TopRow
    similar: tuple["ListedRow", ...] = ()


def group_similar_rows(rows: Sequence[TopRow], kinds: Mapping[str, str]) -> tuple[ListedRow, ...]:
    """Return the rows in their order, each followed by later rows with the same leading reasons.

    Leading reasons are those with at least half the z-score of the first one. They are the same if
    columns and values are: numbers to three digits, dates to the day, all others exactly. Rows
    without reasons are not grouped. `kinds` has the kinds of the columns.
    """
    groups: dict[object, list[ListedRow]] = {}
    for index, row in enumerate(rows):
        key = frozenset(_find_leading(row, kinds)) or index
        groups.setdefault(key, []).append(ListedRow(index, row))
    return tuple(ListedRow(first.index, first.row, tuple(rest)) for first, *rest in groups.values())


def _find_leading(row: TopRow, kinds: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the columns and the rounded values of a row's leading reasons."""
    for reason in row.reasons:
        if reason.z_score >= LEADING_SHARE * row.reasons[0].z_score:
            yield reason.column, round_value(reason.value, kinds.get(reason.column, "category"))


def round_value(value: str, kind: str) -> str:
    """Return a formatted value with less detail, to compare it with similar ones.

    >>> round_value("1719.53", "number"), round_value("2024-01-31 10:30:00", "date")
    ('1.72e+03', '2024-01-31')
    >>> round_value("1719.53", "category"), round_value("", "number")
    ('1719.53', '')
    """
    if kind == "date":
        return value[:DATE_LENGTH]
    if kind == "number":
        try:
            return f"{float(value):.2e}"
        except ValueError:  # missing, or a text that was read as a number
            return value
    return value
