"""The page of figures: the paper's, redrawn from our own runs, with a sentence on each."""

from collections.abc import Callable, Sequence
from pathlib import Path

from altbi.bench.ablation import TECHNIQUES
from altbi.bench.ablation_tables import ablation_tables
from altbi.bench.datasets import find_part
from altbi.bench.figure_parts import Figure, Lines
from altbi.bench.figures_of_runs import (
    ablations,
    all_systems,
    deep_systems,
    fitted_on_inliers,
    under_privacy,
)
from altbi.bench.figures_of_traces import (
    memorisation,
    outlier_ratio,
    snapshots,
    techniques,
    truncated,
)
from altbi.bench.page import write_files
from altbi.bench.traces import SETTINGS
from altbi.bench.variants import BASE, PANELS
from altbi.bench.watching import on_tables

__all__ = ["write_figures"]

FIGURES: tuple[Callable[[Lines], Figure], ...] = (
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
    "Made by `altbi bench figures` of the lines in `results/`; do not edit. Each figure has the "
    "command that runs what it needs, the lines that it came from, and a sentence on whether it "
    "agrees with the paper. Differences have 95 % intervals by the bootstrap over tables. The "
    "figures of the deep baselines and of all systems have their tables in [results.md]"
    "(results.md), those of privacy in [privacy.md](privacy.md), the theory in "
    "[theory.md](theory.md)."
)


def write_figures(page: Path, folder: Path) -> None:
    """Write the page, and its pictures into the folder beside it that has its name."""
    lines = Lines.of(folder)
    figures = [draw(lines) for draw in FIGURES]
    beside = page.with_suffix("")
    parts = [HEAD, *(_section(figure, beside.name, folder.name) for figure in figures)]
    parts += ["## The ablations as tables", *ablation_tables(lines.variants, lines.traces)]
    parts += ["## Missing", *_missing(lines)]
    files = {beside / f"{each.name}.svg": each.svg for each in figures if each.svg is not None}
    write_files({**files, page: "\n\n".join(parts) + "\n"})


def _section(figure: Figure, beside: str, folder: str) -> str:
    origin = f"Run by {figure.command}; lines: [{figure.lines}](../{folder}/{figure.lines})."
    if figure.svg is None:
        return f"## {figure.title}\n\nNot drawn: its runs are missing. {origin}"
    picture = f"![{figure.title}]({beside}/{figure.name}.svg)"
    return f"## {figure.title}\n\n{picture}\n\n{figure.text}\n\n{origin}"


def _missing(lines: Lines) -> list[str]:
    """Name what was run on some tables and not on others, and what failed."""
    failures = [(run.job.title, run.error) for run in lines.variants]
    failures += [(trace.job.title, trace.error) for trace in lines.traces]
    failed = [f"- {title}: {' '.join(error.split())}" for title, error in failures if error]
    found = [*failed, *_missing_variants(lines), *_missing_traces(lines)]
    return ["\n".join(found)] if found else ["Nothing that was asked for."]


def _missing_variants(lines: Lines) -> list[str]:
    there = {(run.system, run.file) for run in lines.variants if run.error is None}
    files = {file for system, file in there if system == BASE.name}
    systems = {each.name: None for each in TECHNIQUES.values()} | {
        panel.system(value).name: panel.most_features
        for panel in PANELS.values()
        for value in panel.values
    }
    texts = []
    for name, most in systems.items():
        lacking = [f for f in sorted(files) if (name, f) not in there and _is_asked(f, most)]
        texts += [f"- {name}: {_named(lacking)}"] if lacking else []
    return texts


def _is_asked(file: str, most_features: int | None) -> bool:
    return most_features is None or find_part(file)[1].n_features <= most_features


def _missing_traces(lines: Lines) -> list[str]:
    there = on_tables(lines.traces)
    files = {file for _, file in there}
    texts = []
    for setting in SETTINGS:
        lacking = [file for file in sorted(files) if (setting, file) not in there]
        texts += [f"- watched, {setting}: {_named(lacking)}"] if lacking else []
    return texts


def _named(files: Sequence[str]) -> str:
    return ", ".join(Path(file).stem.partition("_")[2] for file in files)
