"""Charts of the page of figures, in one style, as self-contained SVG.

The background is white, and series differ in shape as well as colour, so that they can be printed.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, final

__all__ = [
    "FAMILIES",
    "Bar",
    "Dot",
    "Shade",
    "Stroke",
    "draw_bars",
    "draw_heat_map",
    "draw_named_points",
    "draw_panels",
]

_INK, _SOFT, _FAINT = "#222222", "#666666", "#e3e3e3"
OURS, PAPER = "#0b62a4", "#d95f0e"
# Groups of the paper: memorisation, diffusion, other networks, classical methods.
FAMILIES = {
    "memorisation": "#c0392b",
    "diffusion": "#e08e0b",
    "deep": "#3a8f5c",
    "classic": "#3d6fa5",
}
_SHAPES = ("circle", "square", "triangle-up", "diamond")
_COLOURS = (OURS, PAPER, "#3a8f5c", "#7b5aa6")

# Series with more points are drawn as a line without markers.
_MAX_MARKERS = 30

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
    """A series of points, drawn with markers; long series as a line with a band."""

    name: str
    dots: Sequence[Dot]


@final
@dataclass(frozen=True, slots=True)
class Shade:
    """One cell of a heat map."""

    x: str
    y: str
    value: float


def draw_bars(
    rows: Sequence[Bar],
    *,
    title: str,
    kinds: Mapping[str, str],
    lowest: float,
) -> str:
    """Draw horizontal bars in the given order, with standard deviations, coloured by kind."""
    alt = import_module("altair")
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
    # Names may be wider with the fonts of another machine.
    left = 12 + max(len(name) for name in order)
    padding = {"left": left, "top": 12, "right": 12, "bottom": 12}
    return _render_svg(
        (bar + rule + text).properties(width=460, height=20 * len(rows), padding=padding)
    )


def draw_named_points(
    dots: Mapping[str, Dot], *, x_title: str, y_title: str, ours: Sequence[str]
) -> str:
    """Draw points with their names beside them, over a logarithmic x axis; `ours` stand out."""
    alt = import_module("altair")
    data = [
        {
            "name": name,
            "x": dot.x,
            "y": dot.y,
            "colour": OURS if name in ours else _SOFT,
            "is_above": index % 2 == 0,  # names of neighbours must not overlap
        }
        for index, (name, dot) in enumerate(sorted(dots.items(), key=lambda item: item[1].x))
    ]
    base = alt.Chart(alt.Data(values=data)).encode(
        x=alt.X("x:Q", title=x_title, scale=alt.Scale(type="log")),
        y=alt.Y("y:Q", title=y_title, scale=alt.Scale(zero=False)),
        color=alt.Color("colour:N", scale=None),
    )
    above, below = (
        base.mark_text(align="left", dx=7, dy=dy, fontSize=11)
        .transform_filter(f"datum.is_above === {is_above}")
        .encode(text="name:N")
        for dy, is_above in ((-6, "true"), (6, "false"))
    )
    points = base.mark_point(filled=True, size=60)
    return _render_svg((points + above + below).properties(width=520, height=340))


def draw_panels(
    series: Mapping[str, Sequence[Stroke]],
    *,
    x_title: str,
    y_title: str,
    logarithmic: frozenset[str] = frozenset(),
    size: tuple[int, int] = (320, 200),
) -> str:
    """Draw one small chart for each title, two in a row, with the same colours in each."""
    alt = import_module("altair")
    names = list(dict.fromkeys(stroke.name for strokes in series.values() for stroke in strokes))
    y = alt.Y("y:Q", title=y_title, scale=alt.Scale(zero=False))
    charts = [
        _draw_panel(alt, strokes, names)
        .encode(
            x=_build_x_axis(alt, strokes, x_title, "log" if title in logarithmic else "linear"), y=y
        )
        .properties(width=size[0], height=size[1], title=title if len(series) > 1 else "")
        for title, strokes in series.items()
    ]
    return _render_svg(alt.concat(*charts, columns=2))


def _build_x_axis(alt: Any, strokes: Sequence[Stroke], title: str, kind: str) -> Any:  # noqa: ANN401
    """Return an axis with ticks at the values, or at round numbers if there are many values."""
    many = _are_many(strokes)
    ticks = sorted({dot.x for stroke in strokes for dot in stroke.dots})
    axis = alt.Axis(
        values=alt.Undefined if many else ticks, format=".6~g", labelOverlap=True, grid=many
    )
    scale = alt.Scale(type=kind, zero=False, nice=many, padding=0 if many else 8)
    return alt.X("x:Q", title=title, scale=scale, axis=axis)


def _are_many(strokes: Sequence[Stroke]) -> bool:
    return max(len(stroke.dots) for stroke in strokes) > _MAX_MARKERS


def _draw_panel(alt: Any, strokes: Sequence[Stroke], names: Sequence[str]) -> Any:  # noqa: ANN401
    data: Data = [
        {"series": stroke.name, "x": dot.x, "y": dot.y, "low": dot.low, "high": dot.high}
        for stroke in strokes
        for dot in stroke.dots
    ]
    symbol = {"symbolType": "stroke", "symbolSize": 300} if _are_many(strokes) else {}
    legend = alt.Legend(orient="top", title=None, symbolOpacity=1, **symbol)
    if len(names) == 1:
        legend = None

    def encode_series(channel: Any, values: Sequence[str] | None = None) -> Any:  # noqa: ANN401
        values = alt.Undefined if values is None else values[: len(names)]
        return channel("series:N", legend=legend, scale=alt.Scale(domain=names, range=values))

    colour = encode_series(alt.Color, _COLOURS)
    base = alt.Chart(alt.Data(values=data)).encode(color=colour)
    spread = alt.Chart(alt.Data(values=[row for row in data if row["low"] is not None]))
    spread = spread.encode(y="low:Q", y2="high:Q", color=colour)
    line = base.mark_line(strokeWidth=1.6)
    if _are_many(strokes):
        return spread.mark_area(opacity=0.18) + line.encode(
            strokeDash=encode_series(alt.StrokeDash)
        )
    markers = base.mark_point(filled=True, size=45).encode(shape=encode_series(alt.Shape, _SHAPES))
    return spread.mark_rule() + line + markers


def draw_heat_map(cells: Sequence[Shade], *, x_title: str, y_title: str) -> str:
    """Draw a heat map with its numbers; larger numbers are darker."""
    alt = import_module("altair")
    data = [{"x": c.x, "y": c.y, "value": c.value, "label": f"{c.value:.3f}"} for c in cells]
    low, high = min(c.value for c in cells), max(c.value for c in cells)
    # The palest shade is not used, because it looks like an empty cell.
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
    return _render_svg((shade + text).properties(width=300, height=180))


_STYLE = {
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
    # Wide between names, because fonts of other machines may be wider.
    "legend": {"labelFontSize": 12, "labelColor": _INK, "labelLimit": 260, "columnPadding": 28},
    "title": {
        "fontSize": 13,
        "fontWeight": "normal",
        "color": _INK,
        "anchor": "start",
        "frame": "group",
    },
}


def _render_svg(chart: Any) -> str:  # noqa: ANN401
    converter = import_module("vl_convert")
    version = ".".join(import_module("altair").SCHEMA_VERSION.lstrip("v").split(".")[:2])
    spec = json.dumps(chart.configure(**_STYLE).to_dict())
    svg: str = converter.vegalite_to_svg(spec, vl_version=version)
    return svg.rstrip() + "\n"
