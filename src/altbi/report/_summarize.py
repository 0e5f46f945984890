"""Build the contents of the report and of reasons.csv: explained rows, and a summary."""

import math
import platform
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, time, timedelta
from importlib.metadata import version
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi._formatting import format_number
from altbi._version import __version__
from altbi.encoding import Column, ColumnRole
from altbi.errors import quote
from altbi.explain import Explanation
from altbi.io import ColumnParser, Label, SelectedColumns, parse_labels_column
from altbi.model import FittedModel
from altbi.model._score_source import ScoreCounts, ScoreSummary
from altbi.model._settings import PRIVATE_CONTAMINATION
from altbi.report._metrics import compute_auc, compute_average_precision
from altbi.report._summary import ColumnFact, Metrics, Privacy, ReasonFact, Summary, TopRow
from altbi.table import list_values

# The largest number of reasons of a row.
MAX_REASONS = 5
# What reference rows have in a column whose values are not compared: a date, or an identifier.
NOT_COMPARED = "not compared"
# The number of similar reference rows that are shown with a row.
N_NEAREST = 3
SHOWN_COLUMNS = 30
SHOWN_CATEGORIES = 5
N_BINS = 60
# Thresholds between the lowest of the top rows and the lowest score.
N_LOW_THRESHOLDS = 200
# Scores above this quantile may share one wide bin.
WIDE_BIN_QUANTILE = 0.995
# Libraries that compute scores; PyTorch is an extra, and listed if it was used.
LIBRARIES = ("numpy", "pyarrow", "torch")
# An empty text is a value, not a missing one.
EMPTY_TEXT = "''"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HALF_DAY = timedelta(hours=12)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedRows:
    """Rows of a table with the explanation of their scores."""

    rows: NDArray[np.int64]  # their numbers in the table, counted from 0
    cells: pa.Table  # their values as the source has them
    flagged: NDArray[np.bool_]  # whether their scores are above the threshold
    explanation: Explanation


def explain_rows(
    cells: pa.Table, rows: NDArray[np.int64], parser: ColumnParser, model: FittedModel
) -> ExplainedRows:
    """Parse the values of some rows, compute their scores, and explain these by column.

    `cells` has the columns as the source has them, and `rows` the numbers of the rows in the table.
    """
    explanation = model.explain(parser.parse(cells, 0, model.encoder.names))
    flagged = explanation.score > model.threshold
    return ExplainedRows(rows=rows, cells=cells, flagged=flagged, explanation=explanation)


def build_reasons_table(explained: ExplainedRows, selected: SelectedColumns) -> pa.Table:
    """Return a table with one record for each row and reason, as in ``reasons.csv``.

    A row has at most `MAX_REASONS` reasons, and those of a row have consecutive records. Values are
    formatted as text. Id columns get the prefix ``id_``. With reference rows, ``nearest_1`` to
    ``nearest_3`` are the values of the most similar reference rows.
    """
    explanation = explained.explanation
    records: list[dict[str, Any]] = []
    id_values = {name: list_values(explained.cells[name]) for name in selected.ids}
    for index, row in enumerate(explained.rows.tolist()):
        ids = {name: values[index] for name, values in id_values.items()}
        common = {
            "row": row,
            **{f"id_{name}": format_id(value) for name, value in ids.items()},
            "score": float(explanation.score[index]),
            "outlier": bool(explained.flagged[index]),
        }
        for rank, reason in enumerate(explanation.reasons(index, MAX_REASONS), start=1):
            column = explanation.columns.index(reason.column)
            nearest = enumerate(format_nearest_values(explanation, index, column), start=1)
            records.append(
                {
                    **common,
                    "reason": rank,
                    "column": reason.column,
                    "value": format_value(reason.value, digits=None),
                    "expected": reason.note or format_expected(reason.expected, reason.value),
                    "z_score": reason.z_score,
                    "contribution": reason.contribution,
                    **{f"nearest_{number}": value for number, value in nearest},
                }
            )
    return pa.Table.from_pylist(records)


def format_id(value: object) -> str:
    """Format a value of an id column; an empty text stays empty, unlike in `format_value`."""
    return "" if value == "" else format_value(value)


def format_nearest_values(explanation: Explanation, index: int, column: int) -> tuple[str, ...]:
    """Return the formatted values of one column in the reference rows most similar to a row.

    `index` is the row's index in the explanation, and `column` the column's index. There are at
    most `N_NEAREST` values, most similar first. The result is empty for scores by loss.
    """
    if explanation.neighbours is None:
        return ()
    reference = explanation.reference[column]
    if reference.null_count == len(reference):
        return (NOT_COMPARED,) * min(N_NEAREST, explanation.neighbours.shape[1])
    value = explanation.values[column][index].as_py()
    indices = pa.array(explanation.neighbours[index, :N_NEAREST])
    nearest = list_values(reference.take(indices))
    return tuple(format_nearest(each, value) for each in nearest)


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

    `table` is the table's name, and `explained` has the rows with the highest scores, highest
    first. `notes` are warnings about the data. A warning about labels that are all the same is
    put before them, and warnings about drift are added at the end.
    """
    explanation = explained.explanation
    metrics = _compute_metrics(scored, selected.label)
    notes = [*notes, *scored.drift.describe()]
    if selected.label is not None and metrics is None:
        notes.insert(0, _describe_constant_labels(selected.label))
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
        problem = f"none of the labels, or all of them, are {quote(label.value)}"
    return f"Column {quote(label.column)}: {problem}. The scores cannot be compared with them."


def _compute_metrics(scored: ScoreSummary, label: Label | None) -> Metrics | None:
    """Compare the scores of labelled rows with their labels: AUC and average precision.

    Returns None without a label column, or if the labels are not of both classes.
    """
    if label is None:
        return None
    scores, labels = map(np.concatenate, zip(*scored.labelled, strict=True))
    if not 0 < labels.sum() < len(labels):
        return None
    return Metrics(
        label=label.column,
        outliers=int(labels.sum()),
        auc=compute_auc(labels, scores),
        average_precision=compute_average_precision(labels, scores),
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
    # The upper end of the last bin, which is nearer to 0 than `edges[-1]` if scores are negative.
    low, highest = float(edges[0]), float(edges[-1] + abs(edges[-1]) * 2**-16)
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
    """Return a description of each column, by decreasing share of the top rows' scores.

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
            **_describe_role(column.role),
        )
        for column, share in zip(columns, shares, strict=True)
    ]
    return tuple(sorted(facts, key=lambda fact: (-fact.share, -fact.n_reasons)))


def _describe_role(role: ColumnRole | None) -> dict[str, Any]:
    """Return the fields of a `ColumnFact` about the role of a column; none without a role."""
    if role is None:
        return {}
    return {
        "role": role.role,
        "reason": role.explanation,
        "is_stated": role.is_stated,
        "is_usual": role.is_usual,
    }


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
    ids = [[format_id(value) for value in list_values(cells[name])] for name in selected.ids]
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
            expected=reason.note or format_expected(reason.expected, reason.value, digits=4),
            z_score=reason.z_score,
            nearest=format_nearest_values(explanation, index, column),
        )


def _format_column(cells: pa.ChunkedArray, values: pa.Array) -> list[str]:
    """Format the values of a column by `format_value`; missing values become "".

    `cells` has the source's values: texts of a text file are shown as they are, numbers with six
    digits. `values` has the parsed ones. A text that was parsed as missing, such as "n/a", becomes
    "" as well.
    """
    pairs = zip(list_values(cells), list_values(values), strict=True)
    return ["" if value is None else format_value(cell) for cell, value in pairs]


def _collect_versions() -> dict[str, str]:
    """Return the versions of altbi, Python and the loaded libraries, by name."""
    return {
        "altbi": __version__,
        "Python": platform.python_version(),
        **{library: version(library) for library in LIBRARIES if library in sys.modules},
    }


def format_value(value: object, digits: int | None = 6) -> str:
    """Format a value of a table as text; a missing value becomes "".

    None and NaN are missing. An empty text becomes two quotes, booleans "true" and "false".
    `digits` limits the digits of numbers, and cuts dates to seconds; None keeps the exact value.
    Midnight is left out of dates without a time zone, and "+00:00" is left out for UTC.

    >>> format_value(None), format_value("")
    ('', "''")
    """
    if value is None:
        return ""
    if value == "":
        return EMPTY_TEXT
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if math.isnan(value):
            return ""
        return format_number(value, digits) if digits else repr(value).removesuffix(".0")
    if isinstance(value, datetime):
        value = value.replace(microsecond=0) if digits else value
        return value.isoformat(" ").removesuffix(" 00:00:00").removesuffix("+00:00")
    return str(value)


def format_expected(expected: object, value: object, digits: int = 6) -> str:
    """Format an expected value of a column, for display next to the row's `value`.

    If both are dates and `value` has no time of day, the expected time is rounded to the nearest
    date.
    """
    if isinstance(expected, datetime) and isinstance(value, datetime) and value.time() == time():
        expected = (min(expected, datetime.max - HALF_DAY) + HALF_DAY).date()
    return format_value(expected, digits)


def format_nearest(nearest: object, value: object) -> str:
    """Format the value of a reference row, for display next to the row's `value`.

    If both are dates and neither has a time of day, only the date is shown.
    """
    if isinstance(nearest, datetime) and isinstance(value, datetime):
        nearest = nearest.date() if nearest.time() == value.time() == time() else nearest
    return format_value(nearest)


def describe_column(column: Column) -> str:
    """Describe the values that a column had in the training sample.

    Numbers and dates: their range. Categories: at most five, and the number of the others.
    Booleans: "true or false", or the only value. A column without values: "no values".
    """
    if not column.n_present:
        return "no values"
    if column.kind == "category":
        shown = ", ".join(map(format_value, column.categories[:SHOWN_CATEGORIES]))
        rest = column.n_categories - min(len(column.categories), SHOWN_CATEGORIES)
        return f"{shown}{' and ' if shown and rest else ''}{f'{rest} more' if rest else ''}"
    if column.kind == "boolean":
        return "true or false" if column.low < column.high else format_value(column.low > 0)
    low, high = (_format_bound(column, bound) for bound in (column.low, column.high))
    return low if low == high else f"{low} to {high}"


def _format_bound(column: Column, bound: float) -> str:
    """Format the smallest or largest value of a column; for dates, seconds since 1970.

    Dates that Python does not support, such as those after 9999, become a number of seconds.
    """
    if column.kind != "date":
        return format_number(bound)
    try:
        return format_value((EPOCH + timedelta(seconds=bound)).replace(tzinfo=None))
    except OverflowError:  # beyond year 9999
        return f"{bound:.6g} seconds after 1970"
