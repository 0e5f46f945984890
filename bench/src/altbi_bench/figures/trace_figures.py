"""Figures of watched trainings: outlier ratio, the two techniques, what is kept, the gap."""

import statistics
from collections.abc import Iterable, Sequence

import numpy as np

from altbi_bench.ablation.experiments import FIGURE_ROWS, RATIOS_OF, TRUNCATED, WITH_AND_WITHOUT
from altbi_bench.ablation.tables import MOST
from altbi_bench.ablation.training_analysis import (
    ALONE,
    AVERAGED,
    LATE,
    SINGLE,
    WINDOW,
    Curve,
    Memorisation,
    RiskRange,
    analyse_memorisation,
    auc_by_share,
    averaging_effect,
    curve,
    few_outliers_effect,
    group_by_table,
    published_window,
    window_aucs,
)
from altbi_bench.figures.charts import Dot, Shade, Stroke, heat, panels
from altbi_bench.figures.figure import RUN_ABLATION, TRACES, Figure, FigureRecords
from altbi_bench.statistics import Effect, paired_effect
from altbi_bench.traces.settings import N_EVALUATION_SAMPLES, SETTINGS, WINDOWS
from altbi_bench.traces.trace import Trace

__all__ = ["memorisation", "outlier_ratio", "snapshots", "techniques", "truncated"]


def outlier_ratio(lines: FigureRecords) -> Figure:
    """Draw AUC against the share of outliers."""
    title = "Outlier ratio and the inlier-memorisation (IM) effect"
    found = auc_by_share(lines.traces)
    if not found:
        return _trace_figure("ratio", title, None, "")
    dots = [Dot(100 * share, *_spread(aucs.tolist())) for share, aucs in found.items()]
    effect = few_outliers_effect(found)
    text = (
        f"A VAE on {RATIOS_OF}, 100 updates with batches of 128, mean AUC of the last {LATE}; mean "
        f"and standard deviation of {effect.n_datasets} trainings, each with other outliers left "
        f"in. With 1 to 3 % of outliers AUC is higher than with 7 to 9 % by {effect} (interval "
        "over trainings, each compared with itself). The paper has a clearer effect where there "
        f"are fewer outliers: {_verdict(effect)}."
    )
    svg = panels(
        {"": [Stroke("VAE", dots)]},
        x_title="outliers, % of the rows",
        y_title="AUC of the last updates",
        size=(420, 240),
    )
    return _trace_figure("ratio", title, svg, text)


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    mean, std = statistics.fmean(values), statistics.pstdev(values)
    return mean, mean - std, mean + std


def _verdict(effect: Effect) -> str:
    if effect.is_chance:
        return "here there is no difference that is more than chance"
    return "so it is here" if effect.mean > 0 else "here it is the other way round"


def _trace_figure(name: str, title: str, svg: str | None, text: str) -> Figure:
    return Figure(name, title, svg, text, RUN_ABLATION, TRACES)


def techniques(lines: FigureRecords) -> Figure:
    """Draw AUC over updates on the paper's four tables."""
    title = "With and without the two techniques"
    groups = group_by_table(lines.traces, FIGURE_ROWS)
    drawn, gains = {}, {}
    for table in WITH_AND_WITHOUT:
        with_both, neither = (groups.get((name, table), []) for name in ("VAE, both", "VAE"))
        if with_both and neither:
            drawn[table] = [
                Stroke("with both", _dots(curve(with_both, "auc"))),
                Stroke("with neither", _dots(curve(neither, "auc"))),
            ]
            gains[table] = paired_effect(_ends(with_both, neither))
    if not drawn:
        return _trace_figure("techniques", title, None, "")
    told = ", ".join(f"{table} {gain}" for table, gain in gains.items())
    clear = [table for table, gain in gains.items() if not gain.is_chance and gain.mean > 0]
    text = (
        "AUC of a VAE's losses after each of 100 updates, (T0, n0, gamma, rho) = (10, 128, 1.1, "
        "0.9) against none; mean and standard deviation over ten seeds. What both together change "
        f"in the last {LATE} updates, with intervals over seeds: {told}. The paper shows a gain on "
        f"all four; here it is clear on {len(clear)} of {len(gains)}."
    )
    svg = panels(drawn, x_title="update", y_title="AUC")
    return _trace_figure("techniques", title, svg, text)


def _ends(first: Sequence[Trace], second: Sequence[Trace]) -> list[float]:
    """Subtract, seed by seed, the mean AUC of the last updates."""
    ends = [
        {run.seed: statistics.fmean(run.auc[-LATE:]) for run in runs} for runs in (first, second)
    ]
    return [ends[0][seed] - ends[1][seed] for seed in ends[0] if seed in ends[1]]


def _dots(found: Curve) -> list[Dot]:
    pairs = enumerate(zip(found.mean, found.std, strict=True), 1)
    return [Dot(step, mean, mean - std, mean + std) for step, (mean, std) in pairs]


def truncated(lines: FigureRecords) -> Figure:
    """Draw the share of outliers among the rows that count."""
    title = "Outliers among the rows that count"
    groups = group_by_table(lines.traces, FIGURE_ROWS)
    drawn, told, falls = {}, [], 0
    for table in TRUNCATED:
        if runs := groups.get(("VAE, both", table), []):
            found, share = curve(runs, "kept_outliers"), runs[0].n_outliers / runs[0].n_rows
            all_steps = range(1, len(found.mean) + 1)
            drawn[table] = [
                Stroke("among the kept rows", _dots(found)),
                Stroke("in the table", [Dot(step, share) for step in all_steps]),
            ]
            first, last = _first_and_last(found.mean)
            ends = [_first_and_last(run.kept_outliers) for run in runs]
            change = paired_effect([at_last - at_first for at_first, at_last in ends])
            falls += change.mean < 0 and not change.is_chance
            told.append(
                f"{table} {first:.1%} and {last:.1%}, of {share:.1%} in the table (difference "
                f"{change})"
            )
    if not drawn:
        return _trace_figure("truncated", title, None, "")
    text = (
        "Share of outliers among the rows of a batch whose losses counted, with (T0, n0, gamma, "
        "rho) = (10, 128, 1.1, 0.9), which is our reading of the paper's words, and at most "
        f"{FIGURE_ROWS:,} rows; ten seeds. A batch grows until it is the whole table, which on "
        f"cardio it is after 28 updates with truncation. In the first {LATE} of these and in the "
        f"last, with intervals over seeds: {'; '.join(told)}. The paper shows a ratio that falls "
        f"over the updates, as its Proposition 1 has it; here a fall is clear on {falls} of "
        f"{len(told)}. The threshold is a quantile, not the inlier risk that the proposition is "
        "about ([theory.md](benchmark/theory.md))."
    )
    svg = panels(drawn, x_title="update", y_title="share of outliers")
    return _trace_figure("truncated", title, svg, text)


def _first_and_last(kept: Sequence[float]) -> tuple[float, float]:
    """Average the first updates with truncation, and the last."""
    start = SETTINGS["VAE, both"].schedule.T0
    return statistics.fmean(kept[start : start + LATE]), statistics.fmean(kept[-LATE:])


def snapshots(lines: FigureRecords) -> Figure:
    """Draw what averages over snapshots are worth."""
    title = "Averages over snapshots"
    found = window_aucs(lines.traces)
    if not found:
        return _trace_figure("windows", title, None, "")
    means = {name: float(aucs.mean()) for name, aucs in found.items()}
    grid = [(first, last) for first, last in WINDOWS if f"{first}-{last}" != WINDOW]
    shades = [Shade(str(a), str(b - a), means[f"{a}-{b}"]) for a, b in grid]
    theirs = [published_window(f"{a}-{b}") or 0.0 for a, b in grid]
    text = (
        f"Mean AUC over {len(found[WINDOW])} tables by the snapshots that are averaged: the "
        f"paper's Table B.10. All lie within {_range(shade.value for shade in shades):.3f}, those "
        f"from T1 = 60 on within {_range(s.value for s in shades if int(s.x) >= 60):.3f}; the "
        f"paper's within {_range(theirs):.3f}, and it calls the impact not significant. What the "
        f"window of the authors' code ({WINDOW}) gains against one snapshot alone (mean over "
        f"{len(SINGLE)} steps, each with its own {SETTINGS['reference'].n_samples} draws): "
        f"{averaging_effect(lines.traces, ALONE)}; against one with {N_EVALUATION_SAMPLES} draws, "
        f"{averaging_effect(lines.traces, AVERAGED)}: an average over snapshots is one over draws, "
        "too."
    )
    svg = heat(shades, x_title="T1", y_title="T2 - T1")
    return _trace_figure("windows", title, svg, text)


def _range(values: Iterable[float]) -> float:
    found = list(values)
    return max(found) - min(found)


def memorisation(lines: FigureRecords) -> Figure:
    """Draw the gap between losses over all tables."""
    title = "The inlier-memorisation effect, table by table"
    found = analyse_memorisation(lines.traces)
    if not found:
        return _trace_figure("memorisation", title, None, "")
    steps = zip(*(each.gap for each in found), strict=True)
    middle = [
        Dot(step, *(float(value) for value in np.quantile(gaps, (0.5, 0.25, 0.75))))
        for step, gaps in enumerate(steps, 1)
    ]
    svg = panels(
        {"": [Stroke("median over tables, with quartiles", middle)]},
        x_title="step after the warm-up (five updates each)",
        y_title="outlier loss - inlier loss, in [0, 1]",
        size=(520, 240),
    )
    return _trace_figure("memorisation", title, svg, _assumption(found))


def _assumption(found: Sequence[Memorisation]) -> str:
    """Return a phrase on how many tables have the effect, and which do not."""
    held = [each.find_risk_range(0) for each in found]
    always = [each for each in held if each.share == 1]
    mostly = [each for each in held if each.share >= MOST]
    late = [each.table for each in found if each.last_gap <= 0]
    absent = f", not on {', '.join(late)}" if late else ""
    return (
        "Mean loss of outliers minus that of inliers after each step of ALTBI-I, median and "
        "quartiles over tables; losses after the warm-up are held between their 1 % and 99 % "
        "points and brought to [0, 1]. Assumption 1 of the paper asks for a gap of a3 > 0 while "
        "the inlier risk lies between some a1 and a2. Along these trainings there is one in all "
        f"steps on {len(always)} of {len(found)} tables; in a range of low inlier risks that half "
        f"of the steps lie in on {len(mostly)}{_constants(mostly)}; in the mean of the last "
        f"snapshots on {len(found) - len(late)}{absent}. One seed; the table below has the ranges."
    )


def _constants(held: Sequence[RiskRange]) -> str:
    names = ("a1", "a2", "a3")
    if not held:
        return ""
    medians = {name: statistics.median(getattr(each, name) for each in held) for name in names}
    return f" (medians: {', '.join(f'{name} = {value:.2f}' for name, value in medians.items())})"
