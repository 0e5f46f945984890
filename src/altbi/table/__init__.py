"""Tables: typed columns over arrays, data frames and Arrow, and the sample that training sees."""

from altbi.table._arrays import Matrix
from altbi.table._arrow import ArrowTable
from altbi.table._convert import as_table, is_frame
from altbi.table._sampling import row_keys, sample_rows
from altbi.table._table import Kind, Table, TextConventions

__all__ = [
    "ArrowTable",
    "Kind",
    "Matrix",
    "Table",
    "TextConventions",
    "as_table",
    "is_frame",
    "row_keys",
    "sample_rows",
]
