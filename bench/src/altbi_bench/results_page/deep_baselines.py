"""Sections on the deep baselines: compared with all other systems, and with the paper."""

import statistics
from collections.abc import Callable, Sequence

from altbi_bench.catalogue.datasets import Dataset, select
from altbi_bench.catalogue.systems import SYSTEMS, find_systems
from altbi_bench.results_page.descriptions import ABOUT, SAMPLE
from altbi_bench.results_page.findings import describe_leaders, has_enough_runs
from altbi_bench.results_page.summaries import PageRecords, format_summary, format_tables
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

MAX_ROWS = 10_000
# One seed for all, because slow systems have only one.
FIRST_SEED = Question("transductive", SAMPLE, seeds=(0,))
PUBLISHED = Question("dte")
REDUCED = "ICL (100 epochs)"
# One system for each of the paper's 25 columns, and `OutlierDetector`.
COMPARED = (
    *("ALTBI", "ALTBI-I (reference)", "ALTBI-G (light)", "ODIM"),
    *(name for name in SYSTEMS if SYSTEMS[name].recipe.package == "pyod"),
    *("DAGMM", "DeepSVDD", "DROCC", "GOAD", REDUCED, "PlanarFlow", "DDPM", "DTE-IG", "DTE-C"),
)

ALL_BUT_REDUCED = [name for name in COMPARED if name != REDUCED]

ColumnSelection = Callable[[PageRecords, str], Comparison]


def deep_findings(records: PageRecords) -> list[str]:
    """Return sentences about the best systems, including the deep baselines."""
    where = f"With the deep baselines, on tables of up to {MAX_ROWS:,} rows and with one seed"
    found = {where: ALL_BUT_REDUCED, f"With {REDUCED} too, where it was run": COMPARED}
    deep = {name for name in SYSTEMS if SYSTEMS[name].is_deep}
    sentences = []
    for start, names in found.items():
        compare_on = on_small_tables(names)
        auc, precision = (compare_on(records, each) for each in ("auc", "average_precision"))
        if deep & set(auc.systems) and has_enough_runs(auc):
            sentences.append(f"{start}, {describe_leaders(auc, precision)}")
    return sentences


def deep_sections(records: PageRecords) -> list[str]:
    """Return the sections on all systems on small tables, and on the deep ones and the paper."""
    deep = [name for name in SYSTEMS if SYSTEMS[name].is_deep]
    if not any(run.system in deep and not run.smoke for run in records.runs):
        return []
    return [
        "## With the deep baselines",
        ABOUT["deep"],
        *format_summary(records, on_small_tables(ALL_BUT_REDUCED)),
        *_format_with_reduced(records),
        *format_tables(records, on_small_tables(["ALTBI", *deep]), ("auc",)),
        *_format_not_run(records, deep),
        *_format_seeds(records, deep),
        "## The deep baselines replayed",
        ABOUT["deep dte"],
        *_format_replayed(records, deep),
    ]


def _format_with_reduced(records: PageRecords) -> list[str]:
    select_columns = on_small_tables(COMPARED)
    if REDUCED not in select_columns(records, "auc").systems:
        return []
    return [
        f"The same with {REDUCED}, on the tables where it was run:",
        *format_summary(records, select_columns),
    ]


def _format_seeds(records: PageRecords, deep: Sequence[str]) -> list[str]:
    """Format the standard deviation over seeds of systems that have three."""
    once = on_small_tables(deep)(records, "auc")
    found = compare(records.runs, "auc", Question("transductive", SAMPLE), find_systems(deep))
    rows = []
    for name in once.systems:
        ran = found.only([each.dataset for each in once.results if each.ours[name]]).results
        stds = [cell.std for each in ran if (cell := each.ours[name]) and cell.std is not None]
        if stds and len(stds) == len(once.scores[name]):
            mean = statistics.fmean(cell.mean for each in ran if (cell := each.ours[name]))
            numbers = (mean, statistics.fmean(stds), max(stds))
            rows.append([name, str(len(stds)), *(f"{number:.3f}" for number in numbers)])
    head = ["system", "tables", "AUC", "mean standard deviation over seeds", "largest"]
    about = "Fast systems have three seeds:"
    return [about, markdown_grid([head, *rows])] if rows else []


def small_tables() -> list[Dataset]:
    """Return the tables that are small enough for the slowest systems."""
    return [each for each in select(suite="tables") if (each.files[0].n_rows or 0) <= MAX_ROWS]


def on_small_tables(names: Sequence[str]) -> ColumnSelection:
    """Return a function that compares some systems on small tables, with one seed."""

    def select_columns(records: PageRecords, metric: str) -> Comparison:
        found = compare(records.runs, metric, FIRST_SEED, find_systems(names))
        return found.only(small_tables()).drop_empty_systems()

    return select_columns


def _format_not_run(records: PageRecords, deep: Sequence[str]) -> list[str]:
    found = on_small_tables(deep)(records, "auc")
    return format_missing(records.runs, found, small_tables(), find_systems(deep))


def _format_replayed(records: PageRecords, deep: Sequence[str]) -> list[str]:
    found = compare(records.runs, "auc", PUBLISHED, find_systems(deep)).drop_empty_systems()
    if not found.systems:
        return ["No records yet."]
    return [
        *format_differences(found, markdown_grid),
        markdown_grid(format_cells(found, records.links)),
    ]
