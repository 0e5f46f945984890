"""The weighted sum of scorers."""

import pickle

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from altbi import OutlierDetector, load
from altbi.scorers import DistanceScorer, Scale, SumScorer, fit_sum_scorer
from altbi.scorers._sum import (
    COVARIANCE_WEIGHT,
    DISTANCE_WEIGHT,
    RARITY_WEIGHT,
    _fit_scale,
)


def make_rows(n_rows=500, n_columns=4, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n_rows, n_columns))
    rows[:, 1] += rows[:, 0]
    return rows.astype(np.float32)


def fit(rows):
    numbers = np.arange(rows.shape[1])
    return fit_sum_scorer(DistanceScorer(rows[::2], 5), rows[::2], rows, numbers)


def test_score_is_the_weighted_sum_of_scaled_parts():
    rows = make_rows()
    scorer = fit(rows)
    expected = 0
    for term, weight in (
        (scorer.distance, DISTANCE_WEIGHT),
        (scorer.covariance, COVARIANCE_WEIGHT),
        (scorer.rarity, RARITY_WEIGHT),
    ):
        scores = term.score(rows)
        scaled = scores if term is scorer.rarity else np.log(1 + scores / np.median(scores))
        expected = expected + weight * scaled / scaled.std()
    np.testing.assert_allclose(scorer.score(rows), expected)


def test_contributions_add_up_to_the_score():
    rows = make_rows()
    rows[::7, 2] = np.nan
    scorer = fit(make_rows())
    contributions = scorer.contributions(rows)
    np.testing.assert_allclose(contributions.sum(axis=1), scorer.score(rows), rtol=1e-5)
    assert contributions.min() >= 0


def test_rows_do_not_affect_each_other():
    rows = make_rows(3_000, seed=1)
    rows[::3, 1] = np.nan
    scorer = fit(make_rows())
    scores = scorer.score(rows)
    order = np.random.default_rng(2).permutation(len(rows))
    assert np.array_equal(scorer.score(rows[order]), scores[order])
    assert np.array_equal(scorer.score(rows[17:18]), scores[17:18])
    assert np.array_equal(
        scorer.contributions(rows[order])[:9], scorer.contributions(rows[order[:9]])
    )


def test_wide_tables_are_scored_by_distance_alone():
    assert fit(make_rows(300, 99)).covariance is not None
    wide = fit(make_rows(300, 100))
    assert wide.covariance is None
    assert wide.rarity is None
    assert len(wide.scales) == 2
    rows = make_rows(300, 100)
    expected = DISTANCE_WEIGHT * wide.scales[0].apply(wide.distance.score(rows))
    assert np.array_equal(wide.score(rows), expected)


def test_equal_rows_have_the_score_zero():
    rows = np.ones((50, 3), dtype=np.float32)
    scorer = fit(rows)
    assert (scorer.score(rows) < 1e-6).all()
    changed = rows[:1].copy()
    changed[0, 1] = 2
    assert scorer.score(changed)[0] > 1


def test_scale_keeps_zero_and_order():
    scale = Scale(unit=2.0, spread=0.5)
    assert np.array_equal(scale.apply(np.array([0.0, 2.0])), [0, 2 * np.log(2)])
    assert np.array_equal(Scale(None, 4.0).apply(np.array([0.0, 2.0])), [0, 0.5])


def test_pickled_and_saved_scorers_score_alike(tmp_path):
    rows = make_rows()
    scorer = fit(rows)
    assert np.array_equal(pickle.loads(pickle.dumps(scorer)).score(rows), scorer.score(rows))
    model = OutlierDetector().fit(rows).model_
    model.save(tmp_path / "m.altbi")
    loaded = load(tmp_path / "m.altbi")
    assert isinstance(loaded.scorer, SumScorer)
    assert loaded.scorer.scales == model.scorer.scales
    assert np.array_equal(loaded.score(rows), model.score(rows))
    assert np.array_equal(
        loaded.explain(rows[:5]).contributions, model.explain(rows[:5]).contributions
    )


@pytest.mark.parametrize("has_correlations", [False, True])
def test_column_changed_by_six_robust_deviations_contributes_most(has_correlations):
    rng = np.random.default_rng(0)
    X = load_breast_cancer().data if has_correlations else rng.normal(size=(1_000, 8))
    model = OutlierDetector().fit(X).model_
    normal = np.argsort(model.score(X))[: len(X) // 2]
    rows = X[rng.choice(normal, 200, replace=False)].copy()
    columns = rng.integers(X.shape[1], size=200)
    quartiles = np.quantile(X, [0.25, 0.75], axis=0)
    steps = 6 * (quartiles[1] - quartiles[0]) / 1.349
    signs = rng.choice([-1, 1], size=200)
    rows[np.arange(200), columns] += signs * steps[columns]
    found = model.explain(rows).contributions.argmax(axis=1)
    assert (found == columns).mean() >= 0.9


def test_scale_ignores_rounding_errors():
    assert _fit_scale(np.array([0, 1e-20, 4, 4]), is_squared=True).unit == 4
    assert _fit_scale(np.array([0.0] * 6 + [2, 3, 4]), is_squared=True).unit == 3
    assert _fit_scale(np.zeros(5), is_squared=True) == Scale(1.0, 1.0)
    assert _fit_scale(np.full(9, 1e-12) * np.arange(9), is_squared=False).spread == 1


def test_row_without_a_score_has_no_contributions():
    rows = np.ones((50, 3), dtype=np.float32)
    assert np.abs(fit(rows).contributions(rows)).max() < 1e-6


@pytest.mark.parametrize("scale", [1e-30, 1e-36, 1e-40])
@pytest.mark.parametrize("whiten", [False, True])
def test_tiny_values_beside_an_outlier_are_scored(tmp_path, scale, whiten):
    rng = np.random.default_rng(0)
    x = np.zeros(500)
    x[:60] = rng.normal(size=60) * scale
    x[-5:] = 1.0
    X = np.column_stack([x, 1.5 * x, rng.normal(size=500)])
    model = OutlierDetector(whiten=whiten).fit(X).model_
    model.save(tmp_path / "m.altbi")
    rows = np.vstack([X, [1e300, 1e300, np.nan], [np.nan, -1e300, 0]])
    scores = load(tmp_path / "m.altbi").score(rows)
    assert np.array_equal(scores, model.score(rows))
    assert scores[-2] > np.median(scores)


@pytest.mark.parametrize("n_columns", [99, 100])
def test_models_at_the_border_of_wide_tables_are_loaded(tmp_path, n_columns):
    X = make_rows(150, n_columns)
    model = OutlierDetector().fit(X).model_
    model.save(tmp_path / "m.altbi")
    assert np.array_equal(load(tmp_path / "m.altbi").score(X), model.score(X))
