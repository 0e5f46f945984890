"""Figures of runs: bars of all systems, of those fitted on inliers, of privacy; ablations."""

import csv
import statistics
from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import product
from typing import Any

from altbi.bench.ablation import panel_points
from altbi.bench.ablation_tables import seeds_text
from altbi.bench.datasets import select
from altbi.bench.deep import COMPARED, REDUCED, on_small_tables
from altbi.bench.figure_parts import ABLATION, PRIVACY, RUN_ABLATION, Figure, Lines
from altbi.bench.page import SEMI, main_comparison
from altbi.bench.pictures import FAMILIES, Bar, Dot, Stroke, bars, panels
from altbi.bench.statistics import Effect
from altbi.bench.systems import SYSTEMS
from altbi.bench.tables import Comparison, compare, paper_table, shared_means
from altbi.bench.variants import PANELS

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
    """Give the systems by mean AUC over the tables that all have, best first."""
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


def all_systems(lines: Lines) -> Figure:
    """Draw the paper's bars of all systems."""
    found = main_comparison(lines.evidence)
    rows, n = _ranked(found), len(shared_means(found)[0])
    order = [row.name for row in rows]
    text = (
        f"Mean AUC over {n} tables, at most 20,000 rows of each, three seeds; lines are the mean "
        "standard deviation over seeds. The paper has ALTBI-I first, ALTBI-G second, on inputs "
        f"that differ between systems; on identical rows {_places(order)}."
    )
    svg = _bars(found, f"mean AUC, {n} tables")
    return Figure("systems", "All systems", svg, text, "`altbi bench run`", "transductive.jsonl")


def _places(order: Sequence[str]) -> str:
    asked = [name for name in ("ALTBI-I (reference)", "ALTBI-G (light)", "ALTBI") if name in order]
    places = [f"{name} is {order.index(name) + 1} of {len(order)}" for name in asked]
    return ", ".join(places)


def deep_systems(lines: Lines) -> Figure:
    """Draw them again with the deep baselines, on small tables."""
    names = [name for name in COMPARED if name != REDUCED]
    found = on_small_tables(names)(lines.evidence, "auc")
    rows, n = _ranked(found), len(shared_means(found)[0])
    order = [row.name for row in rows]
    deep = [name for name in order if SYSTEMS[name].is_deep]
    text = (
        f"All systems but ICL on the {n} tables of up to 10,000 rows that all of them ran, one "
        f"seed. {_places(order)}; the best of the deep baselines is "
        f"{deep[0] if deep else 'not run'}, in the paper's table {_best_published(deep)}."
    )
    command = '`altbi bench run --seeds 1 --limit 3600 --systems "DTE-C,…"`'
    svg = _bars(found, f"mean AUC, {n} tables, one seed")
    return Figure("deep", "With the deep baselines", svg, text, command, "transductive.jsonl")


def _best_published(names: Sequence[str]) -> str:
    """Name the system whose column in the paper's table has the highest mean."""
    rows = paper_table("auc").values()
    columns = [column for name in names if (column := SYSTEMS[name].column)]
    means = {column: statistics.fmean(row[column] for row in rows) for column in columns}
    return max(means, key=lambda column: means[column], default="none")


def ablations(lines: Lines) -> Figure:
    """Draw one panel for each setting."""
    title = "Ablations"
    drawn, told = {}, []
    for panel in PANELS.values():
        points, n_tables, n_seeds = panel_points(lines.variants, panel)
        if not points:
            continue
        base = next(point.auc for point in points if point.effect is None)
        name = f"{panel.name} ({n_tables} tables, {seeds_text(n_seeds)})"
        ours = [_effect_dot(point.value, point.auc, base, point.effect) for point in points]
        paper = [Dot(point.value, point.paper) for point in points if point.paper is not None]
        drawn[name] = [Stroke("ours", ours), *([Stroke("paper", paper)] if paper else [])]
        best = max(points, key=lambda point: point.auc)
        told.append(f"{panel.name} {best.value:g} ({best.auc - base:+.3f})")
    if not drawn:
        return Figure("ablation", title, None, "", RUN_ABLATION, ABLATION)
    text = (
        "One setting of ALTBI-I changed at a time; intervals are those of the difference from the "
        "default. The paper's numbers are about 57 data sets, ours about the tables named, so "
        "that only the shapes can be compared. Best values here, and what they gain over the "
        f"default: {', '.join(told)}; the tables below say which of all this is more than chance."
    )
    logs = frozenset(name for name in drawn if name.startswith(("learning rate", "K", "n0")))
    svg = panels(
        drawn, x_title="", y_title="mean AUC", columns=2, logarithmic=logs, size=(330, 190)
    )
    return Figure("ablation", title, svg, text, RUN_ABLATION, ABLATION)


def _effect_dot(value: float, auc: float, base: float, effect: Effect | None) -> Dot:
    if effect is None:
        return Dot(value, auc)
    return Dot(value, auc, base + effect.low, base + effect.high)


def fitted_on_inliers(lines: Lines) -> Figure:
    """Draw the bars of the semi-supervised setting."""
    title = "Fitted on inliers alone"
    found = compare(lines.evidence.runs, "auc", SEMI).only(select(suite="tables")).that_ran()
    rows, n = _ranked(found), len(shared_means(found)[0])
    order = [row.name for row in rows]
    text = (
        f"Fitted on 70 % of the inliers, judged by the others and all outliers: mean AUC over {n} "
        "tables, three seeds, with the mean standard deviation over seeds. The paper calls ALTBI "
        f"near the state of the art there; on identical rows {_places(order)}, and the first is "
        f"{order[0] if order else 'none'}."
    )
    svg = _bars(found, f"mean AUC, {n} tables")
    return Figure("semi", title, svg, text, "`altbi bench run --protocol semi`", "semi.jsonl")


def under_privacy(lines: Lines) -> Figure:
    """Draw the bars of privacy, the paper's beside ours."""
    title = "Under a privacy budget"
    ours, n = _private_means(lines.private)
    if not ours:
        return Figure("private", title, None, "", "`python benchmarks/privacy.py`", PRIVACY)
    paper = _published_private()
    rows = []
    kinds = list(TECHNIQUE_COLOURS)
    for (noise, pair), source in product(PRIVATE.items(), ("ours", "paper")):
        for kind, setting in zip(kinds, pair, strict=True):
            value = ours[setting] if source == "ours" else paper[setting]
            rows.append(Bar(f"{noise}, {kind} ({source})", value, None, kind))
    gain = {noise: ours[a] - ours[b] for noise, (a, b) in PRIVATE.items()}
    theirs = {noise: paper[a] - paper[b] for noise, (a, b) in PRIVATE.items()}
    told = "; ".join(
        f"{noise} {gain[noise]:+.3f} (paper {theirs[noise]:+.3f})" for noise in PRIVATE
    )
    text = (
        f"Mean test AUC over {n} tables of the paper's Table B.11, three seeds; the paper's over "
        "its 20. What growth and truncation gain: "
        f"{told}. The paper says that they make privacy cheaper; here they "
        f"{'do' if gain['epsilon 10'] > 0 else 'do not'}. docs/privacy.md has the intervals, and "
        "says why the paper's epsilon is none."
    )
    svg = bars(rows, title="mean AUC of the test rows", kinds=TECHNIQUE_COLOURS, lowest=AUC_FROM)
    return Figure("private", title, svg, text, "`python benchmarks/privacy.py`", PRIVACY)


def _private_means(lines: Sequence[Mapping[str, Any]]) -> tuple[dict[str, float], int]:
    """Average over seeds, then over the tables that have all four settings."""
    found: dict[tuple[str, str], list[float]] = {}
    for line in lines:
        if line.get("kind") == "auc" and line["table"] != CENSUS:
            found.setdefault((line["setting"], line["table"]), []).append(line["auc"])
    settings = [setting for pair in PRIVATE.values() for setting in pair]
    tables = [t for t in {t for _, t in found} if all((s, t) in found for s in settings)]
    if not tables:
        return {}, 0
    return {
        setting: statistics.fmean(statistics.fmean(found[setting, table]) for table in tables)
        for setting in settings
    }, len(tables)


def _published_private() -> dict[str, float]:
    source = resources.files("altbi.bench") / "paper" / "privacy.csv"
    with source.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    means = {}
    for (noise, pair), both in product(PRIVATE.items(), (True, False)):
        chosen = [
            float(row["test_auc"])
            for row in rows
            if (row["dp"] == "yes") == (noise != "without noise")
            and (float(row["rho"]) < 1) == both
        ]
        means[pair[0] if both else pair[1]] = statistics.fmean(chosen)
    return means
