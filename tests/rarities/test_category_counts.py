"""Rarity of categories."""

import math
import time

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from altbi.rarities import _category_counts
from altbi.rarities._category_counts import CategoryCounts, fit_category_counts
from altbi.rarities._rare_counts import USUAL_SHARE


def array(values):
    return pa.array(values, pa.large_string())


COLOURS = array(["red"] * 970 + ["blue"] * 29 + ["grey"] + [None] * 20)


@pytest.fixture(scope="module")
def colours():
    return fit_category_counts(COLOURS)


def test_only_repeated_categories_are_kept(colours):
    assert colours.categories == ("red", "blue")
    assert colours.counts == (970, 29)
    assert colours.n_single == 1


def test_rarity_is_log_ratio_to_usual_share(colours):
    blue, grey = colours.score(array(["blue", "grey"]))
    assert blue == pytest.approx(math.log(USUAL_SHARE * 1001 / 31))
    assert grey == pytest.approx(math.log(USUAL_SHARE * 1001 / 2))


def test_categories_of_the_usual_share_have_rarity_zero():
    n_blue = round(1000 * USUAL_SHARE)
    counts = fit_category_counts(array(["red"] * (998 - n_blue) + ["blue"] * n_blue + ["grey"]))
    blue, grey = counts.score(array(["blue", "grey"]))
    assert blue == 0
    assert grey == pytest.approx(math.log(USUAL_SHARE * 1000 / 2))


def test_unknown_category_is_as_rare_as_single_ones(colours):
    grey, pink, empty = colours.score(array(["grey", "pink", ""]))
    assert grey == pink == empty > 3


def test_unknown_category_is_rarer_without_single_ones():
    counts = fit_category_counts(array(["red"] * 970 + ["blue"] * 29))
    assert counts.n_single == 0
    pink, blue = counts.score(array(["pink", "blue"]))
    assert pink == pytest.approx(math.log(USUAL_SHARE * 1000))
    assert blue == pytest.approx(math.log(USUAL_SHARE * 1000 / 30))


def test_frequent_and_missing_values_have_rarity_zero(colours):
    assert colours.score(array(["red", None])).tolist() == [0, 0]


def test_single_values_are_usual_where_most_are_single():
    counts = fit_category_counts(array([f"name {n}" for n in range(1000)] + ["twice"] * 2))
    assert counts.categories == ("twice",)
    assert counts.score(array(["name 3", "twice", "new"])).max() < 0.1


def test_typos_among_many_categories_are_rare():
    cities = [f"city {n % 100}" for n in range(20_000)]
    for n_typos in (3, 30):
        expected = min(201 / 2, USUAL_SHARE * (20_001 + n_typos) / (n_typos + 1))
        counts = fit_category_counts(array(cities + [f"typo {n}" for n in range(n_typos)]))
        usual, typo = counts.score(array(["city 7", "typo 2"]))
        assert usual == 0
        assert typo == pytest.approx(math.log(expected))
        assert typo > 3


def test_ties_are_ordered_by_text():
    values = ["b", "a", "c"] * 2 + ["z"] * 3
    assert fit_category_counts(array(values)).categories == ("z", "a", "b", "c")


@pytest.mark.parametrize("values", [[], [None], [None] * 100])
def test_column_without_values_learns_nothing(values):
    assert fit_category_counts(array(values)) is None


def test_one_row_is_usual():
    counts = fit_category_counts(array(["a"]))
    assert counts.categories == ()
    assert counts.score(array(["a", "b", None])).tolist() == [0, 0, 0]


def test_no_rows_give_no_rarities(colours):
    assert colours.score(array([])).shape == (0,)


def test_empty_and_unicode_texts_are_categories():
    texts = ["", "東京", "e\u0301", "é", "🙂", " ", "a\0b"]
    counts = fit_category_counts(array(texts * 50 + ["x"]))
    assert set(counts.categories) == set(texts)
    scores = counts.score(array([*texts, "a\0c", "\u00e9\u0301"]))
    assert (scores[:7] == 0).all()
    assert (scores[7:] > 1).all()


def test_row_alone_scores_like_in_table(colours):
    values = array([*COLOURS.to_pylist(), "new", "", None])
    scores = colours.score(values)
    alone = [colours.score(values.slice(row, 1))[0] for row in range(len(values))]
    np.testing.assert_array_equal(alone, scores)
    order = np.random.default_rng(0).permutation(len(values))
    np.testing.assert_array_equal(colours.score(values.take(pa.array(order))), scores[order])


def test_order_of_training_rows_does_not_matter(colours):
    order = pa.array(np.random.default_rng(0).permutation(len(COLOURS)))
    assert fit_category_counts(COLOURS.take(order)) == colours


def test_state_survives_json(colours):
    loaded = msgspec.json.decode(msgspec.json.encode(colours), type=CategoryCounts)
    assert loaded == colours
    np.testing.assert_array_equal(loaded.score(COLOURS), colours.score(COLOURS))


def test_at_most_100000_categories_are_kept():
    n = 100_001
    texts = np.char.add("c", np.char.zfill(np.arange(n).astype(str), 6))
    counts = fit_category_counts(array([*np.repeat(texts, 2).tolist(), "c000000"]))
    assert len(counts.categories) == 100_000
    assert counts.categories[:2] == ("c000000", "c000001")
    assert counts.n_single == 2  # rows of the category that is left out
    assert counts.score(array(["c000000", "c100000"])) == pytest.approx([0, math.log(4 / 2)])


def test_huge_texts_are_not_kept(monkeypatch):
    monkeypatch.setattr(_category_counts, "MAX_CHARACTERS", 100)
    counts = fit_category_counts(array(["red"] * 9 + ["x" * 98] * 5 + ["blue"] * 4))
    assert counts.categories == ("red",)
    assert counts.n_single == 9
    monkeypatch.setattr(_category_counts, "MAX_CHARACTERS", 101)
    assert len(fit_category_counts(array(["red"] * 9 + ["x" * 98] * 5)).categories) == 2
    assert np.isfinite(counts.score(array(["x" * 10**6, "blue"]))).all()


def test_many_rows_with_few_texts_are_fast(colours):
    values = array(["red", "blue", "grey", None] * 250_000)
    start = time.perf_counter()
    scores = colours.score(values)
    assert time.perf_counter() - start < 5  # about 0.05 s; a loop over rows takes longer
    assert scores[:4].tolist() == colours.score(values.slice(0, 4)).tolist()


# Messages


def test_description_names_much_more_frequent_categories(colours):
    assert colours.describe("grey") == "'red' (970 rows) or 'blue' (29 rows)"
    assert colours.describe("blue") == "'red' (970 rows)"
    assert colours.describe("red") == ""
    two = fit_category_counts(array(["a"] * 1000 + ["b"] * 900 + ["c"] * 800 + ["d"]))
    assert two.describe("new") == "'a' (1,000 rows) or 'b' (900 rows)"
    assert two.describe("c") == ""


def test_description_needs_five_times_as_many_rows():
    counts = fit_category_counts(array(["a"] * 10 + ["b"] * 2 + ["c"] * 3))
    assert counts.describe("b") == "'a' (10 rows)"
    assert counts.describe("c") == ""
    assert fit_category_counts(array(["a"] * 4 + ["b"])).describe("new") == ""


def test_description_escapes_and_shortens_texts():
    counts = fit_category_counts(array(["\x1b[31m" + "x" * 300] * 50 + ["b"]))
    assert counts.describe("b").isprintable()
    assert len(counts.describe("b")) < 60


# Hostile states

STATE = {"categories": ["red", "blue"], "counts": [90, 9], "n_single": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"categories": ["red"]},
        {"counts": [90]},
        {"counts": [90, 9, 3]},
        {"categories": ["red", "red"]},
        {"categories": ["red", "\ud800"]},
        {"categories": ["red", None]},
        {"categories": ["red", 3]},
        {"categories": "red"},
        {"categories": None},
        {"counts": [90, 0]},
        {"counts": [90, -9]},
        {"counts": [90, 2**53 + 1]},
        {"counts": [90, 9.5]},
        {"counts": [2**53, 9]},
        {"counts": [90, float("nan")]},
        {"n_single": -1},
        {"n_single": 2**53},
        {"n_single": None},
        {"extra": 1},
    ],
    ids=str,
)
def test_contradictory_states_are_refused(change):
    msgspec.convert(STATE, CategoryCounts)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(STATE | change, CategoryCounts)


def test_million_entries_are_refused():
    texts = [f"c{n}" for n in range(10**6)]
    with pytest.raises(msgspec.ValidationError, match="length"):
        msgspec.convert({"categories": texts, "counts": [1] * 10**6, "n_single": 0}, CategoryCounts)


def test_counts_that_overflow_are_refused():
    # Their sum would be negative as a 64-bit integer.
    state = {
        "categories": [f"c{n}" for n in range(2000)],
        "counts": [2**53] * 2000,
        "n_single": 0,
    }
    with pytest.raises(msgspec.ValidationError, match="at most 9007199254740992 rows"):
        msgspec.convert(state, CategoryCounts)


@pytest.mark.parametrize(
    "state",
    [
        {"categories": [], "counts": [], "n_single": 0},
        {"categories": [], "counts": [], "n_single": 2**53},
        {"categories": ["a"], "counts": [2**53], "n_single": 0},
        {"categories": ["a", "b"], "counts": [1, 2**53 - 2], "n_single": 1},
    ],
    ids=str,
)
def test_extreme_states_give_finite_rarities(state):
    scores = msgspec.convert(state, CategoryCounts).score(array(["a", "b", "c", "", None]))
    assert np.isfinite(scores).all()
    assert 0 <= scores.min() <= scores.max() < 50
    assert scores[-1] == 0


def test_frequent_categories_may_not_be_rare_otherwise():
    counts = fit_category_counts(array(["red"] * 700 + ["IE"] * 250 + ["blue"] * 49 + ["grey"]))
    _, limits = counts.score_with_limits(array(["red", "IE", "blue", "grey", "pink", None]))
    assert limits[:2].tolist() == [0, 0]
    assert limits[2] == pytest.approx(math.log(USUAL_SHARE * 1001 / 50))
    assert limits[3:].tolist() == [math.inf, math.inf, 0]
