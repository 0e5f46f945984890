"""Real tables: missing cells, categories, new levels, odd columns."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_wine

from altbi import ALTBI
from altbi.errors import TableError, TableWarning


def mixed(n_rows=600, seed=0):
    """Sizes and weights that go together, in two colours, on some days."""
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


def with_holes(X, seed=0):
    """Take one random cell from every row."""
    holed = np.array(X, dtype=float)
    columns = np.random.default_rng(seed).integers(0, X.shape[1], len(X))
    holed[np.arange(len(X)), columns] = np.nan
    return holed


@pytest.mark.parametrize(("build", "share"), [(ALTBI.reference, 0.05), (ALTBI, 0.1)])
@pytest.mark.parametrize("load", [load_breast_cancer, load_wine])
@pytest.mark.parametrize("known_at_fit", [False, True])
def test_removing_a_random_cell_hardly_moves_a_row_s_rank(load, known_at_fit, build, share):
    X = load().data
    rng = np.random.default_rng(1)
    table = np.where(rng.random(X.shape) < 0.02, np.nan, X) if known_at_fit else X
    detector = build().fit(table)

    before, after = detector.outlier_score(X), detector.outlier_score(with_holes(X))

    others = np.sort(before)
    moves = np.abs(np.searchsorted(others, after) - np.searchsorted(others, before)) / len(X)
    assert np.median(moves) < share
    assert moves.max() > 0


def test_missing_cells_do_not_spoil_the_order_of_outliers():
    table = mixed()
    table.loc[7, "weight"] = -9.0
    holed = table.mask(np.random.default_rng(0).random(table.shape) < 0.05)
    holed.loc[7] = table.loc[7]

    scores = ALTBI().fit(holed).outlier_score(holed)
    assert (scores > scores[7]).sum() < 6


def test_missing_cells_are_reported():
    table = mixed().assign(empty=None, same=3.0)
    table.loc[:5, "size"] = np.nan

    notes = "\n".join(ALTBI.paper().fit(table).encoder_.describe_changes())

    assert "'size' has 6 missing cells (1.00%)" in notes
    assert "'empty' has no value" in notes
    assert "'same' holds a single value" in notes


def test_an_unseen_level_raises_the_score_like_a_number_far_outside_its_range():
    table = mixed()
    detector = ALTBI().fit(table)
    scores = detector.outlier_score(table)

    unseen = detector.outlier_score(table.assign(colour="ultraviolet"))

    # The width of the training scores is the unit: 0.25 in the "other" unit adds at most 12.6 nats.
    rise = unseen - scores
    assert (rise > 0).mean() > 0.99
    widest = np.ptp(scores)
    assert 0.1 * widest < np.median(rise) < 2 * widest
    # Two unseen levels are the same surprise.
    assert np.array_equal(unseen, detector.outlier_score(table.assign(colour="octarine")))


def test_what_the_training_sample_did_not_have_is_said():
    table = mixed()
    detector = ALTBI.paper(T1=1, T2=2).fit(table)
    changed = table.assign(colour="mauve")
    changed.loc[:2, "size"] = np.nan

    with pytest.warns(TableWarning) as said:
        detector.outlier_score(changed)

    missing, unseen = (str(warning.message) for warning in said)
    assert missing.startswith("Cells are missing in 'size' (3 cells), where")
    assert "does not know stand in 'colour' (600 cells); they count as '(other)'" in unseen


def test_many_surprises_are_one_sentence():
    X = np.random.default_rng(0).random((50, 8))
    detector = ALTBI.paper(T1=1, T2=2).fit(X)

    with pytest.warns(TableWarning, match=r"'x\d' \(1 cells\) and 3 more columns, where") as said:
        detector.outlier_score(np.full((1, 8), np.nan))

    assert len(said) == 1


def test_a_column_of_texts_that_hardly_repeat_is_doubted():
    table = mixed().assign(key=[f"id-{row}" for row in range(600)])

    with pytest.warns(TableWarning, match=r"'key' holds 600 different texts.*convert it") as said:
        ALTBI.paper(T1=1, T2=2).fit(table)

    assert len(said) == 1


def test_what_the_training_sample_had_is_not_said_again():
    table = mixed()
    table.loc[:2, "size"] = np.nan
    table.loc[5, "colour"] = "mauve"
    detector = ALTBI.paper(T1=1, T2=2).fit(table)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        detector.outlier_score(table)

    assert not said


def test_a_rare_combination_scores_higher_than_its_parts():
    table = mixed()
    odd = table.iloc[[0]].assign(size=2.5, weight=5.0, colour="blue")
    usual = odd.assign(colour="red")
    detector = ALTBI().fit(table)

    assert detector.outlier_score(odd)[0] > detector.outlier_score(usual)[0]


def test_a_level_seen_once_counts_as_other():
    table = mixed()
    table.loc[3, "colour"] = "mauve"
    detector = ALTBI.paper().fit(table)

    rows = table.iloc[[3]]
    assert np.array_equal(
        detector.outlier_score(rows), detector.outlier_score(rows.assign(colour="unheard of"))
    )


def test_dates_are_scored_as_numbers():
    table = mixed()
    detector = ALTBI().fit(table)
    late = table.iloc[[0]].assign(day=pd.Timestamp("2031-01-01"))

    explanation = detector.explain(late)

    assert detector.outlier_score(late)[0] > detector.outlier_score(table).max()
    assert explanation.reasons(0)[0].column == "day"
    assert explanation.reasons(0)[0].expected.year in {2025, 2026}


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
def test_other_columns_than_at_fit_are_named(change, message):
    detector = ALTBI.paper(T1=1, T2=2).fit(mixed())

    with pytest.raises(ValueError, match=message):
        detector.outlier_score(change(mixed()))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pd.DataFrame({"a": [None, None], "b": [None, None]}), "Every cell"),
        (pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]), r"\['a'\] occur more than once"),
        (pd.DataFrame({"a": [1, 2], "b": [[1], [2]]}), "'b' has the type list"),
        (pd.DataFrame({"a": [1, "x"], "b": [1, 2]}), "'a' .* mixes types"),
        (pd.DataFrame({"a": [1.0, np.inf]}), "'a' contains infinity, first in row 1"),
        (np.array([[1.0, np.inf], [2.0, 3.0]]), "'x1' contains infinity, first in row 0"),
        (np.full((3, 2), np.nan), "Every cell"),
    ],
)
def test_a_table_that_cannot_be_learned_from_is_refused(table, message):
    with pytest.raises(TableError, match=message):
        ALTBI.paper(T1=1, T2=2).fit(table)
