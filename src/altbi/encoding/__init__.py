"""Encode the columns of a table as numbers, and decode them again."""

from altbi.encoding._column import (
    CATEGORY_WEIGHT,
    MAX_COLUMNS,
    MISSING_WEIGHT,
    OTHER,
    Column,
    EncoderState,
    validate_state,
)
from altbi.encoding._column_roles import ColumnRole, is_special
from altbi.encoding._declared import Bounds, declare_column, declare_columns
from altbi.encoding._encoder import LIMIT, TableEncoder
from altbi.encoding._role_inference import infer_roles
from altbi.encoding._stated_roles import (
    ROLE_NAMES,
    StatedRole,
    check_stated_names,
    list_texts,
    parse_roles,
)
from altbi.encoding._values import MAX_STANDARDIZED, Drift

__all__ = [
    "CATEGORY_WEIGHT",
    "LIMIT",
    "MAX_COLUMNS",
    "MAX_STANDARDIZED",
    "MISSING_WEIGHT",
    "OTHER",
    "ROLE_NAMES",
    "Bounds",
    "Column",
    "ColumnRole",
    "Drift",
    "EncoderState",
    "StatedRole",
    "TableEncoder",
    "check_stated_names",
    "declare_column",
    "declare_columns",
    "infer_roles",
    "is_special",
    "list_texts",
    "parse_roles",
    "validate_state",
]
