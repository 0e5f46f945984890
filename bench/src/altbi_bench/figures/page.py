"""The page of figures: the paper's figures, drawn from our records."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from altbi.errors import TableError, escape_text, shorten
from altbi_bench.ablation.experiments import TECHNIQUES, figure_jobs
from altbi_bench.ablation.tables import ablation_tables
from altbi_bench.ablation.training_analysis import group_by_table
from altbi_bench.catalogue.datasets import find_part
from altbi_bench.catalogue.variants import BASE, MAX_FEATURES, PANELS
from altbi_bench.figures.figure import Figure, FigureRecords
from altbi_bench.figures.run_figures import (
    ablations,
    all_systems,
    deep_systems,
    fitted_on_inliers,
    under_privacy,
)
from altbi_bench.figures.trace_figures import (
    memorisation,
    outlier_ratio,
    snapshots,
    techniques,
    truncated,
)
from altbi_bench.results_page.page import write_files
from altbi_bench.runs.records import keep_latest
from altbi_bench.runs.runner import keep_current
from altbi_bench.traces.settings import SETTINGS

__all__ = ["write_figures"]

FIGURES: tuple[Callable[[FigureRecords], Figure], ...] = (
    all_systems,
    deep_systems,
    outlier_ratio,
    techniques,
    truncated,
    ablations,
    snapshots,
    memorisation,
    fitted_on_inliers,
    under_privacy,
)
HEAD = (
    "# The paper's figures, redrawn\n\n"
    "Made by `altbi-bench figures` of the lines in `bench/results/`; do not edit. Each figure has "
    "the command that runs what it needs, the lines that it came from, and what the paper shows "
    "beside what is seen here. Intervals in brackets are 95 % ones by the bootstrap, over tables "
    "unless said otherwise. The figures of all systems have their tables in "
    "[results.md](results.md), those of privacy in [privacy.md](benchmark/privacy.md), the theory "
    "in [theory.md](benchmark/theory.md)."
)


def write_figures(page: Path, folder: Path) -> None:
    """Write the page, and its pictures into the folder of the same name."""
    if page.is_dir():
        raise TableError(
            f"{page} is a folder, but expected a file. Name the page, as in {page}/x.md."
        )
    lines = FigureRecords.of(folder)
    figures = [draw(lines) for draw in FIGURES]
    beside = page.with_suffix("")
    results = Path(os.path.relpath(folder.absolute(), page.parent.absolute())).as_posix()
    parts = [HEAD, *(_section(figure, beside.name, results) for figure in figures)]
    parts += ["## The ablations as tables", *ablation_tables(lines.variants, lines.traces)]
    parts += ["## Missing", *_missing(lines)]
    pictures = {beside / f"{figure.name}.svg": figure.svg for figure in figures}
    files = {path: svg for path, svg in pictures.items() if svg is not None}
    write_files({**files, page: "\n\n".join(parts) + "\n"})
    for path in pictures.keys() - files.keys():
        path.unlink(missing_ok=True)  # drawn of runs that count no more


def _section(figure: Figure, beside: str, results: str) -> str:
    origin = f"Run by {figure.command}; lines: [{figure.lines}]({results}/{figure.lines})."
    if figure.svg is None:
        return f"## {figure.title}\n\nNot drawn: its runs are missing. {origin}"
    picture = f"![{figure.title}]({beside}/{figure.name}.svg)"
    return f"## {figure.title}\n\n{picture}\n\n{figure.text}\n\n{origin}"


def _missing(lines: FigureRecords) -> list[str]:
    """Format the runs that are missing on some tables, and the failures."""
    failures = [
        (job.title, run.error) for job, run in keep_latest(keep_current(lines.variants)).items()
    ]
    failures += [(trace.job.title, trace.error) for trace in lines.traces]
    failed = [f"- {title}: {_plain(error)}" for title, error in failures if error is not None]
    found = [*failed, *_missing_variants(lines), *_missing_traces(lines)]
    return ["\n".join(found)] if found else ["Nothing, on the tables that were run."]


def _plain(text: str) -> str:
    """Format an error as one line of Markdown code."""
    return "`" + shorten(escape_text(" ".join(text.split())), 160).replace("`", "'") + "`"


def _missing_variants(lines: FigureRecords) -> list[str]:
    there = {
        (run.system, run.file)
        for run in keep_current(lines.variants)
        if run.error is None and not run.smoke
    }
    files = {file for system, file in there if system == BASE.name}
    systems = {each.name: MAX_FEATURES for each in TECHNIQUES.values()} | {
        panel.find_system(value).name: panel.max_features
        for panel in PANELS.values()
        for value in panel.values
    }
    texts = []
    for name, most in systems.items():
        asked = [file for file in sorted(files) if find_part(file)[1].n_features <= most]
        lacking = [find_part(file)[0].label for file in asked if (name, file) not in there]
        texts += [f"- {name}: {_named(lacking, len(asked))}"] if lacking else []
    return texts


def _missing_traces(lines: FigureRecords) -> list[str]:
    there = group_by_table(lines.traces)
    tables = sorted({table for _, table in there})
    texts = []
    for setting in SETTINGS:
        lacking = [table for table in tables if (setting, table) not in there]
        texts += [f"- watched, {setting}: {_named(lacking, len(tables))}"] if lacking else []
    seen = {trace.job for trace in lines.traces if trace.error is None}
    left = [job.title for job in figure_jobs() if job not in seen]
    return [*texts, *([f"- {len(left)} trainings of figures, first {left[0]}"] if left else [])]


def _named(tables: Sequence[str], n_asked: int) -> str:
    return f"all {n_asked} tables" if len(tables) == n_asked else ", ".join(tables)
