"""Explanations: contributions that add up to the score, expected values, similar normal rows."""

from altbi.explain._explain import explain
from altbi.explain._explanation import Explanation, Reason

__all__ = ["Explanation", "Reason", "explain"]
