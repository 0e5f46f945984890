"""Scores that add up how rare each value of a row is: histograms and tails."""

from dataclasses import dataclass
from typing import Literal, Protocol, final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Binning", "EqualBins", "MassPoints", "score_by_histograms", "score_by_tails"]

Floats = NDArray[np.floating]
Indices = NDArray[np.intp]
Scores = NDArray[np.float64]


class Binning(Protocol):
    """How the values of a feature are divided into bins."""

    def find_bins(self, values: Floats, training: Floats) -> Indices:
        """Return the index of the bin of each value, for bins chosen on training values."""
        ...


@final
@dataclass(frozen=True, slots=True)
class EqualBins:
    """Bins of equal width between two quantiles, and one on each side.

    >>> EqualBins(2, 0.0).find_bins(np.array([-1.0, 0, 1, 2, 3]), np.array([0.0, 2]))
    array([0, 0, 1, 2, 3])
    """

    n_bins: int = 20
    outer_share: float = 0.01
    side: Literal["left", "right"] = "left"  # bin of a value on an edge

    def find_bins(self, values: Floats, training: Floats) -> Indices:
        """Return the index of the bin of each value, for bins chosen on training values."""
        low, high = np.quantile(training, [self.outer_share, 1 - self.outer_share])
        return np.searchsorted(np.linspace(low, high, self.n_bins + 1), values, self.side)


@final
@dataclass(frozen=True, slots=True)
class MassPoints:
    """Equal bins, but frequent values have a bin of their own.

    >>> MassPoints(share=0.5).find_bins(np.array([0.0, 7]), np.array([7.0, 7, 0, 1]))
    array([ 0, 22])
    """

    share: float = 0.05  # of the training values
    bins: EqualBins = EqualBins()

    def find_bins(self, values: Floats, training: Floats) -> Indices:
        """Return the index of the bin of each value, for bins chosen on training values."""
        distinct, counts = np.unique(training, return_counts=True)
        frequent = distinct[counts >= self.share * len(training)]
        rest = training[~np.isin(training, frequent)]
        found = self.bins.find_bins(values, rest if len(rest) else training)
        if len(frequent):
            nearest = np.minimum(np.searchsorted(frequent, values), len(frequent) - 1)
            is_frequent = frequent[nearest] == values
            found[is_frequent] = self.bins.n_bins + 2 + nearest[is_frequent]
        return found


def score_by_histograms(rows: Floats, training: Floats, binning: Binning) -> Scores:
    """Return the sum over features of the negative log share of the bin; counts start at 1."""
    total = np.zeros(len(rows))
    for values, own in zip(rows.T, training.T, strict=True):
        bins, known = binning.find_bins(values, own), binning.find_bins(own, own)
        counts = np.bincount(known, minlength=int(max(bins.max(), known.max())) + 1) + 1
        total -= np.log(counts / counts.sum())[bins]
    return total


def score_by_tails(rows: Floats, training: Floats) -> dict[str, Scores]:
    """Return scores by the share of training values that are at least as extreme.

    "two-sided" is the sum over features of the negative log share on the shorter side, "largest"
    the largest of them, and "ecod" the largest of three sums: left, right and two-sided.
    """
    n, (left, right, both, largest) = len(training), np.zeros((4, len(rows)))
    for values, own in zip(rows.T, training.T, strict=True):
        ranked = np.sort(own)
        below = (np.searchsorted(ranked, values, "right") + 0.5) / (n + 1)
        above = (n - np.searchsorted(ranked, values, "left") + 0.5) / (n + 1)
        shorter = -np.log(np.minimum(1, 2 * np.minimum(below, above)))
        left -= np.log(below)
        right -= np.log(above)
        both += shorter
        np.maximum(largest, shorter, out=largest)
    return {"two-sided": both, "largest": largest, "ecod": np.max([left, right, both], axis=0)}
