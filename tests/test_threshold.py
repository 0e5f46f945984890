import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from altbi.model._threshold import (
    estimate_contamination,
    is_contamination,
    compute_threshold,
    find_elbow,
)

RNG = np.random.default_rng(0)


def mixture(n_normal, n_odd):
    return np.r_[RNG.chisquare(10, n_normal), 60 + RNG.chisquare(10, n_odd)]


@pytest.mark.parametrize("share", [0.01, 0.05, 0.2, 0.3])
def test_a_clear_second_group_is_found(share):
    scores = mixture(round(5000 * (1 - share)), round(5000 * share))

    threshold = compute_threshold(scores, "auto")

    assert estimate_contamination(scores) == pytest.approx(share, abs=0.03)
    assert np.quantile(scores[scores < 50], 0.95) < threshold < 75


def test_one_enormous_score_does_not_hide_the_others():
    scores = mixture(4900, 100)
    enormous = np.r_[scores, 1e17]

    assert estimate_contamination(enormous) == pytest.approx(estimate_contamination(scores), abs=0.02)


def test_a_few_enormous_scores_do_not_hide_a_group():
    scores = mixture(4000, 1000)
    enormous = np.r_[scores, np.full(5, 1e17)]

    assert estimate_contamination(enormous) == pytest.approx(0.2, abs=0.01)


def test_a_wide_second_group_is_cut_where_it_begins():
    scores = np.r_[RNG.chisquare(10, 3500), 60 + RNG.exponential(100, 1500)]

    assert find_elbow(np.sort(scores)[::-1]) < 0.1
    assert estimate_contamination(scores) == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize("draw", [RNG.normal, RNG.exponential, RNG.gumbel, RNG.lognormal])
def test_one_group_is_not_split_in_the_middle(draw):
    assert estimate_contamination(draw(size=3000)) < 0.15


def test_equal_scores_and_a_single_one_have_an_estimate():
    assert estimate_contamination(np.full(10, 3.0)) == 0.1
    assert estimate_contamination(np.array([3.0])) == 1


def test_many_equal_scores_do_not_hide_the_others():
    scores = np.r_[np.zeros(800), 10 + RNG.chisquare(5, 200)]

    assert estimate_contamination(scores) == pytest.approx(0.2, abs=0.03)


def test_the_estimate_knows_no_unit():
    scores = mixture(900, 100)

    assert estimate_contamination(1000 * scores - 77) == pytest.approx(estimate_contamination(scores), abs=1e-3)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=300))
def test_at_least_one_row_and_at_most_half_are_outliers(values):
    scores = np.array(values)

    share = estimate_contamination(scores)

    assert 1 / len(scores) <= share <= 0.5


def test_rows_that_differ_give_at_least_one_outlier():
    for n_rows in (2, 3, 10, 500):
        scores = RNG.normal(size=n_rows)

        flagged = (scores > compute_threshold(scores, "auto")).sum()

        assert 1 <= flagged <= n_rows / 2


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5])
def test_a_given_share_is_kept(share):
    scores = RNG.normal(size=1000)

    assert (scores > compute_threshold(scores, share)).sum() == round(share * 1000)


def test_what_counts_as_a_contamination():
    assert all(map(is_contamination, ["auto", 0.5, 1e-300, np.float32(0.1)]))
    wrong = ["often", 0, 0.51, -0.1, True, None, float("nan"), 1, [0.1]]
    assert not any(map(is_contamination, wrong))
