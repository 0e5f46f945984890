"""The second pass over a table: score all rows, count scores, keep the highest."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.encoding import Drift
from altbi.errors import TableError
from altbi.io import ColumnParser, SelectedColumns, Source, parse_labels_column, prefetch
from altbi.model._fitted_model import FittedModel
from altbi.model._score_statistics import ScoreCounts, TopRows

Scores = NDArray[np.float64]


@final
@dataclass(frozen=True, slots=True)
class ScoredBatch:
    """Scores, flags (True above the threshold) and drift of a record batch."""

    scores: Scores
    flagged: NDArray[np.bool_]
    drift: Drift


def score_batch(
    model: FittedModel, parser: ColumnParser, batch: pa.RecordBatch, first_row: int
) -> ScoredBatch:
    """Parse and score a record batch; `first_row` is the number of its first row, for messages.

    Every pass calls this function, so that scores are the same. Invalid values raise a
    `TableError`.
    """
    table = parser.parse(batch, first_row, model.encoder.names)
    scores, drift = model.score_table(table)
    return ScoredBatch(scores, scores > model.threshold, drift)


@final
class ScoreSummary:
    """Results of the second pass over a table.

    Parameters
    ----------
    top : int
        Number of rows with the highest scores to keep.
    first_row : int, default=0
        Number of the first row, for a partition of a table.

    Attributes
    ----------
    n_rows, n_flagged : int
        Number of rows that were scored, and of those with a score above the threshold.
    counts : ScoreCounts
        Histogram of the scores.
    top : TopRows
        The rows with the highest scores.
    drift : Drift
        Values that the training sample did not have.
    labelled : list of (scores, labels)
        Scores of the rows with a known label, and True for outliers; one pair for each batch.
    """

    def __init__(self, top: int, first_row: int = 0) -> None:
        self.first_row = first_row
        self.n_rows = self.n_flagged = 0
        self.counts = ScoreCounts()
        self.top = TopRows(top)
        self.drift = Drift()
        self.labelled: list[tuple[Scores, NDArray[np.bool_]]] = []

    @property
    def next_row(self) -> int:
        """Number of the row that is added next."""
        return self.first_row + self.n_rows

    def add(self, batch: pa.RecordBatch, scored: ScoredBatch) -> None:
        """Add the next rows of the table and their scores to all statistics but `labelled`."""
        self.top.add(batch, scored.scores, self.next_row)
        self.counts.add(scored.scores)
        self.n_flagged += int(scored.flagged.sum())
        self.n_rows += len(batch)
        self.drift += scored.drift

    def add_labels(self, scores: Scores, labels: Scores) -> None:
        """Add scores and labels to `labelled`; rows without a label are left out.

        Labels are 1 for outliers, 0 for inliers and NaN without a label.
        """
        known = ~np.isnan(labels)
        self.labelled.append((scores[known], labels[known] == 1))

    def append(self, other: "ScoreSummary") -> None:
        """Add the summary of the next partition; partitions must come in the order of the table."""
        self.top.append(*other.top.sort_by_row())
        self.counts.add_bins(other.counts.keys, other.counts.counts)
        self.n_flagged += other.n_flagged
        self.n_rows += other.n_rows
        self.drift += other.drift
        self.labelled += other.labelled


def score_source(
    source: Source,
    parser: ColumnParser,
    selected: SelectedColumns,
    model: FittedModel,
    summary: ScoreSummary,
) -> Iterator[pa.Table]:
    """Score all rows of a source, add them to `summary`, and yield the output in chunks.

    Nothing is read before the first chunk is requested. A `TableError` names the source.
    """
    with name_errors(source):
        for batch in prefetch(source.batches(selected.to_score)):
            scored = score_batch(model, parser, batch, summary.next_row)
            output = _build_output(batch, selected, summary.next_row, scored)
            summary.add(batch, scored)
            if selected.label is not None:
                column = batch.column(selected.label.column)
                summary.add_labels(scored.scores, parse_labels_column(selected.label, column))
            yield output


def read_rows(source: Source, selected: SelectedColumns, rows: NDArray[np.int64]) -> pa.Table:
    """Read the rows with these row numbers, in this order; repeated numbers repeat the row.

    Reading stops after the highest number. A number past the last row raises a `TableError`. `rows`
    must not be empty.
    """
    found, n_read, last = [], 0, int(rows.max())
    for batch in source.batches(selected.to_score):
        inside = np.unique(rows[(rows >= n_read) & (rows < n_read + len(batch))])
        found.append(batch.take(pa.array(inside - n_read)))
        n_read += len(batch)
        if n_read > last:
            break
    else:
        raise TableError(
            f"{source.name}: row {last} does not exist. The last of its {n_read} rows is "
            f"{n_read - 1} (counted from 0)."
        )
    _, positions = np.unique(rows, return_inverse=True)
    return pa.Table.from_batches(found).take(pa.array(positions))


def output_schema(source: Source, selected: SelectedColumns) -> pa.Schema:
    """Return the schema of the tables that `score_source` yields, without reading rows."""
    empty = pa.RecordBatch.from_arrays(
        [pa.array([], source.schema.field(name).type) for name in selected.to_score],
        names=selected.to_score,
    )
    nothing = ScoredBatch(np.empty(0), np.empty(0, dtype=np.bool_), Drift())
    return _build_output(empty, selected, 0, nothing).schema


def _build_output(
    batch: pa.RecordBatch, selected: SelectedColumns, first_row: int, scored: ScoredBatch
) -> pa.Table:
    """Build the output of a batch: row number, ids, score, flag and kept columns of the input.

    If an id or kept column is called "row", "score" or "outlier", ours have the prefix "altbi_".
    """
    rows = np.arange(first_row, first_row + len(scored.scores), dtype=np.int64)
    used, prefix = {*selected.ids, *selected.kept}, ""
    while used & {f"{prefix}{name}" for name in ("row", "score", "outlier")}:
        prefix += "altbi_"
    columns: dict[str, Any] = {f"{prefix}row": rows}
    columns |= {name: batch.column(name) for name in selected.ids}
    columns |= {f"{prefix}score": scored.scores, f"{prefix}outlier": scored.flagged}
    columns |= {name: batch.column(name) for name in selected.kept}
    return pa.table(columns)


def select_features(
    batches: Iterable[pa.RecordBatch], selected: SelectedColumns
) -> Iterator[pa.RecordBatch]:
    """Yield the columns to train on of each batch.

    Labels are validated but not returned, so that invalid ones raise an error before training.
    """
    for batch in batches:
        if selected.label is not None:
            parse_labels_column(selected.label, batch.column(selected.label.column))
        yield batch.select(list(selected.features))


@contextmanager
def name_errors(source: Source) -> Iterator[None]:
    """Add the name of the source to the start of each `TableError` raised in the ``with`` block.

    Messages that start with the name already, and other errors, are not changed.
    """
    try:
        yield
    except TableError as error:
        if str(error).startswith(source.name):
            raise
        raise TableError(f"{source.name}: {error}") from error
