import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from altbi.model._threshold import (
    compute_threshold,
    estimate_contamination,
    find_elbow,
    is_contamination,
)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def mix_groups(rng, n_inliers, n_outliers):
    return np.r_[rng.chisquare(10, n_inliers), 60 + rng.chisquare(10, n_outliers)]


@pytest.mark.parametrize("share", [0.01, 0.05, 0.2, 0.3])
def test_separate_group_is_found(rng, share):
    scores = mix_groups(rng, round(5000 * (1 - share)), round(5000 * share))

    threshold = compute_threshold(scores, "auto")

    assert estimate_contamination(scores) == pytest.approx(share, abs=0.03)
    assert np.quantile(scores[scores < 50], 0.95) < threshold < 75


def test_one_extreme_score_does_not_hide_others(rng):
    scores = mix_groups(rng, 4900, 100)
    share = estimate_contamination(np.r_[scores, 1e17])
    assert share == pytest.approx(estimate_contamination(scores), abs=0.02)


def test_few_extreme_scores_do_not_hide_group(rng):
    scores = np.r_[mix_groups(rng, 4000, 1000), np.full(5, 1e17)]
    assert estimate_contamination(scores) == pytest.approx(0.2, abs=0.01)


def test_wide_group_is_cut_at_its_start(rng):
    scores = np.r_[rng.chisquare(10, 3500), 60 + rng.exponential(100, 1500)]

    assert find_elbow(np.sort(scores)[::-1]) < 0.1
    assert estimate_contamination(scores) == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize("distribution", ["normal", "exponential", "gumbel", "lognormal"])
def test_single_group_is_not_split_in_half(rng, distribution):
    assert estimate_contamination(getattr(rng, distribution)(size=3000)) < 0.15


def test_equal_scores_and_single_score_have_estimate():
    assert estimate_contamination(np.full(10, 3.0)) == 0.1
    assert estimate_contamination(np.array([3.0])) == 1


def test_many_equal_scores_do_not_hide_others(rng):
    scores = np.r_[np.zeros(800), 10 + rng.chisquare(5, 200)]
    assert estimate_contamination(scores) == pytest.approx(0.2, abs=0.03)


def test_estimate_is_invariant_to_scale_and_shift(rng):
    scores = mix_groups(rng, 900, 100)
    expected = estimate_contamination(scores)
    assert estimate_contamination(1000 * scores - 77) == pytest.approx(expected, abs=1e-3)


@pytest.mark.slow
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=300))
def test_estimate_is_one_row_to_half(values):
    assert 1 / len(values) <= estimate_contamination(np.array(values)) <= 0.5


@pytest.mark.parametrize("n_rows", [2, 3, 10, 500])
def test_distinct_scores_have_at_least_one_outlier(rng, n_rows):
    scores = rng.normal(size=n_rows)
    assert 1 <= (scores > compute_threshold(scores, "auto")).sum() <= n_rows / 2


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5])
def test_given_contamination_is_kept(rng, share):
    scores = rng.normal(size=1000)
    assert (scores > compute_threshold(scores, share)).sum() == round(share * 1000)


def test_contamination_is_share_up_to_half_or_auto():
    assert all(map(is_contamination, ["auto", 0.5, 1e-300, np.float32(0.1)]))
    invalid = ["often", 0, 0.51, -0.1, True, None, float("nan"), 1, [0.1]]
    assert not any(map(is_contamination, invalid))
