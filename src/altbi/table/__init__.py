"""Tables: typed columns over arrays, data frames and Arrow, and the sample that training sees."""

from altbi.table.arrays import Matrix
from altbi.table.arrow import ArrowTable
from altbi.table.base import Kind, Table, Writing
from altbi.table.convert import as_table, is_frame
from altbi.table.sample import row_keys, sample_rows

__all__ = [
    "ArrowTable",
    "Kind",
    "Matrix",
    "Table",
    "Writing",
    "as_table",
    "is_frame",
    "row_keys",
    "sample_rows",
]
