"""A table as it comes in practice, its right answer, and the judgement of what a reader found.

The right answer is a table (names, kinds, number of rows, values of some rows), or an error that
names the problem. `table_case_list.py` has the cases, and `oddities.py` reads them.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any, Literal

Kind = Literal["number", "boolean", "date", "category"]
Result = Literal["right", "reported", "refused", "wrong silently", "foreign error"]
# A tuple has several values that are all right, such as 12.5 and 0.125 for 12.5 %.
Value = float | str | None | tuple[float | str, ...]

NEVER = r"(?!)"  # a pattern that matches no text
# A column name that starts with this stands for any name, because the file has none.
ANY_NAME = "*"
SHOWN_KINDS = {"category": "text"}


@dataclass(frozen=True, slots=True)
class Column:
    """The kind of a column and its values by row number; dates are ISO texts, None is missing."""

    kind: Kind
    values: Mapping[int, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A file and its right answer: a table of `columns`, or an error that matches `error`.

    If both are stated, both are right. A note that matches `note` reports that names or the number
    of rows are others than stated. If `must_report`, a table is only right with such a note.
    """

    title: str
    file: str
    content: Callable[[], bytes]
    columns: Mapping[str, Column] = field(default_factory=dict)
    n_rows: int = 0
    error: str = ""
    note: str = NEVER
    must_report: bool = False
    neighbours: Mapping[str, bytes] = field(default_factory=dict)  # other files of the folder
    is_large: bool = False

    def write(self, folder: Path) -> Path:
        """Write the file and its neighbours into a new folder, and return the path of the file."""
        folder.mkdir(parents=True)
        for name, content in {**self.neighbours, self.file: self.content()}.items():
            folder.joinpath(name).write_bytes(content)
        return folder / self.file

    def list_rows(self) -> list[int]:
        """Return the sorted numbers of the rows whose values are stated."""
        return sorted({row for column in self.columns.values() for row in column.values})

    def describe_answer(self) -> str:
        """Return the right answer as a short text, such as "4 rows: item text, price number"."""
        if not self.columns:
            return "an error"
        kinds = (
            f"{'…' if name.startswith(ANY_NAME) else name} {_show_kind(each.kind)}"
            for name, each in self.columns.items()
        )
        reported = "; reported" if self.must_report else ""
        return f"{self.n_rows:,} rows: {', '.join(kinds)}{reported}"


@dataclass(slots=True)
class Found:
    """What a reader makes of a file: a table with the values of some rows, or an error."""

    names: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    n_rows: int = 0
    values: list[list[Any]] = field(default_factory=list)  # by column; dates in seconds
    notes: list[str] = field(default_factory=list)
    error: str = ""
    is_foreign: bool = False  # whether the reader must not raise errors of this type


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of a reader for a case, and what happened."""

    result: Result
    happened: str


def judge(case: Case, found: Found) -> Judgement:
    """Compare what a reader found with the right answer of a case."""
    if found.error:
        if found.is_foreign:
            return Judgement("foreign error", found.error)
        is_right = case.error and re.search(case.error, found.error, re.IGNORECASE)
        return Judgement("right" if is_right else "refused", found.error)
    notes = " ".join(found.notes)
    differences = list(_find_differences(case, found))
    if case.must_report:
        differences.append((case.note, "not reported"))
    unreported = [
        text for pattern, text in differences if not re.search(pattern, notes, re.IGNORECASE)
    ]
    if unreported:
        return Judgement("wrong silently", "; ".join(unreported))
    return Judgement("reported" if found.notes else "right", notes)


def _find_differences(case: Case, found: Found) -> Iterator[tuple[str, str]]:
    """Yield the pattern of a note about each difference from the right answer, and the difference.

    Columns are only compared if their names are right, and values if the number of rows is.
    """
    if not case.columns:
        yield case.note, f"{found.n_rows:,} rows of {_join(found.names)}"
    elif not _has_names(case, found.names):
        yield case.note, f"the columns are {_join(found.names)}"
    else:
        if found.n_rows != case.n_rows:
            yield case.note, f"{found.n_rows:,} rows"
        for index, (name, right) in enumerate(zip(found.names, case.columns.values(), strict=True)):
            if difference := _compare_column(case, right, found, index):
                yield re.escape(repr(name)), f"{name!r} {difference}"


def _has_names(case: Case, names: list[str]) -> bool:
    """Return whether the names are those of a case; where the file has none, any name is."""
    return len(names) == len(case.columns) and all(
        right.startswith(ANY_NAME) or right == name
        for right, name in zip(case.columns, names, strict=True)
    )


def _compare_column(case: Case, right: Column, found: Found, index: int) -> str:
    """Return how a column differs from the right one, such as "is text"; else an empty text."""
    if found.kinds[index] != right.kind:
        return f"is {_show_kind(found.kinds[index])}"
    if found.n_rows != case.n_rows:
        return ""
    values = dict(zip(case.list_rows(), found.values[index], strict=True))
    for row, value in right.values.items():
        if not _is_same(right.kind, value, values[row]):
            return f"is {_shorten(values[row])} in row {row}"
    return ""


def _is_same(kind: Kind, right: Value, value: Any) -> bool:  # noqa: ANN401
    """Return whether a value is right, or one of the right values."""
    if isinstance(right, tuple):
        return any(_is_same(kind, each, value) for each in right)
    if kind == "date" and right is not None:
        return bool(value == _to_seconds(str(right)))
    return bool(value == right)


def _to_seconds(text: str) -> float:
    """Return the seconds since 1970 of an ISO date in UTC, or since midnight of a time."""
    if "-" in text:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    moment = time.fromisoformat(text)
    return 3600.0 * moment.hour + 60 * moment.minute + moment.second


def _show_kind(kind: str) -> str:
    """Return the name of a kind for people."""
    return SHOWN_KINDS.get(kind, kind)


def _join(names: list[str]) -> str:
    """Return the first five names as a short text."""
    return ", ".join(map(_shorten, names[:5])) + (", …" if len(names) > 5 else "")


def _shorten(value: object) -> str:
    """Return the `repr` of a value with at most 30 characters."""
    shown = repr(value)
    return shown if len(shown) <= 30 else f"{shown[:29]}…"
