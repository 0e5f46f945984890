"""Figures of watched trainings: outlier ratio, the two techniques, what is kept, the gap."""

import statistics
from collections.abc import Sequence

from altbi.bench.ablation import FIGURE_ROWS, RATIOS, RATIOS_OF, TRUNCATED, WITH_AND_WITHOUT
from altbi.bench.ablation_tables import MOST
from altbi.bench.datasets import select
from altbi.bench.figure_parts import RUN_ABLATION, TRACES, Figure, Lines
from altbi.bench.pictures import Dot, Shade, Stroke, heat, panels
from altbi.bench.traces import WINDOWS, Trace
from altbi.bench.watching import (
    LAST,
    REFERENCE,
    WINDOW,
    Held,
    Memorised,
    averaged,
    curve,
    memorised,
    on_tables,
    shares_judged,
    window_aucs,
)

LATE = 10

__all__ = ["memorisation", "outlier_ratio", "snapshots", "techniques", "truncated"]


def outlier_ratio(lines: Lines) -> Figure:
    """Draw AUC against the share of outliers."""
    found = shares_judged(lines.traces)
    if len(found) < len(RATIOS):
        return _trace_figure("ratio", "Outlier ratio and the memorisation effect", None, "")
    dots = [Dot(100 * share, m, m - s, m + s) for share, (m, s, _) in found.items()]
    first, last = dots[0].y, dots[-1].y
    verdict = "agrees with" if first > last else "does not agree with"
    text = (
        f"A VAE on {RATIOS_OF}, 100 updates with batches of 128, AUC of its last losses; mean and "
        f"standard deviation of {min(n for *_, n in found.values())} trainings, each with other "
        f"outliers left in. From 1 % to 9 % AUC goes from {first:.3f} to {last:.3f}: this "
        f"{verdict} the paper, which has a clearer effect where there are fewer outliers."
    )
    svg = panels(
        {"": [Stroke("VAE", dots)]},
        x_title="outliers, % of the rows",
        y_title="AUC after 100 updates",
        size=(420, 240),
    )
    return _trace_figure("ratio", "Outlier ratio and the memorisation effect", svg, text)


def _trace_figure(name: str, title: str, svg: str | None, text: str) -> Figure:
    return Figure(name, title, svg, text, RUN_ABLATION, TRACES)


def techniques(lines: Lines) -> Figure:
    """Draw AUC over updates on the paper's four tables."""
    title = "With and without the two techniques"
    groups = _figure_groups(lines.traces)
    drawn, gains = {}, []
    for name in WITH_AND_WITHOUT:
        pair = [groups.get((name, setting)) for setting in ("VAE, both", "VAE")]
        if None in pair:
            continue
        curves = [curve(runs or [], "auc") for runs in pair]
        drawn[name] = [
            Stroke(label, _dots(each.mean, each.std))
            for label, each in zip(("with both", "with neither"), curves, strict=True)
        ]
        ends = [statistics.fmean(each.mean[-LATE:]) for each in curves]
        gains.append((name, ends[0] - ends[1]))
    if not drawn:
        return _trace_figure("techniques", title, None, "")
    ahead = [name for name, gain in gains if gain > 0]
    told = ", ".join(f"{name} {gain:+.3f}" for name, gain in gains)
    text = (
        "AUC of a VAE's losses after each of 100 updates, (T0, n0, gamma, rho) = (10, 128, 1.1, "
        f"0.9) against none; mean and standard deviation of {curves[0].n} seeds. With both, AUC "
        f"in the last {LATE} updates is higher by: {told}. The paper shows a gain on all four; "
        f"here there is one on {len(ahead)} of {len(gains)}."
    )
    svg = panels(drawn, x_title="update", y_title="AUC")
    return _trace_figure("techniques", title, svg, text)


def _figure_groups(traces: Sequence[Trace]) -> dict[tuple[str, str], list[Trace]]:
    """Take the trainings of single tables: (table, setting) -> by seed."""
    names = {dataset.parts[0].file: dataset.label for dataset in select(suite="tables")}
    last = {
        trace.job: trace
        for trace in traces
        if trace.error is None and trace.share is None and trace.rows == FIGURE_ROWS
    }
    groups: dict[tuple[str, str], list[Trace]] = {}
    for trace in sorted(last.values(), key=lambda trace: trace.seed):
        groups.setdefault((names[trace.file], trace.setting), []).append(trace)
    return groups


def _dots(mean: Sequence[float], std: Sequence[float]) -> list[Dot]:
    return [
        Dot(step, m, m - s, m + s) for step, (m, s) in enumerate(zip(mean, std, strict=True), 1)
    ]


def truncated(lines: Lines) -> Figure:
    """Draw the share of outliers among the rows that count."""
    title = "Outliers among the rows that count"
    groups = _figure_groups(lines.traces)
    drawn, told = {}, []
    for name in TRUNCATED:
        if runs := groups.get((name, "VAE, both")):
            found = curve(runs, "kept_outliers")
            share = runs[0].n_outliers / runs[0].n_rows
            drawn[name] = [
                Stroke("among the kept rows", _dots(found.mean, found.std)),
                Stroke("in the table", [Dot(s, share) for s in range(1, len(found.mean) + 1)]),
            ]
            last = statistics.fmean(found.mean[-LATE:])
            told.append(f"{name} from {share:.1%} in the table to {last:.1%} at the end")
    if not drawn:
        return _trace_figure("truncated", title, None, "")
    text = (
        "Share of outliers among the rows of a batch whose losses counted, the VAE with both "
        f"techniques as above: {'; '.join(told)}. The paper shows a falling ratio, and it falls "
        "here; it does not go to zero as its Proposition 1 has it (docs/theory.md)."
    )
    svg = panels(drawn, x_title="update", y_title="share of outliers")
    return _trace_figure("truncated", title, svg, text)


def snapshots(lines: Lines) -> Figure:
    """Draw what averages over snapshots are worth."""
    title = "Averages over snapshots"
    found, single = window_aucs(lines.traces)
    if not len(single):
        return _trace_figure("windows", title, None, "")
    grid = [(first, last) for first, last in WINDOWS if f"{first}-{last}" != WINDOW]
    means = {(first, last): float(found[f"{first}-{last}"].mean()) for first, last in grid}
    shades = [Shade(str(a), str(b - a), value) for (a, b), value in means.items()]
    gain = averaged(lines.traces)
    spread = max(means.values()) - min(means.values())
    text = (
        f"Mean AUC over {len(single)} tables by the snapshots that are averaged: the paper's "
        f"Table B.10. All lie within {spread:.3f}, those of the paper within 0.005: this agrees. "
        f"The window of the authors' code ({WINDOW}) against the snapshot of step {LAST} alone: "
        f"{gain}."
    )
    svg = heat(shades, x_title="T1", y_title="T2 - T1")
    return _trace_figure("windows", title, svg, text)


def memorisation(lines: Lines) -> Figure:
    """Draw the gap between losses over all tables."""
    title = "The memorisation effect on all tables"
    found = memorised(lines.traces)
    if not found:
        return _trace_figure("memorisation", title, None, "")
    groups = on_tables(lines.traces)
    gaps = []
    for (setting, _), runs in groups.items():
        if setting == REFERENCE:
            inlier, outlier = (curve(runs, name).mean for name in ("inlier_loss", "outlier_loss"))
            gaps.append([high - low for low, high in zip(inlier, outlier, strict=True)])
    steps = list(zip(*gaps, strict=True))
    middle = [
        Dot(step, statistics.median(values), *_quartiles(values))
        for step, values in enumerate(steps, 1)
    ]
    svg = panels(
        {"": [Stroke("median over tables, with quartiles", middle)]},
        x_title="step of the training, warm-up included (five updates each)",
        y_title="outlier loss - inlier loss, in [0, 1]",
        size=(520, 240),
    )
    return _trace_figure("memorisation", title, svg, _assumption(found))


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    low, _, high = statistics.quantiles(values, n=4)
    return low, high


def _assumption(found: Sequence[Memorised]) -> str:
    """Say on how many tables the effect is there, and where it is not."""
    held = [each.held(0) for each in found]
    always = [each for each in held if each.share == 1]
    mostly = [each for each in held if each.share >= MOST]
    never = [each.table for each in found if each.last_gap <= 0]
    return (
        "Mean loss of outliers minus that of inliers after each step of ALTBI-I, the losses of a "
        "training held between their 1 % and 99 % points and brought to [0, 1]. Assumption 1 asks "
        "for a gap of a3 > 0 while the inlier risk lies between a1 and a2. From the end of the "
        f"warm-up to the last step there is such a gap in all steps on {len(always)} of "
        f"{len(found)} tables, in a range of low inlier risks that half of the steps lie in on "
        f"{len(mostly)}{_constants(mostly)}; in the mean of the last snapshots on "
        f"{len(found) - len(never)}. Not even there on: {', '.join(never) or 'none'}. The paper "
        "takes the effect for granted; it is common, and it is no law."
    )


def _constants(held: Sequence[Held]) -> str:
    names = ("a1", "a2", "a3")
    medians = [statistics.median(getattr(each, name) for each in held) for name in names if held]
    told = [f"{name} = {value:.2f}" for name, value in zip(names, medians, strict=False)]
    return f" (medians: {', '.join(told)})" if told else ""
