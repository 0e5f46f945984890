"""Compare records with the paper: numbers, means and differences, as pure functions."""

import csv
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import final

from altbi.errors import ParameterError
from altbi_bench.catalogue.datasets import Dataset, catalogue, n_files
from altbi_bench.catalogue.protocols import find_protocol
from altbi_bench.catalogue.systems import SYSTEMS, System, find_systems
from altbi_bench.runs.records import Job, Run, keep_latest
from altbi_bench.runs.runner import Question, keep_current

__all__ = [
    "METRICS",
    "PAPER_METRICS",
    "Cell",
    "Comparison",
    "Difference",
    "Line",
    "compare",
    "difference",
    "find_failures",
    "is_compared",
    "paper_table",
    "shared_means",
]

METRICS = {
    "auc": "AUC",
    "average_precision": "Average precision",
    "precision_at_n": "Precision at n",
}
# The paper's tables: B.2 to B.5.
PAPER_METRICS = ("auc", "average_precision")
SETTINGS = ("unsupervised", "semisupervised")


@final
@dataclass(frozen=True, slots=True)
class Cell:
    """One system on one data set.

    Parameters
    ----------
    mean : float
        Mean over seeds, then over the files of the data set.
    std : float or None
        Sample standard deviation over seeds, averaged over the files; None where the seed changes
        nothing or there is only one.
    jobs : tuple of Job
        What it was made of.
    """

    mean: float
    std: float | None
    jobs: tuple[Job, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Line:
    """One data set: our numbers by system, None if runs are missing, and the paper's numbers."""

    dataset: Dataset
    n_parts: int
    ours: Mapping[str, Cell | None]
    paper: Mapping[str, float | None]

    @property
    def n_files(self) -> int:
        """Number of all files of the data set."""
        return n_files(self.dataset)

    @property
    def is_whole(self) -> bool:
        """Whether all files of the data set were run: the paper's number is about all."""
        return self.n_parts == self.n_files

    @property
    def title(self) -> str:
        """Name of the data set, with the number of files if not all were run."""
        of = f", {self.n_parts} of {self.n_files} files"
        return self.dataset.label + ("" if self.is_whole else of)


@final
@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric of all systems and data sets, in the paper's order."""

    metric: str
    question: Question
    systems: tuple[str, ...]
    lines: tuple[Line, ...]

    def only(self, datasets: Sequence[Dataset]) -> "Comparison":
        """Return the comparison on some data sets."""
        lines = tuple(line for line in self.lines if line.dataset in datasets)
        return Comparison(self.metric, self.question, self.systems, lines)

    def that_ran(self) -> "Comparison":
        """Return the comparison without systems that have no number."""
        ran = tuple(name for name in self.systems if any(line.ours[name] for line in self.lines))
        return Comparison(self.metric, self.question, ran, self.lines)

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """Means by system and data set, where there are any."""
        return {
            name: {
                line.dataset.label: cell.mean
                for line in self.lines
                if (cell := line.ours[name]) is not None
            }
            for name in self.systems
        }


@final
@dataclass(frozen=True, slots=True)
class Difference:
    """Differences of a system of ours from its column in the paper, ours minus theirs.

    `spread` is the mean standard deviation over seeds.
    """

    n_tables: int
    mean_absolute: float
    mean_signed: float
    ours: float
    paper: float
    largest: tuple[str, float]
    spread: float | None


@cache
def paper_table(metric: str, setting: str = "unsupervised") -> dict[str, dict[str, float]]:
    """Read the paper's results in one of its settings: data set -> method -> number."""
    if metric not in PAPER_METRICS or setting not in SETTINGS:
        raise ParameterError(
            f"The paper has no table of {metric!r} in the setting {setting!r}. "
            f"Expected one of {', '.join(PAPER_METRICS)} in one of {', '.join(SETTINGS)}."
        )
    source = resources.files("altbi_bench") / "paper" / f"{metric}_{setting}.csv"
    with source.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    return {row.pop("dataset"): {name: float(cell) for name, cell in row.items()} for row in rows}


def compare(
    runs: Iterable[Run],
    metric: str,
    question: Question,
    systems: Sequence[System] | None = None,
    datasets: Sequence[Dataset] | None = None,
) -> Comparison:
    """Compare runs with the paper's numbers; without systems, all that have a number.

    Of data sets, those files count that they have here; without them, all.
    """
    last = keep_latest(keep_current(runs))
    chosen = find_systems() if systems is None else list(systems)
    files = {job.file for job in last}
    lines = [
        line
        for dataset in (catalogue() if datasets is None else datasets)
        if any(part.file in files for part in dataset.parts)
        and (line := _line(dataset, chosen, last, metric, question)) is not None
    ]
    named = [
        system.name
        for system in chosen
        if systems is not None or any(line.ours[system.name] for line in lines)
    ]
    return Comparison(metric, question, tuple(named), tuple(lines))


def _line(
    dataset: Dataset,
    systems: Sequence[System],
    last: Mapping[Job, Run],
    metric: str,
    question: Question,
) -> Line | None:
    """Return the line of a data set, computed from the files that count."""
    asked = [[question.list_jobs(part, system) for system in systems] for part in dataset.parts]
    ran = _select_counted(asked, last)
    if not ran:
        return None
    cells = [_cell(by_file, last, metric) for by_file in zip(*ran, strict=True)]
    return Line(
        dataset,
        n_parts=len(ran),
        ours=dict(zip([system.name for system in systems], cells, strict=True)),
        paper={system.name: _paper(dataset, system, metric, question) for system in systems},
    )


def _select_counted(
    asked: Sequence[list[list[Job]]], last: Mapping[Job, Run]
) -> list[list[list[Job]]]:
    """Return the jobs of files on which at least half of the data set's systems have runs.

    One that few have begun with would take its number away from all others.
    """
    begun = [
        (by_system, {place for place, jobs in enumerate(by_system) if any(j in last for j in jobs)})
        for by_system in asked
    ]
    n_systems = len(set().union(*(systems for _, systems in begun)))
    by_half = [jobs for jobs, systems in begun if 2 * len(systems) >= max(n_systems, 1)]
    return by_half or [jobs for jobs, systems in begun if systems]


def _cell(by_file: Sequence[list[Job]], last: Mapping[Job, Run], metric: str) -> Cell | None:
    """Average over seeds, then over files; None if a run is missing or failed."""
    jobs = tuple(job for each in by_file for job in each)
    # A mean over fewer seeds or files than asked for would be a silent gap.
    if any(job not in last or getattr(last[job], metric) is None for job in jobs):
        return None
    values = [[float(getattr(last[job], metric)) for job in each] for each in by_file]
    spreads = [statistics.stdev(each) for each in values if len(each) > 1]
    return Cell(
        mean=statistics.fmean(map(statistics.fmean, values)),
        std=statistics.fmean(spreads) if spreads else None,
        jobs=jobs,
    )


def _paper(dataset: Dataset, system: System, metric: str, question: Question) -> float | None:
    """Return the paper's number, if it has one for these files."""
    setting = find_protocol(question.protocol).setting
    column = system.paper_column(setting)
    if column is None or metric not in PAPER_METRICS or not dataset.is_column_of(column):
        return None
    return paper_table(metric, setting)[dataset.name].get(column)


def shared_means(comparison: Comparison) -> tuple[list[Line], dict[str, float]]:
    """Average each system over the data sets that all compared systems ran."""
    shared = [
        line for line in comparison.lines if all(line.ours[name] for name in comparison.systems)
    ]
    if not shared or not comparison.systems:
        return [], {}
    return shared, {
        name: statistics.fmean(cell.mean for line in shared if (cell := line.ours[name]))
        for name in comparison.systems
    }


def is_compared(comparison: Comparison, line: Line, system: str) -> bool:
    """Return whether the paper's number is for the same rows and from this protocol."""
    cell = line.ours[system]
    if cell is None or any(job.rows is not None for job in cell.jobs) or not line.is_whole:
        return False
    protocol, own = find_protocol(comparison.question.protocol), SYSTEMS[system].scales_itself
    return protocol.is_that_of(own, comparison.metric, line.dataset.kind)


def difference(comparison: Comparison, system: str) -> Difference | None:
    """Measure ours minus the paper's over the data sets that have both, with all their rows.

    None where the paper's column comes from another protocol.
    """
    pairs = [
        (line.dataset.label, cell, paper)
        for line in comparison.lines
        if is_compared(comparison, line, system)
        and (cell := line.ours[system]) is not None
        and (paper := line.paper.get(system)) is not None
    ]
    if not pairs:
        return None
    gaps = {name: cell.mean - paper for name, cell, paper in pairs}
    spreads = [cell.std for _, cell, _ in pairs if cell.std is not None]
    largest = max(gaps, key=lambda name: abs(gaps[name]))
    return Difference(
        n_tables=len(pairs),
        mean_absolute=statistics.fmean(map(abs, gaps.values())),
        mean_signed=statistics.fmean(gaps.values()),
        ours=statistics.fmean(cell.mean for _, cell, _ in pairs),
        paper=statistics.fmean(paper for _, _, paper in pairs),
        largest=(largest, gaps[largest]),
        spread=statistics.fmean(spreads) if spreads else None,
    )


def find_failures(
    runs: Iterable[Run],
    question: Question,
    systems: Sequence[System],
    datasets: Sequence[Dataset],
) -> list[Run]:
    """Return the runs of a question that failed last."""
    last = keep_latest(keep_current(runs))
    return [
        last[job]
        for dataset in datasets
        for part in dataset.parts
        for system in systems
        for job in question.list_jobs(part, system)
        if job in last and last[job].error is not None
    ]
