"""Rarity of identifiers that occur more than once."""

import math
import time

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from altbi.rarities import _repeats
from altbi.rarities._repeats import RepeatCounts, fit_repeat_counts


def array(values):
    return pa.array(values, pa.large_string())


def identifiers(n, *repeated):
    return array([*(f"id {number}" for number in range(n)), *repeated])


IDS = identifiers(1000, "a", "a", "b", "b", "c", "c", "c", "c", "c", None)


@pytest.fixture(scope="module")
def repeats():
    return fit_repeat_counts(IDS)


def test_only_repeated_identifiers_are_kept(repeats):
    assert repeats.identifiers == ("c", "a", "b")
    assert repeats.counts == (5, 2, 2)
    assert repeats.n_rows == 1009


def test_rarity_counts_rows_repeated_as_often(repeats):
    a, c = repeats.score(array(["a", "c"]))
    assert a == pytest.approx(math.log(1010 / 10))
    assert c == pytest.approx(math.log(1010 / 6))


def test_identifiers_that_occur_once_have_rarity_zero(repeats):
    assert repeats.score(array(["id 3", "new", "", None])).tolist() == [0, 0, 0, 0]


def test_repeats_are_usual_where_most_identifiers_repeat():
    repeats = fit_repeat_counts(array([f"id {n // 2}" for n in range(1000)]))
    assert repeats.score(array(["id 3"]))[0] == 0


def test_identifier_used_five_times_is_rarer_than_pairs():
    pairs = [f"pair {n // 2}" for n in range(400)]
    repeats = fit_repeat_counts(identifiers(1000, *pairs, *["device"] * 5))
    pair, device = repeats.score(array(["pair 3", "device"]))
    assert device > 5 > 2 > pair


def test_value_of_many_rows_is_no_identifier():
    kept = fit_repeat_counts(identifiers(950, *["unknown"] * 50))
    assert kept.identifiers == ("unknown",)
    left_out = fit_repeat_counts(identifiers(949, *["unknown"] * 51, "a", "a"))
    assert left_out.identifiers == ("a",)
    assert left_out.score(array(["unknown"]))[0] == 0


def test_small_tables_keep_values_of_five_rows():
    assert fit_repeat_counts(identifiers(10, *["a"] * 5)).identifiers == ("a",)
    assert fit_repeat_counts(identifiers(10, *["a"] * 6)) is None


@pytest.mark.parametrize("values", [[], [None], [None] * 50, ["a"], ["a", "b", None, None]])
def test_columns_without_repeats_learn_nothing(values):
    assert fit_repeat_counts(array(values)) is None


def test_missing_values_are_no_repeats():
    repeats = fit_repeat_counts(array(["a", "a", None, None, None]))
    assert repeats.identifiers == ("a",)
    assert repeats.n_rows == 2


def test_empty_and_unicode_texts_are_identifiers():
    texts = ["", "東京", "e\u0301", "🙂", "a\0b"]
    repeats = fit_repeat_counts(identifiers(500, *texts, *texts))
    assert set(repeats.identifiers) == set(texts)
    assert repeats.score(array(texts)).min() > 3
    assert repeats.score(array(["é", "a", "a\0c"])).tolist() == [0, 0, 0]
    assert repeats.count("") == repeats.count("🙂") == 2


def test_long_identifiers_are_left_out():
    repeats = fit_repeat_counts(identifiers(50, *["x" * 200] * 2, *["y" * 201] * 2))
    assert repeats.identifiers == ("x" * 200,)
    assert repeats.score(array(["y" * 201, "z" * 10**6])).tolist() == [0, 0]


def test_number_of_identifiers_is_bounded(monkeypatch):
    monkeypatch.setattr(_repeats, "MAX_REPEATED", 2)
    repeats = fit_repeat_counts(identifiers(500, "b", "b", "a", "a", "d", "d", "d"))
    assert repeats.identifiers == ("d", "a")  # ties are ordered by text
    assert repeats.n_rows == 507


def test_count_is_that_of_the_sample(repeats):
    assert [repeats.count(text) for text in ("c", "a", "id 3", "new", "")] == [5, 2, 1, 1, 1]


def test_row_alone_scores_like_in_table(repeats):
    scores = repeats.score(IDS)
    alone = [repeats.score(IDS.slice(row, 1))[0] for row in range(len(IDS))]
    np.testing.assert_array_equal(alone, scores)
    order = np.random.default_rng(0).permutation(len(IDS))
    shuffled = IDS.take(pa.array(order))
    np.testing.assert_array_equal(repeats.score(shuffled), scores[order])
    assert fit_repeat_counts(shuffled) == repeats
    assert repeats.score(IDS.slice(0, 0)).shape == (0,)


def test_state_survives_json(repeats):
    loaded = msgspec.json.decode(msgspec.json.encode(repeats), type=RepeatCounts)
    assert loaded == repeats
    np.testing.assert_array_equal(loaded.score(IDS), repeats.score(IDS))


def test_many_identifiers_are_fast():
    values = array([f"id {n // 2}" for n in range(200_000)])
    start = time.perf_counter()
    scores = fit_repeat_counts(values).score(values)
    assert time.perf_counter() - start < 10  # about 0.3 s
    assert scores.max() == 0


# Hostile states

STATE = {"identifiers": ["a", "b"], "counts": [5, 2], "n_rows": 100}


@pytest.mark.parametrize(
    "change",
    [
        {"identifiers": ["a"]},
        {"identifiers": ["a", "a"]},
        {"identifiers": ["a", "\udfff"]},
        {"identifiers": ["a", "x" * 201]},
        {"identifiers": ["a", None]},
        {"identifiers": None},
        {"counts": [5]},
        {"counts": [5, 1]},
        {"counts": [5, -2]},
        {"counts": [5, 2.5]},
        {"counts": [5, 2**53 + 1]},
        {"n_rows": 6},
        {"n_rows": 0},
        {"n_rows": -1},
        {"n_rows": 10**30},
        {"counts": [2**53, 2**53], "n_rows": 2**53},
        {"identifiers": ["a"] * 10**6, "counts": [2] * 10**6},
        {"extra": 1},
    ],
    ids=lambda change: str(change)[:40],
)
def test_contradictory_states_are_refused(change):
    msgspec.convert(STATE, RepeatCounts)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(STATE | change, RepeatCounts)


@pytest.mark.parametrize(
    "state",
    [
        {"identifiers": [], "counts": [], "n_rows": 1},
        {"identifiers": ["a", "b"], "counts": [5, 2], "n_rows": 7},
        {"identifiers": ["a"], "counts": [2**53], "n_rows": 2**53},
        {"identifiers": ["a"], "counts": [2], "n_rows": 2**53},
    ],
    ids=str,
)
def test_extreme_states_give_finite_rarities(state):
    repeats = msgspec.convert(state, RepeatCounts)
    scores = repeats.score(array(["a", "b", "c", "", None]))
    assert np.isfinite(scores).all()
    assert 0 <= scores.min() <= scores.max() < 50
    assert scores[2:].tolist() == [0, 0, 0]
    assert repeats.count("c") == 1
