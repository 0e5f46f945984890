"""Tables in memory: typed columns over arrays, data frames and Arrow, and the training sample."""

from altbi.table._convert import as_arrow_table, as_table, is_frame
from altbi.table._sampling import row_keys, sample_rows
from altbi.table._table import ArrowTable, Kind, Matrix, Table, TextConventions

__all__ = [
    "ArrowTable",
    "Kind",
    "Matrix",
    "Table",
    "TextConventions",
    "as_arrow_table",
    "as_table",
    "is_frame",
    "row_keys",
    "sample_rows",
]
