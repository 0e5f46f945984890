"""Tables as users have them: missing values, categories, drift, columns that cannot be used."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_wine

from altbi import ALTBI, OutlierDetector, Schedule
from altbi.errors import TableError, TableWarning

FAST = Schedule(T0=1, T1=2, T2=3)


def make_frame(n_rows=600, seed=0):
    """Return correlated sizes and weights, with colours, dates and booleans."""
    rng = np.random.default_rng(seed)
    size = rng.normal(size=n_rows)
    return pd.DataFrame(
        {
            "size": size,
            "weight": 2 * size + 0.2 * rng.normal(size=n_rows),
            "colour": np.where(size + 0.5 * rng.normal(size=n_rows) > 0, "red", "blue"),
            "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 90, n_rows), "D"),
            "paid": rng.random(n_rows) < 0.6,
        }
    )


FRAME = make_frame()


@pytest.fixture(scope="module")
def detector():
    return OutlierDetector().fit(FRAME)


@pytest.fixture(scope="module")
def fast_detector():
    return ALTBI(schedule=FAST).fit(FRAME)


def remove_values(X, seed=0):
    """Remove one random value of every row."""
    holed = np.array(X, dtype=float)
    columns = np.random.default_rng(seed).integers(0, X.shape[1], len(X))
    holed[np.arange(len(X)), columns] = np.nan
    return holed


@pytest.mark.slow
@pytest.mark.parametrize("load", [load_breast_cancer, load_wine])
@pytest.mark.parametrize(
    ("estimator", "missing", "share"),
    [(ALTBI, 0.0, 0.05), (ALTBI, 0.02, 0.05), (OutlierDetector, 0.4, 0.1)],
)
def test_usual_missing_value_hardly_changes_rank(load, estimator, missing, share):
    X = load().data
    rng = np.random.default_rng(1)
    fitted = estimator().fit(np.where(rng.random(X.shape) < missing, np.nan, X))

    changes = measure_rank_changes(fitted, X)

    assert np.median(np.abs(changes)) < share
    assert np.abs(changes).max() > 0


@pytest.mark.parametrize("load", [load_breast_cancer, load_wine])
@pytest.mark.parametrize("missing", [0, 0.01])
def test_rare_missing_value_raises_score(load, missing):
    X = load().data
    rng = np.random.default_rng(1)
    fitted = OutlierDetector().fit(np.where(rng.random(X.shape) < missing, np.nan, X))

    changes = measure_rank_changes(fitted, X)

    assert np.mean(changes > 0) > 0.7
    assert np.median(changes) > 0.1


def measure_rank_changes(fitted, X):
    """Return by how much each row's rank, from 0 to 1, rises if it loses one value."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableWarning)
        before, after = fitted.outlier_score(X), fitted.outlier_score(remove_values(X))
    ordered = np.sort(before)
    return (np.searchsorted(ordered, after) - np.searchsorted(ordered, before)) / len(X)


def test_missing_values_keep_outlier_on_top():
    table = FRAME.copy()
    table.loc[7, "weight"] = -9.0
    holed = table.mask(np.random.default_rng(0).random(table.shape) < 0.05)
    holed.loc[7] = table.loc[7]

    scores = OutlierDetector().fit(holed).outlier_score(holed)
    assert (scores > scores[7]).sum() < 6


def test_unknown_category_scores_like_extreme_number(detector):
    scores = detector.outlier_score(FRAME)

    with pytest.warns(TableWarning, match="Unknown categories in 'colour'"):
        unknown = detector.outlier_score(FRAME.assign(colour="ultraviolet"))

    increase = unknown - scores
    assert (increase > 0).mean() > 0.99
    spread = np.ptp(scores)
    assert 0.1 * spread < np.median(increase) < 2 * spread
    with pytest.warns(TableWarning, match="Unknown categories"):
        assert np.array_equal(unknown, detector.outlier_score(FRAME.assign(colour="octarine")))


def test_unusual_combination_scores_higher(detector):
    unusual = FRAME.iloc[[0]].assign(size=2.5, weight=5.0, colour="blue")
    usual = unusual.assign(colour="red")

    assert detector.outlier_score(unusual)[0] > detector.outlier_score(usual)[0]


def test_dates_of_the_next_year_are_usual_but_not_of_the_next_decade(detector):
    first = FRAME.iloc[[0]]
    days = [first.day.iloc[0] + pd.Timedelta(days=364), pd.Timestamp("2041-01-01")]
    late = pd.concat([first.assign(day=day) for day in days])
    scores = detector.outlier_score(late)

    reason = detector.explain(late).reasons(1)[0]

    assert scores[0] == pytest.approx(detector.outlier_score(first)[0], abs=1.5)
    assert scores[1] > scores[0] + 4
    assert scores[1] > np.quantile(detector.outlier_score(FRAME), 0.95)
    assert reason.column == "day"


def test_category_seen_once_counts_as_other():
    table = FRAME.copy()
    table.loc[3, "colour"] = "mauve"
    fitted = ALTBI(schedule=FAST).fit(table)

    row = table.iloc[[3]]
    scores = [fitted.outlier_score(row.assign(colour=colour)) for colour in ("mauve", "puce")]
    assert np.array_equal(*scores)
    assert not np.array_equal(scores[0], fitted.outlier_score(row.assign(colour="red")))


def test_drift_is_reported_as_warnings(fast_detector):
    changed = FRAME.assign(colour="mauve")
    changed.loc[:2, "size"] = np.nan

    with pytest.warns(TableWarning) as caught:
        fast_detector.outlier_score(changed)

    missing, unknown = (str(warning.message) for warning in caught)
    assert missing.startswith("Missing values in 'size' (3 values), where")
    assert "Unknown categories in 'colour' (600 values)" in unknown


def test_drift_of_many_columns_is_one_warning():
    X = np.random.default_rng(0).random((50, 8))
    fitted = ALTBI(schedule=FAST).fit(X)

    with pytest.warns(TableWarning, match=r"'x\d' \(1 values\) and 3 more columns") as caught:
        fitted.outlier_score(np.full((1, 8), np.nan))

    assert len(caught) == 1


def test_values_of_the_sample_are_no_drift():
    table = FRAME.copy()
    table.loc[:2, "size"] = np.nan
    table.loc[5, "colour"] = "mauve"
    fitted = ALTBI(schedule=FAST).fit(table)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted.outlier_score(table)

    assert not caught


def test_column_of_unique_texts_is_reported():
    table = FRAME.assign(key=[f"id-{row}" for row in range(600)])

    with pytest.warns(TableWarning, match=r"'key' holds 600 different texts.*convert it") as caught:
        ALTBI(schedule=FAST).fit(table)

    assert len(caught) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="size"), r"missing:\n- size"),
        (lambda t: t.assign(extra=1), r"unseen at fit time:\n- extra"),
        (lambda t: t[["weight", "size", "colour", "day", "paid"]], "same order"),
        (lambda t: t.assign(size="large"), "'size' is a category column, but expected a number"),
        (lambda t: t.assign(colour=1.5), "'colour' is a number column, but expected a category"),
        (lambda t: t.assign(size=np.inf), "'size' contains infinity, first in row 0"),
        (lambda t: t.iloc[:0], "0 row"),
    ],
    ids=["absent", "extra", "order", "text", "number", "infinity", "empty"],
)
def test_other_columns_than_at_fit_raise_error(fast_detector, change, message):
    with pytest.raises(ValueError, match=message):
        fast_detector.outlier_score(change(FRAME))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pd.DataFrame({"a": [None, None], "b": [None, None]}), "Every value"),
        (pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]), r"'a'"),
        (pd.DataFrame({"a": [1, 2], "b": [[1], [2]]}), "'b'.*list"),
        (pd.DataFrame({"a": [1, "x"], "b": [1, 2]}), "'a'.*mixes types"),
        (pd.DataFrame({"a": [1.0, np.inf]}), "'a' contains infinity, first in row 1"),
        (np.array([[1.0, np.inf], [2.0, 3.0]]), "'x1' contains infinity, first in row 0"),
        (np.full((3, 2), np.nan), "Every value"),
    ],
)
def test_unusable_table_raises_error(table, message):
    with pytest.raises(TableError, match=message):
        ALTBI(schedule=FAST).fit(table)
