"""Figures of runs: bars of all systems, of those fitted on inliers, of privacy; ablations."""

import csv
import statistics
from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import product
from typing import Any

from altbi_bench.ablation.experiments import ROWS, Point, panel_points
from altbi_bench.ablation.tables import seeds_text
from altbi_bench.catalogue.datasets import select
from altbi_bench.catalogue.systems import SYSTEMS
from altbi_bench.catalogue.variants import MAX_FEATURES, PANELS
from altbi_bench.figures.charts import FAMILIES, Bar, Dot, Stroke, bars, panels
from altbi_bench.figures.figure import ABLATION, PRIVACY, RUN_ABLATION, Figure, FigureRecords
from altbi_bench.results_page.deep_baselines import COMPARED, REDUCED, on_small_tables
from altbi_bench.results_page.page import SEMI, main_comparison
from altbi_bench.statistics import Effect, paired_effect
from altbi_bench.tables.comparison import Comparison, compare, shared_means

__all__ = ["ablations", "all_systems", "deep_systems", "fitted_on_inliers", "under_privacy"]

AUC_FROM = 0.4
DIFFUSION = ("DTE-NP", "DTE-C", "DTE-IG", "DDPM")
CENSUS = "census"  # rebuilt, not ADBench's
PRIVATE = {
    "without noise": ("loss", "loss, neither"),
    "epsilon 10": ("epsilon 10", "epsilon 10, neither"),
}
TECHNIQUE_COLOURS = {"growth and truncation": FAMILIES["classic"], "neither": FAMILIES["diffusion"]}


def _family(name: str) -> str:
    if name in DIFFUSION:
        return "diffusion"
    if SYSTEMS[name].is_deep:
        return "deep"
    return "memorisation" if SYSTEMS[name].recipe.package == "altbi" else "classic"


def _ranked(found: Comparison) -> list[Bar]:
    """Return the systems by mean AUC over the shared tables, best first."""
    shared, means = shared_means(found)
    rows = []
    for name in sorted(means, key=lambda name: -means[name]):
        cells = [cell for line in shared if (cell := line.ours[name]) is not None]
        stds = [cell.std for cell in cells if cell.std is not None]
        std = statistics.fmean(stds) if stds else None
        rows.append(Bar(name, means[name], std, _family(name)))
    return rows


def _bars(found: Comparison, title: str) -> str | None:
    rows = _ranked(found)
    return bars(rows, title=title, kinds=FAMILIES, lowest=AUC_FROM) if rows else None


def all_systems(lines: FigureRecords) -> Figure:
    """Draw the paper's bars of all systems."""
    found = main_comparison(lines.evidence)
    rows, n = _ranked(found), len(shared_means(found)[0])
    order = [row.name for row in rows]
    text = (
        f"Mean AUC over {n} tables, at most 20,000 rows of each, three seeds; whiskers are the "
        "mean standard deviation over seeds. The paper has ALTBI-I first, ALTBI-G second, on "
        f"inputs that differ between systems; on identical rows {_places(order)}."
    )
    svg = _bars(found, f"mean AUC, {n} tables")
    return Figure("systems", "All systems", svg, text, "`altbi-bench run`", "transductive.jsonl")


def _places(order: Sequence[str]) -> str:
    asked = [name for name in ("ALTBI-I (reference)", "ALTBI-G (light)", "ALTBI") if name in order]
    places = [f"{name} is {order.index(name) + 1} of {len(order)}" for name in asked]
    return ", ".join(places)


def deep_systems(lines: FigureRecords) -> Figure:
    """Draw them again with the deep baselines, on small tables."""
    names = [name for name in COMPARED if name != REDUCED]
    found = on_small_tables(names)(lines.evidence, "auc")
    rows, n = _ranked(found), len(shared_means(found)[0])
    order = [row.name for row in rows]
    deep = [name for name in order if SYSTEMS[name].is_deep]
    text = (
        f"All systems of the paper's tables but ICL on the {n} tables of up to 10,000 rows that "
        f"all of them ran, one seed. {_places(order)}; the best of the deep baselines is "
        f"{deep[0] if deep else 'not run'}; by the paper's numbers of the same tables it is "
        f"{_best_published(found, deep)}."
    )
    command = f'`altbi-bench run --seeds 1 --limit 3600 --systems "{",".join(names)}"`'
    svg = _bars(found, f"mean AUC, {n} tables, one seed")
    return Figure("deep", "With the deep baselines", svg, text, command, "transductive.jsonl")


def _best_published(found: Comparison, names: Sequence[str]) -> str:
    """Return the system with the highest mean in the paper over the same tables."""
    shared = shared_means(found)[0]
    means = {
        name: statistics.fmean(paper)
        for name in names
        if (paper := [number for line in shared if (number := line.paper.get(name)) is not None])
    }
    return max(means, key=lambda name: means[name], default="none")


def ablations(lines: FigureRecords) -> Figure:
    """Draw one panel for each parameter."""
    title = "Ablations"
    drawn, told, logs = {}, [], set()
    for panel in PANELS.values():
        points, n_tables, n_seeds = panel_points(lines.variants, panel)
        if not points:
            continue
        base = next(point.auc for point in points if point.effect is None)
        name = f"{panel.name} ({n_tables} tables, {seeds_text(n_seeds)})"
        logs |= {name} if panel.logarithmic else set()
        ours = [_effect_dot(point.value, point.auc, base, point.effect) for point in points]
        paper = [Dot(point.value, point.paper) for point in points if point.paper is not None]
        drawn[name] = [Stroke("ours", ours), *([Stroke("paper", paper)] if paper else [])]
        best = max(points, key=lambda point: point.auc)
        theirs = max((point for point in points if point.paper), key=_published, default=None)
        there = "" if theirs is None else f"; in the paper {theirs.value:g}"
        told.append(f"{panel.name} {best.value:g} ({best.effect or 'the default'}{there})")
    if not drawn:
        return Figure("ablation", title, None, "", RUN_ABLATION, ABLATION)
    text = (
        "One setting of ALTBI-I changed at a time; whiskers are the intervals of the difference "
        "from the default, which has none. The paper's numbers are about 57 data sets, ours about "
        f"all tables of up to {MAX_FEATURES} columns, at most {ROWS:,} rows of each (K: up to "
        f"{PANELS['n_samples'].max_features} columns, for the decoder works on K times as many "
        "rows), so that only the shapes can be compared. The best values here, and what they gain "
        f"over the default: {', '.join(told)}. The tables below have all of them."
    )
    svg = panels(
        drawn, x_title="", y_title="mean AUC", logarithmic=frozenset(logs), size=(330, 190)
    )
    return Figure("ablation", title, svg, text, RUN_ABLATION, ABLATION)


def _published(point: Point) -> float:
    return point.paper or 0.0


def _effect_dot(value: float, auc: float, base: float, effect: Effect | None) -> Dot:
    if effect is None:
        return Dot(value, auc)
    return Dot(value, auc, base + effect.low, base + effect.high)


def fitted_on_inliers(lines: FigureRecords) -> Figure:
    """Draw the bars of the semi-supervised setting."""
    title = "Fitted on inliers alone"
    found = compare(lines.evidence.runs, "auc", SEMI).only(select(suite="tables")).that_ran()
    rows, n = _ranked(found), len(shared_means(found)[0])
    order = [row.name for row in rows]
    text = (
        f"Fitted on 70 % of the inliers, judged by the others and all outliers: mean AUC over {n} "
        "tables, three seeds; whiskers are the mean standard deviation over seeds. The paper calls "
        f"ALTBI near the state of the art there; on identical rows {_places(order)}, and the "
        f"first is {order[0] if order else 'none'}."
    )
    svg = _bars(found, f"mean AUC, {n} tables")
    return Figure("semi", title, svg, text, "`altbi-bench run --protocol semi`", "semi.jsonl")


def under_privacy(lines: FigureRecords) -> Figure:
    """Draw the bars of privacy, the paper's beside ours."""
    title, command = "Under a privacy budget", "`python bench/scripts/privacy.py`"
    found = _private_aucs(lines.private)
    if not found:
        return Figure("private", title, None, "", command, PRIVACY)
    paper = _published_private()
    shared = [table for table in sorted(found) if table in paper]
    rows = []
    for (noise, pair), (source, aucs) in product(
        PRIVATE.items(), (("ours", found), ("paper", paper))
    ):
        for kind, setting in zip(TECHNIQUE_COLOURS, pair, strict=True):
            mean = statistics.fmean(aucs[table][setting] for table in shared)
            rows.append(Bar(f"{noise}, {kind} ({source})", mean, None, kind))
    told = "; ".join(
        f"{noise} {_gain(found, shared, pair)}, in the paper's table {_gain(paper, shared, pair)}"
        for noise, pair in PRIVATE.items()
    )
    text = (
        f"Mean test AUC over {len(shared)} tables of the paper's Table B.11, its own numbers for "
        f"the same tables beside ours. What growth and truncation gain: {told}. The paper says "
        "that they make privacy cheaper. [privacy.md](benchmark/privacy.md) says why its "
        "procedure does not give the epsilon that it states, and why its first column, with "
        "both and without noise, "
        "cannot be that of these tables."
    )
    svg = bars(rows, title="mean AUC of the test rows", kinds=TECHNIQUE_COLOURS, lowest=AUC_FROM)
    return Figure("private", title, svg, text, command, PRIVACY)


def _gain(
    aucs: Mapping[str, Mapping[str, float]], tables: Sequence[str], pair: tuple[str, str]
) -> Effect:
    return paired_effect([aucs[table][pair[0]] - aucs[table][pair[1]] for table in tables])


def _private_aucs(lines: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Average over seeds: table -> setting -> AUC, for the tables that have all four settings."""
    settings = [setting for pair in PRIVATE.values() for setting in pair]
    last = {(line["table"], line["setting"], line["seed"]): line["auc"] for line in lines}
    found: dict[str, dict[str, list[float]]] = {}
    for (table, setting, _), auc in last.items():
        if table != CENSUS and setting in settings and auc is not None:
            found.setdefault(table, {}).setdefault(setting, []).append(auc)
    return {
        table: {setting: statistics.fmean(aucs) for setting, aucs in by_setting.items()}
        for table, by_setting in found.items()
        if set(by_setting) == set(settings)
    }


def _published_private() -> dict[str, dict[str, float]]:
    """Read the paper's Table B.11: table -> setting -> AUC."""
    source = resources.files("altbi_bench") / "paper" / "privacy.csv"
    with source.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        pair = PRIVATE["epsilon 10" if row["dp"] == "yes" else "without noise"]
        setting = pair[0] if float(row["rho"]) < 1 else pair[1]
        found.setdefault(row["dataset"], {})[setting] = float(row["test_auc"])
    return found
