"""Whole jobs on files: two passes, what they found, and what is written of it."""

from altbi.jobs.choice import Choice, Chosen
from altbi.jobs.findings import Findings
from altbi.jobs.passes import Scan, Watch, unwatched
from altbi.jobs.run import Destination, Job, Ready

__all__ = [
    "Choice",
    "Chosen",
    "Destination",
    "Findings",
    "Job",
    "Ready",
    "Scan",
    "Watch",
    "unwatched",
]
