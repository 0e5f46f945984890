"""Pictures of a comparison as self-contained SVG text, white behind for any page they stand on."""

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
WIDTH, HEIGHT = 640, 420  # of the field, without what stands around it
AXIS = 66  # where the axis of mean ranks lies
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
        Systems that cannot be told apart, as `altbi_bench.statistics.cliques` gives them.
    """
    _check(ranks, least=0)
    _check({"critical difference": difference}, least=0)
    names = sorted(ranks, key=lambda name: ranks[name])
    half = (len(names) + 1) // 2
    labels = {name: f"{name} {ranks[name]:.2f}" for name in names[:half]}
    labels |= {name: f"{ranks[name]:.2f} {name}" for name in names[half:]}
    left = PAD + _width(labels[name] for name in names[:half])
    low = math.floor(ranks[names[0]])
    high = max(math.ceil(ranks[names[-1]]), low + math.ceil(difference), low + 1)
    unit = WIDTH / (high - low)
    x = {name: left + unit * (ranks[name] - low) for name in names}
    bars = [_bar([x[name] for name in group], level) for level, group in enumerate(groups)]
    top = AXIS + 28 + 8 * len(bars)
    parts = _rank_axis(range(low, high + 1), left, unit)
    parts += _difference_bar(difference, left, unit)
    # Going outwards in, a leader never crosses one that ended above it.
    for side, inwards in ((left, names[:half]), (left + WIDTH, names[: half - 1 : -1])):
        for row, name in enumerate(inwards):
            parts += _leader(labels[name], (x[name], top + ROW * row), side, left)
    size = (left + WIDTH + _width(labels[name] for name in names[half:]) + PAD, top + ROW * half)
    return _document(size, "Critical difference diagram of mean ranks", [*parts, *bars])


def _rank_axis(ticks: Sequence[int], left: float, unit: float) -> list[str]:
    parts = [_line((left, AXIS), (left + WIDTH, AXIS))]
    for tick in ticks[:: math.ceil(len(ticks) / 25)]:
        at = left + unit * (tick - ticks[0])
        parts += [
            _line((at, AXIS - 6), (at, AXIS)),
            _text((at, AXIS - 10), str(tick), anchor="middle"),
        ]
    return parts


def _difference_bar(difference: float, left: float, unit: float) -> list[str]:
    right, y = left + unit * difference, 30
    return [
        _line((left, y - 4), (left, y + 4), (left, y), (right, y), (right, y - 4), (right, y + 4)),
        _text(((left + right) / 2, y - 8), f"CD = {difference:.2f}", anchor="middle"),
    ]


def _bar(places: Sequence[float], level: int) -> str:
    y = AXIS + 12 + 8 * level
    return _line((min(places) - 4, y), (max(places) + 4, y), thick=4)


def _leader(label: str, corner: Point, side: float, left: float) -> list[str]:
    (x, y), outwards = corner, (-1 if side == left else 1)
    return [
        _line((x, AXIS), corner, (side, y)),
        _text((side + 6 * outwards, y + 4), label, anchor="end" if outwards < 0 else "start"),
    ]


def scatter_svg(points: Mapping[str, Point], *, x_title: str, y_title: str) -> str:
    """Draw accuracy against seconds on a logarithmic axis, each point with its name.

    Parameters
    ----------
    points : mapping
        Name -> (seconds, accuracy).
    x_title, y_title : str
        What the axes say.
    """
    _check({name: y for name, (_, y) in points.items()})
    # Not zero, which has no logarithm.
    _check({name: x for name, (x, _) in points.items()}, least=1e-9)
    left, top = 72.0, float(PAD)
    x_ticks = _log_ticks([x for x, _ in points.values()])
    y_ticks = _even_ticks([y for _, y in points.values()])

    decimals = max(len(f"{tick:g}".partition(".")[2]) for tick in y_ticks)

    def place(x: float, y: float) -> Point:
        across = math.log(x / x_ticks[0]) / math.log(x_ticks[-1] / x_ticks[0])
        up = (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])
        return left + WIDTH * across, top + HEIGHT * (1 - up)

    parts = _grid(
        {f"{tick:g}": place(tick, y_ticks[0]) for tick in _few(x_ticks)},
        {f"{tick:.{decimals}f}": place(x_ticks[0], tick) for tick in y_ticks},
    )
    middle, bottom = (left + WIDTH / 2, top + HEIGHT / 2), top + HEIGHT
    parts += [
        _text((middle[0], bottom + 44), x_title, anchor="middle"),
        _text((20, middle[1]), y_title, anchor="middle", turned=True),
    ]
    places = {name: place(x, y) for name, (x, y) in points.items()}
    parts += _labels(places, (left, top, left + WIDTH, bottom))
    parts += [_dot(at) for at in places.values()]
    return _document((left + WIDTH + PAD * 2, bottom + 60), f"{y_title} against {x_title}", parts)


def _log_ticks(values: Sequence[float]) -> list[float]:
    """Return 1, 2, 5, 10, 20, ... from just below the values to just above them."""
    low, high = math.log10(min(values)), math.log10(max(values))
    powers = range(math.floor(low) - 1, math.ceil(high) + 2)
    ticks = [float(f"{digit}e{power}") for power in powers for digit in (1, 2, 5)]
    first = max(tick for tick in ticks if tick < min(values))
    last = min(tick for tick in ticks if tick > max(values))
    return [tick for tick in ticks if first <= tick <= last]


def _few(ticks: Sequence[float]) -> list[float]:
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


def _grid(x_ticks: Mapping[str, Point], y_ticks: Mapping[str, Point]) -> list[str]:
    parts = []
    for label, (x, y) in x_ticks.items():
        parts += [
            _line((x, y), (x, y - HEIGHT), colour=FAINT),
            _text((x, y + 20), label, anchor="middle"),
        ]
    for label, (x, y) in y_ticks.items():
        parts += [
            _line((x, y), (x + WIDTH, y), colour=FAINT),
            _text((x - 8, y + 4), label, anchor="end"),
        ]
    return parts


def _labels(places: Mapping[str, Point], field: Box) -> list[str]:
    """Draw each name next to its dot, moved up or down until it covers nothing."""
    taken = [(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS) for x, y in places.values()]
    parts = []
    for name, (x, y) in sorted(places.items(), key=lambda item: item[1][1]):
        boxes = _boxes((x, y), _width([name]))
        inside = [box for box in boxes if field[0] <= box[0] and box[2] <= field[2] + PAD]
        free = [box for box in inside if not any(_overlap(box, other) for other in taken)]
        box = (free or inside or boxes)[0]
        taken.append(box)
        near = box[0] if box[0] > x else box[2]
        middle = (box[1] + box[3]) / 2
        anchor = "start" if box[0] > x else "end"
        parts += [_line((x, y), (near, middle), colour=SOFT)] if abs(middle - y) > 1 else []
        parts.append(_text((near, middle + 4), name, anchor=anchor))
    return parts


def _boxes(dot: Point, width: float) -> list[Box]:
    """Yield positions for a name, nearest first: right before left, then further up and down."""
    x, y = dot
    nudges = sorted(range(-96, 97, 8), key=abs)
    return [
        (x + near, y + nudge - 7, x + near + width, y + nudge + 7)
        for nudge, near in product(nudges, (RADIUS + 4, -RADIUS - 4 - width))
    ]


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _check(numbers: Mapping[str, float], least: float = -math.inf) -> None:
    if not numbers:
        raise ParameterError("There is nothing to draw, but expected at least one system.")
    for name, number in numbers.items():
        if not is_number(number, least=least):
            bound = f" of at least {least:g}" if math.isfinite(least) else ""
            raise ParameterError(f"{name!r} has {number!r}, but expected a finite number{bound}.")


def _width(texts: Iterable[str]) -> float:
    # No font is at hand to measure with; sans-serif letters are narrower on average.
    return 0.6 * FONT * max(map(len, texts), default=0)


def _line(*points: Point, thick: float = 1, colour: str = INK) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{thick}"/>'


def _dot(at: Point) -> str:
    return f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{RADIUS}" fill="{DOT}"/>'


def _text(at: Point, content: str, *, anchor: str, turned: bool = False) -> str:
    x, y = f"{at[0]:.1f}", f"{at[1]:.1f}"
    turn = f' transform="rotate(-90 {x} {y})"' if turned else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{turn}>{_plain(content)}</text>'


def _plain(content: str) -> str:
    return escape(NOT_XML.sub("\ufffd", content))


def _document(size: Point, title: str, parts: Iterable[str]) -> str:
    width, height = (math.ceil(side) for side in size)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" fill="{INK}" '
            f'font-family="Helvetica, Arial, sans-serif" font-size="{FONT}">',
            f"<title>{_plain(title)}</title>",
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            *parts,
            "</svg>\n",
        ]
    )
