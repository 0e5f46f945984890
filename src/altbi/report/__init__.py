"""What a person who must decide gets to see: facts, then their look, as one page."""

from altbi.report.facts import Clue, ColumnFact, Metrics, Step, Summary, TopRow
from altbi.report.page import render

__all__ = ["Clue", "ColumnFact", "Metrics", "Step", "Summary", "TopRow", "render"]
