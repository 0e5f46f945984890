"""What figures are made of, and what one is."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from altbi.bench.lines import Run, parsed, read
from altbi.bench.parts import Evidence
from altbi.bench.traces import Trace, read_traces

__all__ = ["ABLATION", "PRIVACY", "RUN_ABLATION", "TRACES", "Figure", "Lines"]

ABLATION, TRACES, PRIVACY = "ablation.jsonl", "traces.jsonl", "privacy.jsonl"
RUN_ABLATION = "`altbi bench ablation`"


@final
@dataclass(frozen=True, slots=True)
class Lines:
    """All that figures are made of."""

    evidence: Evidence
    variants: list[Run]
    traces: list[Trace]
    private: list[dict[str, Any]]

    @classmethod
    def of(cls, folder: Path) -> "Lines":
        """Read a folder of lines."""
        return cls(
            Evidence.of(folder),
            read(folder / ABLATION),
            read_traces(folder / TRACES),
            parsed(folder / PRIVACY, json.loads),
        )


@final
@dataclass(frozen=True, slots=True)
class Figure:
    """A picture, if its runs are there, what stands under it, and where it comes from."""

    name: str
    title: str
    svg: str | None
    text: str
    command: str
    lines: str
