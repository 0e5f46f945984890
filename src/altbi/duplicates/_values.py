"""The values of rows whose hashes are equal: compared exactly, and formatted."""

from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from altbi.duplicates._groups import RowGroups, Rows, find_groups
from altbi.duplicates._hashes import find_large, read_exact_texts
from altbi.duplicates._scan import read_ids
from altbi.io import ColumnParser, SelectedColumns, Source
from altbi.model._score_source import read_rows
from altbi.report._summarize import format_id, format_value
from altbi.table import Table, list_values

Codes = NDArray[np.int32]


@final
@dataclass(frozen=True, slots=True)
class CandidateRows:
    """Rows of a table whose hashes are equal, with their values."""

    rows: Rows  # their numbers, ascending
    cells: pa.Table  # values as the source has them
    table: Table  # values as the model reads them
    parser: ColumnParser
    selected: SelectedColumns
    codes: dict[str, Codes] = field(default_factory=dict)  # those of `encode`, which fills it

    def find(self, rows: Rows) -> Rows:
        """Return the indices of rows in `self.rows`."""
        return np.searchsorted(self.rows, rows)

    def encode(self, name: str) -> Codes:
        """Return integers ``(n_rows,)`` that are equal for equal values of a column only.

        Missing values are equal to another.
        """
        if name not in self.codes:
            self.codes[name] = self._encode(name)
        return self.codes[name]

    def _encode(self, name: str) -> Codes:
        """Compute the integers that `encode` returns."""
        if name not in self.parser.names:
            return _encode(read_ids(self.cells[name], self.parser))
        column = self.parser.names.index(name)
        if self.table.kinds[column] == "category":
            return _encode(self.table.categories(column))
        cells = self.cells[name]
        if pa.types.is_integer(cells.type) or pa.types.is_temporal(cells.type):
            return _encode(cells.combine_chunks())  # float64 has not all of their digits
        values = self.table.numbers([column])[:, 0] + 0.0  # -0.0 becomes 0.0
        codes = np.unique(values, return_inverse=True)[1]
        is_large = find_large(values)
        if is_large.any():
            texts = _encode(read_exact_texts(cells.combine_chunks()))
            pairs = np.stack([codes, np.where(is_large, texts, -1)])
            codes = np.unique(pairs, axis=1, return_inverse=True)[1].ravel()
        return codes.astype(np.int32)

    def split(self, groups: RowGroups, names: list[str]) -> RowGroups:
        """Return the groups of rows that are equal in the columns `names`, within `groups`."""
        indices, firsts = self.find(groups.rows), self.find(groups.firsts)[groups.labels]
        codes = map(self.encode, names)
        differing = [each for each in codes if (each[indices] != each[firsts]).any()]
        if not differing:
            return groups
        labels = groups.labels
        for each in differing:
            pairs = np.stack([labels, each[indices]])
            labels = np.unique(pairs, axis=1, return_inverse=True)[1].ravel()
        # Rows of a group are ascending, but groups are not.
        order = np.argsort(groups.rows, kind="stable")
        return find_groups(labels[order], groups.rows[order])

    def format_ids(self, rows: Rows) -> tuple[tuple[str, ...], ...]:
        """Return the formatted ids of rows."""
        ids = [self._list(name, rows, format_id) for name in self.selected.ids]
        return tuple(zip(*ids, strict=True)) if ids else ((),) * len(rows)

    def format_column(self, name: str, rows: Rows) -> tuple[str, ...]:
        """Return the formatted values of a column in some rows."""
        return tuple(self._list(name, rows, lambda value: format_value(value, digits=None)))

    def _list(self, name: str, rows: Rows, convert: Any) -> list[str]:  # noqa: ANN401
        """Return the converted values of a column in some rows."""
        cells = list_values(self.cells[name].take(pa.array(self.find(rows))))
        return [convert(value) for value in cells]


def read_candidates(
    source: Source, parser: ColumnParser, selected: SelectedColumns, rows: Rows
) -> CandidateRows:
    """Read the values of some rows, given by their ascending numbers."""
    cells = read_rows(source, selected, rows)
    return CandidateRows(rows, cells, parser.parse(cells, 0), parser, selected)


def _encode(values: pa.Array) -> Codes:
    """Return the index of each value among the distinct ones; -1 for missing values."""
    indices = values.dictionary_encode().indices
    found: Codes = pc.fill_null(indices, -1).to_numpy().astype(np.int32)
    return found
