"""Figures of runs: all systems, fits on inliers, privacy budgets, ablations."""

import csv
import statistics
from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import product
from typing import Any

from altbi_bench.ablation.experiments import ROWS, Point, compute_points
from altbi_bench.ablation.tables import format_seeds
from altbi_bench.catalogue.datasets import select
from altbi_bench.catalogue.systems import SYSTEMS
from altbi_bench.catalogue.variants import MAX_FEATURES, PANELS
from altbi_bench.figures.charts import FAMILIES, Bar, Dot, Stroke, draw_bars, draw_panels
from altbi_bench.figures.figure import ABLATION, PRIVACY, RUN_ABLATION, Figure, FigureRecords
from altbi_bench.results_page.deep_baselines import COMPARED, REDUCED, on_small_tables
from altbi_bench.results_page.page import SEMI, main_comparison
from altbi_bench.statistics import Effect, paired_effect
from altbi_bench.tables.comparison import Comparison, compare, shared_means

__all__ = [
    "draw_ablations",
    "draw_all_systems",
    "draw_deep_systems",
    "draw_inlier_fits",
    "draw_privacy",
]

MIN_AUC = 0.4
DIFFUSION = ("DTE-NP", "DTE-C", "DTE-IG", "DDPM")
CENSUS = "census"  # rebuilt, not ADBench's
PRIVATE = {
    "without noise": ("loss", "loss, neither"),
    "epsilon 10": ("epsilon 10", "epsilon 10, neither"),
}
TECHNIQUE_COLOURS = {"growth and truncation": FAMILIES["classic"], "neither": FAMILIES["diffusion"]}


def _find_family(name: str) -> str:
    if name in DIFFUSION:
        return "diffusion"
    if SYSTEMS[name].is_deep:
        return "deep"
    return "memorisation" if SYSTEMS[name].recipe.package == "altbi" else "classic"


def _rank_systems(found: Comparison) -> list[Bar]:
    """Return the systems by mean AUC over the shared tables, best first."""
    shared, means = shared_means(found)
    rows = []
    for name in sorted(means, key=lambda name: -means[name]):
        cells = [cell for each in shared if (cell := each.ours[name]) is not None]
        stds = [cell.std for cell in cells if cell.std is not None]
        std = statistics.fmean(stds) if stds else None
        rows.append(Bar(name, means[name], std, _find_family(name)))
    return rows


def _draw_systems(found: Comparison, title: str) -> str | None:
    rows = _rank_systems(found)
    return draw_bars(rows, title=title, kinds=FAMILIES, lowest=MIN_AUC) if rows else None


def draw_all_systems(records: FigureRecords) -> Figure:
    """Draw the paper's bar chart of all systems."""
    found = main_comparison(records.page)
    rows, n = _rank_systems(found), len(shared_means(found)[0])
    order = [row.name for row in rows]
    text = (
        f"Mean AUC over {n} tables, at most 20,000 rows of each, three seeds; whiskers are the "
        "mean standard deviation over seeds. The paper has ALTBI-I first, ALTBI-G second, on "
        f"inputs that differ between systems; on identical rows {_describe_ranks(order)}."
    )
    svg = _draw_systems(found, f"mean AUC, {n} tables")
    return Figure("systems", "All systems", svg, text, "`altbi-bench run`", "transductive.jsonl")


def _describe_ranks(order: Sequence[str]) -> str:
    requested = [
        name for name in ("ALTBI-I (reference)", "ALTBI-G (light)", "ALTBI") if name in order
    ]
    ranks = [f"{name} has rank {order.index(name) + 1} of {len(order)}" for name in requested]
    return ", ".join(ranks)


def draw_deep_systems(records: FigureRecords) -> Figure:
    """Draw the bar chart of all systems and the deep baselines, on small tables."""
    names = [name for name in COMPARED if name != REDUCED]
    found = on_small_tables(names)(records.page, "auc")
    rows, n = _rank_systems(found), len(shared_means(found)[0])
    order = [row.name for row in rows]
    deep = [name for name in order if SYSTEMS[name].is_deep]
    text = (
        f"All systems of the paper's tables but ICL on the {n} tables of up to 10,000 rows that "
        f"all of them ran, one seed. {_describe_ranks(order)}; the best of the deep baselines is "
        f"{deep[0] if deep else 'not run'}; by the paper's numbers of the same tables it is "
        f"{_find_best_published(found, deep)}."
    )
    command = f'`altbi-bench run --seeds 1 --limit 3600 --systems "{",".join(names)}"`'
    svg = _draw_systems(found, f"mean AUC, {n} tables, one seed")
    return Figure("deep", "With the deep baselines", svg, text, command, "transductive.jsonl")


def _find_best_published(found: Comparison, names: Sequence[str]) -> str:
    """Return the system with the highest mean in the paper over the same tables."""
    shared = shared_means(found)[0]
    means = {
        name: statistics.fmean(paper)
        for name in names
        if (paper := [number for each in shared if (number := each.paper.get(name)) is not None])
    }
    return max(means, key=lambda name: means[name], default="none")


def draw_ablations(records: FigureRecords) -> Figure:
    """Draw one panel for each parameter."""
    title = "Ablations"
    series, texts, logarithmic = {}, [], set()
    for panel in PANELS.values():
        points, n_tables, n_seeds = compute_points(records.variants, panel)
        if not points:
            continue
        base = next(point.auc for point in points if point.effect is None)
        name = f"{panel.name} ({n_tables} tables, {format_seeds(n_seeds)})"
        logarithmic |= {name} if panel.logarithmic else set()
        ours = [_build_dot(point.value, point.auc, base, point.effect) for point in points]
        paper = [Dot(point.value, point.paper) for point in points if point.paper is not None]
        series[name] = [Stroke("ours", ours), *([Stroke("paper", paper)] if paper else [])]
        best = max(points, key=lambda point: point.auc)
        theirs = max((point for point in points if point.paper), key=_published, default=None)
        there = "" if theirs is None else f"; in the paper {theirs.value:g}"
        texts.append(f"{panel.name} {best.value:g} ({best.effect or 'the default'}{there})")
    if not series:
        return Figure("ablation", title, None, "", RUN_ABLATION, ABLATION)
    text = (
        "One setting of ALTBI-I is changed at a time. Whiskers are intervals of the difference "
        "from the default, which has none. The paper's numbers are about 57 data sets, ours about "
        f"all tables of up to {MAX_FEATURES} columns, at most {ROWS:,} rows of each (K: up to "
        f"{PANELS['n_samples'].max_features} columns, because the decoder runs on K times as many "
        "rows). Only the shapes of the curves can be compared. The best values here, and their "
        f"gain over the default: {', '.join(texts)}. The tables below have all numbers."
    )
    svg = draw_panels(
        series, x_title="", y_title="mean AUC", logarithmic=frozenset(logarithmic), size=(330, 190)
    )
    return Figure("ablation", title, svg, text, RUN_ABLATION, ABLATION)


def _published(point: Point) -> float:
    return point.paper or 0.0


def _build_dot(value: float, auc: float, base: float, effect: Effect | None) -> Dot:
    if effect is None:
        return Dot(value, auc)
    return Dot(value, auc, base + effect.low, base + effect.high)


def draw_inlier_fits(records: FigureRecords) -> Figure:
    """Draw the bar chart of the semi-supervised setting."""
    title = "Fitted on inliers alone"
    found = (
        compare(records.page.runs, "auc", SEMI).only(select(suite="tables")).drop_empty_systems()
    )
    rows, n = _rank_systems(found), len(shared_means(found)[0])
    order = [row.name for row in rows]
    text = (
        f"Fitted on 70 % of the inliers, scored on the others and all outliers: mean AUC over {n} "
        "tables, three seeds; whiskers are the mean standard deviation over seeds. The paper "
        f"calls ALTBI near the state of the art there; on identical rows {_describe_ranks(order)}, "
        f"and the first is {order[0] if order else 'none'}."
    )
    svg = _draw_systems(found, f"mean AUC, {n} tables")
    return Figure("semi", title, svg, text, "`altbi-bench run --protocol semi`", "semi.jsonl")


def draw_privacy(records: FigureRecords) -> Figure:
    """Draw the bar chart of privacy budgets, with the paper's numbers."""
    title, command = "Under a privacy budget", "`python bench/scripts/privacy.py`"
    found = _average_private_aucs(records.private)
    if not found:
        return Figure("private", title, None, "", command, PRIVACY)
    paper = _read_published_private()
    shared = [table for table in sorted(found) if table in paper]
    rows = []
    for (noise, pair), (source, aucs) in product(
        PRIVATE.items(), (("ours", found), ("paper", paper))
    ):
        for kind, setting in zip(TECHNIQUE_COLOURS, pair, strict=True):
            mean = statistics.fmean(aucs[table][setting] for table in shared)
            rows.append(Bar(f"{noise}, {kind} ({source})", mean, None, kind))
    gains = "; ".join(
        f"{noise} {_compute_gain(found, shared, pair)}, in the paper's table "
        f"{_compute_gain(paper, shared, pair)}"
        for noise, pair in PRIVATE.items()
    )
    text = (
        f"Mean test AUC over {len(shared)} tables of the paper's Table B.11, with the paper's "
        f"numbers for the same tables. Gain by growth and truncation: {gains}. The paper says that "
        "they reduce the cost of privacy. [privacy.md](benchmark/privacy.md) explains why its "
        "procedure does not guarantee the stated epsilon, and why its first column, with both and "
        "without noise, belongs to other tables."
    )
    svg = draw_bars(
        rows, title="mean AUC of the test rows", kinds=TECHNIQUE_COLOURS, lowest=MIN_AUC
    )
    return Figure("private", title, svg, text, command, PRIVACY)


def _compute_gain(
    aucs: Mapping[str, Mapping[str, float]], tables: Sequence[str], pair: tuple[str, str]
) -> Effect:
    return paired_effect([aucs[table][pair[0]] - aucs[table][pair[1]] for table in tables])


def _average_private_aucs(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Average over seeds: table -> setting -> AUC, for the tables that have all four settings."""
    settings = [setting for pair in PRIVATE.values() for setting in pair]
    last = {(each["table"], each["setting"], each["seed"]): each["auc"] for each in records}
    found: dict[str, dict[str, list[float]]] = {}
    for (table, setting, _), auc in last.items():
        if table != CENSUS and setting in settings and auc is not None:
            found.setdefault(table, {}).setdefault(setting, []).append(auc)
    return {
        table: {setting: statistics.fmean(aucs) for setting, aucs in by_setting.items()}
        for table, by_setting in found.items()
        if set(by_setting) == set(settings)
    }


def _read_published_private() -> dict[str, dict[str, float]]:
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
