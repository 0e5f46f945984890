"""Noisy counts, and what can be made of them: the number of rows, bounds, categories, a threshold.

Each is a Gaussian on counts that one row changes by a known amount; what is computed from noisy
counts costs nothing more.
"""

import math
from statistics import NormalDist
from typing import final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from altbi.model._privacy_accounting import Release, compute_gaussian_noise

__all__ = ["NoisyCounts", "split_delta", "threshold_release"]

# Shares of the budget: of Gaussians on all rows they add up, nearly.
ROWS_SHARE = 0.005
BOUNDS_SHARE = 0.1
CATEGORIES_SHARE = 0.05
THRESHOLD_SHARE = 0.05
# Of delta, for names of categories that a single row could bring along.
CATEGORIES_DELTA = 0.1

# A range is found in rounds, each with so many counts, the first on a scale of powers of two; it
# shrinks where that is worth while. A count is no noise from so many deviations on.
_ROUNDS = 3
_BINS = 32
_CERTAIN = 4.5
_WORTHWHILE = 0.3
# A threshold is found by counts of the rows above it.
_HALVINGS = 10
_POWERS = np.exp2(np.arange(-20, 64.0))
_FIRST_EDGES = np.concatenate([-_POWERS[::-1], [0.0], _POWERS])

Values = NDArray[np.float64]
Edges = NDArray[np.float64]


@final
class NoisyCounts:
    """Tells noisy counts of a table, and notes what they cost.

    Parameters
    ----------
    epsilon, delta : float
        The budget of the whole fit.
    draw : numpy.random.Generator
        Where the noise comes from; it must be a secret.

    Attributes
    ----------
    releases : list of Release
        What was told so far.
    """

    def __init__(self, epsilon: float, delta: float, draw: np.random.Generator) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.draw = draw
        self.releases: list[Release] = []

    def count(self, n_rows: int) -> int:
        """Tell how many rows there are."""
        noise = self._spend("number of rows", ROWS_SHARE)
        return max(round(n_rows + noise * self.draw.standard_normal()), 2)

    def bounds(self, values: Values) -> tuple[Values, Values]:
        """Find a range for each column that holds nearly all of its values.

        Each row counts once in each column, so the square root of their number is what it changes.
        """
        reach = math.sqrt(values.shape[1])
        noise = self._spend("counts of values, for bounds", BOUNDS_SHARE, _ROUNDS) * reach
        found = [self._range(column, noise) for column in values.T]
        low, high = np.array(found).T
        return low, high

    def _range(self, column: Values, noise: float) -> tuple[float, float]:
        column, edges = column[~np.isnan(column)], _FIRST_EDGES
        for _ in range(_ROUNDS):
            occupied = np.flatnonzero(
                self._counts(np.clip(column, edges[0], edges[-1]), edges, noise) > _CERTAIN * noise
            )
            if not len(occupied):
                break  # nothing but noise: the range stays as it is
            # Beside counts that stand out lie others that do not: one step more at each end.
            low, high = edges[max(occupied[0] - 1, 0)], edges[min(occupied[-1] + 2, len(edges) - 1)]
            if high - low > _WORTHWHILE * (edges[-1] - edges[0]):
                break
            edges = np.linspace(low, high, _BINS + 1)
        return float(edges[0]), float(edges[-1])

    def categories(self, columns: list[pa.Array], most: int) -> list[tuple[str, ...]]:
        """Name the frequent categories of each category, the most frequent first.

        A name that only one row has is told with a probability below a share of delta.
        """
        noise = self._spend("counts of categories", CATEGORIES_SHARE) * math.sqrt(len(columns))
        alone = CATEGORIES_DELTA * self.delta / len(columns)
        least = 1 + noise * NormalDist().inv_cdf(1 - alone)
        return [self._frequent(texts, noise, least)[:most] for texts in columns]

    def _frequent(self, texts: pa.Array, noise: float, least: float) -> tuple[str, ...]:
        counted = pc.value_counts(texts.drop_null())
        names = counted.field("values").to_pylist()
        counts = counted.field("counts").to_numpy(zero_copy_only=False)
        noisy = counts + noise * self.draw.standard_normal(len(counts))
        told = [(-count, name) for count, name in zip(noisy, names, strict=True) if count >= least]
        return tuple(name for _, name in sorted(told))

    def threshold(
        self, scores: Values, low: float, high: float, share: float, n_rows: int
    ) -> float:
        """Find a score that this share of the rows exceeds, by halving a range on a log scale."""
        release = threshold_release(self)
        self.releases.append(release)
        height = np.log(np.clip(np.nan_to_num(scores, nan=high), low, high) - low + 1)
        bottom, top = 0.0, math.log(high - low + 1)
        for _ in range(_HALVINGS):
            middle = (bottom + top) / 2
            above = self._counts(height, np.array([middle, math.inf]), release.noise)[0]
            bottom, top = (middle, top) if above > share * n_rows else (bottom, middle)
        return low + math.expm1((bottom + top) / 2)

    def _counts(self, values: Values, edges: Edges, noise: float) -> Values:
        counts = np.histogram(values, edges)[0]
        return counts + noise * self.draw.standard_normal(len(counts))

    def _spend(self, what: str, share: float, times: int = 1) -> float:
        """Note releases that together take a share of the budget; gives the noise of each."""
        noise = compute_gaussian_noise(self.epsilon, self.delta, share / times)
        self.releases.append(Release(what, noise, times=times))
        return noise


def threshold_release(noisy_counts: NoisyCounts) -> Release:
    """Say beforehand what the threshold will cost."""
    noise = compute_gaussian_noise(
        noisy_counts.epsilon, noisy_counts.delta, THRESHOLD_SHARE / _HALVINGS
    )
    return Release("counts of scores, for the threshold", noise, times=_HALVINGS)


def split_delta(delta: float, *, names_categories: bool) -> tuple[float, float]:
    """Return the shares of delta for Gaussian noise and for the names of categories."""
    categories = CATEGORIES_DELTA * delta if names_categories else 0.0
    return delta - categories, categories
