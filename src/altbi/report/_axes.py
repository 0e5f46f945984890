"""Axes of the charts: positions as fractions of the axis, and ticks with readable labels."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

Bins: TypeAlias = Sequence[tuple[float, float, int]]

# A last interval that is wider than this many others is drawn as wide as this many.
MAX_BIN_WIDTHS = 4
# Below this count, powers of ten alone would leave the axis nearly empty.
FEW_ROWS = 1_000
# Steps between ticks: 1, 2, 5 or 10 times a power of ten.
NICE_STEPS = (1, 2, 5, 10)
# Units of tick labels: an axis whose largest tick is below the limit uses the unit.
UNITS = ((1e4, 1.0, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M"))


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis from `low` to `high`.

    The part above `start` is compressed by the factor `shrink`; without one, `start` is `high`.
    """

    low: float
    high: float
    start: float
    shrink: float = 1.0

    def locate(self, value: float) -> float:
        """Return the position of a value: 0 at the low end of the axis, 1 at the high end."""
        low, high = self._compress(self.low), self._compress(self.high)
        return (self._compress(value) - low) / (high - low)

    def _compress(self, value: float) -> float:
        """Return the value, with its distance above `start` multiplied by `shrink`."""
        return value if value <= self.start else self.start + (value - self.start) * self.shrink


def build_score_axis(bins: Bins, threshold: float) -> Axis:
    """Build the axis of the scores, which contains all bins and the threshold.

    A bin has its lower end, its upper end and a count. A last bin wider than four of the others is
    compressed: it is drawn as wide as four.
    """
    edges = [edge for low, high, _ in bins for edge in (low, high)] + [threshold]
    axis = build_axis(min(edges), max(edges))
    if len(bins) < 2:
        return axis
    start, end, _ = bins[-1]
    width = (bins[0][1] - bins[0][0]) * MAX_BIN_WIDTHS
    if not end - start > width > 0:
        return axis
    return Axis(axis.low, axis.high, start, width / (end - start))


def build_axis(low: float, high: float) -> Axis:
    """Build an axis from `low` to `high`; if both are equal, it extends on either side.

    Values whose difference is too small to be divided into ticks count as equal.
    """
    margin = 0.0 if high - low > sys.float_info.min else max(0.5, abs(low) / 100)
    return Axis(low - margin, high + margin, high + margin)


def extend_to_ticks(axis: Axis, n_ticks: int) -> tuple[Axis, list[float]]:
    """Extend an axis outward to round values; return it, and about `n_ticks` ticks."""
    step = choose_step(axis, n_ticks)
    first, last = math.floor(axis.low / step + 1e-9), math.ceil(axis.high / step - 1e-9)
    ticks = [index * step for index in range(first, last + 1)]
    return Axis(ticks[0], ticks[-1], ticks[-1]), ticks


def compute_ticks(axis: Axis, n_ticks: int) -> list[float]:
    """Return evenly spaced round values on an axis, about `n_ticks` of them.

    >>> compute_ticks(build_axis(4.1, 894.9), 6)
    [200.0, 400.0, 600.0, 800.0]
    """
    step = choose_step(axis, n_ticks)
    first, last = math.ceil(axis.low / step - 1e-9), math.floor(axis.high / step + 1e-9)
    return [index * step for index in range(first, last + 1)]


def choose_step(axis: Axis, n_ticks: int) -> float:
    """Return the smallest distance between ticks with at most `n_ticks` intervals on an axis.

    It is 1, 2 or 5 times a power of ten. The axis must have a length.
    """
    least = (axis.high - axis.low) / n_ticks
    power = 10.0 ** math.floor(math.log10(least))
    return next((step * power for step in NICE_STEPS if least <= step * power), 10 * power)


def compute_count_ticks(most: int) -> list[int]:
    """Return ticks of a logarithmic axis from 0 to `most`: powers of ten.

    For fewer than 1,000 rows, three times these powers are ticks, too.

    >>> compute_count_ticks(271)
    [0, 1, 3, 10, 30, 100]
    """
    powers = [10**power for power in range(len(str(max(most, 1))))]
    between = [3 * power for power in powers] if most < FEW_ROWS else []
    return [tick for tick in sorted([0, *powers, *between]) if tick <= max(most, 1)]


def locate_count(count: int, most: int) -> float:
    """Return the position of a count on the logarithmic axis from 0 to `most`.

    A single row has a visible position, and `most` is below the end of the axis, which is 1.
    """
    return math.log1p(count) / math.log1p(max(most, 1) * 1.15)


def format_ticks(ticks: Sequence[float]) -> list[str]:
    """Format the values of evenly spaced ticks with the decimals that they need.

    Large values are given in thousands (k) or millions (M).

    >>> format_ticks([0.0, 0.5, 1.0]), format_ticks([0, 5000, 10000])
    (['0', '0.5', '1.0'], ['0', '5k', '10k'])
    """
    largest = max(map(abs, ticks), default=0.0)
    step = min((high - low for low, high in pairwise(ticks)), default=largest)
    found = next(((size, name) for limit, size, name in UNITS if largest < limit), None)
    if found is None or 0 < largest < 1e-4:
        return [_replace_minus(f"{tick:.3g}") for tick in ticks]
    size, name = found
    decimals = max(0, -math.floor(math.log10(step / size) + 1e-9)) if step > 0 else 0
    return [
        _replace_minus(f"{tick / size:,.{decimals}f}{name}") if abs(tick) > step / 2 else "0"
        for tick in ticks
    ]


def _replace_minus(text: str) -> str:
    """Replace hyphens by minus signs, which are as wide as digits."""
    return text.replace("-", "\N{MINUS SIGN}")
