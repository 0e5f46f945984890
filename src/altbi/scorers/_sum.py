"""Add up several scorers on one scale."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, Protocol, Self, final

import numpy as np
from numpy.typing import NDArray

from altbi.encoding import TableEncoder
from altbi.scorers._covariance import CovarianceScorer, fit_covariance_scorer
from altbi.scorers._distance import DistanceScorer
from altbi.scorers._rarity import RarityScorer, fit_rarity_scorer
from altbi.table import Table

Rows = NDArray[np.float32]
Scores = NDArray[np.float64]

# Weights of the scorers, the same for all tables. They are round numbers; docs/benchmark/scorers.md
# says what others give.
DISTANCE_WEIGHT, COVARIANCE_WEIGHT, RARITY_WEIGHT = 0.5, 1.0, 0.5
# Encoded features from which the distance is the only term.
MAX_FEATURES = 100
# Smaller units and spreads may be rounding errors. The number 1 replaces them.
LEAST_UNIT = LEAST_SPREAD = 1e-9


class Term(Protocol):
    """A scorer of encoded rows whose scores are not negative."""

    def score(self, rows: Rows) -> Scores:
        """Return the scores ``(n_rows,)`` of encoded rows; high means outlier."""
        ...

    def contributions(self, rows: Rows) -> NDArray[np.float64]:
        """Return contributions ``(n_rows, n_features_encoded)`` that add up to the scores."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Scale:
    """How the scores of a term are brought to the scale of the sum."""

    unit: float | None  # a score x becomes ``log(1 + x / unit)``; None leaves it as it is
    spread: float  # standard deviation of the result over training rows

    def apply(self, scores: Scores) -> Scores:
        """Return scores on the scale of the sum; 0 stays 0."""
        return (scores if self.unit is None else np.log1p(scores / self.unit)) / self.spread


@final
@dataclass(frozen=True)
class SumScorer:
    """Scorer by a weighted sum of scorers: distance, and for most tables covariance and rarity.

    Scores are not negative, and near 0 for rows that are usual in all respects. The scales are
    those of the training rows.
    """

    kind: ClassVar[Literal["sum"]] = "sum"

    distance: DistanceScorer
    covariance: CovarianceScorer | None
    rarity: RarityScorer | None
    scales: tuple[Scale, ...]  # of the terms, in the order of `terms`

    @cached_property
    def terms(self) -> tuple[tuple[Term, float], ...]:
        """The scorers and their weights."""
        pairs: tuple[tuple[Term | None, float], ...] = (
            (self.distance, DISTANCE_WEIGHT),
            (self.covariance, COVARIANCE_WEIGHT),
            (self.rarity, RARITY_WEIGHT),
        )
        return tuple((scorer, weight) for scorer, weight in pairs if scorer is not None)

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        """Return the constructor and its arguments for pickle; cached values are left out."""
        return type(self), (self.distance, self.covariance, self.rarity, self.scales)

    def encode(self, table: Table, encoder: TableEncoder) -> Rows:
        """Return the rows of a table in robust z-scores, with NaN for missing values."""
        return encoder.standardize(table)

    def score(self, rows: Rows) -> Scores:
        """Return the scores ``(n_rows,)`` of encoded rows; high means outlier."""
        total = np.zeros(len(rows))
        for (scorer, weight), scale in zip(self.terms, self.scales, strict=True):
            total += weight * scale.apply(scorer.score(rows))
        return total

    def contributions(self, rows: Rows) -> NDArray[np.float64]:
        """Return contributions ``(n_rows, n_features_encoded)`` that add up to the scores.

        The logarithm of a sum is split in proportion to the summands.
        """
        total = np.zeros(rows.shape)
        for (scorer, weight), scale in zip(self.terms, self.scales, strict=True):
            scores = scorer.score(rows)
            ratios = np.divide(
                scale.apply(scores), scores, out=np.zeros(len(rows)), where=scores > 0
            )
            total += weight * ratios[:, None] * scorer.contributions(rows)
        return total


def fit_sum_scorer(
    distance: DistanceScorer, reference: Rows, rows: Rows, feature_kinds: NDArray[np.str_]
) -> SumScorer:
    """Return the sum of a scorer by distance and scorers that are fitted here.

    Covariance is that of the `reference` rows, and rarity that of `rows`, which also set the
    scales. Both have NaN for missing values. With 100 features or more, the distance is the only
    term: by default it is whitened there, so the covariance would count twice, and the rarities of
    hundreds of correlated values only add noise.
    """
    covariance = rarity = None
    if rows.shape[1] < MAX_FEATURES:
        covariance = fit_covariance_scorer(reference, feature_kinds == "value")
        rarity = fit_rarity_scorer(rows, feature_kinds != "missing")
    scales = [_fit_scale(distance.score(rows), is_squared=True)]
    if covariance is not None:
        scales.append(_fit_scale(covariance.score(rows), is_squared=True))
    if rarity is not None:
        scales.append(_fit_scale(rarity.score(rows), is_squared=False))
    return SumScorer(distance, covariance, rarity, tuple(scales))


def _fit_scale(scores: Scores, *, is_squared: bool) -> Scale:
    """Return the scale of a term, from its scores of training rows.

    The unit of squared distances is the median of those above `LEAST_UNIT`, or 1 if there are none.
    A spread of at most `LEAST_SPREAD` becomes 1.
    """
    positive = scores[scores > LEAST_UNIT]
    unit = None
    if is_squared:
        unit = float(np.median(positive)) if len(positive) else 1.0
    spread = float(np.std(Scale(unit, 1.0).apply(scores)))
    return Scale(unit, spread if spread > LEAST_SPREAD else 1.0)
