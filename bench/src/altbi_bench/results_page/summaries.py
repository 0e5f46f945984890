"""The records behind the page of results, and summary tables of them."""

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from altbi.errors import TableError
from altbi_bench.catalogue.datasets import Dataset
from altbi_bench.catalogue.protocols import PROTOCOLS
from altbi_bench.runs.records import Job, Run, keep_latest, read_runs
from altbi_bench.runs.runner import keep_current
from altbi_bench.statistics import mean_ranks
from altbi_bench.tables.comparison import METRICS, Comparison, shared_means
from altbi_bench.tables.formatting import MISSING, format_cells, format_differences, format_number
from altbi_bench.tables.grids import markdown_grid

__all__ = ["Evidence", "compute_costs", "format_summary", "format_tables"]


@final
@dataclass(frozen=True, slots=True)
class Evidence:
    """All current runs of a folder, and the link to each from another folder."""

    runs: list[Run]
    places: Mapping[Job, str]

    @classmethod
    def of(cls, folder: Path, seen_from: Path, *, may_lack: bool = False) -> "Evidence":
        """Read the file of each protocol in a folder, for links from another folder.

        Unless they may lack, there must be runs.
        """
        if not folder.is_dir():
            raise TableError(
                f"{folder}: expected a folder with the lines of all protocols, of which the page "
                "is made. Pass one with --records."
            )
        runs: list[Run] = []
        places: dict[Job, str] = {}
        for protocol in PROTOCOLS:
            path = folder / f"{protocol}.jsonl"
            found = read_runs(path)
            kept = keep_current(found)
            runs += kept
            where = Path(os.path.relpath(path, seen_from)).as_posix()
            numbers = {id(run): line for line, run in enumerate(found, 1)}
            places |= {run.job: f"{where}#L{numbers[id(run)]}" for run in kept}
        if not (runs or may_lack):
            raise TableError(f"{folder}: no lines of runs there. `altbi-bench run` writes them.")
        return cls(runs, places)


def format_summary(
    evidence: Evidence, select_columns: Callable[[Evidence, str], Comparison]
) -> list[str]:
    """Means over the shared data sets, ranks, seconds and how many data sets were run."""
    found = select_columns(evidence, "auc")
    shared = [line.dataset for line in shared_means(found)[0]]
    if len(shared) < 2 or len(found.systems) < 2:
        return []
    means = {metric: _means(select_columns(evidence, metric), shared) for metric in METRICS}
    ranks = mean_ranks(found.scores)
    by_precision = mean_ranks(select_columns(evidence, "average_precision").scores)
    seconds, memory = compute_costs(evidence, found)
    head = ["system", *METRICS.values(), "mean rank", "by average precision"]
    head += ["median seconds", "peak MiB", "data sets"]
    body = [
        [
            name,
            *(format_number(means[metric].get(name)) for metric in METRICS),
            f"{ranks[name]:.2f}",
            f"{by_precision[name]:.2f}",
            f"{seconds[name]:.2f}",
            f"{memory[name]:.0f}" if name in memory else MISSING,
            f"{len(found.scores[name])} of {len(found.lines)}",
        ]
        for name in sorted(ranks, key=ranks.__getitem__)
    ]
    about = (
        f"Means, ranks, seconds and memory over the {len(shared)} data sets that all "
        f"{len(found.systems)} ran:"
    )
    return [about, markdown_grid([head, *body])]


def _means(found: Comparison, datasets: Sequence[Dataset]) -> dict[str, float]:
    """Average each system that has all of the data sets."""
    lines = found.only(datasets).lines
    return {
        name: statistics.fmean(values)
        for name in found.systems
        if len(values := [cell.mean for line in lines if (cell := line.ours[name])]) == len(lines)
    }


def compute_costs(
    evidence: Evidence, main: Comparison
) -> tuple[dict[str, float], dict[str, float]]:
    """Median seconds of fit and scoring over the shared data sets, and the highest memory."""
    last = keep_latest(evidence.runs)
    shared = shared_means(main)[0]
    seconds: dict[str, float] = {}
    memory: dict[str, float] = {}
    for name in main.systems:
        runs = [last[job] for line in shared if (cell := line.ours[name]) for job in cell.jobs]
        seconds[name] = statistics.median(run.seconds for run in runs)
        held = [run.peak_mib for run in runs if run.peak_mib is not None]
        memory |= {name: max(held)} if held else {}
    return seconds, memory


def format_tables(
    evidence: Evidence,
    select_columns: Callable[[Evidence, str], Comparison],
    metrics: Sequence[str],
) -> list[str]:
    """Format a table for each metric, with the systems that ran on any of the data sets."""
    parts = []
    for metric in metrics:
        found = select_columns(evidence, metric).that_ran()
        if not (found.lines and found.systems):
            return ["No lines yet."]
        parts += [f"### {METRICS[metric]}", markdown_grid(format_cells(found, evidence.places))]
        parts += format_differences(found, markdown_grid)
    return parts
