"""What the commands say, for a terminal and as plain values."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from altbi._terminal import escape_text, shorten
from altbi.report import Summary, TopRow
from altbi.report._formatting import number_text

if TYPE_CHECKING:  # these load torch
    from altbi._demo import Demo
    from altbi.pipeline import PreparedTable

__all__ = [
    "PAGE_HINT",
    "format_demo",
    "format_fit",
    "format_reasons",
    "format_summary",
    "summary_to_json",
]

WIDTH = 100
PAGE_HINT = "For the page report.html: pip install 'altbi[report]'."
SHOWN_ROWS = 10
SHOWN_CLUES = 3
SHOWN_NOTES = 8
_COLUMN, _CELL = 26, 18
_NEAREST_INDENT, _NEAREST_CELL = 10, 15
_NEAREST_HEADS = ("this row", "nearest", "2nd", "3rd")


def format_summary(summary: Summary, files: Sequence[str], hint: str = "") -> str:
    """Tell what was found in a table, at most 100 columns wide."""
    share = summary.flagged / summary.rows
    about = "about " if summary.privacy else ""
    lines = [
        *_wrapped(
            f"{summary.table}: {summary.rows:,} rows, {len(summary.columns):,} columns; learned "
            f"from {about}{summary.sample:,} rows. {summary.flagged:,} rows ({share:.2%}) have a "
            f"score above {number_text(summary.threshold)} and stand out. {summary.threshold_reason}"
        ),
        *_format_metrics(summary),
        "",
        *_table(summary.top[:SHOWN_ROWS], summary.threshold, summary.id_columns),
        *_format_notes(summary.notes),
        *_format_files(files, hint),
    ]
    return "\n".join(lines) + "\n"


def format_demo(demo: Demo) -> str:
    """Tell what the demonstration found."""
    summary, malignant = demo.summary, demo.malignant
    by_chance = 10 * malignant / summary.rows
    start = (
        f"A table of {summary.rows} breast biopsies with {len(summary.columns)} measurements each: "
        f"{summary.rows - malignant} are benign, {malignant} malignant ones are mixed in. The "
        "diagnoses were not used for training; they only serve to check the result."
    )
    end = (
        f"Of the ten rows that stand out most, {demo.in_top_ten} are malignant (by chance: "
        f"{by_chance:.1f}); of the first twenty, {demo.in_top_twenty}. A benign row can be unusual "
        "as well: to stand out is a reason to look, not a diagnosis."
    )
    hint = "" if any(file.endswith(".html") for file in demo.files) else PAGE_HINT
    told = format_summary(summary, demo.files, hint)
    return "\n".join([*_wrapped(start), "", told, *_wrapped(end), ""])


def format_fit(name: str, prepared: PreparedTable, path: Path) -> str:
    """Return a text about a fitted model."""
    model = prepared.model
    about = "about " if model.ledger else ""  # no count is exact under a privacy budget
    table = model.training_table
    start = (
        f"{name}: {about}{table.n_rows:,} rows, {len(model.encoder.names):,} columns; trained on "
        f"{about}{table.n_sample:,} rows. Rows with a score above "
        f"{number_text(model.threshold)} will be flagged."
    )
    lines = [*_wrapped(start), *_format_notes(prepared.notes), *_format_files([str(path)], "")]
    return "\n".join(lines) + "\n"


def format_reasons(reasons: pa.Table) -> str:
    """Tell why rows have their scores."""
    lines = [f"{'row':>9} {'score':>10}    {_HEAD}"]
    for (row, score), found in itertools.groupby(
        reasons.to_pylist(), key=lambda line: (line["row"], line["score"])
    ):
        group = list(found)
        mark = "*" if group[0]["outlier"] else " "
        start = f"{row:>9} {number_text(score):>10} {mark}  "
        for line in group:
            clue = (line["column"], line["value"], line["expected"], line["z_score"])
            lines.append(start + _format_reason(*clue))
            start = " " * len(start)
        ids = {name[3:]: cell for name, cell in group[0].items() if name.startswith("id_")}
        lines += [*_format_ids(ids, len(start)), *_format_nearest(group)]
    return "\n".join(lines) + "\n"


def _format_nearest(group: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Set a row's cells beside those of the nearest normal rows, in the columns that are named."""
    nearest = [name for name in group[0] if name.startswith("nearest_")]
    if not nearest:
        return
    yield _beside("beside normal rows:", _NEAREST_HEADS[: 1 + len(nearest)])
    for line in group:
        yield _beside(line["column"], [line[name] or "missing" for name in ("value", *nearest)])


def _beside(column: str, cells: Sequence[str]) -> str:
    texts = (shorten(escape_text(cell), _NEAREST_CELL) for cell in cells)
    name = f"{shorten(escape_text(column), _COLUMN):{_COLUMN}}"
    return " " * _NEAREST_INDENT + name + "".join(f" {text:>{_NEAREST_CELL}}" for text in texts)


def summary_to_json(summary: Summary, files: Sequence[str]) -> dict[str, Any]:
    """Give the result as plain values for JSON: counts, the top rows, where the files are."""
    facts = asdict(summary)
    for name in ("levels", "bins", "history", "shown_columns"):
        del facts[name]
    for row in facts["top"]:
        del row["cells"], row["nearest"]
    facts["top"] = facts["top"][:SHOWN_ROWS]
    return {**facts, "files": list(files)}


_HEAD = f"{'why':{_COLUMN}} {'value':>{_CELL}} {'expected':>{_CELL}}  z_score"


def _table(top: Sequence[TopRow], threshold: float, ids: Sequence[str]) -> Iterator[str]:
    yield f"{'row':>9} {'score':>10}    {_HEAD}"
    for row in top:
        mark = "*" if row.score > threshold else " "
        start = f"{row.number:>9} {number_text(row.score):>10} {mark}  "
        for clue in row.reasons[:SHOWN_CLUES]:
            yield start + _format_reason(clue.column, clue.value, clue.expected, clue.z_score)
            start = " " * len(start)
        yield from _format_ids(dict(zip(ids, row.ids, strict=True)), len(start))


def _format_ids(ids: dict[str, str], indent: int) -> Iterator[str]:
    names = ", ".join(f"{name} {cell}" for name, cell in ids.items())
    if names:
        yield f"{' ' * indent}({shorten(escape_text(names), WIDTH - indent - 2)})"


def _format_reason(column: str, value: str, expected: str, z_score: float) -> str:
    name = shorten(escape_text(column), _COLUMN)
    cells = (shorten(escape_text(cell) or "missing", _CELL) for cell in (value, expected))
    return f"{name:{_COLUMN}} {next(cells):>{_CELL}} {next(cells):>{_CELL}}  {z_score:>10.1f}"


def _format_metrics(summary: Summary) -> Iterator[str]:
    if summary.metrics is not None:
        yield ""
        yield from _wrapped(
            f"Compared with column {summary.metrics.label!r} ({summary.metrics.outliers:,} known "
            f"outliers, not used for training): AUC {summary.metrics.auc:.4f}, average precision "
            f"{summary.metrics.average_precision:.4f}."
        )


def _format_notes(notes: Sequence[str]) -> Iterator[str]:
    if notes:
        yield ""
        yield "noticed:"
    for note in notes[:SHOWN_NOTES]:
        yield from _wrapped(note, "- ")
    if len(notes) > SHOWN_NOTES:
        yield f"- and {len(notes) - SHOWN_NOTES} more, in the report"


def _format_files(files: Sequence[str], hint: str) -> Iterator[str]:
    yield ""
    yield "written:"
    yield from (f"  {escape_text(file)}" for file in files)
    if hint:
        yield hint


def _wrapped(text: str, bullet: str = "") -> list[str]:
    return textwrap.wrap(
        escape_text(text), WIDTH, initial_indent=bullet, subsequent_indent=" " * len(bullet)
    )
