"""What a person who must decide gets to see: facts, then their look, as one page."""

from altbi.report.facts import Clue, ColumnFact, Metrics, Privacy, Step, Summary, TopRow
from altbi.report.page import can_report, render, require_report
from altbi.report.words import cell_text, holds_text, number_text

__all__ = [
    "Clue",
    "ColumnFact",
    "Metrics",
    "Privacy",
    "Step",
    "Summary",
    "TopRow",
    "can_report",
    "cell_text",
    "holds_text",
    "number_text",
    "render",
    "require_report",
]
