"""Encode the columns of a table as numbers, and decode them again."""

from altbi.encoding._column import CATEGORY_WEIGHT, MISSING_WEIGHT, OTHER, Column
from altbi.encoding._declared import Bounds, declare_column, declare_columns
from altbi.encoding._encoder import LIMIT, TableEncoder
from altbi.encoding._values import Drift

__all__ = [
    "CATEGORY_WEIGHT",
    "LIMIT",
    "MISSING_WEIGHT",
    "OTHER",
    "Bounds",
    "Column",
    "Drift",
    "TableEncoder",
    "declare_column",
    "declare_columns",
]
