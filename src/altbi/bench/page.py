"""The page of results: all tables, statistics and figures, made of the lines alone."""

import csv
import io
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from altbi.bench.datasets import Dataset, catalogue, select
from altbi.bench.diagram import critical_difference_svg, scatter_svg
from altbi.bench.findings import OURS, findings, is_enough, tests
from altbi.bench.grid import markdown_grid
from altbi.bench.lines import Job, Run, latest, read
from altbi.bench.look import MISSING, cells, differences, lacking, number
from altbi.bench.protocols import PROTOCOLS
from altbi.bench.run import Question, current
from altbi.bench.statistics import cliques, critical_difference, mean_ranks
from altbi.bench.systems import find_systems
from altbi.bench.tables import (
    METRICS,
    PAPER_METRICS,
    Comparison,
    compare,
    is_compared,
    shared_means,
)
from altbi.bench.words import ABOUT, SAMPLE
from altbi.errors import TableError
from altbi.whole import told_as, whole_file

__all__ = ["write_page"]

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


@final
@dataclass(frozen=True, slots=True)
class Evidence:
    """All runs of a folder that are current, and where each stands, seen from the page."""

    runs: list[Run]
    places: Mapping[Job, str]

    @classmethod
    def of(cls, folder: Path) -> "Evidence":
        """Read the file of each protocol in a folder."""
        if not folder.is_dir():
            raise TableError(
                f"{folder}: expected a folder with the lines of all protocols, of which the page "
                "is made. Name one with --lines."
            )
        runs: list[Run] = []
        places: dict[Job, str] = {}
        for protocol in PROTOCOLS:
            path = folder / f"{protocol}.jsonl"
            found = read(path)
            kept = current(found)
            runs += kept
            where = f"../{folder.name}/{path.name}"
            numbers = {id(run): line for line, run in enumerate(found, 1)}
            places |= {run.job: f"{where}#L{numbers[id(run)]}" for run in kept}
        if not runs:
            raise TableError(f"{folder}: no lines of runs there. `altbi bench run` writes them.")
        return cls(runs, places)


def write_page(page: Path, folder: Path) -> None:
    """Write the page, and tables and figures into the folder beside it that has its name."""
    evidence = Evidence.of(folder)
    beside = page.with_suffix("")
    beside.mkdir(parents=True, exist_ok=True)
    files = {page: _page(evidence, folder.name, beside.name)}
    main = _main(evidence)
    for metric, protocol, name in _PAPER_TABLES:
        found = compare(evidence.runs, metric, protocol)
        files[beside / f"{name}.csv"] = _csv(found, evidence)
    if is_enough(main):
        files |= {beside / name: text for name, text in _figures(evidence, main).items()}
    for path, text in files.items():
        with whole_file(path) as draft, told_as(path):
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


def _main(evidence: Evidence, metric: str = "auc") -> Comparison:
    """All systems but the slowest on the tables."""
    everything = compare(evidence.runs, metric, MAIN)
    names = [name for name in everything.systems if name not in TOO_SLOW]
    found = compare(evidence.runs, metric, MAIN, find_systems(names))
    return found.only(select(suite="tables"))


def _embeddings(evidence: Evidence, metric: str = "auc") -> Comparison:
    """Images and texts, and the systems that ran on all that any system ran on."""
    found = compare(evidence.runs, metric, MAIN).only(select(suite="embeddings"))
    whole = [name for name in found.systems if all(line.ours[name] for line in found.lines)]
    return replace(found, systems=tuple(whole))


# The page, part by part.


def _page(evidence: Evidence, lines: str, beside: str) -> str:
    main = _main(evidence)
    parts = [
        "# Results",
        f"Made by `altbi bench tables --page docs/results.md` of the lines in `{lines}/`; do not "
        "edit. Every cell leads to the line of its first run, which holds system, parameters, "
        "seed, rows, versions and seconds; `altbi bench lines --datasets D --systems S` (with "
        "--protocol and --rows as in the section) shows all lines behind a cell, and the command "
        f"that runs them again. The folder [{beside}]({beside}) has all cells as CSV beside the "
        "paper's: b2 and b3 (AUC and average precision without labels), b4 and b5 (fitted on "
        "inliers), b2-dte and b3-dte (the baselines replayed).",
        "## What they show",
        *findings(main, _main(evidence, "average_precision"), evidence.runs),
        "## All systems on identical rows",
        ABOUT["main"],
        *_summary(evidence, _main),
        *(_compared(main, beside) if is_enough(main) else []),
        *_tables_of(evidence, MAIN, "tables"),
        "## Images and texts",
        ABOUT["embeddings"],
        *_summary(evidence, _embeddings),
        *_tables_of(evidence, MAIN, "embeddings"),
        "## Whole files",
        ABOUT["whole"],
        *_whole(evidence),
        "## The paper's baselines replayed",
        ABOUT["dte"],
        *_published(evidence),
        "## Fitted on inliers alone",
        ABOUT["semi"],
        *_tables_of(evidence, SEMI, "all"),
        "## Not run",
        *_not_run(evidence),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _compared(main: Comparison, beside: str) -> list[str]:
    return [
        f"![Mean ranks of all systems]({beside}/ranks.svg)",
        *tests(main),
        f"![AUC against seconds]({beside}/seconds.svg)",
    ]


def _summary(evidence: Evidence, choose: Callable[[Evidence, str], Comparison]) -> list[str]:
    """Means over the shared data sets, ranks, seconds and how many data sets were run."""
    found = choose(evidence, "auc")
    shared = [line.dataset for line in shared_means(found)[0]]
    if len(shared) < 2 or len(found.systems) < 2:
        return []
    means = {metric: _means(choose(evidence, metric), shared) for metric in METRICS}
    ranks = mean_ranks(found.scores)
    seconds, memory = _cost(evidence, found)
    head = ["system", *METRICS.values(), "mean rank", "median seconds", "peak MiB", "data sets"]
    body = [
        [
            name,
            *(number(means[metric].get(name)) for metric in METRICS),
            f"{ranks[name]:.2f}",
            f"{seconds[name]:.2f}",
            f"{memory[name]:.0f}" if name in memory else MISSING,
            f"{len(found.scores[name])} of {len(found.lines)}",
        ]
        for name in sorted(ranks, key=ranks.__getitem__)
    ]
    return [markdown_grid([head, *body])]


def _means(found: Comparison, datasets: Sequence[Dataset]) -> dict[str, float]:
    """Average each system that has all of the data sets."""
    lines = found.only(datasets).lines
    return {
        name: statistics.fmean(values)
        for name in found.systems
        if len(values := [cell.mean for line in lines if (cell := line.ours[name])]) == len(lines)
    }


def _cost(evidence: Evidence, main: Comparison) -> tuple[dict[str, float], dict[str, float]]:
    """Median seconds of fit and scoring over the shared data sets, and the highest memory."""
    last = latest(evidence.runs)
    shared = shared_means(main)[0]
    seconds: dict[str, float] = {}
    memory: dict[str, float] = {}
    for name in main.systems:
        runs = [last[job] for line in shared if (cell := line.ours[name]) for job in cell.jobs]
        times = [(run.fit_seconds or 0) + (run.score_seconds or 0) for run in runs]
        seconds[name] = statistics.median(times)
        held = [run.peak_mib for run in runs if run.peak_mib is not None]
        memory |= {name: max(held)} if held else {}
    return seconds, memory


def _scatter(evidence: Evidence, main: Comparison) -> str:
    means = shared_means(main)[1]
    seconds = _cost(evidence, main)[0]
    return scatter_svg(
        {name: (seconds[name], means[name]) for name in means},
        x_title="seconds of fit and scoring, median over runs",
        y_title="mean AUC",
    )


def _tables_of(evidence: Evidence, question: Question, suite: str) -> list[str]:
    parts = []
    for metric in PAPER_METRICS:
        found = compare(evidence.runs, metric, question).only(select(suite=suite))
        ran = tuple(name for name in found.systems if any(line.ours[name] for line in found.lines))
        found = replace(found, systems=ran)
        if not found.lines:
            return ["No lines yet."]
        parts += [f"### {METRICS[metric]}", markdown_grid(cells(found, evidence.places))]
        parts += differences(found, markdown_grid)
    return parts


def _whole(evidence: Evidence) -> list[str]:
    found = compare(evidence.runs, "auc", WHOLE, find_systems(LINEAR))
    large = tuple(line for line in found.lines if (line.dataset.parts[0].n_rows or 0) > SAMPLE)
    if not large:
        return ["No lines yet."]
    chosen = Comparison("auc", WHOLE, found.systems, large)
    return [markdown_grid(cells(chosen, evidence.places))]


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
    ]


def _lacking(evidence: Evidence, question: Question) -> list[str]:
    systems = [system for system in find_systems() if system.name not in TOO_SLOW]
    found = compare(evidence.runs, "auc", question, systems)
    ran = tuple(name for name in found.systems if any(line.ours[name] for line in found.lines))
    return lacking(evidence.runs, replace(found, systems=ran), catalogue(), systems)


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
                [line.dataset.label, line.n_parts, len(line.dataset.parts), name]
                + [_exact(value) for value in (cell.mean, cell.std, paper, gap)]
                + [seeds, evidence.places[cell.jobs[0]]]
            )
    return text.getvalue()


def _exact(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"
