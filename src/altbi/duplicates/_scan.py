"""Read a table once, and keep a hash of each value."""

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from typing import final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from altbi._threads import map_ahead
from altbi.duplicates._hashes import Hashes, hash_column, hash_texts, mix
from altbi.encoding import Column
from altbi.io import ColumnParser, ProgressCallback, SelectedColumns, Source, prefetch
from altbi.io._text_formats import mask_missing


@final
@dataclass(frozen=True, slots=True)
class HashedTable:
    """The hashes of the first rows of a table."""

    columns: tuple[str, ...]  # compared columns
    hashes: Hashes  # (n_columns, n_rows); differ between columns for equal values
    identifiers: tuple[str, ...]  # identifiers of the model, then those that the user named
    identifier_hashes: Hashes  # (n_identifiers, n_rows); `MISSING` without a value

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.identifier_hashes.shape[1]

    @property
    def row_hashes(self) -> Hashes:
        """The sum of the hashes of each row's values in all compared columns, modulo 2**64."""
        found: Hashes = self.hashes.sum(axis=0, dtype=np.uint64)
        return found


def hash_table(
    source: Source,
    parser: ColumnParser,
    selected: SelectedColumns,
    columns: tuple[Column, ...],
    n_rows: int,
    on_progress: ProgressCallback,
) -> HashedTable:
    """Hash the values of the first `n_rows` rows of a table, which must have as many.

    `columns` are those of the model, in the order of the features.
    """
    found = [index for index, column in enumerate(columns) if _is_identifier(column, columns)]
    compared = [index for index in range(len(columns)) if index not in set(found)]
    others = [name for name in selected.ids if name not in selected.features]

    def hash_batch(numbered: tuple[int, pa.RecordBatch]) -> tuple[int, Hashes, Hashes]:
        """Hash a batch, given with the number of its first row."""
        first_row, batch = numbered
        table = parser.parse(batch, first_row)
        cells = [batch.column(name) for name in selected.features]
        hashes = [mix(hash_column(table, index, cells[index]), 1 + index) for index in compared]
        ids = [hash_column(table, index, cells[index]) for index in found]
        ids += [_hash_ids(batch.column(name), parser) for name in others]
        shape = (-1, len(batch))
        return first_row, np.reshape(hashes, shape), np.reshape(ids, shape)

    hashes = np.empty((len(compared), n_rows), dtype=np.uint64)
    identifier_hashes = np.empty((len(found) + len(others), n_rows), dtype=np.uint64)
    names = list(dict.fromkeys((*selected.features, *selected.ids)))
    with closing(_read_first(source, names, n_rows)) as batches:
        hashed = map_ahead(hash_batch, batches)
        for first_row, rows, ids in on_progress(
            "duplicates", hashed, n_rows, lambda item: item[1].shape[1]
        ):
            chunk = slice(first_row, first_row + rows.shape[1])
            hashes[:, chunk], identifier_hashes[:, chunk] = rows, ids
    return HashedTable(
        columns=tuple(selected.features[index] for index in compared),
        hashes=hashes,
        identifiers=(*(selected.features[index] for index in found), *others),
        identifier_hashes=identifier_hashes,
    )


def _is_identifier(column: Column, columns: tuple[Column, ...]) -> bool:
    """Return whether a column is an identifier, or a copy of one."""
    if column.role is None:
        return False
    if column.role.duplicate_of is not None:
        return _is_identifier(columns[column.role.duplicate_of], columns)
    return column.role.role == "identifier"


def _read_first(
    source: Source, names: list[str], n_rows: int
) -> Generator[tuple[int, pa.RecordBatch], None, None]:
    """Yield the batches of the first `n_rows` rows, each with the number of its first row."""
    first_row = 0
    for batch in prefetch(source.batches(names)):
        yield first_row, batch.slice(0, n_rows - first_row)
        first_row += len(batch)
        if first_row >= n_rows:
            return


def _hash_ids(values: pa.Array, parser: ColumnParser) -> Hashes:
    """Return the hashes of an id column; empty texts are missing, as are types without a text."""
    return hash_texts(read_ids(values, parser))


def read_ids(values: pa.Array | pa.ChunkedArray, parser: ColumnParser) -> pa.Array:
    """Return an id column as texts or bytes, with null for missing values and empty texts."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    is_bytes = pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)
    if is_bytes or pa.types.is_fixed_size_binary(values.type):
        return values.cast(pa.large_binary())
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    try:
        texts = mask_missing(values, parser.missing.array).cast(pa.large_string())
    except pa.ArrowException:  # lists, records and the like
        return pa.nulls(len(values), pa.large_string())
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts)
