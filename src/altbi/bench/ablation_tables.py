"""The ablations as tables: the paper's B.6 to B.10 beside ours, and what was measured besides."""

from collections.abc import Callable, Sequence

from altbi.bench.ablation import panel_points, published_effect, technique_effects
from altbi.bench.grid import markdown_grid
from altbi.bench.lines import Run
from altbi.bench.traces import Trace
from altbi.bench.variants import PANELS, Panel
from altbi.bench.watching import (
    LAST,
    WINDOW,
    averaged,
    memorised,
    published_window,
    window_aucs,
    wobbles,
)

__all__ = ["ablation_tables"]

# Gaps of losses in [0, 1] that one may ask for.
GAPS = (0.0, 0.01, 0.05, 0.1)
MOST = 0.5

Grid = Callable[[Sequence[Sequence[str]]], str]


def ablation_tables(
    runs: Sequence[Run], traces: Sequence[Trace], grid: Grid = markdown_grid
) -> list[str]:
    """Write all tables of which there are lines, a sentence before each."""
    parts = [_techniques(runs, grid), *(_panel(runs, panel, grid) for panel in PANELS.values())]
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
    about = f"The two techniques, {n} tables, {seeds_text(n_seeds)}, with 95 % intervals:"
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
    wide = f" of up to {panel.most_features} columns" if panel.most_features else ""
    about = f"{panel.name} (in the paper {table}), {n_tables} tables{wide}, {seeds_text(n_seeds)}:"
    return f"{about}\n\n{grid(rows)}"


def _windows(traces: Sequence[Trace], grid: Grid) -> str:
    found, single = window_aucs(traces)
    gain = averaged(traces)
    if gain is None:
        return ""
    rows = [["snapshots of the steps", "AUC", "paper"]]
    for name, aucs in found.items():
        paper = published_window(name)
        title = name + (" (authors' code)" if name == WINDOW else "")
        rows.append([title, f"{aucs.mean():.3f}", "" if paper is None else f"{paper:.3f}"])
    rows.append([f"{LAST} alone", f"{single.mean():.3f}", ""])
    about = (
        f"(T1, T2) (in the paper Table B.10), {len(single)} tables; the average {WINDOW} gains "
        f"{gain} against the last snapshot alone:"
    )
    return f"{about}\n\n{grid(rows)}"


def _wobbles(traces: Sequence[Trace], grid: Grid) -> str:
    found = wobbles(traces)
    if not found:
        return ""
    rows = [["", "growing", "constant", "difference"]]
    for each in found:
        rows.append([each.title, f"{each.growing:.4f}", f"{each.constant:.4f}", str(each.effect)])
    about = (
        "Fluctuation: mean absolute change of AUC from one step to the next, from the 50th on, "
        f"{found[0].effect.n_datasets} tables, with growing and with constant batches (each step "
        "is judged with other draws, which is part of it):"
    )
    return f"{about}\n\n{grid(rows)}"


def _memorised(traces: Sequence[Trace], grid: Grid) -> list[str]:
    found = memorised(traces)
    if not found:
        return []
    head = ["gap of at least (a3)", "tables: in all steps", f"in {MOST:.0%} of them"]
    counts = [[*head, "in the mean of the last snapshots"]]
    for gap in GAPS:
        shares = [each.held(gap).share for each in found]
        last = sum(each.last_gap > gap for each in found)
        numbers = (
            sum(share == 1 for share in shares),
            sum(share >= MOST for share in shares),
            last,
        )
        counts.append([f"{gap:g}", *(f"{number} of {len(found)}" for number in numbers)])
    rows = [["table", "a1", "a2", "a3", "steps in the range", "last gap"]]
    for each in sorted(found, key=lambda each: -each.last_gap):
        held = each.held(0)
        constants = ("" if v is None else f"{v:.3f}" for v in (held.a1, held.a2, held.a3))
        rows.append([each.table, *constants, f"{held.share:.0%}", f"{each.last_gap:+.3f}"])
    return [
        "Assumption 1, from the end of the warm-up to step 80, losses in [0, 1]: on how many "
        "tables outliers lose more than inliers by a3 in a range of low inlier risks that all or "
        f"most of the steps lie in:\n\n{grid(counts)}",
        "By table: the widest such range for a3 > 0 (none where outliers lose less when the "
        "inlier risk is lowest), the share of the steps in it, and the mean gap of the last "
        f"snapshots:\n\n{grid(rows)}",
    ]


def seeds_text(n: int) -> str:
    """Say how many seeds.

    >>> seeds_text(1)
    '1 seed'
    """
    return f"{n} seed" if n == 1 else f"{n} seeds"
