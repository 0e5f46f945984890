"""The report: facts as plain values, then one self-contained HTML page."""

from altbi.report._facts import ColumnFact, Metrics, Privacy, ReasonFact, Summary, TopRow
from altbi.report._page import can_report, render, require_report

__all__ = [
    "ColumnFact",
    "Metrics",
    "Privacy",
    "ReasonFact",
    "Summary",
    "TopRow",
    "can_report",
    "render",
    "require_report",
]
