"""Add up several scorers on one scale."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Protocol, final

import numpy as np
from numpy.typing import NDArray

from altbi.encoding import TableEncoder
from altbi.rarities import ValueRarities
from altbi.scorers._covariance import CovarianceScorer, fit_covariance_scorer
from altbi.scorers._distance import DistanceScorer
from altbi.scorers._rarity import RarityScorer, fit_rarity_scorer, score_tails
from altbi.table import Table

Rows = NDArray[np.float32]
Scores = NDArray[np.float64]

# Weights of the scorers, the same for all tables. They are round numbers; docs/benchmark/scorers.md
# says what others give.
DISTANCE_WEIGHT, COVARIANCE_WEIGHT, RARITY_WEIGHT = 0.5, 1.0, 0.5
# Weight of the rarest text, date or missing value of a row, in nats. It is not divided by a spread:
# a rarity has the same meaning in all tables. A row with one wrong value would be lost otherwise.
RAREST_WEIGHT = 0.75
# Numbers from which the distance is their only term.
MAX_FEATURES = 100
# Rarities are not enlarged in tables in which they hardly differ. In nats.
LEAST_RARITY_SPREAD = 0.5
# Without the rarities of numbers: robust z-score beyond which a number is unlikely, and the least
# score of such a cell, in nats.
USUAL_Z_SCORE, LEAST_TAIL = 3.0, 3.0
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
    """Scorer by a weighted sum: distance, covariance, rarity of values, and the rarest value.

    Scores are not negative, and near 0 for rows that are usual in all respects. The scales are
    those of the training rows. Covariance and the rarity of numbers are left out in tables with
    100 numbers or more, and without any.
    """

    kind: ClassVar[Literal["sum"]] = "sum"

    distance: DistanceScorer
    covariance: CovarianceScorer | None
    rarity: RarityScorer | None
    # Of the distance, of the covariance if there is one, and of the sum of all rarities.
    scales: tuple[Scale, ...]
    # Indices of the encoded features that covariance and rarity count, those of numbers.
    numbers: NDArray[np.intp]
    # Rarities of texts, dates and missing values; None counts numbers only.
    values: ValueRarities | None = None

    @property
    def squared_terms(self) -> tuple[tuple[Term, float, Scale, NDArray[np.intp] | slice], ...]:
        """The scorers by squares, with weight, scale and the features that each of them counts."""
        distance = (self.distance, DISTANCE_WEIGHT, self.scales[0], slice(None))
        if self.covariance is None:
            return (distance,)
        return (distance, (self.covariance, COVARIANCE_WEIGHT, self.scales[1], self.numbers))

    def encode(self, table: Table, encoder: TableEncoder) -> tuple[Rows, Scores | None]:
        """Return a table as robust z-scores, and the rarities of its values.

        Missing numbers are NaN. The rarities have the shape ``(n_rows, n_columns)``. They are None
        if all of them are 0, and without `values`.
        """
        rows = encoder.standardize(table)  # checks the columns
        rarities = None if self.values is None else self.values.score(table)
        return rows, rarities if rarities is not None and rarities.any() else None

    def score_table(self, table: Table, encoder: TableEncoder) -> Scores:
        """Return the scores ``(n_rows,)`` of a table; high means outlier."""
        return self.score(*self.encode(table, encoder))

    def score(self, rows: Rows, rarities: Scores | None = None) -> Scores:
        """Return the scores ``(n_rows,)`` of encoded rows, whose values have these rarities."""
        total = np.zeros(len(rows))
        for scorer, weight, scale, features in self.squared_terms:
            total += weight * scale.apply(scorer.score(_select(rows, features)))
        total += RARITY_WEIGHT * self.scales[-1].apply(self.add_rarities(rows, rarities))
        if rarities is not None and self.values is not None:
            total += RAREST_WEIGHT * self.values.measure_rarest(rarities)
        return total

    def add_rarities(self, rows: Rows, rarities: Scores | None) -> Scores:
        """Return the sums ``(n_rows,)`` of the rarities of all numbers and other values."""
        total = np.zeros(len(rows))
        if self.rarity is not None:
            total += self.rarity.score(_select(rows, self.numbers))
        # Column by column, so that other rows do not affect the order of additions.
        for column in () if rarities is None else rarities.T:
            total += column
        return total

    def number_rarities(self, rows: Rows) -> NDArray[np.float64]:
        """Return the rarities ``(n_rows, n_features_encoded)`` of numbers; 0 for other features."""
        found = np.zeros(rows.shape)
        if self.rarity is not None:
            found[:, self.numbers] = self.rarity.contributions(_select(rows, self.numbers))
        return found

    @property
    def usual_limits(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The limits of the usual values of each of the `numbers`, as robust z-scores."""
        if self.rarity is not None:
            return self.rarity.low, self.rarity.high
        limits = np.full(len(self.numbers), USUAL_Z_SCORE)
        return -limits, limits

    def score_number_cells(self, rows: Rows) -> NDArray[np.float64]:
        """Return how unlikely each number is ``(n_rows, n_features_encoded)``; 0 elsewhere.

        Without `rarity`, only numbers beyond the usual limits are unlikely.
        """
        found = np.zeros(rows.shape)
        selected = _select(rows, self.numbers)
        if self.rarity is not None:
            found[:, self.numbers] = self.rarity.score_cells(selected)
        elif len(self.numbers):
            tails = np.nan_to_num(score_tails(selected, *self.usual_limits))
            found[:, self.numbers] = tails + LEAST_TAIL * (tails > 0)
        return found

    def contributions(
        self, rows: Rows, by_distance: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Return contributions ``(n_rows, n_features_encoded)`` of the encoded features.

        Together with `value_contributions`, they add up to the scores. The logarithm of a sum is
        split in proportion to the summands. `by_distance` are the contributions to the distance if
        they are known already.
        """
        total = np.zeros(rows.shape)
        for scorer, weight, scale, features in self.squared_terms:
            selected = _select(rows, features)
            scores = scorer.score(selected)
            ratios = np.divide(
                scale.apply(scores), scores, out=np.zeros(len(rows)), where=scores > 0
            )
            if by_distance is not None and scorer is self.distance:
                found = by_distance
            else:
                found = scorer.contributions(selected)
            total[:, features] += weight * ratios[:, None] * found
        total += RARITY_WEIGHT * self.scales[-1].apply(self.number_rarities(rows))
        return total

    def value_contributions(self, rarities: Scores) -> NDArray[np.float64]:
        """Return contributions ``(n_rows, n_columns)`` of the rarities of texts and other values.

        The rarest value of a row counts once more, as far as it is rarer than usual.
        """
        total = RARITY_WEIGHT * self.scales[-1].apply(rarities)
        if self.values is not None:
            columns, excess = self.values.find_rarest(rarities)
            total[np.arange(len(rarities)), columns] += RAREST_WEIGHT * excess
        return total


def _select(rows: Rows, features: NDArray[np.intp] | slice) -> Rows:
    """Return some features of rows; the rows themselves if that are all."""
    if isinstance(features, slice) or len(features) == rows.shape[1]:
        return rows
    return np.ascontiguousarray(rows[:, features])


def fit_sum_scorer(
    distance: DistanceScorer,
    reference: Rows,
    rows: Rows,
    numbers: NDArray[np.intp],
    values: ValueRarities | None = None,
    rarities: Scores | None = None,
) -> SumScorer:
    """Return the sum of a scorer by distance, of `values`, and of scorers that are fitted here.

    `numbers` has the indices of the features that are numbers. Covariance is that of the
    `reference` rows, and rarity that of `rows`, which have NaN for missing values. The rows, whose
    values have the `rarities`, also set the scales. With 100 numbers or more, their covariance and
    rarity are left out: by default the distance is whitened there, so the covariance would count
    twice, and the rarities of hundreds of correlated values only add noise.
    """
    if values is not None and rarities is not None:
        values = values.with_usual_rarest(rarities)
    covariance = rarity = None
    scales = [_fit_scale(distance.score(rows), is_squared=True)]
    if has_number_terms(len(numbers)):
        covariance = fit_covariance_scorer(_select(reference, numbers))
        rarity = fit_rarity_scorer(_select(rows, numbers))
        scales.append(_fit_scale(covariance.score(_select(rows, numbers)), is_squared=True))
    unscaled = SumScorer(distance, covariance, rarity, (*scales, Scale(None, 1.0)), numbers, values)
    total = unscaled.add_rarities(rows, rarities)
    spread = max(_fit_scale(total, is_squared=False).spread, LEAST_RARITY_SPREAD)
    return replace(unscaled, scales=(*scales, Scale(None, spread)))


def has_number_terms(n_numbers: int) -> bool:
    """Return whether covariance and rarity of this number of features are terms of a sum."""
    return 0 < n_numbers < MAX_FEATURES


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
