"""Tables of the ablations: the paper's B.6 to B.10 and ours, and further measures."""

from collections.abc import Callable, Iterable, Sequence

from altbi_bench.ablation.experiments import panel_points, published_effect, technique_effects
from altbi_bench.ablation.training_analysis import (
    SETTLED,
    WINDOW,
    analyse_memorisation,
    measure_fluctuations,
    published_window,
    window_aucs,
)
from altbi_bench.catalogue.variants import PANELS, Panel
from altbi_bench.runs.records import Run
from altbi_bench.statistics import paired_effect
from altbi_bench.tables.grids import markdown_grid
from altbi_bench.traces.trace import Trace

__all__ = ["ablation_tables"]

# Gaps of losses in [0, 1] that one may ask for.
GAPS = (0.0, 0.01, 0.05, 0.1)
MOST = 0.5

Grid = Callable[[Sequence[Sequence[str]]], str]


def ablation_tables(
    runs: Sequence[Run],
    traces: Sequence[Trace],
    grid: Grid = markdown_grid,
    panels: Iterable[Panel] = tuple(PANELS.values()),
) -> list[str]:
    """Format all tables with records, each with an introduction."""
    parts = [_techniques(runs, grid), *(_panel(runs, panel, grid) for panel in panels)]
    parts += [_windows(traces, grid), _wobbles(traces, grid), *_memorised(traces, grid)]
    return [part for part in parts if part]


def _techniques(runs: Sequence[Run], grid: Grid) -> str:
    effects, n_seeds = technique_effects(runs)
    if not effects:
        return ""
    rows = [["what ALTBI-I gains by", "AUC", "paper"]]
    for title, effect in effects.items():
        paper = published_effect(title)
        rows.append([title, str(effect), "" if paper is None else f"{paper:+.3f}"])
    n = next(iter(effects.values())).n_datasets
    about = (
        f"The two techniques, {n} tables, {seeds_text(n_seeds)}, with 95 % intervals (the tables "
        "of single settings below have fewer seeds, and more chance in them):"
    )
    return f"{about}\n\n{grid(rows)}"


def _panel(runs: Sequence[Run], panel: Panel, grid: Grid) -> str:
    points, n_tables, n_seeds = panel_points(runs, panel)
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
    wide = f" of up to {panel.max_features} columns"
    about = f"{panel.name} (in the paper {table}), {n_tables} tables{wide}, {seeds_text(n_seeds)}"
    about += f"; {panel.note}:" if panel.note else ":"
    return f"{about}\n\n{grid(rows)}"


def _windows(traces: Sequence[Trace], grid: Grid) -> str:
    found = window_aucs(traces)
    if not found:
        return ""
    rows = [["T1-T2", "AUC", f"{WINDOW} against it", "paper"]]
    for name, aucs in found.items():
        paper = published_window(name)
        title = name + (" (authors' code)" if name == WINDOW else "")
        gain = "" if name == WINDOW else str(paired_effect(found[WINDOW] - aucs))
        rows.append([title, f"{aucs.mean():.3f}", gain, "" if paper is None else f"{paper:.3f}"])
    about = (
        f"(T1, T2) (in the paper Table B.10), {len(found[WINDOW])} tables, the snapshots of the "
        "steps T1 + 1 to T2 averaged:"
    )
    return f"{about}\n\n{grid(rows)}"


def _wobbles(traces: Sequence[Trace], grid: Grid) -> str:
    found = measure_fluctuations(traces)
    if not found:
        return ""
    rows = [["", "tables", "growing", "constant", "difference"]]
    for each in found:
        n, effect = each.effect.n_datasets, f"{each.effect:.4f}"
        rows.append([each.title, str(n), f"{each.growing:.4f}", f"{each.constant:.4f}", effect])
    about = (
        f"Fluctuation: mean absolute change of AUC from one step to the next, after the first "
        f"{SETTLED}, with growing and with constant batches:"
    )
    return f"{about}\n\n{grid(rows)}"


def _memorised(traces: Sequence[Trace], grid: Grid) -> list[str]:
    found = analyse_memorisation(traces)
    if not found:
        return []
    head = ["gap above", "tables: in all steps", f"in {MOST:.0%} of them"]
    counts = [[*head, "in the mean of the last snapshots"]]
    for gap in GAPS:
        shares = [each.find_risk_range(gap).share for each in found]
        last = sum(each.last_gap > gap for each in found)
        numbers = (
            sum(share == 1 for share in shares),
            sum(share >= MOST for share in shares),
            last,
        )
        counts.append([f"{gap:g}", *(f"{number} of {len(found)}" for number in numbers)])
    rows = [["table", "a1", "a2", "a3", "steps in the range", "last gap"]]
    for each in sorted(found, key=lambda each: -each.last_gap):
        held = each.find_risk_range(0)
        constants = ("" if v is None else f"{v:.4f}" for v in (held.a1, held.a2, held.a3))
        rows.append([each.table, *constants, f"{held.share:.0%}", f"{each.last_gap:+.3f}"])
    return [
        "Assumption 1 along these trainings, from the end of the warm-up to step 80, losses in "
        "[0, 1]: on how many tables the gap between the losses of outliers and inliers is above a "
        "number in a range of low inlier risks that all or half of the steps lie in:\n\n"
        f"{grid(counts)}",
        "By table: the widest such range for a3 > 0 (none where outliers lose less when the "
        "inlier risk is lowest), the share of the steps in it, and the mean gap of the last "
        f"snapshots:\n\n{grid(rows)}",
    ]


def seeds_text(n: int) -> str:
    """Format a number of seeds.

    >>> seeds_text(1)
    '1 seed'
    """
    return f"{n} seed" if n == 1 else f"{n} seeds"
