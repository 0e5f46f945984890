"""The scorer by covariance."""

import numpy as np
import pytest
from sklearn.covariance import EmpiricalCovariance

from altbi.scorers import CovarianceScorer, fit_covariance_scorer


def make_rows(n_rows=400, seed=0):
    """Return rows of which the last two columns are nearly equal."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n_rows, 3))
    rows[:, 2] = rows[:, 1] + 0.1 * rng.normal(size=n_rows)
    return rows.astype(np.float32)


def test_scores_are_mahalanobis_distances():
    rows = make_rows()
    expected = EmpiricalCovariance().fit(rows).mahalanobis(rows) * (len(rows) - 1) / len(rows)
    scores = fit_covariance_scorer(rows).score(rows)
    np.testing.assert_allclose(scores, expected, rtol=0.02)


def test_whitening_inverts_the_covariance_with_a_small_ridge():
    rows = np.random.default_rng(5).normal(size=(5, 8)).astype(np.float32) * 3
    scorer = fit_covariance_scorer(rows)
    covariance = np.cov(rows.T.astype(np.float64))
    ridge = (8 / 5) ** 3
    regular = covariance + ridge * np.diag(covariance.diagonal())
    np.testing.assert_allclose(
        scorer.whitening.T @ scorer.whitening, np.linalg.inv(regular), atol=1e-9
    )


def test_nearly_constant_columns_have_a_least_variance():
    rows = np.random.default_rng(6).normal(size=(500, 3)) * [1, 1, 1e-5]
    scorer = fit_covariance_scorer(rows.astype(np.float32))
    median = np.median(rows.var(axis=0, ddof=1))
    assert scorer.whitening.max() == pytest.approx((1e-3 * median) ** -0.5, rel=0.01)
    tiny = fit_covariance_scorer((rows * 1e-30).astype(np.float32))
    assert tiny.whitening.max() <= 1e6


def test_contradicting_values_score_high():
    scorer = fit_covariance_scorer(make_rows())
    usual, contradicting = scorer.score(np.array([[0, 1, 1], [0, 1, -1]], dtype=np.float32))
    assert contradicting > 50 * usual


def test_contributions_add_up_and_are_not_negative():
    rows = make_rows()
    scorer = fit_covariance_scorer(rows)
    contributions = scorer.contributions(rows)
    assert (contributions >= 0).all()
    np.testing.assert_allclose(contributions.sum(axis=1), scorer.score(rows))


def test_changed_column_contributes_most():
    rows = make_rows()
    scorer = fit_covariance_scorer(rows)
    rows[:, 0] += 6
    assert (scorer.contributions(rows).argmax(axis=1) == 0).mean() > 0.95


def test_missing_values_are_filled_from_the_others():
    scorer = fit_covariance_scorer(make_rows())
    row = np.array([[0.5, 2, np.nan]], dtype=np.float32)
    candidates = np.repeat(row, 400, axis=0)
    candidates[:, 2] = np.linspace(-4, 4, 400)
    scores = scorer.score(candidates)
    assert scorer.score(row)[0] == pytest.approx(scores.min(), abs=0.02)
    assert candidates[scores.argmin(), 2] == pytest.approx(2, abs=0.1)


def test_rows_with_missing_values_are_scored_alone():
    rng = np.random.default_rng(1)
    scorer = fit_covariance_scorer(make_rows())
    rows = make_rows(700, seed=2)
    rows[rng.random(rows.shape) < 0.3] = np.nan
    together = scorer.score(rows)
    alone = [scorer.score(rows[index : index + 1])[0] for index in range(0, 700, 50)]
    assert np.array_equal(together[::50], alone)
    assert np.array_equal(scorer.contributions(rows)[50], scorer.contributions(rows[50:51])[0])


@pytest.mark.parametrize("n_columns", [2, 12, 45])
def test_filled_values_are_conditional_means(n_columns):
    rng = np.random.default_rng(2)
    mixing = rng.normal(size=(n_columns, n_columns)) + 2 * np.eye(n_columns)
    rows = (rng.normal(size=(600, n_columns)) @ mixing).astype(np.float32)
    scorer = fit_covariance_scorer(rows)
    precision = scorer.whitening.T @ scorer.whitening
    holed = rows[:50].copy()
    holed[rng.random(holed.shape) < 0.2] = np.nan
    for row, filled in zip(holed, scorer.fill(holed), strict=True):
        is_missing = np.isnan(row)
        known = row[~is_missing] - scorer.center[~is_missing]
        expected = -np.linalg.solve(
            precision[np.ix_(is_missing, is_missing)], precision[is_missing][:, ~is_missing] @ known
        )
        np.testing.assert_allclose(
            filled[is_missing] - scorer.center[is_missing], expected, rtol=1e-4, atol=1e-4
        )
        assert np.array_equal(filled[~is_missing].astype(np.float32), row[~is_missing])


def test_rows_with_the_same_missing_values_are_scored_alone():
    rng = np.random.default_rng(3)
    rows = (rng.normal(size=(900, 40)) @ rng.normal(size=(40, 40))).astype(np.float32)
    scorer = fit_covariance_scorer(rows)
    rows[:, [3, 17, 30]] = np.nan
    together = scorer.score(rows)
    assert np.array_equal(together[::100], [scorer.score(rows[[i]])[0] for i in range(0, 900, 100)])


def test_rows_without_any_value_have_the_score_zero():
    scorer = fit_covariance_scorer(make_rows())
    assert scorer.score(np.full((2, 3), np.nan, dtype=np.float32)) == pytest.approx([0, 0])


def test_missing_values_of_reference_rows_keep_correlations():
    rows = make_rows()
    rows[np.random.default_rng(3).random(rows.shape) < 0.1] = np.nan
    scorer = fit_covariance_scorer(rows)
    usual, contradicting = scorer.score(np.array([[0, 1, 1], [0, 1, -1]], dtype=np.float32))
    assert contradicting > 20 * usual


def test_constants_duplicates_and_few_rows_are_scored():
    rows = np.random.default_rng(4).normal(size=(5, 8)).astype(np.float32)
    rows[:, 0] = 3
    rows[:, 2] = rows[:, 1]
    scorer = fit_covariance_scorer(rows)
    changed = rows[:1].copy()
    changed[0, 0] = 4
    assert np.isfinite(scorer.score(rows)).all()
    assert scorer.score(changed)[0] > scorer.score(rows).max()
    constant = fit_covariance_scorer(np.ones((5, 2), dtype=np.float32))
    assert constant.score(np.ones((1, 2), dtype=np.float32))[0] < 1e-9


def test_center_and_whitening_decide():
    scorer = CovarianceScorer(np.array([1.0, 0.0]), np.diag([2.0, 1.0]))
    assert np.array_equal(scorer.score(np.array([[2, 3]], dtype=np.float32)), [13])
    assert np.array_equal(scorer.contributions(np.array([[2, 3]], dtype=np.float32)), [[4, 9]])
