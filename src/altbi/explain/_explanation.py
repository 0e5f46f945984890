"""Explanations: the contribution of each column to a row's score, and what was expected."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.encoding import OTHER, TableEncoder
from altbi.errors import ParameterError
from altbi.scorers import DistanceScorer, LossScorer, SumScorer
from altbi.table import Table

REMAINDER = "(remainder)"
SCORE = "(score)"
# Robust z-score, relative to the nearest reference rows, from which a value is unusual.
UNUSUAL_Z_SCORE = 3.0
# Number of similar reference rows whose median is the expected value.
N_SIMILAR = 10
# Rarity in nats from which a value is described in words.
MIN_RARITY = 1.0
# What similar reference rows have if most of their categories have no feature of their own.
OTHER_NOTE = "one of several rare categories"
FREQUENT = "a frequent value"
# Values of reference rows that are held in memory at a time.
VALUES_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True)
class Reason:
    """One column that makes a row unusual."""

    column: str
    value: object  # the row's value; None where it is missing
    expected: object  # the value that similar normal rows, or the network, lead to expect
    # Distance between the two, in robust z-scores of the column. For scores by loss it is measured
    # in standard deviations of the network's prediction.
    z_score: float
    contribution: float  # the column's share of the score
    # What is expected, in words, where a single value does not say it; "" elsewhere.
    note: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The scores of some rows, split by column.

    For every row, ``contributions.sum() + remainder == score`` up to rounding. For scores by
    reference rows, a contribution is the column's part of the distances from them and from their
    mean, and of the rarity of the row's values. The remainder is 0. For scores by loss, a
    contribution is the column's term of the loss, relative to its average over training rows.

    Attributes
    ----------
    columns : tuple of str
        Names of the columns.
    score : ndarray of shape (n_rows,)
        Outlier scores; high means outlier.
    contributions : ndarray of shape (n_rows, n_columns)
        Each column's share of the score.
    remainder : ndarray of shape (n_rows,)
        The share of the score that belongs to no single column.
    values : tuple of pyarrow.Array
        The rows' own values, one array for each column.
    z_scores : ndarray of shape (n_rows, n_columns)
        Distance of each value from the expected one; see `Reason`.
    expected : tuple of pyarrow.Array
        The expected values, one array for each column. Numbers are float64, dates timestamps in UTC
        without a zone, durations seconds, categories text.
    neighbours : ndarray of shape (n_rows, n_neighbours) or None
        Indices of the most similar reference rows, most similar first. Columns in which a row is
        unusual do not count. None for scores by loss.
    reference : tuple of pyarrow.Array
        The values of all reference rows, one array for each column. Empty for scores by loss.
        Dates, identifiers and free text are missing: they are not compared.
    describe : callable or None
        Function of the indices of a row and a column; see `Reason.note`.

    Examples
    --------
    >>> import numpy as np
    >>> from altbi import OutlierDetector
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> X[17, 1] = 9.0
    >>> explanation = OutlierDetector().fit(X).explain(X)
    >>> explanation
    Explanation of 200 rows by 3 columns
    >>> reason = explanation.reasons(17)[0]
    >>> reason.column, reason.value
    ('x1', 9.0)
    >>> explanation.nearest(17, top=2).shape
    (2, 3)
    """

    columns: tuple[str, ...]
    score: NDArray[np.float64]
    contributions: NDArray[np.float64]
    remainder: NDArray[np.float64]
    values: tuple[pa.Array, ...]
    z_scores: NDArray[np.float64]
    expected: tuple[pa.Array, ...]
    neighbours: NDArray[np.intp] | None = None
    reference: tuple[pa.Array, ...] = ()
    describe: Callable[[int, int], str] | None = None

    def __len__(self) -> int:
        """Return the number of explained rows."""
        return len(self.score)

    def __repr__(self) -> str:
        """Return a summary with the number of rows and of columns."""
        return f"Explanation of {len(self)} rows by {len(self.columns)} columns"

    def reasons(self, row: int, top: int = 3) -> list[Reason]:
        """Return the columns whose values are furthest from the expected ones, furthest first.

        Parameters
        ----------
        row : int
            Index of the row.
        top : int, default=3
            Largest number of reasons.

        Returns
        -------
        list of Reason
            Columns with a z-score of at least 1 and another value than the expected one. If there
            is none, the column with the largest z-score.

        Raises
        ------
        ParameterError
            If there is no such row. Negative indices count from the end.
        """
        self._check_row(row)
        ranked = np.argsort(-self.z_scores[row])
        far = (
            self._build_reason(row, column) for column in ranked if self.z_scores[row, column] >= 1
        )
        # Missing values have no expected value, but a note.
        different = (each for each in far if each.note or each.value != each.expected)
        return list(itertools.islice(different, top)) or [self._build_reason(row, ranked[0])]

    def nearest(self, row: int, top: int = 3) -> pa.Table:
        """Return the reference rows that are most similar to a row.

        Parameters
        ----------
        row : int
            Index of the row.
        top : int, default=3
            Largest number of reference rows; at most 10 are available.

        Returns
        -------
        pyarrow.Table
            The reference rows, most similar first.

        Raises
        ------
        ParameterError
            If there is no such row, or if the rows were scored by loss.
        """
        self._check_row(row)
        if self.neighbours is None:
            raise ParameterError(
                "The rows were scored by loss, and the model holds no reference rows. "
                "Fit an OutlierDetector to see the nearest normal rows."
            )
        indices = pa.array(self.neighbours[row, :top])
        return pa.Table.from_arrays(
            [column.take(indices) for column in self.reference], names=list(self.columns)
        )

    def remainder_share(self) -> float:
        """Return the share of the remainder in the variation of the scores over rows.

        Variation is the sum of absolute deviations from the mean, over columns and remainder.

        Returns
        -------
        float
            A number from 0 to 1; 0 for a single row, and if nothing varies.
        """
        total = np.abs(self.contributions - self.contributions.mean(0)).sum()
        rest = np.abs(self.remainder - self.remainder.mean()).sum()
        return float(rest / (total + rest)) if total + rest > 0 else 0.0

    def to_arrow(self) -> pa.Table:
        """Return a table of contributions by column, then ``(remainder)`` and ``(score)``.

        Returns
        -------
        pyarrow.Table
            One row for each explained row.
        """
        return pa.Table.from_arrays(
            [pa.array(values) for values in (*self.contributions.T, self.remainder, self.score)],
            names=[*self.columns, REMAINDER, SCORE],
        )

    def _check_row(self, row: int) -> None:
        """Raise a `ParameterError` unless a row exists; negative indices count from the end."""
        if not -len(self) <= row < len(self):
            raise ParameterError(f"row={row}, but the explanation has {len(self)} rows.")

    def _build_reason(self, row: int, column: int) -> Reason:
        """Return the `Reason` of one row for the column with this index."""
        note = "" if self.describe is None else self.describe(row % len(self), int(column))
        expected = self.expected[column][row].as_py()
        return Reason(
            column=self.columns[column],
            value=self.values[column][row].as_py(),
            expected=expected,
            z_score=float(self.z_scores[row, column]),
            contribution=float(self.contributions[row, column]),
            note=OTHER_NOTE if expected == OTHER and not note else note,
        )


def explain(table: Table, scorer: SumScorer | LossScorer, encoder: TableEncoder) -> Explanation:
    """Return the scores of a table's rows, split by column, with expected values.

    `scorer` and `encoder` belong to the same fitted model.
    """
    if isinstance(scorer, SumScorer):
        return _explain_sum(table, scorer, encoder)
    return _explain_losses(table, scorer, encoder)


def _explain_losses(table: Table, scorer: LossScorer, encoder: TableEncoder) -> Explanation:
    """Split losses by column; the expected values are predictions of the network.

    An unusual value spoils the network's predictions in all columns. Unusual values are therefore
    replaced by the median before the prediction. A scorer without statistics of training rows
    raises a `ValueError`.
    """
    if (typical := scorer.typical) is None:
        raise ValueError("the scorer has no statistics of training rows")
    rows = encoder.transform(table)
    found = scorer.contributions(rows)
    known = np.where(found.by_feature > typical.usual, typical.neutral, rows).astype(np.float32)
    expected, distance = scorer.expect(known, rows)
    return Explanation(
        columns=encoder.names,
        score=found.score,
        contributions=encoder.sum_by_column(found.by_feature) - typical.baseline,
        remainder=found.remainder + typical.baseline.sum(),
        values=tuple(encoder.values(table)),
        z_scores=np.sqrt(2 * encoder.sum_by_column(_make_finite(distance))),
        expected=tuple(encoder.decode_expected(expected)),
    )


def _make_finite(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return distances with a large number for those that overflow, and 0 for NaN."""
    return np.nan_to_num(distances, nan=0.0, posinf=float(np.finfo(np.float32).max))


def _explain_sum(table: Table, scorer: SumScorer, encoder: TableEncoder) -> Explanation:
    """Split the sum of all scorers by column.

    The reference rows nearest to an outlier may have unusual values like its own. Expected values
    are therefore medians of the 10 reference rows that are most similar in its ordinary columns.
    """
    rows, rarities = scorer.encode(table, encoder)
    distance = scorer.distance
    by_distance = distance.contributions(rows)
    squares = encoder.sum_by_column(by_distance)
    weights = _find_ordinary_columns(squares)[:, encoder.feature_columns].astype(np.float32)
    similar = distance.most_similar(rows, weights, N_SIMILAR)
    medians = _compute_medians(distance, encoder, similar)
    difference = np.nan_to_num(medians.astype(np.float64) - rows)
    contributions = encoder.sum_by_column(scorer.contributions(rows, by_distance))
    z_scores = np.sqrt(encoder.sum_by_column(difference**2))
    if rarities is not None:
        contributions += scorer.value_contributions(rarities)
    if scorer.values is not None:  # also without rare values, which other rows may have
        shown = np.zeros_like(z_scores) if rarities is None else rarities
        z_scores = _compare_rarities(z_scores, shown, encoder)
    return Explanation(
        columns=encoder.names,
        score=scorer.score(rows, rarities),
        contributions=contributions,
        remainder=np.zeros(len(rows)),
        values=tuple(encoder.values(table)),
        z_scores=z_scores,
        expected=tuple(encoder.decode(medians)),
        neighbours=similar,
        reference=tuple(encoder.decode(distance.rows)),
        describe=_build_describer(table, scorer, rarities, encoder),
    )


def _build_describer(
    table: Table, scorer: SumScorer, rarities: NDArray[np.float64] | None, encoder: TableEncoder
) -> Callable[[int, int], str]:
    """Return a function of row and column that describes what is expected instead of a value."""
    # Reference rows have no values of these columns that could be expected.
    lacks_values = [not column.is_standardized for column in encoder.columns]

    def describe(row: int, column: int) -> str:
        """Return what is expected, in words, or "" if the value is not rare."""
        if scorer.values is None or rarities is None:
            return ""
        is_rare = rarities[row, column] >= MIN_RARITY
        found = scorer.values.describe(table, row, column) if is_rare else ""
        is_described = found or not (lacks_values[column] and rarities[row, column] > 0)
        return found if is_described else FREQUENT

    return describe


def _compare_rarities(
    z_scores: NDArray[np.float64], rarities: NDArray[np.float64], encoder: TableEncoder
) -> NDArray[np.float64]:
    """Return z-scores in which rare values have those of equally rare normal numbers.

    A normal number z has the rarity ``z**2 / 2``. Categories have no other z-scores.
    """
    is_number = np.array([kind in ("number", "boolean") for kind in encoder.kinds])
    return np.maximum(np.where(is_number, z_scores, 0), np.sqrt(2 * rarities))


def _find_ordinary_columns(contributions: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return a mask of columns in which a row is not unusual: contributions below 9.

    Contributions are squared z-scores, so this is a z-score of 3. Both arrays have the shape
    ``(n_rows, n_columns)``. The half of a row's columns with the smallest contributions always
    counts as ordinary.
    """
    ranks = np.argsort(np.argsort(-contributions, axis=1), axis=1)
    return (contributions < UNUSUAL_Z_SCORE**2) | (ranks >= contributions.shape[1] // 2)


def _compute_medians(
    scorer: DistanceScorer, encoder: TableEncoder, indices: NDArray[np.intp]
) -> NDArray[np.floating]:
    """Return for each row the median of its similar reference rows, as robust z-scores.

    `indices` ``(n_rows, n_similar)`` are those of the reference rows. The result has the shape
    ``(n_rows, n_features_encoded)``. Features of categories are means. Rows are processed in blocks
    to limit memory.
    """
    at_once = max(VALUES_AT_ONCE // (indices.shape[1] * encoder.n_features_encoded), 1)
    blocks = np.split(indices, range(at_once, len(indices), at_once))
    return np.concatenate([encoder.group_medians(scorer.rows[block]) for block in blocks])
