"""Rarity of negative numbers, zeros and positive numbers."""

import math

import msgspec
import numpy as np
import pytest

from altbi.rarities._signs import SignCounts, fit_sign_counts


def rarities(n_negative, n_zero, n_positive):
    counts = SignCounts(n_negative=n_negative, n_zero=n_zero, n_positive=n_positive)
    return counts.rarities.tolist()


def test_signs_are_counted_without_missing_values():
    numbers = np.array([-1.5, 0.0, -0.0, 2.0, 3.0, 5e-324, np.nan, -5e-324])
    assert fit_sign_counts(numbers) == SignCounts(n_negative=2, n_zero=2, n_positive=3)


def test_zero_and_negative_are_rare_among_positive():
    negative, zero, positive = rarities(1, 4, 995)
    assert positive == 0
    assert zero == pytest.approx(math.log(1001 / 6))
    assert negative == pytest.approx(math.log(996 / 2))


def test_positive_is_rare_among_negative():
    negative, zero, positive = rarities(995, 4, 1)
    assert negative == 0
    assert positive > zero > 4


def test_positive_numbers_are_rare_among_zeros():
    assert rarities(0, 998, 2) == pytest.approx([math.log(999), 0, math.log(999 / 3)])


@pytest.mark.parametrize("n_zero", [0, 1, 50, 400])
def test_zero_between_two_signs_is_usual(n_zero):
    assert rarities(500, n_zero, 500) == [0, 0, 0]
    negative, zero, positive = rarities(100, n_zero, 900)
    assert zero == positive == 0
    assert negative > 2


def test_zero_counts_below_one_percent_of_a_sign():
    assert rarities(10, 0, 990)[1] == 0
    assert rarities(9, 0, 991)[1] == pytest.approx(math.log(992))


def test_column_without_numbers_has_no_rare_sign():
    assert fit_sign_counts(np.array([np.nan, np.nan])).rarities.tolist() == [0, 0, 0]
    assert fit_sign_counts(np.array([])).rarities.tolist() == [0, 0, 0]


def test_one_row_makes_no_sign_rare():
    assert fit_sign_counts(np.array([3.0])).rarities.tolist() == [0, 0, 0]
    assert fit_sign_counts(np.array([3.0, 4.0])).rarities.max() == pytest.approx(math.log(3))


@pytest.mark.parametrize("largest", [0, 1, 2])
def test_extreme_counts_give_finite_rarities(largest):
    for others in (0, 1, 2**53):
        counts = [others] * 3
        counts[largest] = 2**53
        found = np.array(rarities(*counts))
        assert np.isfinite(found).all()
        assert 0 <= found.min() <= found.max() < 50


@pytest.mark.parametrize(
    "change",
    [
        {"n_negative": -1},
        {"n_zero": -1},
        {"n_positive": -1},
        {"n_positive": 2**53 + 1},
        {"n_zero": 1.5},
        {"n_zero": None},
        {"extra": 0},
    ],
    ids=str,
)
def test_invalid_states_are_refused(change):
    state = {"n_negative": 1, "n_zero": 2, "n_positive": 3}
    assert msgspec.convert(state, SignCounts).n_zero == 2
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(state | change, SignCounts)


def test_description_names_the_most_frequent_sign():
    counts = SignCounts(n_negative=0, n_zero=4, n_positive=995)
    expected = "a number above 0, as in 995 of 999 rows"
    assert counts.describe(0.0) == counts.describe(-3.0) == expected
    assert counts.describe(5.0) == ""
    below = SignCounts(n_negative=500, n_zero=2, n_positive=0)
    assert below.describe(1.0) == "a number below 0, as in 500 of 502 rows"
    assert SignCounts(n_negative=500, n_zero=0, n_positive=500).describe(0.0) == ""
