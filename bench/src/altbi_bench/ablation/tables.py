"""Tables of the ablations: the paper's B.6 to B.10 with our numbers, and further measures."""

from collections.abc import Callable, Iterable, Sequence

from altbi_bench.ablation.experiments import (
    compute_points,
    compute_technique_effects,
    find_published_effect,
)
from altbi_bench.ablation.training_analysis import (
    SKIPPED_UPDATES,
    WINDOW,
    analyse_memorisation,
    compute_window_aucs,
    find_published_window,
    measure_fluctuations,
)
from altbi_bench.catalogue.variants import PANELS, Panel
from altbi_bench.runs.records import Run
from altbi_bench.statistics import paired_effect
from altbi_bench.tables.grids import markdown_grid
from altbi_bench.traces.trace import Trace

__all__ = ["ablation_tables"]

# Differences of losses in [0, 1] that are counted.
LOSS_DIFFERENCES = (0.0, 0.01, 0.05, 0.1)
MOST_STEPS = 0.5

Grid = Callable[[Sequence[Sequence[str]]], str]


def ablation_tables(
    runs: Sequence[Run],
    traces: Sequence[Trace],
    grid: Grid = markdown_grid,
    panels: Iterable[Panel] = tuple(PANELS.values()),
) -> list[str]:
    """Format all tables with records, each with an introduction."""
    tables = [_format_techniques(runs, grid)]
    tables += [_format_panel(runs, panel, grid) for panel in panels]
    tables += [_format_windows(traces, grid), _format_fluctuations(traces, grid)]
    tables += _format_memorisation(traces, grid)
    return [table for table in tables if table]


def _format_techniques(runs: Sequence[Run], grid: Grid) -> str:
    effects, n_seeds = compute_technique_effects(runs)
    if not effects:
        return ""
    rows = [["gain of ALTBI-I by", "AUC", "paper"]]
    for title, effect in effects.items():
        paper = find_published_effect(title)
        rows.append([title, str(effect), "" if paper is None else f"{paper:+.3f}"])
    n = next(iter(effects.values())).n_datasets
    about = (
        f"The two techniques, {n} tables, {format_seeds(n_seeds)}, with 95 % intervals (the tables "
        "of single settings below have fewer seeds and are noisier):"
    )
    return f"{about}\n\n{grid(rows)}"


def _format_panel(runs: Sequence[Run], panel: Panel, grid: Grid) -> str:
    points, n_tables, n_seeds = compute_points(runs, panel)
    if not points:
        return ""
    base = next(point.paper for point in points if point.effect is None)
    rows = [[panel.name, "AUC", "against the default", "paper", "against its default"]]
    for point in points:
        rows.append(
            [
                f"{point.value:g}",
                f"{point.auc:.3f}",
                "default" if point.effect is None else str(point.effect),
                "" if point.paper is None else f"{point.paper:.3f}",
                "" if point.paper is None or base is None else f"{point.paper - base:+.3f}",
            ]
        )
    table = f"Table {panel.table}" if panel.table else "a figure without numbers"
    width = f" of up to {panel.max_features} columns"
    about = (
        f"{panel.name} (in the paper {table}), {n_tables} tables{width}, {format_seeds(n_seeds)}"
    )
    about += f"; {panel.note}:" if panel.note else ":"
    return f"{about}\n\n{grid(rows)}"


def _format_windows(traces: Sequence[Trace], grid: Grid) -> str:
    found = compute_window_aucs(traces)
    if not found:
        return ""
    rows = [["T1-T2", "AUC", f"{WINDOW} against it", "paper"]]
    for name, aucs in found.items():
        paper = find_published_window(name)
        title = name + (" (authors' code)" if name == WINDOW else "")
        gain = "" if name == WINDOW else str(paired_effect(found[WINDOW] - aucs))
        rows.append([title, f"{aucs.mean():.3f}", gain, "" if paper is None else f"{paper:.3f}"])
    about = (
        f"(T1, T2) (in the paper Table B.10), {len(found[WINDOW])} tables, mean of the snapshots "
        "of the steps T1 + 1 to T2:"
    )
    return f"{about}\n\n{grid(rows)}"


def _format_fluctuations(traces: Sequence[Trace], grid: Grid) -> str:
    found = measure_fluctuations(traces)
    if not found:
        return ""
    rows = [["", "tables", "growing", "constant", "difference"]]
    for each in found:
        n, effect = each.effect.n_datasets, f"{each.effect:.4f}"
        rows.append([each.title, str(n), f"{each.growing:.4f}", f"{each.constant:.4f}", effect])
    about = (
        f"Fluctuation: mean absolute change of AUC from one step to the next, after the first "
        f"{SKIPPED_UPDATES}, with growing and with constant batches:"
    )
    return f"{about}\n\n{grid(rows)}"


def _format_memorisation(traces: Sequence[Trace], grid: Grid) -> list[str]:
    found = analyse_memorisation(traces)
    if not found:
        return []
    head = ["difference above", "tables: in all steps", f"in at least {MOST_STEPS:.0%}"]
    counts = [[*head, "in the mean of the last snapshots"]]
    for least in LOSS_DIFFERENCES:
        shares = [each.find_risk_range(least).share for each in found]
        last = sum(each.last_difference > least for each in found)
        numbers = (
            sum(share == 1 for share in shares),
            sum(share >= MOST_STEPS for share in shares),
            last,
        )
        counts.append([f"{least:g}", *(f"{number} of {len(found)}" for number in numbers)])
    rows = [["table", "a1", "a2", "a3", "steps in the range", "last difference"]]
    for each in sorted(found, key=lambda each: -each.last_difference):
        found_range = each.find_risk_range(0)
        constants = (
            "" if v is None else f"{v:.4f}"
            for v in (found_range.a1, found_range.a2, found_range.a3)
        )
        rows.append(
            [each.table, *constants, f"{found_range.share:.0%}", f"{each.last_difference:+.3f}"]
        )
    return [
        "Assumption 1 in these trainings, from the end of the warm-up to step 80, losses in [0, "
        "1]. Number of tables on which the loss of outliers exceeds that of inliers by more than "
        "a given difference, in a range of low inlier risks with all, or at least half, of the "
        f"steps:\n\n{grid(counts)}",
        "By table: the widest such range with a3 > 0 (none if outliers have smaller losses when "
        "the inlier risk is lowest), the share of the steps in it, and the mean difference of "
        f"the last snapshots:\n\n{grid(rows)}",
    ]


def format_seeds(n: int) -> str:
    """Format a number of seeds.

    >>> format_seeds(1)
    '1 seed'
    """
    return f"{n} seed" if n == 1 else f"{n} seeds"
