"""Figures of the page, and the records behind them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from altbi_bench.results_page.summaries import PageRecords
from altbi_bench.runs.records import Run, read_records, read_runs
from altbi_bench.traces.records import current_traces, read_traces
from altbi_bench.traces.trace import Trace

__all__ = ["ABLATION", "PRIVACY", "RUN_ABLATION", "TRACES", "Figure", "FigureRecords"]

ABLATION, TRACES, PRIVACY = "ablation.jsonl", "traces.jsonl", "privacy.jsonl"
RUN_ABLATION = "`altbi-bench ablation`"


@final
@dataclass(frozen=True, slots=True)
class FigureRecords:
    """The records behind the figures."""

    page: PageRecords
    variants: list[Run]
    traces: list[Trace]
    private: list[dict[str, Any]]

    @classmethod
    def read(cls, folder: Path) -> "FigureRecords":
        """Read a folder of records."""
        return cls(
            PageRecords.read(folder, folder, allow_empty=True),
            read_runs(folder / ABLATION),
            current_traces(read_traces(folder / TRACES)),
            [
                each
                for each in read_records(folder / PRIVACY, _parse_private)
                if each["kind"] == "auc"
            ],
        )


@final
@dataclass(frozen=True, slots=True)
class Figure:
    """A figure with its text, command and file of records; without SVG if runs are missing."""

    name: str
    title: str
    svg: str | None
    text: str
    command: str
    records: str


def _parse_private(text: bytes) -> dict[str, Any]:
    """Parse a record of bench/scripts/privacy.py."""
    found = json.loads(text)
    if not isinstance(found, dict) or not isinstance(found.get("kind"), str):
        raise TypeError("expected an object with a kind")
    if found["kind"] == "auc":
        texts = isinstance(found.get("table"), str) and isinstance(found.get("setting"), str)
        if not texts or type(found.get("seed")) is not int:
            raise TypeError("table and setting must be texts, seed a whole number")
        if not isinstance(found.get("auc"), float | None):
            raise TypeError("auc must be a number or null")
    return found
