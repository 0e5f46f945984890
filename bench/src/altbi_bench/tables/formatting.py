"""Tables of results: numbers, means, differences from the paper, missing runs."""

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
    DatasetResult,
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
# Up to this number of systems, the paper's columns are shown next to ours.
MAX_WITH_PAPER = 4
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
    sections = []
    for metric, title in METRICS.items():
        found = compare(runs, metric, question, systems, datasets)
        if not found.results:
            raise no_records_error(path, runs)
        found = found.drop_empty_systems()  # otherwise no data set would have all systems
        sections += [
            heading.format(title),
            grid(format_cells(found)),
            *format_differences(found, grid),
        ]
        sections += _describe_other_protocols(found)
    compared_auc = replace(
        compare(runs, "auc", question, systems, datasets),
        # Systems with runs on other data sets are missing here.
        systems=compare(runs, "auc", question, systems).systems,
    )
    missing = format_missing(runs, compared_auc, datasets, systems)
    sections += [heading.format("Missing"), *missing] if missing else []
    return "\n\n".join(sections) + "\n"


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


def format_cells(found: Comparison, links: Mapping[Job, str] | None = None) -> list[list[str]]:
    """Format all numbers and the means; for few systems also the paper's numbers."""
    with_paper = _select_first_systems(found) if len(found.systems) <= MAX_WITH_PAPER else []
    head = [
        "data set",
        *found.systems,
        *(f"paper's {_find_column(found, name)}" for name in with_paper),
    ]
    body = [
        [
            result.title,
            *(_format_link(result.ours[name], links) for name in found.systems),
            *(format_number(result.paper.get(name)) for name in with_paper),
        ]
        for result in found.results
    ]
    shared, means = shared_means(found)
    if shared:
        last = [f"mean of the {len(shared)} that all ran", *(f"{means[n]:.3f}" for n in means)]
        body.append([*last, *(_average_paper(shared, name) for name in with_paper)])
    return [head, *body]


def _describe_other_protocols(found: Comparison) -> list[str]:
    """Return a remark on systems whose numbers in the paper come from another protocol."""
    if len(found.systems) > MAX_WITH_PAPER:
        return []
    protocol = find_protocol(found.question.protocol)
    names = []
    for name in _select_first_systems(found):
        own = SYSTEMS[name].scales_itself
        kinds = {
            result.dataset.kind for result in found.results if result.paper.get(name) is not None
        }
        other = {kind for kind in kinds if not protocol.is_source_of(own, found.metric, kind)}
        where = " on " + " and ".join(f"{kind}s" for kind in sorted(other))
        names += [f"{_find_column(found, name)}{where if other < kinds else ''}"] if other else []
    remark = f"The paper's numbers of {', '.join(names)} come from another protocol than this one."
    return [remark] if names else []


def _select_first_systems(found: Comparison) -> list[str]:
    """Return the first system of each column of the paper."""
    first: dict[str | None, str] = {}
    for name in found.systems:
        if any(result.paper.get(name) is not None for result in found.results):
            first.setdefault(_find_column(found, name), name)
    return list(first.values())


def _find_column(found: Comparison, name: str) -> str | None:
    """Return the column of a system in the paper's table of this setting."""
    return SYSTEMS[name].paper_column(find_protocol(found.question.protocol).setting)


def _format_link(cell: Cell | None, links: Mapping[Job, str] | None) -> str:
    text = _format_cell(cell)
    return text if cell is None or links is None else f"[{text}]({links[cell.jobs[0]]})"


def _format_cell(cell: Cell | None) -> str:
    if cell is None:
        return MISSING
    return f"{cell.mean:.3f}" + ("" if cell.std is None else f" ± {cell.std:.3f}")


def format_number(value: float | None) -> str:
    """Format a number of a table, if there is one."""
    return MISSING if value is None else f"{value:.3f}"


def _average_paper(shared: Sequence[DatasetResult], name: str) -> str:
    numbers = [result.paper.get(name) for result in shared]
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
            str(each.n_tables),
            f"{each.ours:.4f}",
            f"{each.paper:.4f}",
            f"{each.mean_signed:+.4f}",
            f"{each.mean_absolute:.4f}",
            f"{each.largest[0]} {each.largest[1]:+.3f}",
            format_number(each.spread),
        ]
        for name in found.systems
        if (each := difference(found, name)) is not None
    ]
    return [grid([head, *body])] if body else []


def format_missing(
    runs: Sequence[Run],
    found: Comparison,
    datasets: Sequence[Dataset],
    systems: Sequence[System] | None = None,
) -> list[str]:
    """List the jobs that failed, and the cells without all their runs; empty if there are none.

    Without systems, all count, because `found` has no cells of a system that failed everywhere.
    """
    requested = find_systems() if systems is None else systems
    failed = find_failures(runs, found.question, requested, datasets)
    texts = [f"- {run.job.title}: {_shorten_error(run.error)}" for run in failed]
    compared = _find_started(runs, found) | set(found.systems)
    for name in (system.name for system in requested if system.name in compared):
        never = [
            result.dataset.label
            for result in found.results
            if result.ours[name] is None
            and not any(_belongs_to(run, result, name) for run in failed)
        ]
        texts += [f"- {name}: not run with all seeds on {', '.join(never)}"] if never else []
    return ["\n".join(texts)] if texts else []


def _find_started(runs: Sequence[Run], found: Comparison) -> set[str]:
    """Return the systems with any run on the compared data sets."""
    files = {each.path for result in found.results for each in result.dataset.files}
    return {
        run.system
        for run in keep_current(runs)
        if run.protocol == found.question.protocol and run.file in files and not run.smoke
    }


def _shorten_error(text: str | None) -> str:
    return shorten(escape_text(" ".join((text or "").split())), 160)


def _belongs_to(run: Run, result: DatasetResult, name: str) -> bool:
    return run.system == name and run.file in {each.path for each in result.dataset.files}
