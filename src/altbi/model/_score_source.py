"""The second pass over a table: select its columns, score all rows, keep the highest scores."""

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi._threads import map_ahead
from altbi.encoding import Drift
from altbi.errors import ParameterError, TableError, list_names
from altbi.io import (
    ColumnParser,
    ColumnSelection,
    ExpectedType,
    SelectedColumns,
    Source,
    check_types,
    parse_labels_column,
    prefetch,
    select_columns,
)
from altbi.model._fitted_model import FittedModel

Scores = NDArray[np.float64]
Integers = NDArray[np.int64]

# A bin is given by the sign, the exponent and the first 16 of 52 bits of the mantissa.
DROPPED_BITS = 36
_MAX_PENDING_KEYS = 1 << 18


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

    The columns of `parser` are paired with those of the model by position. Invalid values raise a
    `TableError`.
    """
    table = parser.parse(batch, first_row, model.encoder.names)
    scores, drift = model.score_table(table)
    return ScoredBatch(scores, scores > model.threshold, drift)


@final
class ScoreCounts:
    """A histogram of scores with fixed bins, whose width is 1/65536 of the score.

    Counts are exact and do not depend on the order or the partition of the rows.

    >>> counts = ScoreCounts()
    >>> counts.add(np.array([1.0, 2.0, 2.0, 0.5]))
    >>> counts.edges, counts.counts
    (array([0.5, 1. , 2. ]), array([1, 1, 2]))
    """

    def __init__(self) -> None:
        # Keys and counts of histograms. They are added up when there are many, because adding up
        # takes as long for one as for many.
        self._histograms: list[tuple[Integers, Integers]] = []
        self._n_pending = 0  # keys in all but the first histogram

    def add(self, scores: Scores) -> None:
        """Add scores ``(n_rows,)`` to the histogram."""
        self.add_bins(*np.unique(_compute_keys(scores), return_counts=True))

    def add_bins(self, keys: Integers, counts: Integers) -> None:
        """Add another histogram, given by its `keys` and `counts`."""
        self._histograms.append((keys, counts))
        self._n_pending += len(keys)
        if self._n_pending > _MAX_PENDING_KEYS:
            self._add_up()

    def _add_up(self) -> tuple[Integers, Integers]:
        """Replace the stored histograms by their sum, and return its sorted keys and counts."""
        if self._histograms and not self._n_pending:
            return self._histograms[0]
        empty = np.empty(0, dtype=np.int64)
        all_keys = np.concatenate([empty, *(keys for keys, _ in self._histograms)])
        all_counts = np.concatenate([empty, *(counts for _, counts in self._histograms)])
        keys, positions = np.unique(all_keys, return_inverse=True)
        total = np.zeros(len(keys), dtype=np.int64)
        np.add.at(total, positions, all_counts)
        self._histograms, self._n_pending = [(keys, total)], 0
        return keys, total

    @property
    def keys(self) -> Integers:
        """Keys of the bins with at least one score, ascending: integers in the order of scores."""
        return self._add_up()[0]

    @property
    def counts(self) -> Integers:
        """Number of scores in each bin of `keys`, in the same order."""
        return self._add_up()[1]

    @property
    def edges(self) -> Scores:
        """Lower edges of the bins with at least one score, in ascending order."""
        ordered = self.keys << DROPPED_BITS
        return (ordered ^ ((ordered >> 63) & np.int64(2**63 - 1))).view(np.float64)

    def count_at_least(self) -> Integers:
        """Return for each of `edges` the number of scores in its bin and all higher bins."""
        return np.cumsum(self.counts[::-1])[::-1]


def _compute_keys(scores: Scores) -> Integers:
    """Return the key of each score's bin: an integer that does not decrease with the score.

    A key holds the first 28 bits of the floating-point number. -0.0 counts as 0.0.
    """
    bits = np.ascontiguousarray(scores + 0.0).view(np.int64)  # -0.0 + 0.0 is 0.0
    return (bits ^ ((bits >> 63) & np.int64(2**63 - 1))) >> DROPPED_BITS


@final
class TopRows:
    """The `limit` rows with the highest scores of a table that is added batch by batch.

    Batches must come in the order of the table. Of equal scores, the first rows are kept.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._batches: list[pa.RecordBatch] = []
        self._scores = np.empty(0)
        self._rows = np.empty(0, dtype=np.int64)
        self._lowest = -np.inf

    def add(self, batch: pa.RecordBatch, scores: Scores, first_row: int) -> None:
        """Add the next batch of the table; `first_row` is the number of its first row.

        Only rows that can be among the `limit` rows with the highest scores are kept.
        """
        chosen = np.flatnonzero(scores > self._lowest)
        if len(chosen) > self.limit:
            chosen = np.sort(chosen[np.argsort(-scores[chosen], kind="stable")[: self.limit]])
        self._append(batch.take(pa.array(chosen)), scores[chosen], first_row + chosen)

    def append(self, table: pa.Table, scores: Scores, rows: Integers) -> None:
        """Add the result of the next partition's `sort_by_row`; `rows` count in the whole table."""
        chosen = np.flatnonzero(scores > self._lowest)
        for batch in table.take(pa.array(chosen)).combine_chunks().to_batches():
            self._append(batch, scores[chosen], rows[chosen])

    def _append(self, batch: pa.RecordBatch, scores: Scores, rows: Integers) -> None:
        """Store rows. Once more than 4 * `limit` are stored, drop all but the top rows."""
        self._batches.append(batch)
        self._scores = np.append(self._scores, scores)
        self._rows = np.append(self._rows, rows)
        if len(self._scores) > 4 * self.limit:
            self._shrink()

    def _shrink(self) -> None:
        """Drop all rows but the top rows; nothing happens if at most `limit` are stored.

        Later rows are stored only if they exceed the lowest score that is left.
        """
        if len(self._scores) > self.limit:
            kept = np.sort(np.argsort(-self._scores, kind="stable")[: self.limit])
            table = pa.Table.from_batches(self._batches).take(pa.array(kept))
            self._batches = table.combine_chunks().to_batches()
            self._scores, self._rows = self._scores[kept], self._rows[kept]
            self._lowest = self._scores.min()

    def sort_by_row(self) -> tuple[pa.Table, Scores, Integers]:
        """Return the top rows, their scores and their row numbers, in the order of the table.

        At least one batch, which may be empty, must have been added.
        """
        self._shrink()
        return pa.Table.from_batches(self._batches), self._scores, self._rows

    def sort_by_score(self) -> tuple[pa.Table, Scores, Integers]:
        """Return the top rows, their scores and their row numbers, highest scores first.

        At least one batch, which may be empty, must have been added.
        """
        table, scores, rows = self.sort_by_row()
        order = np.argsort(-scores, kind="stable")
        return table.take(pa.array(order)), scores[order], rows[order]


@final
class ScoreSummary:
    """Results of the second pass: the `top` highest scores, counts, drift and known labels.

    `first_row` is the number of the first row, for a partition of a table.
    """

    def __init__(self, top: int, first_row: int = 0) -> None:
        self.first_row = first_row
        self.n_rows = self.n_flagged = 0
        self.counts = ScoreCounts()
        self.top = TopRows(top)
        self.drift = Drift()
        self.last_ids: dict[str, object] = {}  # of the last row, for formats without types
        # Scores of the rows with a known label, and True for outliers; one pair for each batch.
        self.labelled: list[tuple[Scores, NDArray[np.bool_]]] = []

    @property
    def next_row(self) -> int:
        """Number of the row that is added next."""
        return self.first_row + self.n_rows

    def add(self, batch: pa.RecordBatch, scored: ScoredBatch) -> None:
        """Add the next rows of the table and their scores; labels and ids do not change."""
        self.top.add(batch, scored.scores, self.next_row)
        self.counts.add(scored.scores)
        self.n_flagged += int(scored.flagged.sum())
        self.n_rows += len(batch)
        self.drift += scored.drift

    def add_labels(self, scores: Scores, labels: Scores) -> None:
        """Store the scores of labelled rows and whether they are outliers, for comparisons.

        `labels` ``(n_rows,)`` are 1 for outliers, 0 for inliers and NaN without a label.
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
) -> Generator[pa.Table, None, None]:
    """Score all rows of a source, add them to `summary`, and yield the output in chunks.

    The output has row number, ids, score, flag and kept columns. Nothing is read before the first
    chunk is requested. A `TableError` names the source.
    """

    def score(numbered: tuple[int, pa.RecordBatch]) -> tuple[pa.RecordBatch, ScoredBatch, pa.Table]:
        """Score a batch, given with the number of its first row, and build its output."""
        first_row, batch = numbered
        scored = score_batch(model, parser, batch, first_row)
        return batch, scored, _build_output(batch, selected, first_row, scored)

    with name_errors(source):
        batches = number_rows(prefetch(source.batches(selected.to_score)), summary.next_row)
        for batch, scored, output in map_ahead(score, batches):
            summary.add(batch, scored)
            if source.is_untyped:
                last = batch.slice(len(batch) - 1).select(list(selected.ids))
                summary.last_ids = last.to_pylist()[0] if selected.ids else {}
            if selected.label is not None:
                column = batch.column(selected.label.column)
                summary.add_labels(scored.scores, parse_labels_column(selected.label, column))
            yield output


def number_rows(
    batches: Iterable[pa.RecordBatch], first_row: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the batches of a table, each with the number of its first row."""
    for batch in batches:
        yield first_row, batch
        first_row += len(batch)


def read_rows(source: Source, selected: SelectedColumns, rows: Integers) -> pa.Table:
    """Read the columns to score of the rows with these numbers, in this order, also repeated.

    Reading stops after the highest number. A row that does not exist raises a `TableError`, and no
    row number a `ParameterError`.
    """
    if not len(rows):
        raise ParameterError("No row numbers were given. Pass at least one.")
    if rows.min() < 0:
        raise TableError(
            f"{source.name}: row {rows.min()} does not exist. Rows are counted from 0."
        )
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
    """Return the schema of the tables that `score_source` yields, without reading rows.

    A column of a type that cannot be read raises a `TableError`.
    """
    check_types(source.schema, selected.to_score, source.name)
    fields = [source.schema.field(name) for name in selected.to_score]
    empty = pa.schema(fields).empty_table()
    nothing = ScoredBatch(np.empty(0), np.empty(0, dtype=np.bool_), Drift())
    return _build_output(empty, selected, 0, nothing).schema


def _build_output(
    batch: pa.RecordBatch | pa.Table, selected: SelectedColumns, first_row: int, scored: ScoredBatch
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

    The label is left out, but an invalid one raises a `TableError`, before the training.
    """
    for batch in batches:
        if selected.label is not None:
            parse_labels_column(selected.label, batch.column(selected.label.column))
        yield batch.select(list(selected.features))


def select_for_model(
    source: Source, selection: ColumnSelection, model: FittedModel
) -> SelectedColumns:
    """Select the columns of a model: by name, or by position if it was fitted on an array.

    For an array, `selection` determines which columns count and in what order. For a data frame,
    leaving out a column of the model raises a `ParameterError`, as unknown names do. Missing
    columns, or another number of columns than the array had, raise a `TableError`.
    """
    if model.training_table.is_frame:
        return select_columns(source, selection, model.encoder.names)
    selected = select_columns(source, selection)
    n_expected = len(model.encoder.names)
    if len(selected.features) != n_expected:
        raise TableError(
            f"{source.name}: it has {len(selected.features)} columns, but the model was "
            f"fitted on an array with {n_expected}. Select as many with --columns."
        )
    return selected


def build_expected_types(model: FittedModel, selected: SelectedColumns) -> dict[str, ExpectedType]:
    """Return the type and the text format at the fit that the model expects of each column.

    Columns of the table and of the model are paired by position. The keys are those of the table.
    """
    encoder, formats = model.encoder, model.training_table.conventions.text_formats
    columns = zip(selected.features, encoder.names, encoder.kinds, strict=True)
    return {name: ExpectedType(kind, formats.get(known, "")) for name, known, kind in columns}


def describe_unused(source: Source, selected: SelectedColumns) -> list[str]:
    """Return a list of one sentence about the columns that a model does not use, or of none."""
    used = {*selected.to_score, *source.extra_columns}
    unused = [name for name in source.schema.names if name not in used]
    return [f"The model does not use the columns {list_names(unused)}."] if unused else []


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
