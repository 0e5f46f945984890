"""Charts of the page of figures, in one style, as self-contained SVG.

White behind, dark on light, series told apart by shape as well as by colour: they may be printed.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from altbi.errors import import_extra

__all__ = ["FAMILIES", "Bar", "Dot", "Shade", "Stroke", "bars", "heat", "panels"]

_EXTRA = "report"
_INK, _SOFT, _FAINT = "#222222", "#666666", "#e3e3e3"
OURS, PAPER = "#0b62a4", "#d95f0e"
# As in the paper: memorisation, diffusion, other networks, classics.
FAMILIES = {
    "memorisation": "#c0392b",
    "diffusion": "#e08e0b",
    "deep": "#3a8f5c",
    "classic": "#3d6fa5",
}
_SHAPES = ("circle", "square", "triangle-up", "diamond")
_COLOURS = (OURS, PAPER, "#3a8f5c", "#7b5aa6")

# Up to so many points have marks of their own.
_FEW = 30

Data = list[dict[str, Any]]


@final
@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: name, value, standard deviation and kind."""

    name: str
    value: float
    std: float | None
    kind: str


@final
@dataclass(frozen=True, slots=True)
class Dot:
    """A point of a series, with its interval if there is one."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@final
@dataclass(frozen=True, slots=True)
class Stroke:
    """A series of points; drawn with marks, or, where there are many, as a line with a band."""

    name: str
    dots: Sequence[Dot]


@final
@dataclass(frozen=True, slots=True)
class Shade:
    """One cell of a heat map."""

    x: str
    y: str
    value: float


def bars(
    rows: Sequence[Bar],
    *,
    title: str,
    kinds: Mapping[str, str],
    lowest: float,
) -> str:
    """Draw horizontal bars in their order, with deviations, coloured by kind."""
    alt = import_extra("altair", extra=_EXTRA)
    data = [
        {
            "name": row.name,
            "value": row.value,
            "low": row.value - (row.std or 0),
            "high": row.value + (row.std or 0),
            "kind": row.kind,
            "label": f"{row.value:.3f}",
            "start": lowest,
        }
        for row in rows
    ]
    order = [row.name for row in rows]
    highest = max(max(row.value + (row.std or 0) for row in rows) + 0.03, lowest + 0.1)
    y = alt.Y("name:N", sort=order, title=None, axis=alt.Axis(labelLimit=260, labelFontSize=12))
    scale = alt.Scale(domain=[lowest, highest], nice=False, zero=False)
    colour = alt.Color(
        "kind:N",
        title=None,
        scale=alt.Scale(domain=list(kinds), range=list(kinds.values())),
        legend=alt.Legend(orient="top") if len({row.kind for row in rows}) > 1 else None,
    )
    base = alt.Chart(alt.Data(values=data))
    bar = base.mark_bar(height=13).encode(
        x=alt.X("start:Q", title=title, scale=scale), x2="value:Q", y=y, color=colour
    )
    rule = base.mark_rule(color=_INK).encode(x=alt.X("low:Q", scale=scale), x2="high:Q", y=y)
    text = base.mark_text(align="left", dx=5, color=_INK, fontSize=11).encode(
        x=alt.X("high:Q", scale=scale), y=y, text="label:N"
    )
    # Names are measured with the fonts of this machine, and may be wider where they are read.
    left = 12 + max(len(name) for name in order)
    padding = {"left": left, "top": 12, "right": 12, "bottom": 12}
    return _svg((bar + rule + text).properties(width=460, height=20 * len(rows), padding=padding))


def panels(
    drawn: Mapping[str, Sequence[Stroke]],
    *,
    x_title: str,
    y_title: str,
    logarithmic: frozenset[str] = frozenset(),
    size: tuple[int, int] = (320, 200),
) -> str:
    """Draw one small chart for each title, two in a row, with the same series in each."""
    alt = import_extra("altair", extra=_EXTRA)
    names = list(dict.fromkeys(stroke.name for strokes in drawn.values() for stroke in strokes))
    y = alt.Y("y:Q", title=y_title, scale=alt.Scale(zero=False))
    charts = [
        _panel(alt, strokes, names)
        .encode(x=_x_axis(alt, strokes, x_title, "log" if title in logarithmic else "linear"), y=y)
        .properties(width=size[0], height=size[1], title=title if len(drawn) > 1 else "")
        for title, strokes in drawn.items()
    ]
    return _svg(alt.concat(*charts, columns=2))


def _x_axis(alt: Any, strokes: Sequence[Stroke], title: str, kind: str) -> Any:  # noqa: ANN401
    """Mark the very values where there are few, round ones where there are many."""
    many = _are_many(strokes)
    ticks = sorted({dot.x for stroke in strokes for dot in stroke.dots})
    axis = alt.Axis(
        values=alt.Undefined if many else ticks, format=".6~g", labelOverlap=True, grid=many
    )
    scale = alt.Scale(type=kind, zero=False, nice=many, padding=0 if many else 8)
    return alt.X("x:Q", title=title, scale=scale, axis=axis)


def _are_many(strokes: Sequence[Stroke]) -> bool:
    return max(len(stroke.dots) for stroke in strokes) > _FEW


def _panel(alt: Any, strokes: Sequence[Stroke], names: Sequence[str]) -> Any:  # noqa: ANN401
    data: Data = [
        {"series": stroke.name, "x": dot.x, "y": dot.y, "low": dot.low, "high": dot.high}
        for stroke in strokes
        for dot in stroke.dots
    ]
    symbol = {"symbolType": "stroke", "symbolSize": 300} if _are_many(strokes) else {}
    legend = alt.Legend(orient="top", title=None, symbolOpacity=1, **symbol)
    if len(names) == 1:
        legend = None

    def told_apart(channel: Any, looks: Sequence[str] | None = None) -> Any:  # noqa: ANN401
        looks = alt.Undefined if looks is None else looks[: len(names)]
        return channel("series:N", legend=legend, scale=alt.Scale(domain=names, range=looks))

    colour = told_apart(alt.Color, _COLOURS)
    base = alt.Chart(alt.Data(values=data)).encode(color=colour)
    spread = alt.Chart(alt.Data(values=[row for row in data if row["low"] is not None]))
    spread = spread.encode(y="low:Q", y2="high:Q", color=colour)
    line = base.mark_line(strokeWidth=1.6)
    if _are_many(strokes):
        return spread.mark_area(opacity=0.18) + line.encode(strokeDash=told_apart(alt.StrokeDash))
    marks = base.mark_point(filled=True, size=45).encode(shape=told_apart(alt.Shape, _SHAPES))
    return spread.mark_rule() + line + marks


def heat(cells: Sequence[Shade], *, x_title: str, y_title: str) -> str:
    """Draw a grid of numbers, darker where they are larger."""
    alt = import_extra("altair", extra=_EXTRA)
    data = [{"x": c.x, "y": c.y, "value": c.value, "label": f"{c.value:.3f}"} for c in cells]
    low, high = min(c.value for c in cells), max(c.value for c in cells)
    # The palest shade is left out: it looks like no cell.
    domain, middle = [low - (high - low) / 4, high], (low + high) / 2
    base = alt.Chart(alt.Data(values=data)).encode(
        x=alt.X("x:N", title=x_title, sort=None, axis=alt.Axis(labelAngle=0)),
        y=alt.Y("y:N", title=y_title, sort=None),
    )
    shade = base.mark_rect().encode(
        color=alt.Color(
            "value:Q", legend=None, scale=alt.Scale(scheme="blues", zero=False, domain=domain)
        )
    )
    text = base.mark_text(fontSize=12).encode(
        text="label:N",
        color=alt.condition(f"datum.value > {middle}", alt.value("white"), alt.value(_INK)),
    )
    return _svg((shade + text).properties(width=300, height=180))


_LOOK = {
    "background": "#ffffff",
    "font": "Helvetica, Arial, sans-serif",
    "padding": 12,
    "view": {"stroke": None},
    "axis": {
        "labelColor": _INK,
        "titleColor": _INK,
        "titleFontWeight": "normal",
        "titleFontSize": 12,
        "labelFontSize": 11,
        "gridColor": _FAINT,
        "domainColor": _SOFT,
        "tickColor": _SOFT,
    },
    # Wide between names: letters are measured with the fonts of the machine that draws.
    "legend": {"labelFontSize": 12, "labelColor": _INK, "labelLimit": 260, "columnPadding": 28},
    "title": {
        "fontSize": 13,
        "fontWeight": "normal",
        "color": _INK,
        "anchor": "start",
        "frame": "group",
    },
}


def _svg(chart: Any) -> str:  # noqa: ANN401
    converter = import_extra("vl_convert", extra=_EXTRA)
    version = ".".join(
        import_extra("altair", extra=_EXTRA).SCHEMA_VERSION.lstrip("v").split(".")[:2]
    )
    spec = json.dumps(chart.configure(**_LOOK).to_dict())
    drawn: str = converter.vegalite_to_svg(spec, vl_version=version)
    return drawn.rstrip() + "\n"
