"""The charts of the report as Vega-Lite specifications.

Fields have names of our own, never those of the table: Vega reads dots and brackets in a field's
name as a path. Colours are names of the page's CSS variables, so that charts have the page's
colours in dark mode and in print.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from altbi.errors import import_extra

if TYPE_CHECKING:  # it loads torch
    from altbi.networks import TrainingStep

Spec: TypeAlias = dict[str, Any]
Bins: TypeAlias = Sequence[tuple[float, float, int]]

_EXTRA = "report"
_INK, _SOFT, _LINE = "var(--ink)", "var(--soft)", "var(--line)"
_QUIET, _ACCENT, _PAPER = "var(--quiet)", "var(--accent)", "var(--paper)"
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
# A last interval that is wider than this many others is drawn as wide as this many.
_CHART_WIDTHS = 4
_MOST_STEPS = 400
_FEW_STEPS = 30
# Below this count, powers of ten alone would leave the axis nearly empty.
_FEW_TICKS = 1_000
_COUNT_LABEL = "format(datum.value, datum.value < 10000 ? ',' : '~s')"


def bundle() -> str:
    """Return the script that draws the charts: Vega, Vega-Lite and Vega-Embed.

    The script is wrapped in a function, so that its names do not become global names of the page. A
    library that is not installed raises a `MissingExtraError`.
    """
    version = ".".join(_import_altair().SCHEMA_VERSION.split(".")[:2])
    program = import_extra("vl_convert", extra=_EXTRA).javascript_bundle(vl_version=version)
    return f"(() => {{{program}}})();"


def histogram(bins: Bins, own: float) -> Spec:
    """Build the chart of the number of rows by score, with the threshold as a vertical line.

    Bars above the threshold have the accent colour. The chart has a parameter `threshold`: the page
    sets it to move the line and the colours. A dotted line stays at the model's threshold.

    Parameters
    ----------
    bins : sequence of (float, float, int)
        Start, end and number of rows of each interval. A wide last interval is drawn compressed.
    own : float
        The model's threshold, and the first value of the parameter.

    Returns
    -------
    dict
        The Vega-Lite specification.
    """
    alt = _import_altair()
    start, shrink = squeeze(bins)
    scale = alt.Scale(domain=_compute_axis_range(bins, own, start, shrink), nice=False, zero=False)
    axis = alt.Axis(grid=False, tickCount=6, labelExpr=_build_label_expression(start, shrink))
    x = alt.X("left:Q", title="score (high means outlier)", scale=scale, axis=axis)
    y = _build_count_axis(max((count for _, _, count in bins), default=1))
    tips = [alt.Tooltip("span:N", title="scores"), alt.Tooltip("rows:Q", format=",")]
    base = alt.Chart(alt.Data(values=_scale_bins(bins, start, shrink)))
    bars = base.mark_rect(color=_QUIET, stroke=_PAPER, strokeWidth=0.5)
    # An interval that contains the threshold has two colours, which change at the line.
    flagged = (
        base.transform_filter("datum.right > position")
        .transform_calculate(begin="max(datum.left, position)")
        .mark_rect(color=_ACCENT, stroke=_PAPER, strokeWidth=0.5)
    )
    sides = {"x2": "right:Q", "y": y, "y2": alt.value("height"), "tooltip": tips}
    layers = [
        bars.encode(x=x, **sides),
        flagged.encode(x="begin:Q", **sides),
        _draw_rule(str(_compress_score(own, start, shrink)), color=_SOFT, strokeDash=[2, 3]),
        _draw_rule("position", color=_INK, strokeWidth=1.5),
    ]
    position = f"threshold <= {start} ? threshold : {start} + (threshold - {start}) * {shrink}"
    chart = alt.layer(*layers, height=220, width="container").add_params(
        alt.param(name="threshold", value=own),
        alt.param(name="position", expr=position),
    )
    return _convert_to_spec(chart)


def training(history: Sequence[TrainingStep]) -> dict[str, Spec]:
    """Build small line charts of the training: loss, batch size, and share of rows kept.

    The keys are "loss", "batch" and "kept". There is no "loss" if no step has one. Long trainings
    are thinned to about 400 steps.
    """
    steps = history[:: math.ceil(len(history) / _MOST_STEPS) or 1]
    known = [step for step in steps if step.loss is not None]
    loss = {"loss": _draw_line(known, lambda step: step.loss or 0.0, zero=False, format=".3~r")}
    return (loss if known else {}) | {
        "batch": _draw_line(steps, lambda step: step.batch_size, zero=True, format="~s"),
        "kept": _draw_line(steps, lambda step: step.kept, domain=[0, 1], format=".0%"),
    }


def _draw_line(
    steps: Sequence[TrainingStep],
    height: Callable[[TrainingStep], float],
    *,
    format: str,
    **scale: Any,  # noqa: ANN401 - handed on
) -> Spec:
    """Build a line chart of one value of each training step.

    `height` returns the value of a step; infinite values and NaN leave a gap in the line. `format`
    is the number format of the axis, and `scale` has options of the vertical scale.
    """
    alt = _import_altair()
    points = [{"step": step.step, "height": _replace_infinite(height(step))} for step in steps]
    chart = (
        alt.Chart(alt.Data(values=points), height=120, width="container")
        .mark_line(color=_INK, strokeWidth=1.25, point=_choose_dots(len(points)))
        .encode(
            x=alt.X("step:Q", title="step", axis=alt.Axis(grid=False, tickCount=4)),
            y=alt.Y(
                "height:Q",
                title=None,
                scale=alt.Scale(**scale),
                axis=alt.Axis(format=format, tickCount=3),
            ),
            tooltip=[alt.Tooltip("step:Q"), alt.Tooltip("height:Q", title="value", format=".4~g")],
        )
    )
    return _convert_to_spec(chart)


def _choose_dots(count: int) -> Any:  # noqa: ANN401 - Altair is an optional dependency
    """Return the style of the dots on a line of `count` points, or False for no dots.

    Lines with fewer than 30 points have dots.
    """
    return _import_altair().OverlayMarkDef(color=_INK, size=16) if count < _FEW_STEPS else False


def _draw_rule(position: str, **style: Any) -> Any:  # noqa: ANN401
    """Build a vertical line at the position that a Vega expression computes.

    `style` has options of the line, such as its colour.
    """
    alt = _import_altair()
    line = alt.Chart(alt.Data(values=[{}])).transform_calculate(begin=position)
    return line.mark_rule(**style).encode(x="begin:Q")


def _build_count_axis(most: int) -> Any:  # noqa: ANN401
    """Build a logarithmic axis from 0 to `most`, on which a bar of a single row is visible.

    Ticks are powers of ten; for fewer than 1,000 rows also their triples.
    """
    alt = _import_altair()
    powers = [10**power for power in range(math.ceil(math.log10(max(most, 1))) + 1)]
    between = [3 * power for power in powers] if most < _FEW_TICKS else []
    scale = alt.Scale(type="symlog", domain=[0, max(most, 1) * 1.15], nice=False)
    values = [tick for tick in sorted([0, *powers, *between]) if tick <= most]
    return alt.Y(
        "rows:Q", title="rows", scale=scale, axis=alt.Axis(values=values, labelExpr=_COUNT_LABEL)
    )


def squeeze(bins: Bins) -> tuple[float, float]:
    """Return from which score the horizontal axis is compressed, and by which factor.

    Only a last interval wider than four of the others is compressed: it is drawn as wide as four.
    Otherwise the factor is 1, and the start is the end of the last interval. Without intervals the
    start is 0.
    """
    if len(bins) < 2:
        return (bins[-1][1] if bins else 0.0), 1.0
    usual = bins[0][1] - bins[0][0]
    start, end, _ = bins[-1]
    bars = usual * _CHART_WIDTHS
    return (start, bars / (end - start)) if end - start > bars > 0 else (end, 1.0)


def _scale_bins(bins: Bins, start: float, shrink: float) -> list[dict[str, object]]:
    """Convert the intervals to records for Vega, with compressed edges.

    Each record has `left`, `right`, `rows`, and `span`, the text of the tooltip.
    """
    return [
        {
            "left": _compress_score(low, start, shrink),
            "right": _compress_score(high, start, shrink),
            "rows": count,
            "span": f"{low:.4g} to {high:.4g}",
        }
        for low, high, count in bins
    ]


def _compress_score(score: float, start: float, shrink: float) -> float:
    """Return the position of a score on the axis.

    Scores up to `start` are unchanged. Distances above `start` are multiplied by `shrink`.
    """
    return score if score <= start else start + (score - start) * shrink


def _compute_axis_range(bins: Bins, own: float, start: float, shrink: float) -> list[float]:
    """Return the smallest and the largest position of all edges and the model's threshold.

    If both are equal, the range is extended by 0.5 on either side.
    """
    edges = [edge for low, high, _ in bins for edge in (low, high)] + [own]
    positions = [_compress_score(edge, start, shrink) for edge in edges]
    low, high = min(positions), max(positions)
    return [low, high] if high > low else [low - 0.5, high + 0.5]


def _build_label_expression(start: float, shrink: float) -> str:
    """Return a Vega expression for the labels of the score axis.

    If the axis is compressed, labels above `start` are omitted: readers would take them for evenly
    spaced ones.
    """
    return "datum.label" if shrink == 1 else f"datum.value > {start} ? '' : datum.label"


def _replace_infinite(value: float) -> float | None:
    """Return the value, or None if it is infinite or NaN, which JSON cannot represent."""
    return value if math.isfinite(value) else None


def _convert_to_spec(chart: Any) -> Spec:  # noqa: ANN401
    """Apply the common style to a chart, and convert it to a Vega-Lite specification.

    The address of the schema is removed: the page makes no requests.
    """
    spec: Spec = chart.configure(**_STYLE).to_dict()
    spec.pop("$schema")
    return spec


_STYLE: Spec = {
    "background": "transparent",
    "font": _FONT,
    # The page has one description for each chart as an image.
    "aria": False,
    "view": {"stroke": None},
    "axis": {
        "labelColor": _SOFT,
        "titleColor": _SOFT,
        "titleFontWeight": "normal",
        "titleFontSize": 12,
        "labelFontSize": 12,
        "titlePadding": 10,
        "labelPadding": 6,
        "gridColor": _LINE,
        "domainColor": _LINE,
        "tickColor": _LINE,
        "ticks": False,
        "domain": False,
        "labelLimit": 90,
    },
}


def _import_altair() -> Any:  # noqa: ANN401
    """Import Altair; raise a `MissingExtraError` if it is not installed."""
    return import_extra("altair", extra=_EXTRA)
