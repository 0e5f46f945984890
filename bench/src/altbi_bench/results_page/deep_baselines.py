"""The page's sections on the deep baselines: with all other systems, and with the paper."""

import statistics
from collections.abc import Callable, Sequence

from altbi_bench.catalogue.datasets import Dataset, select
from altbi_bench.catalogue.systems import SYSTEMS, find_systems
from altbi_bench.results_page.descriptions import ABOUT, SAMPLE
from altbi_bench.results_page.findings import describe_leaders, has_enough_runs
from altbi_bench.results_page.summaries import Evidence, format_summary, format_tables
from altbi_bench.runs.runner import Question
from altbi_bench.tables.comparison import Comparison, compare
from altbi_bench.tables.formatting import format_cells, format_differences, format_missing
from altbi_bench.tables.grids import markdown_grid

__all__ = [
    "COMPARED",
    "REDUCED",
    "deep_findings",
    "deep_sections",
    "on_small_tables",
    "small_tables",
]

MAX_PARTITION_ROWS = 10_000
# One seed for all: the slow ones have no more.
FIRST_SEED = Question("transductive", SAMPLE, seeds=(0,))
PUBLISHED = Question("dte")
REDUCED = "ICL (100 epochs)"
# One system for each of the paper's 25 columns, and ours.
COMPARED = (
    *("ALTBI", "ALTBI-I (reference)", "ALTBI-G (light)", "ODIM"),
    *(name for name in SYSTEMS if SYSTEMS[name].recipe.package == "pyod"),
    *("DAGMM", "DeepSVDD", "DROCC", "GOAD", REDUCED, "PlanarFlow", "DDPM", "DTE-IG", "DTE-C"),
)

ALL_BUT_ONE = [name for name in COMPARED if name != REDUCED]

ColumnSelection = Callable[[Evidence, str], Comparison]


def deep_findings(evidence: Evidence) -> list[str]:
    """Return sentences about the best systems, including the deep baselines."""
    where = (
        f"With the deep baselines, on tables of up to {MAX_PARTITION_ROWS:,} rows and with one seed"
    )
    found = {where: ALL_BUT_ONE, f"With {REDUCED} too, where it was run": COMPARED}
    deep = {name for name in SYSTEMS if SYSTEMS[name].is_deep}
    sentences = []
    for start, names in found.items():
        asked = on_small_tables(names)
        auc, precision = asked(evidence, "auc"), asked(evidence, "average_precision")
        if deep & set(auc.systems) and has_enough_runs(auc):
            sentences.append(f"{start}, {describe_leaders(auc, precision)}")
    return sentences


def deep_sections(evidence: Evidence) -> list[str]:
    """Return the sections on all systems on small tables, and on the deep ones and the paper."""
    deep = [name for name in SYSTEMS if SYSTEMS[name].is_deep]
    if not any(run.system in deep and not run.smoke for run in evidence.runs):
        return []
    return [
        "## With the deep baselines",
        ABOUT["deep"],
        *format_summary(evidence, on_small_tables(ALL_BUT_ONE)),
        *_with_reduced(evidence),
        *format_tables(evidence, on_small_tables(["ALTBI", *deep]), ("auc",)),
        *_not_run(evidence, deep),
        *_over_seeds(evidence, deep),
        "## The deep baselines replayed",
        ABOUT["deep dte"],
        *_replayed(evidence, deep),
    ]


def _with_reduced(evidence: Evidence) -> list[str]:
    select_columns = on_small_tables(COMPARED)
    if REDUCED not in select_columns(evidence, "auc").systems:
        return []
    return [
        f"The same with {REDUCED}, on the tables where it was run:",
        *format_summary(evidence, select_columns),
    ]


def _over_seeds(evidence: Evidence, deep: Sequence[str]) -> list[str]:
    """Format the standard deviation over seeds of systems that have three."""
    once = on_small_tables(deep)(evidence, "auc")
    found = compare(evidence.runs, "auc", Question("transductive", SAMPLE), find_systems(deep))
    rows = []
    for name in once.systems:
        ran = found.only([line.dataset for line in once.lines if line.ours[name]]).lines
        stds = [cell.std for line in ran if (cell := line.ours[name]) and cell.std is not None]
        if stds and len(stds) == len(once.scores[name]):
            mean = statistics.fmean(cell.mean for line in ran if (cell := line.ours[name]))
            numbers = (mean, statistics.fmean(stds), max(stds))
            rows.append([name, str(len(stds)), *(f"{number:.3f}" for number in numbers)])
    head = ["system", "tables", "AUC", "mean standard deviation over seeds", "largest"]
    about = "The quick ones have three seeds:"
    return [about, markdown_grid([head, *rows])] if rows else []


def small_tables() -> list[Dataset]:
    """Return the tables that are small enough for the slowest systems."""
    return [
        each for each in select(suite="tables") if (each.parts[0].n_rows or 0) <= MAX_PARTITION_ROWS
    ]


def on_small_tables(names: Sequence[str]) -> ColumnSelection:
    """Return a function that compares some systems on small tables, with one seed."""

    def select_columns(evidence: Evidence, metric: str) -> Comparison:
        found = compare(evidence.runs, metric, FIRST_SEED, find_systems(names))
        return found.only(small_tables()).that_ran()

    return select_columns


def _not_run(evidence: Evidence, deep: Sequence[str]) -> list[str]:
    found = on_small_tables(deep)(evidence, "auc")
    return format_missing(evidence.runs, found, small_tables(), find_systems(deep))


def _replayed(evidence: Evidence, deep: Sequence[str]) -> list[str]:
    found = compare(evidence.runs, "auc", PUBLISHED, find_systems(deep)).that_ran()
    if not found.systems:
        return ["No lines yet."]
    return [
        *format_differences(found, markdown_grid),
        markdown_grid(format_cells(found, evidence.places)),
    ]
