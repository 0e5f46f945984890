"""The scorer by covariance."""

import numpy as np
import pytest
from sklearn.covariance import EmpiricalCovariance

from altbi.scorers import CovarianceScorer, fit_covariance_scorer

ALL = np.ones(3, dtype=bool)


def make_rows(n_rows=400, seed=0):
    """Return rows of which the last two columns are nearly equal."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n_rows, 3))
    rows[:, 2] = rows[:, 1] + 0.1 * rng.normal(size=n_rows)
    return rows.astype(np.float32)


def test_scores_are_mahalanobis_distances():
    rows = make_rows()
    expected = EmpiricalCovariance().fit(rows).mahalanobis(rows) * (len(rows) - 1) / len(rows)
    scores = fit_covariance_scorer(rows, ALL).score(rows)
    np.testing.assert_allclose(scores, expected, rtol=0.02)


def test_contradicting_values_score_high():
    scorer = fit_covariance_scorer(make_rows(), ALL)
    usual, contradicting = scorer.score(np.array([[0, 1, 1], [0, 1, -1]], dtype=np.float32))
    assert contradicting > 50 * usual


def test_contributions_add_up_and_are_not_negative():
    rows = make_rows()
    scorer = fit_covariance_scorer(rows, ALL)
    contributions = scorer.contributions(rows)
    assert (contributions >= 0).all()
    np.testing.assert_allclose(contributions.sum(axis=1), scorer.score(rows))


def test_changed_column_contributes_most():
    rows = make_rows()
    scorer = fit_covariance_scorer(rows, ALL)
    rows[:, 0] += 6
    assert (scorer.contributions(rows).argmax(axis=1) == 0).mean() > 0.95


def test_missing_values_are_filled_from_the_others():
    scorer = fit_covariance_scorer(make_rows(), ALL)
    row = np.array([[0.5, 2, np.nan]], dtype=np.float32)
    candidates = np.repeat(row, 400, axis=0)
    candidates[:, 2] = np.linspace(-4, 4, 400)
    scores = scorer.score(candidates)
    assert scorer.score(row)[0] == pytest.approx(scores.min(), abs=0.02)
    assert candidates[scores.argmin(), 2] == pytest.approx(2, abs=0.1)


def test_rows_with_missing_values_are_scored_alone():
    rng = np.random.default_rng(1)
    scorer = fit_covariance_scorer(make_rows(), ALL)
    rows = make_rows(700, seed=2)
    rows[rng.random(rows.shape) < 0.3] = np.nan
    together = scorer.score(rows)
    alone = [scorer.score(rows[index : index + 1])[0] for index in range(0, 700, 50)]
    assert np.array_equal(together[::50], alone)
    assert np.array_equal(scorer.contributions(rows)[50], scorer.contributions(rows[50:51])[0])


def test_missing_values_of_reference_rows_keep_correlations():
    rows = make_rows()
    rows[np.random.default_rng(3).random(rows.shape) < 0.1] = np.nan
    scorer = fit_covariance_scorer(rows, ALL)
    usual, contradicting = scorer.score(np.array([[0, 1, 1], [0, 1, -1]], dtype=np.float32))
    assert contradicting > 20 * usual


def test_other_features_do_not_count():
    rows = make_rows()
    scorer = fit_covariance_scorer(rows, np.array([True, True, False]))
    changed = rows.copy()
    changed[:, 2] = 100
    assert np.array_equal(scorer.score(changed), scorer.score(rows))
    assert scorer.score(rows).max() > 1


def test_constants_duplicates_and_few_rows_are_scored():
    rows = np.random.default_rng(4).normal(size=(5, 8)).astype(np.float32)
    rows[:, 0] = 3
    rows[:, 2] = rows[:, 1]
    scorer = fit_covariance_scorer(rows, np.ones(8, dtype=bool))
    changed = rows[:1].copy()
    changed[0, 0] = 4
    assert np.isfinite(scorer.score(rows)).all()
    assert scorer.score(changed)[0] > scorer.score(rows).max()
    constant = fit_covariance_scorer(np.ones((5, 2), dtype=np.float32), np.ones(2, dtype=bool))
    assert constant.score(np.ones((1, 2), dtype=np.float32))[0] < 1e-9


def test_center_and_whitening_decide():
    scorer = CovarianceScorer(np.array([1.0, 0.0]), np.diag([2.0, 1.0]))
    assert np.array_equal(scorer.score(np.array([[2, 3]], dtype=np.float32)), [13])
    assert np.array_equal(scorer.contributions(np.array([[2, 3]], dtype=np.float32)), [[4, 9]])
