"""Explanations: contributions that add up to the score, expected values, similar normal rows."""

from altbi.explain._cells import CellExplainer, CellReason
from altbi.explain._explanation import Explanation, Reason, explain

__all__ = ["CellExplainer", "CellReason", "Explanation", "Reason", "explain"]
