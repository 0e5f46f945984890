"""Rows that occur more than once in a table, and repeated identifiers."""

from altbi.duplicates._check import MAX_ROWS, find_duplicates
from altbi.duplicates._table import build_duplicates_table, describe_duplicates

__all__ = ["MAX_ROWS", "build_duplicates_table", "describe_duplicates", "find_duplicates"]
