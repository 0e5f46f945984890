"""Tables beside the paper's: pure functions of jobs and lines, first facts, then their look."""

import csv
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import resources

from altbi.bench.datasets import Dataset, select
from altbi.bench.run import Job, Run, latest
from altbi.errors import ParameterError

__all__ = [
    "METRICS",
    "Cell",
    "Comparison",
    "Difference",
    "Line",
    "averages",
    "compare",
    "difference",
    "gaps",
    "markdown_table",
    "paper_table",
    "report",
]

METRICS = {"auc": "AUC", "average_precision": "Average precision"}
# The paper's settings, and those of its columns that stand beside ours.
SETTINGS = {"unsupervised": ("ALTBI-I", "IForest", "kNN"), "semisupervised": ("ALTBI",)}
REPRODUCED = ("ALTBI-I (reference)", "ALTBI-I")
LARGE = 0.03

NOTES = (
    "Each system is fitted on all rows without labels and scores every row; a cell is the mean "
    "over seeds ± the sample standard deviation, also where the seed changes nothing.",
    "IForest: scikit-learn's defaults on raw columns. kNN-32: distance to the 32nd neighbour on "
    "standardised columns, a row not being its own neighbour; neighbours come from at most 20,000 "
    "sampled rows, all rows are scored.",
    "The authors' evaluation of ALTBI-I drops some outliers by rounding (at worst, in satimage-2, "
    "57 of 71 stay); the paper's IForest and kNN are fitted on a bootstrap sample of at most "
    "50,000 standardised rows. Only ALTBI-I is meant to be reproduced here.",
    "mnist: the paper's ALTBI-I row is about raw MNIST pixels, not about this table.",
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One system on one data set: mean over seeds, and spread where there is more than one."""

    mean: float
    std: float | None


@dataclass(frozen=True, slots=True)
class Line:
    """One data set: our cells by system, None where runs lack, and the paper's numbers."""

    dataset: Dataset
    ours: dict[str, Cell | None]
    paper: dict[str, float]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric of all systems and data sets, in the paper's order."""

    metric: str
    systems: tuple[str, ...]
    paper_columns: tuple[str, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """How far a system of ours is from a column of the paper, ours minus theirs."""

    n_tables: int
    mean_absolute: float
    mean_signed: float
    large: tuple[tuple[str, float, float], ...]


def paper_table(metric: str, setting: str = "unsupervised") -> dict[str, dict[str, float]]:
    """Give the paper's results in one of its settings: data set -> method -> number."""
    if metric not in METRICS or setting not in SETTINGS:
        raise ParameterError(
            f"The paper has no table of {metric!r} in the setting {setting!r}. "
            f"Expected one of {', '.join(METRICS)} in one of {', '.join(SETTINGS)}."
        )
    source = resources.files("altbi.bench") / "paper" / f"{metric}_{setting}.csv"
    with source.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    return {row.pop("dataset"): {name: float(cell) for name, cell in row.items()} for row in rows}


def compare(
    jobs: Sequence[Job], runs: Iterable[Run], metric: str, setting: str = "unsupervised"
) -> Comparison:
    """Put the runs of the jobs beside the paper's numbers."""
    values = {
        job: float(getattr(run, metric)) for job, run in latest(runs).items() if run.error is None
    }
    systems = tuple(dict.fromkeys(job.system for job in jobs))
    paper, columns = paper_table(metric, setting), SETTINGS[setting]

    def cell(dataset: str, system: str) -> Cell | None:
        wanted = [job for job in jobs if (job.dataset, job.system) == (dataset, system)]
        found = [values[job] for job in wanted if job in values]
        # A mean over fewer seeds than asked for would be a silent gap.
        return _cell(found) if found and len(found) == len(wanted) else None

    lines = (
        Line(
            dataset,
            ours={system: cell(dataset.name, system) for system in systems},
            paper={column: paper[dataset.name][column] for column in columns},
        )
        for dataset in select([job.dataset for job in jobs])
    )
    return Comparison(metric, systems, columns, tuple(lines))


def _cell(values: Sequence[float]) -> Cell:
    spread = statistics.stdev(values) if len(values) > 1 else None
    return Cell(statistics.fmean(values), spread)


def averages(comparison: Comparison, *, comparable: bool) -> dict[str, float | None]:
    """Average each column over all data sets, or over those the paper's ALTBI-I is about.

    A column that lacks a cell has no average: it would be one over other tables than its
    neighbours'.
    """
    lines = [line for line in comparison.lines if line.dataset.comparable or not comparable]
    columns: dict[str, list[float | None]] = {
        system: [_mean(line.ours[system]) for line in lines] for system in comparison.systems
    }
    for name in comparison.paper_columns:
        columns[f"paper {name}"] = [line.paper[name] for line in lines]
    return {name: _average(column) for name, column in columns.items()}


def _mean(cell: Cell | None) -> float | None:
    return None if cell is None else cell.mean


def _average(column: Sequence[float | None]) -> float | None:
    known = [value for value in column if value is not None]
    return statistics.fmean(known) if known and len(known) == len(column) else None


def difference(comparison: Comparison, system: str, column: str) -> Difference | None:
    """Measure ours minus the paper's over the comparable data sets that have a cell."""
    pairs = [
        (line.dataset.name, cell.mean, line.paper[column])
        for line in comparison.lines
        if line.dataset.comparable and (cell := line.ours.get(system)) is not None
    ]
    if not pairs:
        return None
    gap = [ours - paper for _, ours, paper in pairs]
    return Difference(
        n_tables=len(pairs),
        mean_absolute=statistics.fmean(map(abs, gap)),
        mean_signed=statistics.fmean(gap),
        large=tuple(pair for pair in pairs if abs(pair[1] - pair[2]) > LARGE),
    )


def gaps(jobs: Iterable[Job], runs: Iterable[Run]) -> list[str]:
    """Name each job that has no run, or whose last run failed."""
    last = latest(runs)
    reasons = {job: last[job].error if job in last else "not run" for job in jobs}
    return [
        f"{job.dataset}, {job.system}, seed {job.seed}: {reason}"
        for job, reason in reasons.items()
        if reason is not None
    ]


def report(jobs: Sequence[Job], runs: Sequence[Run], *, markdown: bool = False) -> str:
    """Write all tables, differences, gaps and notes, as Markdown or as plain text."""
    grid = _markdown_grid if markdown else _plain_grid
    heading = "### {}" if markdown else "{}"
    parts = []
    for metric, title in METRICS.items():
        comparison = compare(jobs, runs, metric)
        parts += [heading.format(title), grid(_table(comparison))]
        found = difference(comparison, *REPRODUCED)
        parts += [] if found is None else _difference_parts(found, title, grid)
    lacking = gaps(jobs, runs)
    if lacking:
        parts += [heading.format(f"Missing: {len(lacking)} of {len(jobs)} runs"), _bullets(lacking)]
    parts += [heading.format("Notes"), _bullets([*NOTES, _versions(jobs, runs)])]
    return "\n\n".join(parts) + "\n"


def markdown_table(comparison: Comparison) -> str:
    """Write one metric of all data sets with the means over them, as Markdown."""
    return _markdown_grid(_table(comparison))


def _table(comparison: Comparison) -> list[list[str]]:
    head = [
        "data set",
        *comparison.systems,
        *(f"paper {name}" for name in comparison.paper_columns),
    ]
    body = [
        [
            line.dataset.name,
            *(_spread(line.ours[system]) for system in comparison.systems),
            *(f"{line.paper[name]:.3f}" for name in comparison.paper_columns),
        ]
        for line in comparison.lines
    ]
    for comparable, label in ((False, "mean of all"), (True, "mean of the comparable")):
        count = sum(line.dataset.comparable or not comparable for line in comparison.lines)
        if comparable and count == len(comparison.lines):
            continue  # it would be the line above once more
        means = averages(comparison, comparable=comparable)
        body.append([f"{label} {count}", *(_number(means[name]) for name in head[1:])])
    return [head, *body]


def _difference_parts(
    found: Difference, title: str, grid: Callable[[list[list[str]]], str]
) -> list[str]:
    ours, paper = REPRODUCED
    sentence = (
        f"{title} of {ours} minus the paper's {paper} over {found.n_tables} comparable tables: "
        f"mean {found.mean_signed:+.4f}, mean absolute {found.mean_absolute:.4f}; "
        f"more than {LARGE} apart: {len(found.large)}."
    )
    if not found.large:
        return [sentence]
    body = [
        [name, f"{mine:.3f}", f"{theirs:.3f}", f"{mine - theirs:+.3f}"]
        for name, mine, theirs in found.large
    ]
    return [sentence, grid([["data set", "ours", "paper", "difference"], *body])]


def _versions(jobs: Sequence[Job], runs: Sequence[Run]) -> str:
    last = latest(runs)
    used = {tuple(sorted(last[job].versions.items())) for job in jobs if job in last}
    texts = [", ".join(f"{name} {number}" for name, number in each) for each in sorted(used)]
    return "Versions: " + ("; also ".join(texts) or "none, nothing was run") + "."


def _number(value: float | None) -> str:
    return "missing" if value is None else f"{value:.3f}"


def _spread(cell: Cell | None) -> str:
    spread = "" if cell is None or cell.std is None else f" ± {cell.std:.3f}"
    return _number(_mean(cell)) + spread


def _bullets(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)


def _markdown_grid(rows: list[list[str]]) -> str:
    rule = ["---", *["---:"] * (len(rows[0]) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], rule, *rows[1:]])


def _plain_grid(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def align(row: list[str]) -> str:
        numbers = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        return "  ".join([row[0].ljust(widths[0]), *numbers])

    return "\n".join(map(align, rows))
