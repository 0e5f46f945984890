"""Explanations: contributions, expected values and similar normal rows."""

from functools import cache

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

from altbi import ALTBI, Explanation, OutlierDetector, Schedule
from altbi.encoding import OTHER
from altbi.errors import ParameterError
from altbi.scorers import LossScorer
from altbi.torch import Glow

DETECTORS = {"OutlierDetector": OutlierDetector, "ALTBI": ALTBI, "ALTBI.paper": ALTBI.paper}
TABLES = {"biopsies": load_breast_cancer, "iris": load_iris, "wine": load_wine}
SHORT = Schedule(T0=1, T1=1, T2=2)


@cache
def fit(detector, table):
    """Return a fitted detector and its table; every pair is fitted once."""
    X = TABLES[table]().data
    return DETECTORS[detector]().fit(X), X


@pytest.fixture(scope="module", params=DETECTORS)
def explained(request):
    detector, X = fit(request.param, "biopsies")
    return detector, X, detector.explain(X)


@pytest.mark.slow
def test_contributions_and_remainder_add_up(explained):
    detector, X, explanation = explained

    total = explanation.contributions.sum(axis=1) + explanation.remainder

    assert np.array_equal(explanation.score, detector.outlier_score(X))
    assert np.allclose(total, explanation.score, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_columns_account_for_most_of_the_scores(explained):
    assert explained[2].remainder_share() < 0.25


def test_explanation_does_not_depend_on_other_rows(explained):
    detector, X, explanation = explained

    alone = detector.explain(X[7:8])

    assert np.array_equal(alone.contributions[0], explanation.contributions[7])
    assert alone.remainder[0] == explanation.remainder[7]


def test_expected_values_are_in_original_units(explained):
    _, X, explanation = explained

    for column, expected in enumerate(explanation.expected):
        values = expected.to_numpy()
        assert X[:, column].min() - X[:, column].std() < values.mean()
        assert values.mean() < X[:, column].max()


def test_expected_values_follow_the_rows(explained):
    """Expected and actual values are correlated."""
    _, X, explanation = explained

    together = [
        np.corrcoef(X[:, column], expected.to_numpy())[0, 1]
        for column, expected in enumerate(explanation.expected)
    ]

    assert np.median(together) > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("name", DETECTORS)
@pytest.mark.parametrize("table", TABLES)
def test_column_of_a_changed_value_ranks_first(name, table):
    """One value of a normal row is moved far outside its column's range."""
    detector, X = fit(name, table)
    normal = X[detector.outlier_score(X) <= np.median(detector.outlier_score(X))]
    rng = np.random.default_rng(0)
    rows = normal[rng.integers(0, len(normal), 300)]
    columns = rng.integers(0, X.shape[1], 300)
    side = rng.choice([-1, 1], 300)
    spread = np.ptp(X, axis=0)[columns]
    rows[np.arange(300), columns] = X.mean(0)[columns] + side * spread

    explanation = detector.explain(rows)

    named = [explanation.reasons(row, top=1)[0].column for row in range(300)]
    assert (explanation.contributions.argmax(axis=1) == columns).mean() >= 0.9
    assert (
        np.mean([name == f"x{column}" for name, column in zip(named, columns, strict=True)]) >= 0.9
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", DETECTORS)
@pytest.mark.parametrize("table", TABLES)
def test_expected_value_is_near_the_original(name, table):
    detector, X = fit(name, table)
    rng = np.random.default_rng(0)
    rows = X[rng.integers(0, len(X), 300)]
    cells = np.arange(300), rng.integers(0, X.shape[1], 300)
    truth = rows[cells].copy()
    rows[cells] += np.ptp(X, axis=0)[cells[1]] * 3

    expected = np.column_stack([column.to_numpy() for column in detector.explain(rows).expected])

    off = np.abs(expected[cells] - truth) / X.std(0)[cells[1]]
    column_mean_off = np.abs(X.mean(0)[cells[1]] - truth) / X.std(0)[cells[1]]
    assert np.median(off) < np.median(column_mean_off)


@pytest.mark.slow
def test_flow_contributions_name_changed_values():
    X = load_wine().data
    detector = ALTBI(backbone=Glow(hidden=(16, 16)), schedule=Schedule(T1=70)).fit(X)
    rng = np.random.default_rng(0)
    rows, columns = X[rng.integers(0, len(X), 64)], rng.integers(0, X.shape[1], 64)
    rows[np.arange(64), columns] += np.ptp(X, axis=0)[columns] * rng.choice([-1, 1], 64)

    explanation = detector.explain(rows)

    total = explanation.contributions.sum(axis=1) + explanation.remainder
    np.testing.assert_allclose(total, detector.outlier_score(rows), atol=1e-5)
    assert explanation.remainder_share() < 0.1
    named = [explanation.reasons(row, top=1)[0].column for row in range(64)]
    assert (explanation.contributions.argmax(axis=1) == columns).mean() >= 0.75
    assert np.mean([name == f"x{c}" for name, c in zip(named, columns, strict=True)]) >= 0.75
    alone = detector.explain(rows[7:8])
    assert np.array_equal(alone.contributions[0], explanation.contributions[7])
    assert np.array_equal(alone.z_scores[0], explanation.z_scores[7])


@pytest.mark.slow
def test_flow_names_values_that_contradict_each_other():
    rng = np.random.default_rng(0)
    size = rng.normal(size=500)
    table = pd.DataFrame(
        {
            "size": size,
            "weight": size + 0.1 * rng.normal(size=500),
            "kind": np.where(size > 0, "big", "small"),
            "noise": rng.normal(size=500),
        }
    )
    # Each value is usual by itself; either of the two may be wrong.
    wrong = np.concatenate([np.linspace(-2, -1, 15), np.linspace(1, 2, 15)])
    kinds = np.where(wrong > 0, "big", "small")
    unusual = pd.DataFrame({"size": wrong, "weight": -wrong, "kind": kinds, "noise": 0.0})

    detector = ALTBI(backbone=Glow(hidden=(32, 32))).fit(table)
    explanation = detector.explain(unusual)

    assert (explanation.contributions[:, :2].min(1) > explanation.contributions[:, 2:].max(1)).all()
    first = [explanation.reasons(row)[0] for row in range(len(unusual))]
    named = [reason for reason in first if reason.column in ("size", "weight")]
    assert len(named) >= 27
    # Values that do not matter have small z-scores, here and in training rows.
    assert (explanation.z_scores[:, 3] < 3).all()
    assert (detector.explain(table[:100]).z_scores.mean(0) < 1.5).all()
    # The expected value is closer to what the other column suggests.
    assert all(reason.expected / reason.value < 1 for reason in named)


@pytest.mark.slow
def test_flow_examines_the_largest_contributions_of_wide_tables():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 40))
    detector = ALTBI(
        backbone=Glow(flow_steps=2, hidden=(8, 8)), schedule=Schedule(T0=5, T1=20, T2=22)
    ).fit(X)
    unusual = X[:3].copy()
    unusual[[0, 1, 2], [35, 7, 20]] = 12.0

    explanation = detector.explain(unusual)

    named = [explanation.reasons(row)[0].column for row in range(3)]
    assert named == ["x35", "x7", "x20"]
    assert ((explanation.z_scores > 0).sum(1) <= 32).all()
    alone = detector.explain(unusual[1:2])
    assert np.array_equal(alone.z_scores[0], explanation.z_scores[1])


def mixed_table(n_rows=400, seed=0):
    rng = np.random.default_rng(seed)
    size = rng.normal(size=n_rows)
    return pd.DataFrame(
        {
            "size": size,
            "weight": 2 * size + 0.1 * rng.normal(size=n_rows),
            "colour": np.where(size > 0, "red", "blue"),
            "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 90, n_rows), "D"),
            "paid": rng.random(n_rows) < 0.5,
        }
    )


def test_categories_have_one_contribution():
    table = mixed_table()
    unusual = table.iloc[[3]].assign(colour="ultraviolet")
    explanation = OutlierDetector().fit(table).explain(unusual)

    assert explanation.columns == ("size", "weight", "colour", "day", "paid")
    assert explanation.contributions.shape == (1, 5)
    assert explanation.reasons(0)[0].column == "colour"
    assert explanation.reasons(0)[0].expected in {"red", "blue"}
    assert explanation.reasons(0)[0].note == "a text like 'aaaa', not 'aaaaaaaaaaa'"
    assert explanation.expected[3][0].as_py() is None  # the position of a date does not count


def test_reasons_are_sorted_by_z_score(explained):
    _, X, explanation = explained

    reasons = explanation.reasons(5, top=4)

    z_scores = [reason.z_score for reason in reasons]
    assert z_scores == sorted(explanation.z_scores[5])[::-1][: len(reasons)]
    assert 1 <= len(reasons) <= 4
    for reason in reasons:
        column = explanation.columns.index(reason.column)
        assert reason.value == X[5, column]
        assert reason.contribution == explanation.contributions[5, column]
        assert reason.z_score >= 1 or len(reasons) == 1
    with pytest.raises(ParameterError, match="row=569, but the explanation has 569 rows"):
        explanation.reasons(569)


def test_reasons_have_z_scores_of_at_least_one():
    explanation = Explanation(
        columns=("a", "b", "c"),
        score=np.zeros(2),
        contributions=np.zeros((2, 3)),
        remainder=np.zeros(2),
        values=(pa.array([5.0, 5.0]),) * 3,
        z_scores=np.array([[1.0, 0.9, 2.0], [0.2, 0.5, 0.1]]),
        expected=(pa.array([0.0, 0.0]),) * 3,
    )

    assert [reason.column for reason in explanation.reasons(0)] == ["c", "a"]
    assert [reason.column for reason in explanation.reasons(1)] == ["b"]


@pytest.mark.slow
@pytest.mark.parametrize("name", DETECTORS)
def test_planted_value_is_named_first_beside_skewed_columns(name):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "items": rng.poisson(3, 2000).astype(float),
            "amount": np.exp(rng.normal(4, 0.5, 2000)),
            "country": rng.choice(["NL", "DE"], 2000, p=[0.8, 0.2]),
            "fee": rng.normal(size=2000),
        }
    )
    plants = {7: ("items", 300.0), 70: ("amount", 95_000.0), 700: ("fee", 50.0)}
    for row, (column, value) in plants.items():
        table.loc[row, column] = value
        table.loc[row, "country"] = "NL"

    explanation = DETECTORS[name]().fit(table).explain(table)

    for row, (column, value) in plants.items():
        first = explanation.reasons(row)[0]
        assert (first.column, first.value) == (column, value)


def test_expected_value_is_no_reason():
    table = mixed_table()
    explanation = OutlierDetector().fit(table).explain(table)

    reasons = [explanation.reasons(row) for row in range(len(table))]

    assert all(r.value != r.expected for found in reasons if len(found) > 1 for r in found)


def test_values_are_those_of_the_table():
    table = mixed_table()
    table.loc[0, "size"] = np.nan
    table.loc[1, "colour"] = None

    values = ALTBI(schedule=SHORT).fit(table).explain(table).values

    assert values[0].to_pylist() == [None, *table["size"][1:]]
    assert values[2].to_pylist()[:2] == [table["colour"][0], None]
    assert values[3].to_pylist() == list(table["day"])
    assert values[4].to_pylist() == list(table["paid"])


def test_column_named_like_the_score_is_kept():
    table = pd.DataFrame(np.random.default_rng(0).random((30, 2)), columns=["(score)", "a"])
    detector = ALTBI(schedule=SHORT).fit(table)

    arrow = detector.explain(table).to_arrow()

    assert arrow.column_names == ["(score)", "a", "(remainder)", "(score)"]


def test_remainder_share_is_a_share_of_variation():
    explanation = Explanation(
        columns=("a", "b"),
        score=np.array([3.0, 7.0]),
        contributions=np.array([[1.0, 1.0], [3.0, 2.0]]),
        remainder=np.array([1.0, 2.0]),
        values=(),
        z_scores=np.zeros((2, 2)),
        expected=(),
    )

    # Differences from the mean: 1 + 1 in a, 0.5 + 0.5 in b, 0.5 + 0.5 in the remainder.
    assert explanation.remainder_share() == pytest.approx(1 / 4)


def test_arrow_table_adds_up(explained):
    table = explained[2].to_arrow()

    numbers = np.column_stack([column.to_numpy() for column in table.columns])
    assert table.column_names[-2:] == ["(remainder)", "(score)"]
    assert np.allclose(numbers[:, :-1].sum(1), numbers[:, -1], rtol=1e-5, atol=1e-5)


def test_distances_have_no_remainder(explained):
    _, _, explanation = explained
    if explanation.neighbours is None:
        with pytest.raises(ParameterError, match="scored by loss"):
            explanation.nearest(0)
        return

    # Scores are computed in single precision, contributions in double.
    error = np.abs(explanation.contributions.sum(axis=1) / explanation.score - 1)
    assert error.max() < 1e-4
    assert np.quantile(error, 0.9) < 1e-6
    assert (explanation.contributions >= 0).all()
    assert not explanation.remainder.any()


@pytest.mark.slow
def test_nearest_rows_agree_in_the_other_columns():
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 2, 600)
    table = pd.DataFrame(
        {
            "length": kind * 8 + rng.normal(size=600),
            "width": kind * 8 + rng.normal(size=600),
            "price": kind * 8 + rng.normal(size=600),
            "sort": np.where(kind, "large", "small"),
        }
    ).round(3)
    unusual = pd.DataFrame({"length": [0.0], "width": [0.0], "price": [9.0], "sort": ["small"]})

    explanation = OutlierDetector().fit(table).explain(unusual)

    nearest = explanation.nearest(0, top=5)
    assert nearest.num_rows == 5
    known = set(map(tuple, table.itertuples(index=False)))
    assert all(tuple(row.values()) in known for row in nearest.to_pylist())
    assert nearest.column("sort").to_pylist() == ["small"] * 5
    (reason, *_) = explanation.reasons(0)
    assert reason.column == "price"
    assert abs(reason.expected) < 2


def test_distances_that_overflow_are_finite(monkeypatch):
    frame = pd.DataFrame({"a": np.arange(60.0), "b": np.arange(60.0) % 7})
    detector = ALTBI(schedule=Schedule(n0=32, T0=1, T1=1, T2=2)).fit(frame)
    expect = LossScorer.expect

    def overflow(self, context, rows):
        expected, distance = expect(self, context, rows)
        distance[0] = [np.nan, np.inf]
        return expected, distance

    monkeypatch.setattr(LossScorer, "expect", overflow)

    explanation = detector.explain(frame[:2])

    assert explanation.z_scores[0].tolist() == [0.0, np.sqrt(2 * float(np.finfo(np.float32).max))]
    assert explanation.reasons(0)[0].column == "b"


def test_rare_categories_are_described_in_words():
    values = [f"value {i}" for i in range(150)] * 2
    frame = pa.table({"name": values, "size": np.random.default_rng(0).normal(size=300)})
    frame = frame.append_column("other", pa.array(["a"] * 300))
    explanation = OutlierDetector(random_state=0).fit(frame).explain(frame)
    column = explanation.columns.index("name")

    expected = explanation.expected[column].to_pylist()
    rows = [row for row in range(300) if expected[row] == OTHER]

    assert rows
    reasons = [explanation._build_reason(row, column) for row in rows]
    assert all(reason.note for reason in reasons)
    assert reasons[0].note == "one of several rare categories"
