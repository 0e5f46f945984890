"""Explain the scores of a table's rows."""

import numpy as np
from numpy.typing import NDArray

from altbi.encoding import TableEncoder
from altbi.explain._explanation import Explanation
from altbi.scorers import DistanceScorer, LossScorer
from altbi.table import Table

__all__ = ["explain"]

# Robust z-score from which a value is unusual beside the nearest reference rows.
UNUSUAL_Z_SCORE = 3.0
# Similar reference rows whose median is the expected value.
N_SIMILAR = 10
# Values of reference rows that are held in memory at a time.
VALUES_AT_ONCE = 1 << 22


def explain(
    table: Table, scorer: DistanceScorer | LossScorer, encoder: TableEncoder
) -> Explanation:
    """Return the scores of a table's rows, split by column.

    Parameters
    ----------
    table : Table
        The rows.
    scorer : DistanceScorer or LossScorer
        The scorer of a fitted model.
    encoder : TableEncoder
        The encoder of the same model.

    Returns
    -------
    Explanation
        Scores, contributions and expected values.
    """
    if isinstance(scorer, DistanceScorer):
        return _explain_distances(table, scorer, encoder)
    return _explain_losses(table, scorer, encoder)


def _explain_losses(table: Table, scorer: LossScorer, encoder: TableEncoder) -> Explanation:
    """Split losses by column.

    For an unusual row the network's predictions are poor in all columns. It is therefore asked what
    it expects in the same row with the unusual values replaced by the median.
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
        z_scores=np.sqrt(2 * encoder.sum_by_column(distance)),
        expected=tuple(encoder.decode_expected(expected)),
    )


def _explain_distances(table: Table, scorer: DistanceScorer, encoder: TableEncoder) -> Explanation:
    """Split squared distances to the nearest reference rows by column.

    The reference rows nearest to an outlier share its unusual values as far as any row does. The
    expected values therefore come from the rows that are most similar in all other columns.
    """
    rows = encoder.standardize(table)
    contributions = encoder.sum_by_column(scorer.contributions(rows))
    weights = _find_ordinary(contributions)[:, encoder.feature_columns].astype(np.float32)
    similar = scorer.most_similar(rows, weights, N_SIMILAR)
    medians = _compute_medians(scorer, encoder, similar)
    difference = np.nan_to_num(medians.astype(np.float64) - rows)
    return Explanation(
        columns=encoder.names,
        score=scorer.score(rows),
        contributions=contributions,
        remainder=np.zeros(len(rows)),
        values=tuple(encoder.values(table)),
        z_scores=np.sqrt(encoder.sum_by_column(difference**2)),
        expected=tuple(encoder.decode(medians)),
        neighbours=similar,
        reference=tuple(encoder.decode(scorer.rows)),
    )


def _find_ordinary(contributions: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which columns of each row are not unusual; at least half of them are not."""
    ranks = np.argsort(np.argsort(-contributions, axis=1), axis=1)
    return (contributions < UNUSUAL_Z_SCORE**2) | (ranks >= contributions.shape[1] // 2)


def _compute_medians(
    scorer: DistanceScorer, encoder: TableEncoder, indices: NDArray[np.intp]
) -> NDArray[np.floating]:
    """Return the median of each row's similar reference rows, some rows at a time."""
    at_once = max(VALUES_AT_ONCE // (indices.shape[1] * encoder.n_features_encoded), 1)
    blocks = np.split(indices, range(at_once, len(indices), at_once))
    return np.concatenate([encoder.group_medians(scorer.rows[block]) for block in blocks])
