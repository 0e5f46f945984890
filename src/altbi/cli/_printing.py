"""The results that commands print: rich tables on a terminal, plain aligned text elsewhere."""

from __future__ import annotations

import itertools
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from altbi._formatting import format_number
from altbi.errors import escape_text, quote, shorten
from altbi.report import ReasonFact, Summary

if TYPE_CHECKING:  # these load torch
    from altbi._demo import Demo
    from altbi.cells import WrongCells
    from altbi.pipeline import PreparedTable

WIDTH = 100
SHOWN_ROWS = SHOWN_CELLS = 10
SHOWN_REASONS = 3
SHOWN_NOTES = 8
COLUMN_WIDTH, VALUE_WIDTH, CELL_WIDTH = 26, 18, 40
NEAREST_INDENT, NEAREST_WIDTH = 10, 15
ROW_NOTE = "Rows are counted from 0, without the header. * marks flagged rows."
MISSING, SEE_BELOW = "missing", "see below"
CELL_NOTE = "Rows are counted from 0, without the header. All listed cells are in the file."
NEAREST_HEAD = ("this row", "most similar", "2nd", "3rd")


@dataclass(frozen=True, slots=True)
class _Row:
    """A row with its reasons, as `_print_rows` prints it. `ids` maps id columns to values."""

    number: int
    score: float
    flagged: bool
    ids: dict[str, str]
    reasons: tuple[ReasonFact, ...]


def print_summary(summary: Summary, files: Sequence[str], *, page: bool) -> None:
    """Print the result for a table: counts, threshold, metrics, top rows, warnings, and files.

    Prints at most 10 rows with 3 reasons each. If a report `page` was written, at most 8 warnings
    are printed, otherwise all of them. Text is wrapped at 100 columns.
    """
    share = summary.flagged / summary.rows
    about = "about " if summary.privacy else ""
    verb = (
        "row is flagged as an outlier" if summary.flagged == 1 else "rows are flagged as outliers"
    )
    _print_text(
        f"{summary.table}: {summary.rows:,} rows, {len(summary.columns):,} columns; trained on "
        f"{about}{summary.sample:,} rows. {summary.flagged:,} {verb} ({share:.2%}): the score is "
        f"above {format_number(summary.threshold)}. {summary.threshold_reason}"
    )
    if summary.metrics is not None:
        _print_lines([""])
        _print_text(
            f"Compared with column {quote(summary.metrics.label)} ({summary.metrics.outliers:,} "
            f"known outliers, not used for training): AUC {summary.metrics.auc:.4f}, average "
            f"precision {summary.metrics.average_precision:.4f}."
        )
    _print_lines([""])
    _print_rows(
        _Row(
            row.number,
            row.score,
            row.score > summary.threshold,
            dict(zip(summary.id_columns, row.ids, strict=True)),
            tuple(replace(reason, nearest=()) for reason in row.reasons[:SHOWN_REASONS]),
        )
        for row in summary.top[:SHOWN_ROWS]
    )
    if summary.duplicates is not None and summary.duplicates.groups:
        n_rows, n_groups = summary.duplicates.n_rows, len(summary.duplicates.groups)
        _print_lines([""])
        _print_text(
            f"{n_rows:,} rows are copies of each other or have the same identifier, in "
            f"{n_groups:,} {'group' if n_groups == 1 else 'groups'}."
        )
    _print_notes(summary.notes, SHOWN_NOTES if page else len(summary.notes))
    _print_files(files)


def print_demo(demo: Demo) -> None:
    """Print the result of the demonstration: the table, its summary, and the rows found."""
    summary, malignant = demo.summary, demo.malignant
    by_chance = 10 * malignant / summary.rows
    _print_text(
        f"A table of {summary.rows} breast biopsies with {len(summary.columns)} measurements each: "
        f"{summary.rows - malignant} are benign, and {malignant} are malignant. The diagnoses were "
        "not used for training; they are only compared with the result."
    )
    _print_lines([""])
    print_summary(summary, demo.files, page=True)
    _print_lines([""])
    _print_text(
        f"Of the ten rows with the highest scores, {demo.in_top_ten} are malignant (by chance: "
        f"{by_chance:.1f}); of the first twenty, {demo.in_top_twenty}. A benign biopsy can be "
        "unusual as well: an outlier is worth a check, but it is not a diagnosis."
    )


def print_fit(name: str, prepared: PreparedTable, path: Path) -> None:
    """Print the result of a fit: rows, columns, threshold, warnings, and the model file.

    Counts are called approximate if the model was fitted under a privacy budget.
    """
    model = prepared.model
    about = "about " if model.ledger else ""  # no count is exact under a privacy budget
    table = model.training_table
    _print_text(
        f"{name}: {about}{table.n_rows:,} rows, {len(model.encoder.names):,} columns; trained on "
        f"{about}{table.n_sample:,} rows. Rows with a score above "
        f"{format_number(model.threshold)} will be flagged."
    )
    _print_notes(prepared.notes, len(prepared.notes))
    _print_files([str(path)])


def print_reasons(reasons: pa.Table) -> None:
    """Print a table of reasons, as `build_reasons_table` returns it, grouped by row.

    Consecutive records with the same row number form one row.
    """
    nearest = [name for name in reasons.column_names if name.startswith("nearest_")]
    rows = []
    for _, group in itertools.groupby(reasons.to_pylist(), key=lambda record: record["row"]):
        records = list(group)
        first = records[0]
        ids = {name[3:]: value for name, value in first.items() if name.startswith("id_")}
        found = tuple(
            ReasonFact(
                column=record["column"],
                value=record["value"],
                expected=record["expected"],
                z_score=record["z_score"],
                nearest=tuple(record[name] for name in nearest),
            )
            for record in records
        )
        rows.append(_Row(first["row"], first["score"], first["outlier"], ids, found))
    _print_rows(rows)


def print_cells(name: str, found: WrongCells, file: str) -> None:
    """Print how many cells were searched and listed, the first of them, warnings, and the file.

    On a terminal, they are a table; elsewhere the words about a cell have a line of their own.
    """
    n_listed = len(found.table)
    verb = "is" if n_listed == 1 else "are"
    _print_text(
        f"{name}: {found.n_rows:,} rows x {found.n_columns:,} columns = {found.n_cells:,} cells "
        f"were searched. {n_listed:,} of them {verb} listed, the rarest values first."
    )
    records = found.table.slice(0, SHOWN_CELLS).to_pylist()
    if records:
        _print_lines(["", CELL_NOTE])
        print_records = _print_rich_cells if sys.stdout.isatty() else _print_plain_cells
        print_records(records)
    _print_notes(found.notes, len(found.notes))
    _print_files([file])


def _print_plain_cells(records: Sequence[dict[str, Any]]) -> None:
    """Print records of cells as plain text; a note and ids have lines of their own."""
    indent = " " * 19
    names = [_format_cell(record["column"], COLUMN_WIDTH) for record in records]
    name_width = max(map(len, ("column", *names)))
    width = (WIDTH - len(indent) - name_width - 2) // 2
    lines = [f"{'row':>9} {'score':>7}  {'column':{name_width}} {'value':{width}} expected"]
    for name, record in zip(names, records, strict=True):
        value = _format_cell(record["value"], width)
        expected = shorten(escape_text(record["expected"]), width)
        start = f"{record['row']:>9} {record['score']:>7.1f}  {name:{name_width}} "
        lines.append(f"{start}{value:{width}} {expected}".rstrip())
        for note in (record["note"], _format_cell_ids(record)):
            if note:
                lines.append(indent + shorten(escape_text(note), WIDTH - len(indent)))
    _print_lines(lines)


def _print_rich_cells(records: Sequence[dict[str, Any]]) -> None:
    """Print records of cells as a rich table, whose notes are wrapped."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for head in ("row", "score", "column", "value", "expected", "note"):
        table.add_column(head, justify="right" if head in ("row", "score") else "left")
    for record in records:
        note = ". ".join(filter(None, (record["note"], _format_cell_ids(record))))
        cells = (
            str(record["row"]),
            f"{record['score']:.1f}",
            _format_cell(record["column"], COLUMN_WIDTH),
            _format_cell(record["value"], CELL_WIDTH),
            shorten(escape_text(record["expected"]), CELL_WIDTH),
            shorten(escape_text(note), 2 * WIDTH),
        )
        table.add_row(*map(Text, cells))
    Console(highlight=False).print(table)


def _format_cell_ids(record: dict[str, Any]) -> str:
    """Return names and values of the id columns of a record in brackets; "" without any."""
    ids = {name[3:]: value for name, value in record.items() if name.startswith("id_")}
    return f"({_format_ids(ids)})" if ids else ""


def cells_to_json(name: str, found: WrongCells, file: str) -> dict[str, Any]:
    """Return the facts that `altbi cells --json` prints."""
    return {
        "table": name,
        "rows": found.n_rows,
        "columns": found.n_columns,
        "cells": found.n_cells,
        "listed": len(found.table),
        "top": found.table.slice(0, SHOWN_CELLS).to_pylist(),
        "notes": list(found.notes),
        "files": [file],
    }


def summary_to_json(summary: Summary, files: Sequence[str]) -> dict[str, Any]:
    """Convert a summary to plain values for JSON, and add the paths of the written files.

    At most 10 groups of duplicates are kept, and 10 top rows, with their reasons, but without
    their values and similar rows. Thresholds, histogram and training steps are left out.
    """
    values = asdict(summary)
    for name in ("thresholds", "bins", "history", "shown_columns"):
        del values[name]
    for row in values["top"]:
        del row["values"], row["nearest"]
    values["top"] = values["top"][:SHOWN_ROWS]
    if summary.duplicates is not None:
        values["duplicates"]["groups"] = values["duplicates"]["groups"][:SHOWN_ROWS]
    return {**values, "files": list(files)}


def _print_rows(rows: Iterable[_Row]) -> None:
    """Print rows with their reasons: on a terminal as a rich table, otherwise as plain text."""
    if sys.stdout.isatty():
        _print_rich(list(rows))
        return
    lines = [
        ROW_NOTE,
        f"{'row':>9} {'score':>10}    {'column':{COLUMN_WIDTH}} {'value':>{VALUE_WIDTH}} "
        f"{'expected':>{VALUE_WIDTH}} {'z-score':>10}",
    ]
    for row in rows:
        lines += _format_row(row)
    _print_lines(lines)


def _format_row(row: _Row) -> Iterator[str]:
    """Yield the lines of plain text for a row: one or two for each reason, then its ids.

    A long text about what is expected has a line of its own. If the reasons have the values of
    similar reference rows, a comparison of these rows follows. A row without reasons and ids yields
    nothing. `*` marks flagged rows.
    """
    start = f"{row.number:>9} {format_number(row.score):>10} {'*' if row.flagged else ' '}  "
    indent = " " * len(start)
    for reason in row.reasons:
        name = _format_cell(reason.column, COLUMN_WIDTH)
        value, expected = _format_cell(reason.value, VALUE_WIDTH), escape_text(reason.expected)
        is_long = len(expected) > VALUE_WIDTH
        shown = SEE_BELOW if is_long else expected or MISSING
        yield (
            f"{start}{name:{COLUMN_WIDTH}} {value:>{VALUE_WIDTH}} {shown:>{VALUE_WIDTH}} "
            f"{reason.z_score:>10.1f}"
        )
        start = indent
        if is_long:
            yield shorten(f"{indent}  expected: {expected}", WIDTH)
    if row.ids:
        yield f"{indent}({shorten(_format_ids(row.ids), WIDTH - len(indent) - 2)})"
    if row.reasons and row.reasons[0].nearest:
        head = NEAREST_HEAD[: 1 + len(row.reasons[0].nearest)]
        yield _format_comparison("similar normal rows:", head)
        for reason in row.reasons:
            yield _format_comparison(reason.column, (reason.value, *reason.nearest))


def _format_comparison(label: str, texts: Sequence[str]) -> str:
    """Return a line of the comparison with similar reference rows: a column, or the heading.

    The label is followed by a text for this row and one for each reference row, all shortened.
    """
    cells = "".join(f" {_format_cell(text, NEAREST_WIDTH):>{NEAREST_WIDTH}}" for text in texts)
    return f"{' ' * NEAREST_INDENT}{_format_cell(label, COLUMN_WIDTH):{COLUMN_WIDTH}}{cells}"


def _print_rich(rows: Sequence[_Row]) -> None:
    """Print rows as a rich table to standard output; flagged rows are bold.

    If a reason has the values of similar reference rows, they are one more column. Values are
    wrapped in `Text`, so that rich does not interpret markup in them.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    heads = ["row", "score", "", "column", "value", "expected", "z-score"]
    if any(reason.nearest for row in rows for reason in row.reasons):
        heads.append("similar normal rows")
    for head in heads:
        table.add_column(head, justify="left" if head in ("", "column") else "right")
    for row in rows:
        start = [str(row.number), format_number(row.score), "*" if row.flagged else ""]
        for reason in row.reasons:
            widths = ((reason.value, VALUE_WIDTH), (reason.expected, WIDTH))
            texts = (_format_cell(text, width) for text, width in widths)
            nearest = ", ".join(_format_cell(value, NEAREST_WIDTH) for value in reason.nearest)
            name, z_score = _format_cell(reason.column, COLUMN_WIDTH), f"{reason.z_score:.1f}"
            cells = [*start, name, *texts, z_score, nearest][: len(heads)]
            table.add_row(*map(Text, cells), style="bold" if start[2] else "")
            start = [""] * 3
        if row.ids:
            table.add_row("", "", "", Text(f"({_format_ids(row.ids)})"), style="dim")
    console = Console(highlight=False)
    console.print(ROW_NOTE)
    console.print(table)


def _format_cell(text: str, width: int) -> str:
    """Escape a value and shorten it to `width` characters; an empty value becomes "missing".

    Spaces at the start or end are shown by quotes.
    """
    shown = quote(text, width) if text != text.strip() else escape_text(text)
    return shorten(shown or MISSING, width)


def _format_ids(ids: dict[str, str]) -> str:
    """Return the names and values of id columns, escaped, as in "invoice 12, shop 3"."""
    return escape_text(", ".join(f"{name} {value}" for name, value in ids.items()))


def _print_notes(notes: Sequence[str], limit: int) -> None:
    """Print at most `limit` warnings and the number of the others; print nothing without any."""
    if not notes:
        return
    _print_lines(["", "warnings:"])
    for note in notes[:limit]:
        _print_text(note, "- ")
    if len(notes) > limit:
        _print_lines([f"- and {len(notes) - limit} more, in the report"])


def _print_files(files: Sequence[str]) -> None:
    """Print a heading and the paths of the written files, one in each line."""
    _print_lines(["", "written:", *(f"  {escape_text(file)}" for file in files)])


def _print_text(text: str, bullet: str = "") -> None:
    """Print a text, escaped and wrapped at 100 columns.

    The first line starts with the bullet, and the others are indented by its width.
    """
    indent = " " * len(bullet)
    _print_lines(
        textwrap.wrap(escape_text(text), WIDTH, initial_indent=bullet, subsequent_indent=indent)
    )


def _print_lines(lines: Iterable[str]) -> None:
    """Write lines to standard output, each with a line break."""
    sys.stdout.writelines(f"{line}\n" for line in lines)
