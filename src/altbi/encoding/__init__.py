"""Columns to numbers in [0, 1], and back to the columns' own terms; the state is plain JSON."""

from altbi.encoding._column import CATEGORY_WEIGHT, MISSING_WEIGHT, OTHER, Column
from altbi.encoding._declared import Bounds, declared_column, declared_columns
from altbi.encoding._drift import Drift
from altbi.encoding._encoder import TableEncoder
from altbi.encoding._layout import LIMIT

__all__ = [
    "CATEGORY_WEIGHT",
    "LIMIT",
    "MISSING_WEIGHT",
    "OTHER",
    "Bounds",
    "Column",
    "Drift",
    "TableEncoder",
    "declared_column",
    "declared_columns",
]
