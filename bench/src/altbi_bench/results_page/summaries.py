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

__all__ = ["PageRecords", "compute_costs", "format_summary", "format_tables"]


@final
@dataclass(frozen=True, slots=True)
class PageRecords:
    """All current runs of a folder, and a link to the record of each."""

    runs: list[Run]
    links: Mapping[Job, str]

    @classmethod
    def read(cls, folder: Path, linked_from: Path, *, allow_empty: bool = False) -> "PageRecords":
        """Read the records of all protocols in a folder; links are relative to `linked_from`.

        A folder without runs raises an error, unless it may be empty.
        """
        if not folder.is_dir():
            raise TableError(
                f"{folder}: not a folder. Pass the folder with the records of all protocols with "
                "--records."
            )
        runs: list[Run] = []
        links: dict[Job, str] = {}
        for protocol in PROTOCOLS:
            path = folder / f"{protocol}.jsonl"
            found = read_runs(path)
            kept = keep_current(found)
            runs += kept
            where = Path(os.path.relpath(path, linked_from)).as_posix()
            numbers = {id(run): number for number, run in enumerate(found, 1)}
            links |= {run.job: f"{where}#L{numbers[id(run)]}" for run in kept}
        if not (runs or allow_empty):
            raise TableError(f"{folder}: no records of runs. `altbi-bench run` writes them.")
        return cls(runs, links)


def format_summary(
    records: PageRecords, select_columns: Callable[[PageRecords, str], Comparison]
) -> list[str]:
    """Format a table of means, ranks, seconds and memory over the shared data sets."""
    found = select_columns(records, "auc")
    shared = [each.dataset for each in shared_means(found)[0]]
    if len(shared) < 2 or len(found.systems) < 2:
        return []
    means = {metric: _means(select_columns(records, metric), shared) for metric in METRICS}
    ranks = mean_ranks(found.scores)
    by_precision = mean_ranks(select_columns(records, "average_precision").scores)
    seconds, peaks = compute_costs(records, found)
    head = ["system", *METRICS.values(), "mean rank", "by average precision"]
    head += ["median seconds", "peak MiB", "data sets"]
    body = [
        [
            name,
            *(format_number(means[metric].get(name)) for metric in METRICS),
            f"{ranks[name]:.2f}",
            f"{by_precision[name]:.2f}",
            f"{seconds[name]:.2f}",
            f"{peaks[name]:.0f}" if name in peaks else MISSING,
            f"{len(found.scores[name])} of {len(found.results)}",
        ]
        for name in sorted(ranks, key=ranks.__getitem__)
    ]
    about = (
        f"Means, ranks, seconds and memory over the {len(shared)} data sets that all "
        f"{len(found.systems)} ran:"
    )
    return [about, markdown_grid([head, *body])]


def _means(found: Comparison, datasets: Sequence[Dataset]) -> dict[str, float]:
    """Return the mean of each system that has all data sets."""
    results = found.only(datasets).results
    return {
        name: statistics.fmean(values)
        for name in found.systems
        if len(values := [cell.mean for each in results if (cell := each.ours[name])])
        == len(results)
    }


def compute_costs(
    records: PageRecords, main: Comparison
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the median seconds and the highest peak memory over the shared data sets."""
    last = keep_latest(records.runs)
    shared = shared_means(main)[0]
    seconds: dict[str, float] = {}
    peaks: dict[str, float] = {}
    for name in main.systems:
        runs = [last[job] for each in shared if (cell := each.ours[name]) for job in cell.jobs]
        seconds[name] = statistics.median(run.seconds for run in runs)
        known = [run.peak_mib for run in runs if run.peak_mib is not None]
        peaks |= {name: max(known)} if known else {}
    return seconds, peaks


def format_tables(
    records: PageRecords,
    select_columns: Callable[[PageRecords, str], Comparison],
    metrics: Sequence[str],
) -> list[str]:
    """Format a table for each metric, with the systems that ran on any of the data sets."""
    sections = []
    for metric in metrics:
        found = select_columns(records, metric).drop_empty_systems()
        if not (found.results and found.systems):
            return ["No records yet."]
        sections += [f"### {METRICS[metric]}", markdown_grid(format_cells(found, records.links))]
        sections += format_differences(found, markdown_grid)
    return sections
