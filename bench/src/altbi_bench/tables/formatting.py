"""Format tables of results: numbers, means, differences from the paper, missing runs."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from altbi.errors import TableError, escape_text, shorten
from altbi_bench.catalogue.datasets import Dataset
from altbi_bench.catalogue.protocols import find_protocol
from altbi_bench.catalogue.systems import SYSTEMS, System, find_systems
from altbi_bench.runs.records import Job, Run, read_runs
from altbi_bench.runs.runner import Question, keep_current
from altbi_bench.tables.comparison import (
    METRICS,
    Cell,
    Comparison,
    Line,
    compare,
    difference,
    find_failures,
    shared_means,
)
from altbi_bench.tables.grids import markdown_grid, plain_grid

__all__ = [
    "MISSING",
    "Grid",
    "format_cells",
    "format_differences",
    "format_missing",
    "format_number",
    "format_question",
    "no_records_error",
]

Grid = Callable[[Sequence[Sequence[str]]], str]
# Up to so many systems the paper's columns stand beside ours.
FEW = 4
MISSING = "-"


def format_question(
    path: Path,
    question: Question,
    systems: Sequence[System] | None,
    datasets: Sequence[Dataset],
    *,
    markdown: bool = False,
) -> str:
    """Format the tables of one question for a terminal, or as Markdown."""
    runs = read_runs(path)
    grid: Grid = markdown_grid if markdown else plain_grid
    heading = "### {}" if markdown else "{}"
    parts = []
    for metric, title in METRICS.items():
        found = compare(runs, metric, question, systems, datasets)
        if not found.lines:
            raise no_records_error(path, runs)
        found = found.that_ran()  # one without a cell would leave no data set that all ran
        parts += [
            heading.format(title),
            grid(format_cells(found)),
            *format_differences(found, grid),
        ]
        parts += _other_protocol(found)
    judged = replace(
        compare(runs, "auc", question, systems, datasets),
        # One that ran elsewhere is missing here.
        systems=compare(runs, "auc", question, systems).systems,
    )
    missing = format_missing(runs, judged, datasets, systems)
    parts += [heading.format("Missing"), *missing] if missing else []
    return "\n\n".join(parts) + "\n"


def no_records_error(
    path: Path, runs: Sequence[Run], command: str = "`altbi-bench run` with the same options"
) -> TableError:
    """Return an error that explains why there are no records, and how to create them."""
    if not path.exists():
        why = "no such file of records"
    elif runs and all(run.smoke for run in runs):
        why = "all records are of smoke runs, which are left out of tables"
    else:
        protocols = ", ".join(sorted({escape_text(run.protocol) for run in runs}))
        why = f"no record matches the request (protocols of the file: {protocols or 'none'})"
    return TableError(f"{path}: {why}. {command} writes them.")


def format_cells(found: Comparison, places: Mapping[Job, str] | None = None) -> list[list[str]]:
    """Format all numbers and the means; for few systems also the paper's numbers."""
    beside = _first_of_columns(found) if len(found.systems) <= FEW else []
    head = ["data set", *found.systems, *(f"paper's {_column(found, name)}" for name in beside)]
    body = [
        [
            line.title,
            *(_linked(line.ours[name], places) for name in found.systems),
            *(format_number(line.paper.get(name)) for name in beside),
        ]
        for line in found.lines
    ]
    shared, means = shared_means(found)
    if shared:
        last = [f"mean of the {len(shared)} that all ran", *(f"{means[n]:.3f}" for n in means)]
        body.append([*last, *(_paper_mean(shared, name) for name in beside)])
    return [head, *body]


def _other_protocol(found: Comparison) -> list[str]:
    """Return a remark on systems whose numbers in the paper come from another protocol."""
    if len(found.systems) > FEW:
        return []
    protocol = find_protocol(found.question.protocol)
    names = []
    for name in _first_of_columns(found):
        own = SYSTEMS[name].scales_itself
        kinds = {line.dataset.kind for line in found.lines if line.paper.get(name) is not None}
        other = {kind for kind in kinds if not protocol.is_that_of(own, found.metric, kind)}
        where = " on " + " and ".join(f"{kind}s" for kind in sorted(other))
        names += [f"{_column(found, name)}{where if other < kinds else ''}"] if other else []
    told = f"The paper's numbers of {', '.join(names)} come from another protocol than this one."
    return [told] if names else []


def _first_of_columns(found: Comparison) -> list[str]:
    """Return the first system of each column of the paper."""
    first: dict[str | None, str] = {}
    for name in found.systems:
        if any(line.paper.get(name) is not None for line in found.lines):
            first.setdefault(_column(found, name), name)
    return list(first.values())


def _column(found: Comparison, name: str) -> str | None:
    """Return the column of a system in the paper's table of this setting."""
    return SYSTEMS[name].paper_column(find_protocol(found.question.protocol).setting)


def _linked(cell: Cell | None, places: Mapping[Job, str] | None) -> str:
    text = _text(cell)
    return text if cell is None or places is None else f"[{text}]({places[cell.jobs[0]]})"


def _text(cell: Cell | None) -> str:
    if cell is None:
        return MISSING
    return f"{cell.mean:.3f}" + ("" if cell.std is None else f" ± {cell.std:.3f}")


def format_number(value: float | None) -> str:
    """Format a number of a table, if there is one."""
    return MISSING if value is None else f"{value:.3f}"


def _paper_mean(shared: Sequence[Line], name: str) -> str:
    numbers = [line.paper.get(name) for line in shared]
    known = [value for value in numbers if value is not None]
    return f"{statistics.fmean(known):.3f}" if len(known) == len(numbers) else MISSING


def format_differences(found: Comparison, grid: Grid) -> list[str]:
    """Format the difference of each system from its column in the paper."""
    head = [
        "system",
        "data sets",
        "ours",
        "paper",
        "mean difference",
        "mean absolute",
        "largest",
        "std",
    ]
    body = [
        [
            name,
            str(gap.n_tables),
            f"{gap.ours:.4f}",
            f"{gap.paper:.4f}",
            f"{gap.mean_signed:+.4f}",
            f"{gap.mean_absolute:.4f}",
            f"{gap.largest[0]} {gap.largest[1]:+.3f}",
            format_number(gap.spread),
        ]
        for name in found.systems
        if (gap := difference(found, name)) is not None
    ]
    return [grid([head, *body])] if body else []


def format_missing(
    runs: Sequence[Run],
    found: Comparison,
    datasets: Sequence[Dataset],
    systems: Sequence[System] | None = None,
) -> list[str]:
    """List the jobs that failed, and the cells without all their runs; empty if there are none.

    Without systems, all are asked about: one that failed everywhere has no cell in `found`.
    """
    asked = find_systems() if systems is None else systems
    failed = find_failures(runs, found.question, asked, datasets)
    texts = [f"- {run.job.title}: {_one_line(run.error)}" for run in failed]
    compared = _find_started(runs, found) | set(found.systems)
    for name in (system.name for system in asked if system.name in compared):
        never = [
            line.dataset.label
            for line in found.lines
            if line.ours[name] is None and not any(_is_of(run, line, name) for run in failed)
        ]
        texts += [f"- {name}: not run with all seeds on {', '.join(never)}"] if never else []
    return ["\n".join(texts)] if texts else []


def _find_started(runs: Sequence[Run], found: Comparison) -> set[str]:
    """Return the systems with any run on the compared data sets."""
    files = {part.file for line in found.lines for part in line.dataset.parts}
    return {
        run.system
        for run in keep_current(runs)
        if run.protocol == found.question.protocol and run.file in files and not run.smoke
    }


def _one_line(text: str | None) -> str:
    return shorten(escape_text(" ".join((text or "").split())), 160)


def _is_of(run: Run, line: Line, name: str) -> bool:
    return run.system == name and run.file in {part.file for part in line.dataset.parts}
