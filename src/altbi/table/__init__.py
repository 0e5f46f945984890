"""Tables in memory: typed columns over arrays, data frames and Arrow, and the training sample."""

from altbi.table._arrays import get_arrow_type, to_arrow
from altbi.table._python_values import list_values
from altbi.table._sampling import (
    RowSampler,
    compute_largest_sample_key,
    compute_row_keys,
    sample_rows,
)
from altbi.table._table import (
    ArrowTable,
    Kind,
    Matrix,
    Table,
    TextConventions,
    as_arrow_table,
    as_table,
    is_frame,
)

__all__ = [
    "ArrowTable",
    "Kind",
    "Matrix",
    "RowSampler",
    "Table",
    "TextConventions",
    "as_arrow_table",
    "as_table",
    "compute_largest_sample_key",
    "compute_row_keys",
    "get_arrow_type",
    "is_frame",
    "list_values",
    "sample_rows",
    "to_arrow",
]
