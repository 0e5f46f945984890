"""Diagrams of a comparison as self-contained SVG, with a white background for any page."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from xml.sax.saxutils import escape

from altbi._parameters import is_number
from altbi.errors import ParameterError

__all__ = ["critical_difference_svg", "scatter_svg"]

INK, SOFT, FAINT, DOT = "#222222", "#888888", "#dddddd", "#0b62a4"
FONT, ROW, PAD = 13, 20, 16
WIDTH, HEIGHT = 640, 420  # of the plot area, without labels
AXIS = 66  # vertical position of the axis of mean ranks
RADIUS = 4
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Point = tuple[float, float]
Box = tuple[float, float, float, float]  # left, top, right, bottom


def critical_difference_svg(
    ranks: Mapping[str, float], difference: float, groups: Iterable[Sequence[str]]
) -> str:
    """Draw Demšar's diagram: mean ranks on an axis, best at the left, and bars over the groups.

    scikit-posthocs draws it too, but its label of the critical difference overlaps the axis.

    Parameters
    ----------
    ranks : mapping
        System -> mean rank.
    difference : float
        The critical difference, drawn as a bar above the axis.
    groups : iterable of sequences of str
        Systems that the test does not distinguish, from `altbi_bench.statistics.find_cliques`.
    """
    _check_numbers(ranks, least=0)
    _check_numbers({"critical difference": difference}, least=0)
    names = sorted(ranks, key=lambda name: ranks[name])
    half = (len(names) + 1) // 2
    labels = {name: f"{name} {ranks[name]:.2f}" for name in names[:half]}
    labels |= {name: f"{ranks[name]:.2f} {name}" for name in names[half:]}
    left = PAD + _estimate_width(labels[name] for name in names[:half])
    low = math.floor(ranks[names[0]])
    high = max(math.ceil(ranks[names[-1]]), low + math.ceil(difference), low + 1)
    unit = WIDTH / (high - low)
    x = {name: left + unit * (ranks[name] - low) for name in names}
    bars = [_draw_bar([x[name] for name in group], index) for index, group in enumerate(groups)]
    top = AXIS + 28 + 8 * len(bars)
    elements = _draw_rank_axis(range(low, high + 1), left, unit)
    elements += _draw_difference_bar(difference, left, unit)
    # From the outside in, so that no leader line crosses an earlier one.
    for side, group in ((left, names[:half]), (left + WIDTH, names[: half - 1 : -1])):
        for row, name in enumerate(group):
            elements += _draw_leader(labels[name], (x[name], top + ROW * row), side, left)
    size = (
        left + WIDTH + _estimate_width(labels[name] for name in names[half:]) + PAD,
        top + ROW * half,
    )
    return _build_document(size, "Critical difference diagram of mean ranks", [*elements, *bars])


def _draw_rank_axis(ticks: Sequence[int], left: float, unit: float) -> list[str]:
    elements = [_draw_polyline((left, AXIS), (left + WIDTH, AXIS))]
    for tick in ticks[:: math.ceil(len(ticks) / 25)]:
        at = left + unit * (tick - ticks[0])
        elements += [
            _draw_polyline((at, AXIS - 6), (at, AXIS)),
            _draw_text((at, AXIS - 10), str(tick), anchor="middle"),
        ]
    return elements


def _draw_difference_bar(difference: float, left: float, unit: float) -> list[str]:
    right, y = left + unit * difference, 30
    return [
        _draw_polyline(
            (left, y - 4), (left, y + 4), (left, y), (right, y), (right, y - 4), (right, y + 4)
        ),
        _draw_text(((left + right) / 2, y - 8), f"CD = {difference:.2f}", anchor="middle"),
    ]


def _draw_bar(xs: Sequence[float], index: int) -> str:
    y = AXIS + 12 + 8 * index
    return _draw_polyline((min(xs) - 4, y), (max(xs) + 4, y), thick=4)


def _draw_leader(label: str, corner: Point, side: float, left: float) -> list[str]:
    (x, y), outwards = corner, (-1 if side == left else 1)
    return [
        _draw_polyline((x, AXIS), corner, (side, y)),
        _draw_text((side + 6 * outwards, y + 4), label, anchor="end" if outwards < 0 else "start"),
    ]


def scatter_svg(points: Mapping[str, Point], *, x_title: str, y_title: str) -> str:
    """Draw accuracy against seconds on a logarithmic axis, each point with its name.

    Parameters
    ----------
    points : mapping
        Name -> (seconds, accuracy).
    x_title, y_title : str
        Titles of the axes.
    """
    _check_numbers({name: y for name, (_, y) in points.items()})
    # Zero has no logarithm.
    _check_numbers({name: x for name, (x, _) in points.items()}, least=1e-9)
    left, top = 72.0, float(PAD)
    x_ticks = _log_ticks([x for x, _ in points.values()])
    y_ticks = _even_ticks([y for _, y in points.values()])

    decimals = max(len(f"{tick:g}".partition(".")[2]) for tick in y_ticks)

    def locate(x: float, y: float) -> Point:
        across = math.log(x / x_ticks[0]) / math.log(x_ticks[-1] / x_ticks[0])
        up = (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])
        return left + WIDTH * across, top + HEIGHT * (1 - up)

    elements = _draw_grid(
        {f"{tick:g}": locate(tick, y_ticks[0]) for tick in _thin_out(x_ticks)},
        {f"{tick:.{decimals}f}": locate(x_ticks[0], tick) for tick in y_ticks},
    )
    middle, bottom = (left + WIDTH / 2, top + HEIGHT / 2), top + HEIGHT
    elements += [
        _draw_text((middle[0], bottom + 44), x_title, anchor="middle"),
        _draw_text((20, middle[1]), y_title, anchor="middle", turned=True),
    ]
    dots = {name: locate(x, y) for name, (x, y) in points.items()}
    elements += _draw_labels(dots, (left, top, left + WIDTH, bottom))
    elements += [_draw_dot(at) for at in dots.values()]
    return _build_document(
        (left + WIDTH + PAD * 2, bottom + 60), f"{y_title} against {x_title}", elements
    )


def _log_ticks(values: Sequence[float]) -> list[float]:
    """Return 1, 2, 5, 10, 20, ... from just below the values to just above them."""
    low, high = math.log10(min(values)), math.log10(max(values))
    powers = range(math.floor(low) - 1, math.ceil(high) + 2)
    ticks = [float(f"{digit}e{power}") for power in powers for digit in (1, 2, 5)]
    first = max(tick for tick in ticks if tick < min(values))
    last = min(tick for tick in ticks if tick > max(values))
    return [tick for tick in ticks if first <= tick <= last]


def _thin_out(ticks: Sequence[float]) -> list[float]:
    powers = [tick for tick in ticks if f"{tick:e}".startswith("1.")]
    return list(ticks) if len(ticks) <= 10 else powers


def _even_ticks(values: Sequence[float]) -> list[float]:
    """Return about five round numbers that enclose the values."""
    low, high = min(values), max(values)
    rough = max((high - low) / 5, 1e-4)  # all values may be equal
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(digit * power for digit in (1, 2, 5, 10) if digit * power >= rough * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(number * step, 12) for number in range(first, max(last, first + 1) + 1)]


def _draw_grid(x_ticks: Mapping[str, Point], y_ticks: Mapping[str, Point]) -> list[str]:
    elements = []
    for label, (x, y) in x_ticks.items():
        elements += [
            _draw_polyline((x, y), (x, y - HEIGHT), colour=FAINT),
            _draw_text((x, y + 20), label, anchor="middle"),
        ]
    for label, (x, y) in y_ticks.items():
        elements += [
            _draw_polyline((x, y), (x + WIDTH, y), colour=FAINT),
            _draw_text((x - 8, y + 4), label, anchor="end"),
        ]
    return elements


def _draw_labels(dots: Mapping[str, Point], field: Box) -> list[str]:
    """Draw each name next to its dot, moved up or down so that nothing overlaps."""
    taken = [(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS) for x, y in dots.values()]
    elements = []
    for name, (x, y) in sorted(dots.items(), key=lambda item: item[1][1]):
        boxes = _list_label_boxes((x, y), _estimate_width([name]))
        inside = [box for box in boxes if field[0] <= box[0] and box[2] <= field[2] + PAD]
        free = [box for box in inside if not any(_do_overlap(box, other) for other in taken)]
        box = (free or inside or boxes)[0]
        taken.append(box)
        near = box[0] if box[0] > x else box[2]
        middle = (box[1] + box[3]) / 2
        anchor = "start" if box[0] > x else "end"
        elements += (
            [_draw_polyline((x, y), (near, middle), colour=SOFT)] if abs(middle - y) > 1 else []
        )
        elements.append(_draw_text((near, middle + 4), name, anchor=anchor))
    return elements


def _list_label_boxes(dot: Point, width: float) -> list[Box]:
    """Return boxes for a name, nearest first: right before left, then further up and down."""
    x, y = dot
    nudges = sorted(range(-96, 97, 8), key=abs)
    return [
        (x + near, y + nudge - 7, x + near + width, y + nudge + 7)
        for nudge, near in product(nudges, (RADIUS + 4, -RADIUS - 4 - width))
    ]


def _do_overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _check_numbers(numbers: Mapping[str, float], least: float = -math.inf) -> None:
    if not numbers:
        raise ParameterError("There is nothing to draw, but expected at least one system.")
    for name, number in numbers.items():
        if not is_number(number, least=least):
            bound = f" of at least {least:g}" if math.isfinite(least) else ""
            raise ParameterError(f"{name!r} has {number!r}, but expected a finite number{bound}.")


def _estimate_width(texts: Iterable[str]) -> float:
    # An upper estimate: the average sans-serif letter is narrower.
    return 0.6 * FONT * max(map(len, texts), default=0)


def _draw_polyline(*points: Point, thick: float = 1, colour: str = INK) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{thick}"/>'


def _draw_dot(at: Point) -> str:
    return f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{RADIUS}" fill="{DOT}"/>'


def _draw_text(at: Point, content: str, *, anchor: str, turned: bool = False) -> str:
    x, y = f"{at[0]:.1f}", f"{at[1]:.1f}"
    turn = f' transform="rotate(-90 {x} {y})"' if turned else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{turn}>{_escape(content)}</text>'


def _escape(content: str) -> str:
    return escape(NOT_XML.sub("\ufffd", content))


def _build_document(size: Point, title: str, elements: Iterable[str]) -> str:
    width, height = (math.ceil(side) for side in size)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" fill="{INK}" '
            f'font-family="Helvetica, Arial, sans-serif" font-size="{FONT}">',
            f"<title>{_escape(title)}</title>",
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            *elements,
            "</svg>\n",
        ]
    )
