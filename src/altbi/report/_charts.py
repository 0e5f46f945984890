"""The charts of the report as inline SVG, drawn without a chart library.

A chart library would add 0.9 MB to each page, and only bars and lines are needed.

Horizontal positions are percentages of the chart's width, and texts have a fixed size: charts fit
any width, on screen and in print, without a script. Labels of the vertical axis are to the left of
the SVG element, in its margin. Colours come from classes in page.css. `ElementTree` escapes texts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias
from xml.etree import ElementTree as ET

from altbi.report._axes import (
    Axis,
    Bins,
    build_axis,
    build_score_axis,
    compute_count_ticks,
    compute_ticks,
    extend_to_ticks,
    format_ticks,
    locate_count,
)

if TYPE_CHECKING:  # it loads torch
    from altbi.networks import TrainingStep

# Start and end of the horizontal positions (from 0 to 1) at which the page shows a text, the text,
# and the vertical position of a dot to show with it, if any.
Tip: TypeAlias = tuple[float, float, str, float | None]

HISTOGRAM_HEIGHT = 220
LINE_HEIGHT = 120
N_SCORE_TICKS, N_LINE_TICKS = 6, 5
MAX_STEPS = 400
# Lines with fewer points have dots.
FEW_STEPS = 30
# The width of a curve's own coordinates, which are stretched to the width of the chart.
CURVE_WIDTH = 1000
# Labels to the right of this position would collide with the one at the end of a compressed axis.
LAST_LABEL = 0.86
# Labels of the vertical axis that are nearer to that of 0, in pixels, are left out.
MIN_LABEL_DISTANCE = 14
# Smallest width of a bar, as a fraction of the chart's width, so that it is visible.
MIN_BAR_WIDTH = 0.002
# From this position on, the label of the threshold is to the left of its line.
LABEL_SIDE = 0.6


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart as SVG text, and the texts to show when the pointer is over it."""

    svg: str
    tips: tuple[Tip, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One value of each training step, and how to draw and format it."""

    name: str
    title: str
    points: list[tuple[int, float]]  # steps and values
    axis: Axis  # of the values
    ticks: list[tuple[float, str]]  # of the values, with labels
    format_value: Callable[[float], str]


def draw_histogram(bins: Bins, threshold: float, label: str, description: str) -> Chart:
    """Draw the number of rows by score, with the threshold as a vertical line.

    Bars above the threshold have the accent colour. The page moves the line, its label and the area
    of this colour. A dotted line stays at the model's threshold.

    Parameters
    ----------
    bins : sequence of (float, float, int)
        Start, end and number of rows of each interval. A wide last interval is drawn compressed.
    threshold : float
        The model's threshold.
    label : str
        The threshold as text.
    description : str
        A description of the chart for screen readers.
    """
    axis, height = build_score_axis(bins, threshold), HISTOGRAM_HEIGHT
    most = max((count for _, _, count in bins), default=1)
    svg = _create_svg("histogram", height, "Histogram of the scores", description)
    counts = compute_count_ticks(most)
    for count in counts:
        at = locate_count(count, most)
        if count == 0 or at * height > MIN_LABEL_DISTANCE:
            _add_grid_line(svg, height, at, format_ticks([count])[0])
    at = axis.locate(threshold)
    clip = _add_element(svg, "clipPath", id="flagged-area")
    _add_element(clip, "rect", x=_format_percent(at), width="100%", height=height)
    bars = list(_compute_bars(bins, axis, most))
    _add_bars(svg, bars, class_="bars")
    _add_bars(svg, bars, class_="bars flagged", clip_path="url(#flagged-area)")
    _add_element(svg, "rect", class_="hover", width=0, height=height)
    _add_score_labels(svg, axis)
    _add_rule(svg, at, class_="own-threshold")
    _add_rule(svg, at, class_="threshold", y1=-22)
    dx, anchor = (-6, "end") if at > LABEL_SIDE else (6, "start")
    text = _add_element(
        svg, "text", f"threshold {label}", class_="threshold", x=_format_percent(at), y=-12
    )
    text.attrib |= {"dx": str(dx), "text-anchor": anchor}
    _add_element(svg, "text", "rows, on a logarithmic scale", class_="title", x=-48, y=-34)
    _add_element(
        svg, "text", "score (high means outlier)", class_="title middle", x="50%", y=height + 42
    )
    return Chart(_to_text(svg), tuple(_describe_bins(bins, axis)))


def draw_training(history: Sequence[TrainingStep]) -> dict[str, Chart]:
    """Draw small line charts of the training: loss, batch size, and share of rows kept.

    The keys are "loss", "batch" and "kept". There is no "loss" if no step has one. Long trainings
    are thinned to at most 400 steps.
    """
    steps = history[:: math.ceil(len(history) / MAX_STEPS) or 1]
    losses = [(step.step, step.loss) for step in steps if step.loss is not None]
    lines = [_build_loss_line(losses)] if losses else []
    batches = [(step.step, float(step.batch_size)) for step in steps]
    axis = build_axis(0.0, max(size for _, size in batches))
    axis, ticks = extend_to_ticks(axis, N_LINE_TICKS)
    lines.append(
        Line(
            name="batch",
            title="Batch size by step",
            points=batches,
            axis=axis,
            ticks=list(zip(ticks, format_ticks(ticks), strict=True)),
            format_value=lambda size: f"{size:,.0f} rows",
        )
    )
    lines.append(
        Line(
            name="kept",
            title="Kept share of the batch by step",
            points=[(step.step, step.kept) for step in steps],
            axis=build_axis(0.0, 1.0),
            ticks=[(0.0, "0%"), (0.5, "50%"), (1.0, "100%")],
            format_value="{:.1%}".format,
        )
    )
    return {line.name: draw_line(line) for line in lines}


def _build_loss_line(losses: list[tuple[int, float]]) -> Line:
    """Return the line of the losses by step, whose axis contains all finite losses."""
    finite = [loss for _, loss in losses if math.isfinite(loss)] or [0.0]
    axis, ticks = extend_to_ticks(build_axis(min(finite), max(finite)), N_LINE_TICKS)
    return Line(
        name="loss",
        title="Loss by step",
        points=losses,
        axis=axis,
        ticks=list(zip(ticks, format_ticks(ticks), strict=True)),
        format_value=lambda loss: f"loss {loss:.4g}",
    )


def draw_line(line: Line) -> Chart:
    """Draw a line chart of at least one point, with a text to show for each finite value.

    Infinite values and NaN leave a gap in the line.
    """
    height, (first, *_, last) = LINE_HEIGHT, (line.points[0], *line.points)
    values = f"From {line.format_value(first[1])} to {line.format_value(last[1])}."
    svg = _create_svg(line.name, height, line.title, values)
    for tick, label in line.ticks:
        _add_grid_line(svg, height, line.axis.locate(tick), label)
    axis = build_axis(first[0], last[0])
    ticks = [tick for tick in compute_ticks(axis, N_LINE_TICKS) if tick.is_integer()]
    for tick, label in zip(ticks, format_ticks(ticks), strict=True):
        _add_tick(svg, height, axis.locate(tick), label)
    _add_element(svg, "text", "step", class_="title middle", x="50%", y=height + 40)
    positions = [
        (axis.locate(step), height * (1 - line.axis.locate(value))) for step, value in line.points
    ]
    _add_curve(svg, height, positions)
    _add_element(svg, "circle", class_="hover", r=4)
    half = 0.5 / max(len(positions) - 1, 1)
    texts = [f"step {step}: {line.format_value(value)}" for step, value in line.points]
    tips = tuple(
        (round(x - half, 4), round(x + half, 4), text, round(y, 1))
        for text, (x, y) in zip(texts, positions, strict=True)
        if math.isfinite(y)
    )
    return Chart(_to_text(svg), tips)


def _compute_bars(bins: Bins, axis: Axis, most: int) -> Iterator[tuple[float, float, float]]:
    """Yield start, end and height of each bar, as fractions of the chart's width and height.

    Bins without rows are left out. `most` is the largest count of a bin.
    """
    for low, high, count in bins:
        if count:
            left = axis.locate(low)
            right = max(axis.locate(high), left + MIN_BAR_WIDTH)
            yield left, right, locate_count(count, most)


def _describe_bins(bins: Bins, axis: Axis) -> Iterator[Tip]:
    """Yield the text to show for each bin, with the positions of its ends on the axis (0 to 1)."""
    for low, high, count in bins:
        rows = f"{count:,} row" if count == 1 else f"{count:,} rows"
        left, right = (round(axis.locate(edge), 5) for edge in (low, high))
        yield left, right, f"{rows} with scores from {low:.4g} to {high:.4g}", None


def _add_bars(
    svg: ET.Element, bars: Sequence[tuple[float, float, float]], **attributes: object
) -> None:
    """Add bars, given as fractions of width and height, in a group with these attributes."""
    group = _add_element(svg, "g", **attributes)
    for left, right, share in bars:
        size = HISTOGRAM_HEIGHT * share
        x, width = _format_percent(left), _format_percent(right - left)
        _add_element(group, "rect", x=x, y=HISTOGRAM_HEIGHT - size, width=width, height=size)


def _add_score_labels(svg: ET.Element, axis: Axis) -> None:
    """Add the ticks of the score axis and their labels to the histogram.

    Of a compressed axis, only the end has a label: readers would take others for evenly spaced
    ones. A mark shows where the compressed part starts.
    """
    ticks = compute_ticks(axis, N_SCORE_TICKS)
    limit = 1.0
    if axis.shrink < 1:
        ticks = compute_ticks(build_axis(axis.low, axis.start), N_SCORE_TICKS)
        limit = LAST_LABEL
        at = _format_percent(axis.locate(axis.start))
        _add_element(
            svg, "text", "//", class_="middle", x=at, y=HISTOGRAM_HEIGHT + 5, aria_hidden="true"
        )
        _add_tick(svg, HISTOGRAM_HEIGHT, 1.0, format_ticks([axis.high])[0], class_="end")
    for tick, label in zip(ticks, format_ticks(ticks), strict=True):
        if axis.locate(tick) <= limit:
            _add_tick(svg, HISTOGRAM_HEIGHT, axis.locate(tick), label)


def _add_curve(svg: ET.Element, height: int, positions: Sequence[tuple[float, float]]) -> None:
    """Add a line through positions: horizontal from 0 to 1, vertical in pixels from above.

    A vertical position that is not finite leaves a gap. Lines of fewer than 30 positions have dots.
    The line has its own coordinates, which are stretched to the width of the chart.
    """
    box = f"0 0 {CURVE_WIDTH} {height}"
    inner = _add_element(svg, "svg", class_="curve", viewBox=box, width="100%", height=height)
    inner.set("preserveAspectRatio", "none")
    for finite, group in groupby(positions, key=lambda position: math.isfinite(position[1])):
        if finite:
            points = " ".join(f"{x * CURVE_WIDTH:.1f},{y:.1f}" for x, y in group)
            _add_element(inner, "polyline", points=points, vector_effect="non-scaling-stroke")
    if len(positions) < FEW_STEPS:
        for x, y in positions:
            if math.isfinite(y):
                _add_element(svg, "circle", class_="dot", cx=_format_percent(x), cy=y, r=2.5)


def _add_grid_line(svg: ET.Element, height: int, share: float, label: str) -> None:
    """Add a horizontal line with a label to its left, at a share of the height from below."""
    y = height * (1 - share)
    _add_element(svg, "line", class_="grid", x2="100%", y1=y, y2=y)
    _add_element(svg, "text", label, class_="end", x=-8, y=y + 4)


def _add_tick(
    svg: ET.Element, height: int, at: float, label: str, *, class_: str = "middle"
) -> None:
    """Add a tick with a label below the horizontal axis, at a position from 0 to 1."""
    x = _format_percent(at)
    _add_element(svg, "line", class_="tick", x1=x, x2=x, y1=height, y2=height + 4)
    _add_element(svg, "text", label, class_=class_, x=x, y=height + 19)


def _add_rule(svg: ET.Element, at: float, *, class_: str, y1: int = 0) -> None:
    """Add a vertical line from `y1` to the bottom of the histogram, at a position from 0 to 1."""
    x = _format_percent(at)
    _add_element(svg, "line", class_=class_, x1=x, x2=x, y1=y1, y2=HISTOGRAM_HEIGHT)


def _create_svg(name: str, height: int, title: str, description: str) -> ET.Element:
    """Create an SVG element `height` pixels high, with title and description for screen readers."""
    ids = {"title": f"{name}-label", "desc": f"{name}-description"}
    svg = ET.Element("svg", {"role": "img", "width": "100%", "height": str(height)})
    svg.attrib |= {"aria-labelledby": ids["title"], "aria-describedby": ids["desc"]}
    _add_element(svg, "title", title, id=ids["title"])
    _add_element(svg, "desc", description, id=ids["desc"])
    return svg


def _add_element(
    parent: ET.Element, tag: str, text: str = "", /, **attributes: object
) -> ET.Element:
    """Add a child element with a text to an element, and return it.

    Underscores in the names of attributes become hyphens; ``class_`` is ``class``. Numbers have at
    most two decimals.
    """
    element = ET.SubElement(parent, tag)
    for name, value in attributes.items():
        shown = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
        element.set(name.rstrip("_").replace("_", "-"), shown)
    element.text = text or None
    return element


def _format_percent(share: float) -> str:
    """Return a share of the width, from 0 to 1, as an SVG length such as "12.5%"."""
    return f"{100 * share:.3f}".rstrip("0").rstrip(".") + "%"


def _to_text(svg: ET.Element) -> str:
    """Convert a drawing to text that can be embedded in an HTML page."""
    return ET.tostring(svg, encoding="unicode")
