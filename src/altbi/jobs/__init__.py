"""Whole jobs on files: two passes, what they found, and what is written of it."""

from altbi.jobs.choice import Choice, Chosen
from altbi.jobs.findings import Findings, reasons_table
from altbi.jobs.passes import Scan, Watch, unwatched
from altbi.jobs.run import Destination, Job, Ready, can_report, require_report
from altbi.jobs.words import cell_text, number_text

__all__ = [
    "Choice",
    "Chosen",
    "Destination",
    "Findings",
    "Job",
    "Ready",
    "Scan",
    "Watch",
    "can_report",
    "cell_text",
    "number_text",
    "reasons_table",
    "require_report",
    "unwatched",
]
