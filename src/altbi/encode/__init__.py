"""Columns to numbers in [0, 1], and back to the columns' own terms; the state is plain JSON."""

from altbi.encode.column import LEVEL_WEIGHT, MISSING_WEIGHT, OTHER, Column
from altbi.encode.declared import Bounds, declared_column, declared_columns
from altbi.encode.encoder import TableEncoder
from altbi.encode.layout import LIMIT
from altbi.encode.surprises import Surprises

__all__ = [
    "LEVEL_WEIGHT",
    "LIMIT",
    "MISSING_WEIGHT",
    "OTHER",
    "Bounds",
    "Column",
    "Surprises",
    "TableEncoder",
    "declared_column",
    "declared_columns",
]
