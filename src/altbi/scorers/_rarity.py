"""Score rows by how rare each of their values is."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]
Scores = NDArray[np.float64]

# Exponent of the power law by which cells beyond the outer quantiles are rarer, for cell scores. It
# is a round number: on four tables with injected errors, tried by hand, 2 to 4 are about as good.
TAIL_EXPONENT = 3.0
# Bins of equal width between two quantiles of the training rows. Each quantile has a bin of its
# own, so that a frequent smallest value, such as 0, is not mixed with others. The values beyond the
# quantiles, and missing values, have one bin each.
N_BINS = 20
_OUTER_SHARE = 0.01
N_RARITIES = N_BINS + 5
_BELOW, _LOW, _FIRST, _HIGH, _ABOVE, _MISSING = 0, 1, 2, N_BINS + 2, N_BINS + 3, N_BINS + 4


@final
@dataclass(frozen=True)
class RarityScorer:
    """Scorer by the sum of the rarities of a row's values.

    The rarity of a value is ``log(count of the most frequent bin / count of its bin)``, with the
    bins of its feature. It does not depend on the other features.
    """

    low: NDArray[np.float64]  # where the bins of equal width begin, by feature
    high: NDArray[np.float64]  # where they end; not below `low`
    rarities: NDArray[np.float64]  # rarity of each bin ``(n_features_encoded, N_RARITIES)``

    def score(self, rows: Rows) -> Scores:
        """Return the scores ``(n_rows,)`` of encoded rows; high means outlier."""
        total = np.zeros(len(rows))
        for found in self._iter_rarities(rows):
            total += found
        return total

    def contributions(self, rows: Rows) -> NDArray[np.float64]:
        """Return contributions ``(n_rows, n_features_encoded)``, the rarities of the values."""
        return np.stack(list(self._iter_rarities(rows)), axis=1)

    def score_cells(self, rows: Rows) -> NDArray[np.float64]:
        """Return how unlikely each value is: its rarity, and how far it is beyond the quantiles.

        Unlike in `contributions`, the values beyond a quantile do not tie, and missing values are
        0. The result has the shape ``(n_rows, n_features_encoded)``.
        """
        found = self.contributions(rows) + score_tails(rows, self.low, self.high)
        return np.where(np.isnan(rows), 0.0, found)

    def _iter_rarities(self, rows: Rows) -> Iterator[Scores]:
        """Yield the rarities ``(n_rows,)`` of the values of each feature."""
        columns = zip(rows.T, self.low, self.high, self.rarities, strict=True)
        for values, low, high, rarities in columns:
            yield rarities[_find_bins(values, low, high)]


def score_tails(
    rows: Rows, low: NDArray[np.float64], high: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return nats that grow with the distance of each value from its feature's limits.

    They are 0 between the limits, and NaN for missing values. Sizes grow by a power law, which is a
    heavier tail than that of most columns.
    """
    excess = np.maximum(np.maximum(low - rows, rows - high), 0)
    found: NDArray[np.float64] = TAIL_EXPONENT * np.log1p(excess / np.maximum(high - low, 1.0))
    return found


def _find_bins(values: Rows, low: float, high: float) -> NDArray[np.intp]:
    """Return the index of the bin of each value of a feature."""
    missing = np.isnan(values)
    steps = (np.where(missing, np.float32(low), values) - low) * (N_BINS / ((high - low) or 1.0))
    bins = np.clip(steps, 0, N_BINS - 1).astype(np.intp) + _FIRST
    bins[values == high] = _HIGH
    bins[values > high] = _ABOVE
    bins[values == low] = _LOW
    bins[values < low] = _BELOW
    bins[missing] = _MISSING
    return bins


def fit_rarity_scorer(rows: Rows) -> RarityScorer:
    """Return a scorer with the frequencies of values in training rows.

    One is added to the count of each bin, so that no bin is impossible. Missing values have the
    median rarity of the others, because the distance ignores them, too.
    """
    lows, highs, rarities = [], [], []
    for values in rows.T:
        present = values[~np.isnan(values)]
        shares = [_OUTER_SHARE, 1 - _OUTER_SHARE]
        low, high = np.quantile(present, shares) if len(present) else (0.0, 0.0)
        counts = np.bincount(_find_bins(present, low, high), minlength=N_RARITIES)
        # A quantile that is no frequent value is as usual as the values beyond it.
        counts[_LOW] += counts[_BELOW]
        counts[_HIGH] += counts[_ABOVE]
        found = np.log((counts.max() + 1) / (counts + 1))
        found[_MISSING] = np.median(np.repeat(found, counts)) if len(present) else 0
        lows.append(low)
        highs.append(high)
        rarities.append(found)
    return RarityScorer(np.array(lows), np.array(highs), np.array(rarities))
