"""Search a table for the cells that are most likely wrong."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi._threads import map_ahead
from altbi.io import ColumnParser, SelectedColumns, Source, prefetch
from altbi.model._fitted_model import FittedModel
from altbi.model._score_source import name_errors, number_rows

Integers = NDArray[np.int64]

# Cells with a lower score are usual, so they are not listed. In nats.
MIN_CELL_SCORE = 2.0


@final
@dataclass(frozen=True, slots=True, eq=False)
class FoundCells:
    """Some cells of a table, those with the highest scores first.

    `rows` are numbers of rows in the whole table, `columns` indices of the model's columns, and
    `indices` those of the rows of `table`, which has each row with a cell once.
    """

    table: pa.Table
    rows: Integers
    columns: Integers
    indices: Integers
    scores: NDArray[np.float64]


@final
class TopCells:
    """The `limit` cells with the highest scores of a table that is added batch by batch.

    Batches must come in the order of the table. Of equal scores, the cells of the first rows are
    kept, and those of the first columns within a row. So the result does not depend on the size of
    the batches.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.n_rows = 0
        self._batches: list[pa.RecordBatch] = []
        self._n_stored = 0  # rows of all stored batches
        self._cells: list[_Cells] = []
        self._n_cells = 0

    def add(self, batch: pa.RecordBatch, cells: "_Cells") -> None:
        """Add the next batch of the table, with the result of `choose_cells` for it."""
        kept, indices = np.unique(cells.indices, return_inverse=True)
        self._batches.append(batch.take(pa.array(kept)))
        self._cells.append(
            _Cells(self._n_stored + indices, cells.columns, cells.scores, self.n_rows + cells.rows)
        )
        self._n_stored += len(kept)
        self._n_cells += len(indices)
        self.n_rows += len(batch)
        if self._n_cells > 4 * self.limit:
            self._shrink()

    def _shrink(self) -> "_Cells":
        """Drop all but the top cells and their rows, and return these cells in table order."""
        cells = _concatenate(self._cells).take_highest(self.limit)
        kept, indices = np.unique(cells.indices, return_inverse=True)
        table = pa.Table.from_batches(self._batches).take(pa.array(kept))
        self._batches = table.combine_chunks().to_batches() or [self._batches[0].slice(0, 0)]
        self._n_stored, self._n_cells = len(kept), len(indices)
        cells = _Cells(indices, cells.columns, cells.scores, cells.rows)
        self._cells = [cells]
        return cells

    def sort(self) -> FoundCells:
        """Return the top cells, highest scores first.

        At least one batch, which may be empty, must have been added.
        """
        cells = self._shrink()
        order = np.argsort(-cells.scores, kind="stable")
        return FoundCells(
            table=pa.Table.from_batches(self._batches),
            rows=cells.rows[order],
            columns=cells.columns[order],
            indices=cells.indices[order],
            scores=cells.scores[order],
        )


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """Cells in the order of their rows, and of their columns within a row."""

    indices: Integers  # of the rows among those that are stored
    columns: Integers
    scores: NDArray[np.float64]
    rows: Integers  # numbers of the rows

    def take_highest(self, limit: int) -> "_Cells":
        """Return the cells with the highest scores in the same order; of equal ones, the first."""
        kept = np.sort(np.argsort(-self.scores, kind="stable")[:limit])
        return _Cells(self.indices[kept], self.columns[kept], self.scores[kept], self.rows[kept])


def _concatenate(cells: list[_Cells]) -> _Cells:
    """Return the cells of all batches as one."""
    return _Cells(
        np.concatenate([each.indices for each in cells]),
        np.concatenate([each.columns for each in cells]),
        np.concatenate([each.scores for each in cells]),
        np.concatenate([each.rows for each in cells]),
    )


def choose_cells(scores: NDArray[np.float64], limit: int) -> _Cells:
    """Return the `limit` highest of the scores ``(n_rows, n_columns)`` that are not usual."""
    rows, columns = np.nonzero(scores >= MIN_CELL_SCORE)
    return _Cells(rows, columns, scores[rows, columns], rows).take_highest(limit)


def find_source_cells(
    source: Source,
    parser: ColumnParser,
    selected: SelectedColumns,
    model: FittedModel,
    top: TopCells,
) -> Generator[int, None, None]:
    """Score the cells of all rows of a source, add them to `top`, and yield the rows of each chunk.

    Nothing is read before the first chunk is requested. A `TableError` names the source.
    """

    def score(numbered: tuple[int, pa.RecordBatch]) -> tuple[pa.RecordBatch, _Cells]:
        """Return a batch, given with the number of its first row, and its highest cells."""
        first_row, batch = numbered
        table = parser.parse(batch, first_row, model.encoder.names)
        return batch, choose_cells(model.cell_scores(table), top.limit)

    with name_errors(source):
        batches = number_rows(prefetch(source.batches(selected.to_score)), 0)
        for batch, cells in map_ahead(score, batches):
            top.add(batch, cells)
            yield len(batch)
