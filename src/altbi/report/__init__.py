"""The report: a summary of plain values, and a self-contained HTML page. Loads no torch."""

from altbi.report._page import render
from altbi.report._summary import (
    ColumnFact,
    DuplicateGroup,
    Duplicates,
    Metrics,
    Privacy,
    ReasonFact,
    Summary,
    TopRow,
)

__all__ = [
    "ColumnFact",
    "DuplicateGroup",
    "Duplicates",
    "Metrics",
    "Privacy",
    "ReasonFact",
    "Summary",
    "TopRow",
    "render",
]
