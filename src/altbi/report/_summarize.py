"""Build the summary of a scored table."""

import platform
from collections import Counter
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
from altbi.model._score_source import ScoreCounts, ScoreSummary
from altbi.model._settings import PRIVATE_CONTAMINATION
from altbi.report._explained_rows import (
    MAX_REASONS,
    ExplainedRows,
    format_id,
    format_nearest_values,
)
from altbi.report._formatting import describe_column, format_expected, format_value
from altbi.report._summary import ColumnFact, Metrics, Privacy, ReasonFact, Summary, TopRow

SHOWN_COLUMNS = 30
N_BINS = 60
# Thresholds between the lowest of the top rows and the lowest score.
N_LOW_THRESHOLDS = 200
# Scores above this quantile may share one wide bin.
WIDE_BIN_QUANTILE = 0.995
LIBRARIES = ("numpy", "pyarrow", "scikit-learn", "torch")


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
    """Build the summary of a scored table, which is the content of its report.

    Drift and labels that are all the same are added to the warnings.

    Parameters
    ----------
    table : str
        Name of the table.
    selected : SelectedColumns
        Which columns are features, ids and label.
    model : FittedModel
        The model that scored the table.
    scored : ScoreSummary
        Counts and histogram of all scores.
    explained : ExplainedRows
        The rows with the highest scores, highest first.
    notes : sequence of str
        Warnings about the data.
    command : str
        The command to show in the report.

    Returns
    -------
    Summary
        Plain values.
    """
    explanation = explained.explanation
    metrics = _compute_metrics(scored, selected.label)
    notes = [*notes, *scored.drift.describe()]
    if selected.label is not None and metrics is None:
        notes.append(_describe_constant_labels(selected.label))
    names = model.encoder.names
    shown = _select_shown_columns(explanation)
    return Summary(
        table=table,
        score_by="loss" if explanation.neighbours is None else "distance",
        rows=scored.n_rows,
        sample=model.training_table.n_sample,
        threshold=model.threshold,
        flagged=scored.n_flagged,
        threshold_reason=describe_threshold(model),
        thresholds=_list_thresholds(scored, explanation.score, model.threshold),
        bins=_compute_bins(scored.counts),
        columns=_build_column_facts(model.encoder.columns, explanation),
        shown_columns=tuple(names[index] for index in shown),
        id_columns=selected.ids,
        top=tuple(_build_top_rows(selected, explained, shown)),
        history=model.history,
        metrics=metrics,
        privacy=_build_privacy(model),
        notes=tuple(notes),
        command=command,
        versions=_collect_versions(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def describe_threshold(model: FittedModel) -> str:
    """Describe in one to three sentences how the model's threshold was chosen.

    It was given, released with noise under a privacy budget, estimated, or follows from the
    contamination.
    """
    settings = model.settings
    if settings.threshold is not None:
        return "The threshold was given."
    if model.ledger is not None:
        contamination = settings.contamination
        share = PRIVATE_CONTAMINATION if contamination == "auto" else contamination
        return (
            f"About {share:.0%} of the training rows have a score above the threshold. Noise was "
            "added to it to protect single rows."
        )
    if settings.contamination == "auto":
        return (
            "No contamination was given, so the threshold is estimated: it separates the two "
            "groups of training scores, or is the elbow of the sorted scores if there is only one "
            "group. This is a rough estimate. Review as many of the top rows as you can."
        )
    return (
        f"A contamination of {float(settings.contamination):.2%} was given: this share of the "
        f"{model.training_table.n_sample:,} training rows has a score above the threshold."
    )


def _describe_constant_labels(label: Label) -> str:
    """Return a warning that labels which are all the same cannot be compared with scores."""
    problem = "all labels are the same"
    if label.value is not None:
        problem = f"none of the labels, or all of them, are {label.value!r}"
    return f"Column {label.column!r}: {problem}. The scores cannot be compared with them."


def _compute_metrics(scored: ScoreSummary, label: Label | None) -> Metrics | None:
    """Compare the scores with known labels: AUC and average precision.

    Returns None without a label column, or if the labels are not of both classes.
    """
    if label is None:
        return None
    from sklearn.metrics import average_precision_score, roc_auc_score

    scores, labels = map(np.concatenate, zip(*scored.labelled, strict=True))
    if not 0 < labels.sum() < len(labels):
        return None
    return Metrics(
        label=label.column,
        outliers=int(labels.sum()),
        auc=float(roc_auc_score(labels, scores)),
        average_precision=float(average_precision_score(labels, scores)),
    )


def _build_privacy(model: FittedModel) -> Privacy | None:
    """Convert the model's privacy ledger to plain values; return None without a budget."""
    if model.ledger is None:
        return None
    state = model.ledger.to_json()
    values = {field.name: state[field.name] for field in fields(Privacy)}
    values["releases"] = tuple(model.ledger.summarize_releases())
    values |= {name: tuple(state[name]) for name in ("covered", "not_covered")}
    return Privacy(**values)


def _list_thresholds(
    scored: ScoreSummary, top: NDArray[np.float64], threshold: float
) -> tuple[tuple[float, int], ...]:
    """Return possible thresholds, highest first, with the exact number of rows above each.

    These are all scores of the top rows, up to 200 lower ones from the histogram, and the model's
    threshold. `top` has the highest scores in descending order.
    """
    values, above = np.unique(-top, return_index=True)
    thresholds = dict(zip((-values).tolist(), above.tolist(), strict=True))
    n_at_least = scored.counts.count_at_least()
    # `score > nextafter(edge, -inf)` is the same as `score >= edge`.
    edges = np.nextafter(scored.counts.edges, -np.inf)
    wanted = np.geomspace(len(top), scored.n_rows, N_LOW_THRESHOLDS)
    indices = np.unique(np.searchsorted(-n_at_least, -wanted, side="left"))
    for index in indices[indices < len(edges)].tolist():
        if edges[index] < top[-1]:
            thresholds[float(edges[index])] = int(n_at_least[index])
    thresholds[threshold] = scored.n_flagged
    return tuple(sorted(thresholds.items(), reverse=True))


def _compute_bins(counts: ScoreCounts) -> tuple[tuple[float, float, int], ...]:
    """Return the histogram as 60 intervals of equal width: start, end and number of rows.

    If the highest scores are far above the 99.5 % quantile, one wide interval for them is added. If
    the intervals would have no width, there is only one.
    """
    edges, n_rows = counts.edges, counts.counts.sum()
    low, highest = float(edges[0]), float(np.nextafter(edges[-1] * (1 + 2**-16), np.inf))
    quantile = np.searchsorted(np.cumsum(counts.counts), WIDE_BIN_QUANTILE * n_rows)
    most = float(edges[quantile])
    high = highest if highest - low <= 3 * (most - low) else most
    if not low < high:
        return ((low, highest, int(n_rows)),)
    limits = np.append(np.linspace(low, high, N_BINS + 1), [highest] if high < highest else [])
    inner = np.searchsorted(edges, limits[1:-1])
    rows = np.add.reduceat(np.append(counts.counts, 0), np.append(0, inner))
    rows[:-1][np.diff(np.append(0, inner)) == 0] = 0  # reduceat repeats a value for an empty bin
    return tuple(zip(limits[:-1].tolist(), limits[1:].tolist(), rows.tolist(), strict=True))


def _select_shown_columns(explanation: Explanation) -> list[int]:
    """Return the indices of the 30 columns with the largest contributions, in table order.

    Fewer columns are all returned. Negative contributions count as 0.
    """
    totals = np.maximum(explanation.contributions, 0).sum(axis=0)
    return sorted(np.argsort(-totals, kind="stable")[:SHOWN_COLUMNS].tolist())


def _build_column_facts(
    columns: tuple[Column, ...], explanation: Explanation
) -> tuple[ColumnFact, ...]:
    """Describe all columns, by decreasing share of the top rows' scores.

    Negative contributions count as 0. Ties are sorted by how often a column is among the reasons.
    """
    totals = np.maximum(explanation.contributions, 0).sum(axis=0)
    shares = totals / (totals.sum() or 1)
    n_reasons = Counter(
        reason.column
        for row in range(len(explanation))
        for reason in explanation.reasons(row, MAX_REASONS)
    )
    facts = [
        ColumnFact(
            name=column.name,
            kind=column.kind,
            content=describe_column(column),
            missing=column.n_missing / (column.n_present + column.n_missing),
            n_reasons=n_reasons[column.name],
            share=float(share),
        )
        for column, share in zip(columns, shares, strict=True)
    ]
    return tuple(sorted(facts, key=lambda fact: (-fact.share, -fact.n_reasons)))


def _build_top_rows(
    selected: SelectedColumns, explained: ExplainedRows, shown: list[int]
) -> Iterator[TopRow]:
    """Yield the explained rows with formatted ids, values, reasons and similar reference rows.

    `shown` has the indices of the feature columns whose values are included.
    """
    explanation, cells = explained.explanation, explained.cells
    values = [
        _format_column(cells[selected.features[index]], explanation.values[index])
        for index in shown
    ]
    ids = [[format_id(value) for value in cells[name].to_pylist()] for name in selected.ids]
    labels = np.full(len(explained.rows), np.nan)
    if selected.label is not None:
        labels = parse_labels_column(selected.label, cells[selected.label.column])
    for index, number in enumerate(explained.rows.tolist()):
        nearest = (format_nearest_values(explanation, index, column) for column in shown)
        yield TopRow(
            number=number,
            ids=tuple(column[index] for column in ids),
            score=float(explanation.score[index]),
            label=None if np.isnan(labels[index]) else bool(labels[index]),
            reasons=tuple(_build_reasons(explanation, index)),
            values=tuple(column[index] for column in values),
            nearest=tuple(zip(*nearest, strict=True)),
        )


def _build_reasons(explanation: Explanation, index: int) -> Iterator[ReasonFact]:
    """Yield the reasons of the row at `index`, largest first, with formatted values."""
    for reason in explanation.reasons(index, MAX_REASONS):
        column = explanation.columns.index(reason.column)
        yield ReasonFact(
            column=reason.column,
            value=format_value(reason.value),
            expected=format_expected(reason.expected, reason.value, digits=4),
            z_score=reason.z_score,
            nearest=format_nearest_values(explanation, index, column),
        )


def _format_column(cells: pa.ChunkedArray, values: pa.Array) -> list[str]:
    """Format the values of a column as the source has them; missing values become "".

    `cells` has the source's values, and `values` the parsed ones. A text that was parsed as
    missing, such as "n/a", becomes "" as well.
    """
    pairs = zip(cells.to_pylist(), values.to_pylist(), strict=True)
    return ["" if value is None else format_value(cell) for cell, value in pairs]


def _collect_versions() -> dict[str, str]:
    """Return the versions of altbi, Python and the main libraries."""
    return {
        "altbi": __version__,
        "Python": platform.python_version(),
        **{library: version(library) for library in LIBRARIES},
    }
