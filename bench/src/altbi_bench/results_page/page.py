"""The page of results: all tables, statistics and figures, made of the lines alone."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from altbi.io._atomic import atomic_file, report_errors_as
from altbi_bench.catalogue.datasets import Dataset, catalogue, select
from altbi_bench.catalogue.systems import find_systems
from altbi_bench.results_page.deep_baselines import deep_findings, deep_sections
from altbi_bench.results_page.descriptions import ABOUT, SAMPLE
from altbi_bench.results_page.diagrams import critical_difference_svg, scatter_svg
from altbi_bench.results_page.findings import OURS, explained, is_enough, significance, standing
from altbi_bench.results_page.summaries import Evidence, cost, summary, tables_of
from altbi_bench.runs.runner import Question
from altbi_bench.statistics import cliques, critical_difference, mean_ranks
from altbi_bench.tables.comparison import (
    PAPER_METRICS,
    Comparison,
    compare,
    is_compared,
    shared_means,
)
from altbi_bench.tables.formatting import cells, differences, lacking
from altbi_bench.tables.grids import markdown_grid

__all__ = ["SEMI", "embeddings_comparison", "main_comparison", "write_files", "write_page"]

# It takes minutes for a small table: run with one seed on small tables only, docs/systems.md.
TOO_SLOW = ("ALTBI-G (reference)",)
LINEAR = (
    OURS,
    "ALTBI-I (paper)",
    "ALTBI-I (reference)",
    "COPOD",
    "ECOD",
    "HBOS",
    "IForest",
    "LODA",
    "PCA",
)
MAIN = Question("transductive", SAMPLE)
WHOLE = Question("transductive")
PUBLISHED = Question("dte")
SEMI = Question("semi", SAMPLE)
CSV_HEAD = (
    *("data set", "files", "of files", "system", "ours", "std", "paper", "difference"),
    *("seeds", "first line"),
)


def write_page(page: Path, folder: Path) -> None:
    """Write the page, and tables and figures into the folder beside it that has its name."""
    beside = page.with_suffix("")
    evidence, for_tables = (Evidence.of(folder, home) for home in (page.parent, beside))
    files = {page: _page(evidence, "/".join(folder.parts[-2:]), beside.name)}
    main = main_comparison(evidence)
    for metric, protocol, name in _PAPER_TABLES:
        found = compare(evidence.runs, metric, protocol)
        files[beside / f"{name}.csv"] = _csv(found, for_tables)
    if is_enough(main):
        files |= {beside / name: text for name, text in _figures(evidence, main).items()}
    write_files(files)


def write_files(files: Mapping[Path, str]) -> None:
    """Write files, each whole or not at all."""
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as draft, report_errors_as(path):
            draft.write_text(text, encoding="utf-8")


def _figures(evidence: Evidence, main: Comparison) -> dict[str, str]:
    ranks = mean_ranks(main.scores)
    distance = critical_difference(len(main.systems), len(shared_means(main)[0]))
    return {
        "ranks.svg": critical_difference_svg(ranks, distance, cliques(ranks, distance)),
        "seconds.svg": _scatter(evidence, main),
    }


_PAPER_TABLES = (
    ("auc", MAIN, "b2"),
    ("average_precision", MAIN, "b3"),
    ("auc", SEMI, "b4"),
    ("average_precision", SEMI, "b5"),
    ("auc", PUBLISHED, "b2-dte"),
    ("average_precision", PUBLISHED, "b3-dte"),
)


def main_comparison(evidence: Evidence, metric: str = "auc") -> Comparison:
    """All systems but the slowest on the tables."""
    everything = compare(evidence.runs, metric, MAIN)
    names = [name for name in everything.systems if name not in TOO_SLOW]
    found = compare(evidence.runs, metric, MAIN, find_systems(names))
    return found.only(select(suite="tables"))


def embeddings_comparison(evidence: Evidence, metric: str = "auc") -> Comparison:
    """Images and texts, and the systems that ran on all that any system ran on."""
    found = compare(evidence.runs, metric, MAIN).only(select(suite="embeddings"))
    whole = [name for name in found.systems if all(line.ours[name] for line in found.lines)]
    return replace(found, systems=tuple(whole))


def _asked(question: Question, suite: str) -> Callable[[Evidence, str], Comparison]:
    """All systems of which there are runs, on the data sets of a suite."""
    return lambda evidence, metric: compare(evidence.runs, metric, question).only(
        select(suite=suite)
    )


# The page, part by part.


def _page(evidence: Evidence, lines: str, beside: str) -> str:
    main = main_comparison(evidence)
    parts = [
        "# Results",
        f"Made by `altbi-bench tables --page docs/results.md` of the lines in `{lines}/`; do not "
        "edit. Every cell leads to the line of its first run, which holds system, parameters, "
        "seed, rows, versions and seconds; `altbi-bench lines --datasets D --systems S` (with "
        "--protocol and --rows as in the section) shows all lines behind a cell, and the command "
        f"that runs them again. The folder [{beside}]({beside}) has all cells but those of the "
        "deep baselines as CSV beside the paper's: b2 and b3 (AUC and average precision without "
        "labels), b4 and b5 (fitted on inliers), b2-dte and b3-dte (the baselines replayed).",
        "## What they show",
        *explained(main, main_comparison(evidence, "average_precision"), evidence.runs),
        *standing("On images and texts", embeddings_comparison(evidence)),
        *standing("Fitted on inliers alone", _asked(SEMI, "all")(evidence, "auc")),
        *deep_findings(evidence),
        "## All systems on identical rows",
        ABOUT["main"],
        *summary(evidence, main_comparison),
        *(_compared(main, beside) if is_enough(main) else []),
        *tables_of(evidence, _asked(MAIN, "tables"), PAPER_METRICS),
        "## Images and texts",
        ABOUT["embeddings"],
        *summary(evidence, embeddings_comparison),
        *tables_of(evidence, embeddings_comparison, PAPER_METRICS),
        "## Whole files",
        ABOUT["whole"],
        *_whole(evidence),
        "## The paper's baselines replayed",
        ABOUT["dte"],
        *_published(evidence),
        *deep_sections(evidence),
        "## Fitted on inliers alone",
        ABOUT["semi"],
        *tables_of(evidence, _asked(SEMI, "all"), PAPER_METRICS),
        "## Not run",
        *_not_run(evidence),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _compared(main: Comparison, beside: str) -> list[str]:
    return [
        f"![Mean ranks of all systems]({beside}/ranks.svg)",
        *significance(main),
        f"![AUC against seconds]({beside}/seconds.svg)",
    ]


def _scatter(evidence: Evidence, main: Comparison) -> str:
    means = shared_means(main)[1]
    seconds = cost(evidence, main)[0]
    return scatter_svg(
        {name: (seconds[name], means[name]) for name in means},
        x_title="seconds of fit and scoring, median over runs",
        y_title="mean AUC",
    )


def _whole(evidence: Evidence) -> list[str]:
    found = compare(evidence.runs, "auc", WHOLE, find_systems(LINEAR)).only(_large())
    return [markdown_grid(cells(found, evidence.places))] if found.lines else ["No lines yet."]


def _published(evidence: Evidence) -> list[str]:
    found = compare(evidence.runs, "auc", PUBLISHED)
    if not found.lines:
        return ["No lines yet."]
    return [*differences(found, markdown_grid), markdown_grid(cells(found, evidence.places))]


def _not_run(evidence: Evidence) -> list[str]:
    """Name data sets without a line, and jobs that failed."""
    ran = {run.file for run in evidence.runs if run.error is None and not run.smoke}
    absent = [
        dataset.label for dataset in catalogue() if not ran & {part.file for part in dataset.parts}
    ]
    return [
        f"No run is about these: {', '.join(absent)}; nor about raw pixels of MNIST and "
        "FashionMNIST, which the paper's own systems saw under these names.",
        *(text for question in (MAIN, PUBLISHED, SEMI) for text in _lacking(evidence, question)),
        *_lacking(evidence, WHOLE, LINEAR, _large()),
    ]


def _large() -> list[Dataset]:
    """Give the data sets of which a sample stands in the main comparison."""
    return [dataset for dataset in catalogue() if (dataset.parts[0].n_rows or 0) > SAMPLE]


def _lacking(
    evidence: Evidence,
    question: Question,
    names: Sequence[str] | None = None,
    datasets: Sequence[Dataset] | None = None,
) -> list[str]:
    systems = [system for system in find_systems(names) if system.name not in TOO_SLOW]
    asked = catalogue() if datasets is None else datasets
    found = compare(evidence.runs, "auc", question, systems).only(asked)
    return lacking(evidence.runs, found.that_ran(), asked, systems)


def _csv(found: Comparison, evidence: Evidence) -> str:
    """One line for each cell, with everything that is known about it."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(CSV_HEAD)
    for line in found.lines:
        for name in found.systems:
            cell, paper = line.ours[name], line.paper.get(name)
            if cell is None:
                continue
            gap = (
                cell.mean - paper if paper is not None and is_compared(found, line, name) else None
            )
            seeds = len({job.seed for job in cell.jobs})
            table.writerow(
                [line.dataset.label, line.n_parts, line.n_files, name]
                + [_exact(value) for value in (cell.mean, cell.std, paper, gap)]
                + [seeds, evidence.places[cell.jobs[0]]]
            )
    return text.getvalue()


def _exact(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"
