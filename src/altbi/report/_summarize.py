"""From what the passes scored to what a report shows."""

import platform
from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from importlib.metadata import version

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi._version import __version__
from altbi.encoding import Column
from altbi.explain import Explanation
from altbi.io import Label, SelectedColumns, parse_labels_column
from altbi.model import FittedModel
from altbi.model._score_source import ScoreSummary
from altbi.model._score_statistics import ScoreCounts
from altbi.model._settings import PRIVATE_CONTAMINATION
from altbi.report._explained_rows import (
    MAX_REASONS,
    ExplainedRows,
    compute_metrics,
    expected_text,
    id_text,
    nearest_texts,
)
from altbi.report._facts import ColumnFact, Privacy, ReasonFact, Summary, TopRow
from altbi.report._formatting import cell_text, holds_text

__all__ = ["describe_threshold", "summarize"]

SHOWN_COLUMNS = 30
_BINS = 60
_LEVELS_BELOW_TOP = 200
_LIBRARIES = ("numpy", "pyarrow", "scikit-learn", "torch")


def summarize(
    table: str,
    selected: SelectedColumns,
    model: FittedModel,
    scored: ScoreSummary,
    explained: ExplainedRows,
    *,
    notes: Sequence[str],
    command: str,
) -> Summary:
    """Return what a report shows."""
    metrics = compute_metrics(scored, selected.label)
    notes = [*notes, *scored.drift.describe()]
    if selected.label is not None and metrics is None:
        notes.append(_describe_useless_labels(selected.label))
    names = model.encoder.names
    shown = _shown(names, explained.explanation)
    threshold = model.threshold
    return Summary(
        table=table,
        score_by="loss" if explained.explanation.neighbours is None else "distance",
        rows=scored.n_rows,
        sample=model.training_table.n_sample,
        threshold=threshold,
        flagged=scored.n_flagged,
        threshold_reason=describe_threshold(model),
        levels=_levels(scored, explained.explanation.score, threshold),
        bins=_bins(scored.counts),
        columns=_column_facts(model.encoder.columns, explained.explanation),
        shown_columns=tuple(names[index] for index in shown),
        id_columns=selected.ids,
        top=tuple(_top_rows(selected, explained, shown)),
        history=model.history,
        metrics=metrics,
        privacy=_privacy(model),
        notes=tuple(notes),
        command=command,
        versions=_versions(),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _describe_useless_labels(label: Label) -> str:
    start = f"All labels in column {label.column!r} are the same"
    if label.value is not None:
        start = f"Either no label in column {label.column!r} is {label.value!r}, or every one is"
    return f"{start}: there is nothing to compare."


def _privacy(model: FittedModel) -> Privacy | None:
    if model.ledger is None:
        return None
    state = model.ledger.to_json()
    values = {field.name: state[field.name] for field in fields(Privacy)}
    releases = tuple(model.ledger.summarize_releases())
    covered, not_covered = tuple(state["covered"]), tuple(state["not_covered"])
    return Privacy(
        **values | {"releases": releases, "covered": covered, "not_covered": not_covered}
    )


def describe_threshold(model: FittedModel) -> str:
    """Say where the threshold comes from."""
    if model.settings.threshold is not None:
        return "The threshold was given."
    if model.ledger is not None:
        contamination = model.settings.contamination
        share = PRIVATE_CONTAMINATION if contamination == "auto" else contamination
        return (
            f"The threshold is a score that about {share:.0%} of the rows that were learned from "
            "exceed; noise was added to it, so that it gives no row away."
        )
    if model.settings.contamination == "auto":
        return (
            "No share of outliers was given. The threshold stands where the scores of the rows "
            "that were learned from contribution into two groups, or, if they do not, where their sorted "
            "curve bends. It is a rough guess: look as far down the list as you have time for."
        )
    return (
        f"A share of {float(model.settings.contamination):.2%} was given, and the threshold is the score "
        f"above which that share of the {model.training_table.n_sample:,} rows that were learned from lies."
    )


def _levels(
    scored: ScoreSummary, top: NDArray[np.float64], threshold: float
) -> tuple[tuple[float, int], ...]:
    """Give thresholds with exact counts: all among the top rows, some below them, the model's."""
    values, above = np.unique(-top, return_index=True)
    levels = dict(zip((-values).tolist(), above.tolist(), strict=True))
    least = scored.counts.count_at_least()
    edges = np.nextafter(scored.counts.edges, -np.inf)  # "above" that is "at least" the edge
    targets = np.geomspace(len(top), scored.n_rows, _LEVELS_BELOW_TOP)
    places = np.unique(np.searchsorted(-least, -targets, side="left"))
    for index in places[places < len(edges)].tolist():
        if edges[index] < top[-1]:
            levels[float(edges[index])] = int(least[index])
    levels[threshold] = scored.n_flagged
    return tuple(sorted(levels.items(), reverse=True))


def _bins(counts: ScoreCounts) -> tuple[tuple[float, float, int], ...]:
    """Give bins of one width, and a wide last one where a few scores lie far above the others."""
    edges = counts.edges
    low, highest = float(edges[0]), float(np.nextafter(edges[-1] * (1 + 2**-16), np.inf))
    most = float(edges[np.searchsorted(np.cumsum(counts.counts), 0.995 * counts.counts.sum())])
    high = highest if highest - low <= 3 * (most - low) else most
    if not low < high:
        return ((low, highest, int(counts.counts.sum())),)
    limits = np.append(np.linspace(low, high, _BINS + 1), [highest] if high < highest else [])
    inner = np.searchsorted(edges, limits[1:-1])
    rows = np.add.reduceat(np.append(counts.counts, 0), np.append(0, inner))
    rows[:-1][np.diff(np.append(0, inner)) == 0] = 0  # reduceat gives an empty bin its neighbour
    return tuple(zip(limits[:-1].tolist(), limits[1:].tolist(), rows.tolist(), strict=True))


def _shown(names: tuple[str, ...], explanation: Explanation) -> list[int]:
    """Pick the columns whose cells are shown: all, or those that matter most, in their order."""
    weights = np.maximum(explanation.contributions, 0).sum(axis=0)
    return sorted(np.argsort(-weights, kind="stable")[:SHOWN_COLUMNS].tolist())


def _column_facts(columns: tuple[Column, ...], explanation: Explanation) -> tuple[ColumnFact, ...]:
    adds = np.maximum(explanation.contributions, 0).sum(axis=0)
    shares = adds / (adds.sum() or 1)
    named = dict.fromkeys(explanation.columns, 0)
    for row in range(len(explanation)):
        for reason in explanation.reasons(row, MAX_REASONS):
            named[reason.column] += 1
    facts = [
        ColumnFact(
            name=column.name,
            kind=column.kind,
            holds=holds_text(column),
            missing=column.n_missing / (column.n_present + column.n_missing),
            named=named[column.name],
            share=float(share),
        )
        for column, share in zip(columns, shares, strict=True)
    ]
    return tuple(sorted(facts, key=lambda fact: (-fact.share, -fact.named)))


def _top_rows(
    selected: SelectedColumns, explained: ExplainedRows, shown: list[int]
) -> Iterator[TopRow]:
    """Put the rows into words."""
    cells = [
        _texts(explained.cells[selected.features[index]], explained.explanation.values[index])
        for index in shown
    ]
    ids = [[id_text(cell) for cell in explained.cells[name].to_pylist()] for name in selected.ids]
    labels = np.full(len(explained.rows), np.nan)
    if selected.label is not None:
        labels = parse_labels_column(selected.label, explained.cells[selected.label.column])
    for index, number in enumerate(explained.rows.tolist()):
        yield TopRow(
            number=number,
            ids=tuple(column[index] for column in ids),
            score=float(explained.explanation.score[index]),
            label=None if np.isnan(labels[index]) else bool(labels[index]),
            reasons=tuple(_reasons(explained.explanation, index)),
            cells=tuple(column[index] for column in cells),
            nearest=tuple(_nearest(explained.explanation, index, shown)),
        )


def _reasons(explanation: Explanation, index: int) -> Iterator[ReasonFact]:
    for reason in explanation.reasons(index, MAX_REASONS):
        column = explanation.columns.index(reason.column)
        yield ReasonFact(
            column=reason.column,
            value=cell_text(reason.value),
            expected=expected_text(reason.expected, reason.value, digits=4),
            z_score=reason.z_score,
            nearest=nearest_texts(explanation, index, column),
        )


def _nearest(explanation: Explanation, index: int, shown: list[int]) -> Iterator[tuple[str, ...]]:
    """Give the shown cells of each remembered row that is near a row."""
    return zip(*(nearest_texts(explanation, index, column) for column in shown), strict=True)


def _texts(cells: pa.ChunkedArray, values: pa.Array) -> list[str]:
    """Give cells as they are written, but for those that stand for a missing value."""
    pairs = zip(cells.to_pylist(), values.to_pylist(), strict=True)
    return ["" if value is None else cell_text(cell) for cell, value in pairs]


def _versions() -> dict[str, str]:
    return {
        "altbi": __version__,
        "Python": platform.python_version(),
        **{contribution: version(contribution) for contribution in _LIBRARIES},
    }
