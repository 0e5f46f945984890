"""Rarity of a value from how often the values of its column occur."""

import math

import numpy as np
import pytest

from altbi.rarities._rare_counts import MAX_RARITY, compute_rarities


def compute(counts, wanted):
    return compute_rarities(np.array(counts, dtype=np.int64), np.array(wanted, dtype=np.int64))


def test_rarity_is_log_ratio_to_largest_count():
    # All values of this count together are rarer: log(92 / 2).
    assert compute([10] * 9 + [1], [1])[0] == pytest.approx(math.log(11 / 2))


def test_rare_values_that_are_common_together_count_less():
    # Half of the rows have a value that occurs once.
    assert compute([50] + [1] * 50, [1])[0] == pytest.approx(math.log(101 / 51))


def test_tail_includes_all_values_of_equal_count():
    assert compute([900, 40, 30, 20, 20], [20])[0] == pytest.approx(math.log(1011 / 41))
    assert compute([900, 40, 30, 20, 20], [30])[0] == pytest.approx(math.log(1011 / 71))


@pytest.mark.parametrize("counts", [[7], [3, 3, 3], [1] * 20, [5, 1]])
def test_most_frequent_value_has_rarity_zero(counts):
    assert compute(counts, [max(counts)])[0] == 0


def test_value_that_never_occurs_is_slightly_rarer_than_single():
    never, once = compute([10] * 9 + [1], [0, 1])
    assert once == pytest.approx(math.log(11 / 2))
    assert never == pytest.approx(math.log(11))


def test_unseen_value_among_single_values_is_usual():
    assert compute([1] * 500, [0])[0] == pytest.approx(0, abs=0.01)


def test_no_counts_give_rarity_zero():
    assert compute([], [0, 1]).tolist() == [0, 0]
    assert compute([0, 0, 0], [0]).tolist() == [0]
    assert compute([], []).shape == (0,)


def test_count_above_the_largest_is_usual():
    assert compute([5, 5], [6, 2**53]).tolist() == [0, 0]


def test_rarer_values_never_have_lower_rarities():
    rng = np.random.default_rng(0)
    for _ in range(200):
        counts = rng.geometric(rng.uniform(0.001, 0.9), rng.integers(1, 40))
        rarities = compute(counts, np.arange(counts.max() + 1))
        assert (np.diff(rarities) <= 0).all()
        assert (rarities >= 0).all()
        assert rarities.max() <= math.log(counts.sum() + 1)


def test_order_of_the_counts_does_not_matter():
    counts = np.random.default_rng(1).geometric(0.1, 1000)
    expected = compute(counts, counts)
    order = np.random.default_rng(2).permutation(1000)
    np.testing.assert_array_equal(compute(counts[order], counts), expected)


def test_each_result_is_independent_of_others():
    counts = np.random.default_rng(3).geometric(0.05, 101)
    together = compute(counts, counts)
    alone = [compute(counts, [count])[0] for count in counts]
    np.testing.assert_array_equal(together, alone)


def test_largest_counts_stay_finite():
    rarities = compute([2**53, 2**53, 1], [0, 1, 2**53])
    assert np.isfinite(rarities).all()
    assert 0 <= rarities.min() <= rarities.max() <= MAX_RARITY
