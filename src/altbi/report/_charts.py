"""The charts of the report as Vega-Lite specifications.

Fields have names of our own, never those of the table: Vega reads dots and brackets in a field's
name as a path. Colours are names of the page's CSS variables, so that the charts follow the page
into the dark and onto paper.
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
# A last interval wider than so many of its neighbours is bars as if it had this many.
_CHART_WIDTHS = 4
_MOST_STEPS = 400
_FEW_STEPS = 30
# Below this count, powers of ten alone would leave the axis nearly empty.
_FEW_TICKS = 1_000
_COUNT_LABEL = "format(datum.value, datum.value < 10000 ? ',' : '~s')"


def bundle() -> str:
    """Return the program that draws the charts: Vega, Vega-Lite and Vega-Embed in one script."""
    # Its names would become the page's: some of them are one letter long.
    version = ".".join(_altair().SCHEMA_VERSION.split(".")[:2])
    program = import_extra("vl_convert", extra=_EXTRA).javascript_bundle(vl_version=version)
    return f"(() => {{{program}}})();"


def histogram(bins: Bins, own: float) -> Spec:
    """Draw how many rows have which score; the parameter `threshold` moves line and colours.

    Parameters
    ----------
    bins : sequence of (float, float, int)
        From, to, and how many rows.
    own : float
        The model's own threshold, where the line stands at first.
    """
    alt = _altair()
    start, shrink = squeeze(bins)
    scale = alt.Scale(domain=_axis_range(bins, own, start, shrink), nice=False, zero=False)
    axis = alt.Axis(grid=False, tickCount=6, labelExpr=_labels(start, shrink))
    x = alt.X("left:Q", title="score (high means outlier)", scale=scale, axis=axis)
    y = _count_axis(max((count for _, _, count in bins), default=1))
    tips = [alt.Tooltip("span:N", title="scores"), alt.Tooltip("rows:Q", format=",")]
    base = alt.Chart(alt.Data(values=_scale_bins(bins, start, shrink)))
    bars = base.mark_rect(color=_QUIET, stroke=_PAPER, strokeWidth=0.5)
    # An interval that the line cuts has two colours: they change where the line stands.
    flagged = (
        base.transform_filter("datum.right > position")
        .transform_calculate(begin="max(datum.left, position)")
        .mark_rect(color=_ACCENT, stroke=_PAPER, strokeWidth=0.5)
    )
    sides = {"x2": "right:Q", "y": y, "y2": alt.value("height"), "tooltip": tips}
    layers = [
        bars.encode(x=x, **sides),
        flagged.encode(x="begin:Q", **sides),
        _rule(str(_position(own, start, shrink)), color=_SOFT, strokeDash=[2, 3]),
        _rule("position", color=_INK, strokeWidth=1.5),
    ]
    position = f"threshold <= {start} ? threshold : {start} + (threshold - {start}) * {shrink}"
    chart = alt.layer(*layers, height=220, width="container").add_params(
        alt.param(name="threshold", value=own),
        alt.param(name="position", expr=position),
    )
    return _finished(chart)


def training(history: Sequence[TrainingStep]) -> dict[str, Spec]:
    """Draw what changed over the steps of the training, each on its own small chart."""
    steps = history[:: math.ceil(len(history) / _MOST_STEPS) or 1]
    known = [step for step in steps if step.loss is not None]
    loss = {"loss": _line(known, lambda step: step.loss or 0.0, zero=False, format=".3~r")}
    return (loss if known else {}) | {
        "batch": _line(steps, lambda step: step.batch_size, zero=True, format="~s"),
        "kept": _line(steps, lambda step: step.kept, domain=[0, 1], format=".0%"),
    }


def _line(
    steps: Sequence[TrainingStep],
    height: Callable[[TrainingStep], float],
    *,
    format: str,
    **scale: Any,  # noqa: ANN401 - handed on
) -> Spec:
    alt = _altair()
    points = [{"step": step.step, "height": _finite(height(step))} for step in steps]
    chart = (
        alt.Chart(alt.Data(values=points), height=120, width="container")
        .mark_line(color=_INK, strokeWidth=1.25, point=_dots(len(points)))
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
    return _finished(chart)


def _dots(count: int) -> Any:  # noqa: ANN401 - Altair is an optional dependency
    """Show the steps themselves where a line alone would hide that they are few."""
    return _altair().OverlayMarkDef(color=_INK, size=16) if count < _FEW_STEPS else False


def _rule(position: str, **style: Any) -> Any:  # noqa: ANN401
    alt = _altair()
    line = alt.Chart(alt.Data(values=[{}])).transform_calculate(begin=position)
    return line.mark_rule(**style).encode(x="begin:Q")


def _count_axis(most: int) -> Any:  # noqa: ANN401
    """Count on a logarithmic axis that begins at 0: one row is seen beside a million."""
    alt = _altair()
    powers = [10**power for power in range(math.ceil(math.log10(max(most, 1))) + 1)]
    between = [3 * power for power in powers] if most < _FEW_TICKS else []
    scale = alt.Scale(type="symlog", domain=[0, max(most, 1) * 1.15], nice=False)
    values = [tick for tick in sorted([0, *powers, *between]) if tick <= most]
    return alt.Y(
        "rows:Q", title="rows", scale=scale, axis=alt.Axis(values=values, labelExpr=_COUNT_LABEL)
    )


def squeeze(bins: Bins) -> tuple[float, float]:
    """Return from where on the score axis is compressed, and how much: for a wide last interval."""
    if len(bins) < 2:
        return (bins[-1][1] if bins else 0.0), 1.0
    usual = bins[0][1] - bins[0][0]
    start, end, _ = bins[-1]
    bars = usual * _CHART_WIDTHS
    return (start, bars / (end - start)) if end - start > bars > 0 else (end, 1.0)


def _scale_bins(bins: Bins, start: float, shrink: float) -> list[dict[str, object]]:
    return [
        {
            "left": _position(low, start, shrink),
            "right": _position(high, start, shrink),
            "rows": count,
            "span": f"{low:.4g} to {high:.4g}",
        }
        for low, high, count in bins
    ]


def _position(score: float, start: float, shrink: float) -> float:
    return score if score <= start else start + (score - start) * shrink


def _axis_range(bins: Bins, own: float, start: float, shrink: float) -> list[float]:
    edges = [edge for low, high, _ in bins for edge in (low, high)] + [own]
    positions = [_position(edge, start, shrink) for edge in edges]
    low, high = min(positions), max(positions)
    # All scores alike: an axis still needs a length.
    return [low, high] if high > low else [low - 0.5, high + 0.5]


def _labels(start: float, shrink: float) -> str:
    """Leave the compressed part of the axis without labels: they would be read as evenly spaced."""
    return "datum.label" if shrink == 1 else f"datum.value > {start} ? '' : datum.label"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _finished(chart: Any) -> Spec:  # noqa: ANN401
    spec: Spec = chart.configure(**_STYLE).to_dict()
    # An address that nobody is to ask; the page says what kind of specification it is.
    spec.pop("$schema")
    return spec


_STYLE: Spec = {
    "background": "transparent",
    "font": _FONT,
    # Each chart is one picture with one description, which the page gives.
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


def _altair() -> Any:  # noqa: ANN401
    return import_extra("altair", extra=_EXTRA)
