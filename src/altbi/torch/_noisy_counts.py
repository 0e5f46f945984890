"""Noisy counts of a table: its number of rows, bounds, categories and a threshold.

Each count has Gaussian noise, scaled to how much one row can change it. Values computed from noisy
counts need no further budget.
"""

import math
from statistics import NormalDist
from typing import final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from altbi.model._privacy_accounting import Release, compute_gaussian_noise

# Shares of the budget. For Gaussian noise on all rows they are nearly additive.
ROWS_SHARE = 0.005
BOUNDS_SHARE = 0.1
CATEGORIES_SHARE = 0.05
THRESHOLD_SHARE = 0.05
# Share of delta for releasing the name of a category that only one row has.
CATEGORIES_DELTA = 0.1

# Bounds are found in rounds of histograms. The first one has powers of two as bin edges.
_MAX_ROUNDS = 3
_N_BINS = 32
# A bin is occupied if its count exceeds this many standard deviations of the noise.
_OCCUPIED = 4.5
# Another round follows only if the range shrinks to this share or less.
_MIN_SHRINKAGE = 0.3
# Number of bisections with which a threshold is found.
_N_BISECTIONS = 10
_POWERS = np.exp2(np.arange(-20, 64.0))
_FIRST_EDGES = np.concatenate([-_POWERS[::-1], [0.0], _POWERS])

Values = NDArray[np.float64]
Edges = NDArray[np.float64]


@final
class NoisyCounts:
    """Noisy counts of a table, with a record of the budget that they spend.

    `epsilon` and `delta` are the budget of the whole fit. The noise comes from `rng`, which must be
    secret.
    """

    def __init__(self, epsilon: float, delta: float, rng: np.random.Generator) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.rng = rng
        self.releases: list[Release] = []

    def count(self, n_rows: int) -> int:
        """Return the noisy number of rows, at least 2, and record the release."""
        noise = self._spend("number of rows", ROWS_SHARE)
        return max(round(n_rows + noise * self.rng.standard_normal()), 2)

    def bounds(self, values: Values) -> tuple[Values, Values]:
        """Return lower and upper bounds ``(n_columns,)`` of values ``(n_rows, n_columns)``.

        They hold nearly all values of each column. Missing values (NaN) are ignored. Columns with
        too few values get the bounds ``-2**63`` and ``2**63``. A row has one value in each of d
        columns, so the sensitivity is the square root of d. The release is recorded.
        """
        sensitivity = math.sqrt(values.shape[1])
        noise = self._spend("counts of values, for bounds", BOUNDS_SHARE, _MAX_ROUNDS)
        ranges = [self._find_range(column, noise * sensitivity) for column in values.T]
        low, high = np.array(ranges).T
        return low, high

    def _find_range(self, column: Values, noise: float) -> tuple[float, float]:
        """Return the bounds of one column, found by up to three rounds of noisy histograms.

        The first histogram has powers of two as edges, from ``-2**63`` to ``2**63``. Each later one
        divides the range of the occupied bins and their neighbours into 32 bins. A bin is occupied
        if its noisy count exceeds 4.5 times `noise`, the standard deviation of the noise. The
        search stops early if no bin is occupied, or if more than 30% of the range would remain.
        """
        column, edges = column[~np.isnan(column)], _FIRST_EDGES
        for _ in range(_MAX_ROUNDS):
            clipped = np.clip(column, edges[0], edges[-1])
            occupied = np.flatnonzero(self._count_bins(clipped, edges, noise) > _OCCUPIED * noise)
            if not len(occupied):
                break
            # Neighbours of occupied bins may hold values that the noise hides.
            low, high = (
                edges[max(occupied[0] - 1, 0)],
                edges[min(occupied[-1] + 2, len(edges) - 1)],
            )
            if high - low > _MIN_SHRINKAGE * (edges[-1] - edges[0]):
                break
            edges = np.linspace(low, high, _N_BINS + 1)
        return float(edges[0]), float(edges[-1])

    def categories(self, columns: list[pa.Array], max_categories: int) -> list[tuple[str, ...]]:
        """Return the frequent categories of each column, the most frequent first.

        At most `max_categories` are returned for a column, and there may be none. A category that
        only one row has is returned with a probability below a share of delta. The release is
        recorded.
        """
        noise = self._spend("counts of categories", CATEGORIES_SHARE) * math.sqrt(len(columns))
        probability = CATEGORIES_DELTA * self.delta / len(columns)
        min_count = 1 + noise * NormalDist().inv_cdf(1 - probability)
        return [self._find_frequent(texts, noise, min_count)[:max_categories] for texts in columns]

    def _find_frequent(self, texts: pa.Array, noise: float, min_count: float) -> tuple[str, ...]:
        """Return the categories whose noisy count is at least `min_count`, by decreasing count.

        Missing values are ignored.
        """
        counted = pc.value_counts(texts.drop_null())
        names = counted.field("values").to_pylist()
        counts = counted.field("counts").to_numpy(zero_copy_only=False)
        noisy = counts + noise * self.rng.standard_normal(len(counts))
        frequent = [
            (-count, name) for count, name in zip(noisy, names, strict=True) if count >= min_count
        ]
        return tuple(name for _, name in sorted(frequent))

    def threshold(
        self, scores: Values, low: float, high: float, share: float, n_rows: int
    ) -> float:
        """Return a score that about this share of the rows exceeds, and record the release.

        It is found by bisection of noisy counts on a log scale. Scores are clipped to the range
        from `low` to `high`, and NaN counts as `high`. `n_rows` is the noisy number of rows.
        """
        release = threshold_release(self)
        self.releases.append(release)
        log_scores = np.log(np.clip(np.nan_to_num(scores, nan=high), low, high) - low + 1)
        bottom, top = 0.0, math.log(high - low + 1)
        for _ in range(_N_BISECTIONS):
            middle = (bottom + top) / 2
            above = self._count_bins(log_scores, np.array([middle, math.inf]), release.noise)[0]
            bottom, top = (middle, top) if above > share * n_rows else (bottom, middle)
        return low + math.expm1((bottom + top) / 2)

    def _count_bins(self, values: Values, edges: Edges, noise: float) -> Values:
        """Return the histogram of values with Gaussian noise of this standard deviation.

        Noisy counts may be negative.
        """
        counts = np.histogram(values, edges)[0]
        return counts + noise * self.rng.standard_normal(len(counts))

    def _spend(self, what: str, share: float, times: int = 1) -> float:
        """Record releases that together spend a share of the budget; return the noise of each.

        The noise is a standard deviation as a multiple of the sensitivity. `what` describes the
        releases, and `times` is their number.
        """
        noise = compute_gaussian_noise(self.epsilon, self.delta, share / times)
        self.releases.append(Release(what, noise, times=times))
        return noise


def threshold_release(noisy_counts: NoisyCounts) -> Release:
    """Return the planned release of the threshold, so that it can be budgeted in advance."""
    share = THRESHOLD_SHARE / _N_BISECTIONS
    noise = compute_gaussian_noise(noisy_counts.epsilon, noisy_counts.delta, share)
    return Release("counts of scores, for the threshold", noise, times=_N_BISECTIONS)


def split_delta(delta: float, *, names_categories: bool) -> tuple[float, float]:
    """Return the shares of delta for Gaussian noise and for the names of categories.

    They add up to delta. The second share is 0 unless names of categories are released.
    """
    categories = CATEGORIES_DELTA * delta if names_categories else 0.0
    return delta - categories, categories
