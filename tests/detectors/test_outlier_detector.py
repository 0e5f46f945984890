"""OutlierDetector: reference rows, whitening, and its training."""

from math import prod

import numpy as np
import pytest

from altbi import IWAE, OutlierDetector, Schedule
from altbi.errors import ParameterError
from altbi.model._fit import choose_sizing_features
from altbi.scorers import SumScorer
from altbi.table import as_table

SHORT = Schedule(T0=2, T1=2, T2=4)


@pytest.fixture(scope="module", name="X")
def make_rows():
    return np.random.default_rng(0).normal(size=(600, 4))


def test_default_training_has_two_updates_a_step():
    assert OutlierDetector().settings().training.schedule.updates == 2
    explicit = OutlierDetector(schedule=Schedule(updates=7)).settings()
    assert explicit.training.schedule.updates == 7


def test_model_holds_reference_rows_and_no_network(X):
    model = OutlierDetector(schedule=SHORT, n_reference=50).fit(X).model_

    assert isinstance(model.scorer, SumScorer)
    rows = {row.tobytes() for row in model.encoder.standardize(as_table(X))}
    assert len(model.scorer.distance.rows) == 50
    assert all(row.tobytes() in rows for row in model.scorer.distance.rows)


@pytest.mark.slow
def test_losses_decide_which_rows_are_references():
    """A dense cluster is close to itself: only the losses show that it is unusual."""
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(900, 4)), rng.normal(size=(60, 4)) * 0.1 + 3])
    is_outlier = np.arange(960) >= 900

    def separation(detector):
        model = detector.fit(X).model_
        scores = model.scorer.distance.score(model.encoder.standardize(model.prepare(X)))
        return (scores[is_outlier][:, None] > scores[~is_outlier]).mean()

    assert separation(OutlierDetector()) > 0.97
    assert separation(OutlierDetector(keep=1.0)) < 0.6


def test_candidates_come_from_all_over_the_table(X, monkeypatch):
    monkeypatch.setattr("altbi.model._fit.MAX_CANDIDATES", 50)

    model = OutlierDetector(schedule=SHORT, keep=0.5).fit(X).model_

    reference = {row.tobytes() for row in model.scorer.distance.rows}
    rows = model.encoder.standardize(as_table(X))
    positions = [index for index, row in enumerate(rows) if row.tobytes() in reference]
    assert len(model.scorer.distance.rows) == 25
    assert 150 < np.median(positions) < 450


def test_labels_do_not_move_the_threshold(X, monkeypatch):
    monkeypatch.setattr("altbi.model._fit.MAX_CANDIDATES", 300)
    monkeypatch.setattr("altbi.model._fit.MAX_THRESHOLD_ROWS", 300)
    labelled = np.arange(len(X)) < 200

    detector = OutlierDetector(schedule=SHORT, contamination=0.1)
    detector.fit(X, known_outlier=labelled)

    assert abs((detector.predict(X) == -1).mean() - 0.1) < 0.04


@pytest.mark.parametrize(("n_columns", "is_whitened"), [(99, False), (100, True)])
def test_wide_tables_are_whitened_and_explained(n_columns, is_whitened):
    rows = np.random.default_rng(0).normal(size=(60, n_columns))
    detector = OutlierDetector(schedule=Schedule(T0=1, T1=2, T2=3, n0=16)).fit(rows)

    assert (detector.model_.scorer.distance.whitening is not None) == is_whitened
    explanation = detector.explain(rows[:5])
    np.testing.assert_allclose(explanation.contributions.sum(axis=1), explanation.score, rtol=1e-6)
    assert np.array_equal(explanation.score, detector.outlier_score(rows)[:5])


def test_selecting_network_stops_growing_with_columns():
    def count_weights(size):
        return sum(prod(shape) for shape, _ in IWAE().describe_state(2000, sized_for=size).values())

    size = choose_sizing_features(OutlierDetector().settings(), 2000)

    assert size == 512
    assert count_weights(size) < count_weights(None) / 3


def test_identical_rows_have_one_finite_score():
    scores = OutlierDetector().fit(np.ones((50, 3))).outlier_score(np.ones((4, 3)))

    assert np.isfinite(scores).all()
    assert len(np.unique(scores)) == 1


def test_single_column_works():
    x = np.r_[np.random.default_rng(0).normal(size=300), 30.0][:, None]

    assert OutlierDetector().fit(x).outlier_score(x).argmax() == 300


@pytest.mark.parametrize(
    "wrong",
    [
        {"keep": 0},
        {"keep": 1.5},
        {"n_groups": 0},
        {"whiten": 1},
        {"whiten": "always"},
        {"n_reference": 1},
        {"n_reference": 0.5},
        {"outlier_weight": -1},
        {"label_trust": 0},
        {"schedule": "long"},
        {"backbone": "glow"},
        {"backbone": 3},
    ],
)
def test_wrong_parameter_is_named_at_fit(wrong, X):
    name = next(iter(wrong))

    with pytest.raises(ParameterError, match=f"{name}=.*but expected"):
        OutlierDetector(**wrong).fit(X)
