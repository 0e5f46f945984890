"""Tables in memory as sources, so that they take the same path as files."""

from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np
import pyarrow as pa

from altbi.errors import TableError
from altbi.io._source import BATCH_ROWS, Source
from altbi.table import is_frame
from altbi.table._arrow import as_arrow_table

__all__ = ["MemorySource", "open_in_memory"]


@final
class MemorySource(Source):
    """A pyarrow table in memory.

    Parameters
    ----------
    table : pyarrow.Table
        The table.
    """

    format = "arrow"

    def __init__(self, table: pa.Table) -> None:
        self.name = "the table"
        self.paths = ()
        self.schema = table.schema
        self.n_rows = len(table)
        self.notes = []
        self._table = table

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield these columns in chunks, in the order of the rows."""
        selected = self._table.select(list(columns))
        yield from selected.to_batches(max_chunksize=BATCH_ROWS)


def open_in_memory(table: Any) -> MemorySource:  # noqa: ANN401 - any table
    """Return a table in memory as a source.

    Parameters
    ----------
    table : data frame or 2D array
        pandas, polars, Arrow or NumPy. Columns of an array are called x0, x1, ...

    Returns
    -------
    MemorySource
        The source.
    """
    if is_frame(table):
        return MemorySource(as_arrow_table(table))
    array = np.asarray(table)
    if array.ndim != 2:
        raise TableError(
            f"Expected a path, a data frame or a 2D array, got a {type(table).__name__} with "
            f"{array.ndim} dimension(s)."
        )
    columns = {f"x{number}": column for number, column in enumerate(array.T)}
    return MemorySource(pa.table(columns))
