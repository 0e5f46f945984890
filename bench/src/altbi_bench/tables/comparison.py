"""Comparison of records with the paper: numbers, means and differences."""

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
    "DatasetResult",
    "Difference",
    "compare",
    "difference",
    "find_failures",
    "is_comparable",
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
        Sample standard deviation over seeds, averaged over the files; None if the seed changes
        nothing, or if there is only one seed.
    jobs : tuple of Job
        Jobs of the runs that are averaged.
    """

    mean: float
    std: float | None
    jobs: tuple[Job, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class DatasetResult:
    """Numbers of one data set by system: ours, None if runs are missing, and the paper's."""

    dataset: Dataset
    n_files_run: int
    ours: Mapping[str, Cell | None]
    paper: Mapping[str, float | None]

    @property
    def n_files(self) -> int:
        """The number of all files of the data set."""
        return n_files(self.dataset)

    @property
    def is_complete(self) -> bool:
        """Whether all files of the data set were run, as in the paper."""
        return self.n_files_run == self.n_files

    @property
    def title(self) -> str:
        """The name of the data set, with the number of files if not all were run."""
        files = f", {self.n_files_run} of {self.n_files} files"
        return self.dataset.label + ("" if self.is_complete else files)


@final
@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric of all systems and data sets, in the paper's order."""

    metric: str
    question: Question
    systems: tuple[str, ...]
    results: tuple[DatasetResult, ...]

    def only(self, datasets: Sequence[Dataset]) -> "Comparison":
        """Return the comparison on some data sets."""
        results = tuple(each for each in self.results if each.dataset in datasets)
        return Comparison(self.metric, self.question, self.systems, results)

    def drop_empty_systems(self) -> "Comparison":
        """Return the comparison without the systems that have no numbers."""
        ran = tuple(
            name for name in self.systems if any(result.ours[name] for result in self.results)
        )
        return Comparison(self.metric, self.question, ran, self.results)

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """Means by system and data set; missing ones are left out."""
        return {
            name: {
                result.dataset.label: cell.mean
                for result in self.results
                if (cell := result.ours[name]) is not None
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
    with source.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {row.pop("dataset"): {name: float(cell) for name, cell in row.items()} for row in rows}


def compare(
    runs: Iterable[Run],
    metric: str,
    question: Question,
    systems: Sequence[System] | None = None,
    datasets: Sequence[Dataset] | None = None,
) -> Comparison:
    """Compare runs with the paper's numbers.

    Without systems, all that have a number. Without data sets, all. Only the files of the given
    data sets count.
    """
    last = keep_latest(keep_current(runs))
    chosen = find_systems() if systems is None else list(systems)
    files = {job.file for job in last}
    results = [
        result
        for dataset in (catalogue() if datasets is None else datasets)
        if any(each.path in files for each in dataset.files)
        and (result := _summarize_dataset(dataset, chosen, last, metric, question)) is not None
    ]
    named = [
        system.name
        for system in chosen
        if systems is not None or any(result.ours[system.name] for result in results)
    ]
    return Comparison(metric, question, tuple(named), tuple(results))


def _summarize_dataset(
    dataset: Dataset,
    systems: Sequence[System],
    last: Mapping[Job, Run],
    metric: str,
    question: Question,
) -> DatasetResult | None:
    """Return the numbers of a data set, computed from the files that count."""
    requested = [[question.list_jobs(each, system) for system in systems] for each in dataset.files]
    ran = _select_counted(requested, last)
    if not ran:
        return None
    cells = [_cell(by_file, last, metric) for by_file in zip(*ran, strict=True)]
    return DatasetResult(
        dataset,
        n_files_run=len(ran),
        ours=dict(zip([system.name for system in systems], cells, strict=True)),
        paper={system.name: _paper(dataset, system, metric, question) for system in systems},
    )


def _select_counted(
    requested: Sequence[list[list[Job]]], last: Mapping[Job, Run]
) -> list[list[list[Job]]]:
    """Return the jobs of files on which at least half of the data set's systems have runs.

    If a file with fewer runs counted, the other systems would have no number.
    """
    started = [
        (by_system, {index for index, jobs in enumerate(by_system) if any(j in last for j in jobs)})
        for by_system in requested
    ]
    n_systems = len(set().union(*(systems for _, systems in started)))
    by_half = [jobs for jobs, systems in started if 2 * len(systems) >= max(n_systems, 1)]
    return by_half or [jobs for jobs, systems in started if systems]


def _cell(by_file: Sequence[list[Job]], last: Mapping[Job, Run], metric: str) -> Cell | None:
    """Average over seeds, then over files; None if a run is missing or failed."""
    jobs = tuple(job for each in by_file for job in each)
    # A mean over fewer seeds or files than requested would hide missing runs.
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


def shared_means(comparison: Comparison) -> tuple[list[DatasetResult], dict[str, float]]:
    """Average each system over the data sets that all compared systems ran."""
    shared = [
        each for each in comparison.results if all(each.ours[name] for name in comparison.systems)
    ]
    if not shared or not comparison.systems:
        return [], {}
    return shared, {
        name: statistics.fmean(cell.mean for each in shared if (cell := each.ours[name]))
        for name in comparison.systems
    }


def is_comparable(comparison: Comparison, result: DatasetResult, system: str) -> bool:
    """Return whether the paper's number is about the same rows and this protocol."""
    cell = result.ours[system]
    if cell is None or any(job.rows is not None for job in cell.jobs) or not result.is_complete:
        return False
    protocol, own = find_protocol(comparison.question.protocol), SYSTEMS[system].scales_itself
    return protocol.is_source_of(own, comparison.metric, result.dataset.kind)


def difference(comparison: Comparison, system: str) -> Difference | None:
    """Compute our numbers minus the paper's, over complete data sets that have both.

    None if the paper's column comes from another protocol.
    """
    pairs = [
        (result.dataset.label, cell, paper)
        for result in comparison.results
        if is_comparable(comparison, result, system)
        and (cell := result.ours[system]) is not None
        and (paper := result.paper.get(system)) is not None
    ]
    if not pairs:
        return None
    differences = {name: cell.mean - paper for name, cell, paper in pairs}
    spreads = [cell.std for _, cell, _ in pairs if cell.std is not None]
    largest = max(differences, key=lambda name: abs(differences[name]))
    return Difference(
        n_tables=len(pairs),
        mean_absolute=statistics.fmean(map(abs, differences.values())),
        mean_signed=statistics.fmean(differences.values()),
        ours=statistics.fmean(cell.mean for _, cell, _ in pairs),
        paper=statistics.fmean(paper for _, _, paper in pairs),
        largest=(largest, differences[largest]),
        spread=statistics.fmean(spreads) if spreads else None,
    )


def find_failures(
    runs: Iterable[Run],
    question: Question,
    systems: Sequence[System],
    datasets: Sequence[Dataset],
) -> list[Run]:
    """Return the last runs of a question that failed."""
    last = keep_latest(keep_current(runs))
    return [
        last[job]
        for dataset in datasets
        for each in dataset.files
        for system in systems
        for job in question.list_jobs(each, system)
        if job in last and last[job].error is not None
    ]
