"""Rarity of a value from how often the values of its column occur."""

import math

import numpy as np
import pytest

from altbi.rarities._rare_counts import USUAL_SHARE, compute_rarities


def compute(counts, wanted, **options):
    counts, wanted = (np.array(each, dtype=np.int64) for each in (counts, wanted))
    return compute_rarities(counts, wanted, **options)


def test_rarity_is_log_ratio_to_largest_count():
    # The share of the rows is much rarer: log(0.05 * 9002 / 2).
    assert compute([10] * 900 + [1], [1])[0] == pytest.approx(math.log(11 / 2))


def test_rare_values_that_are_common_together_count_less():
    # 1 % of the rows have a value that occurs once.
    rarity = compute([4999] + [1] * 50, [1])[0]
    assert rarity == pytest.approx(math.log(USUAL_SHARE * 5050 / 51))
    assert rarity < compute([4999, 1], [1])[0] - 3


def test_rare_values_with_the_usual_share_together_are_usual():
    limit = round(1000 * USUAL_SHARE)
    for rare in ([limit], [1] * limit, [limit // 2] * 2):
        assert compute([999 - limit, *rare], rare).max() == 0
    below = limit - 2
    for rare in ([below], [1] * below, [below // 2] * 2):
        expected = math.log(USUAL_SHARE * 1000 / (below + 1))
        assert compute([999 - below, *rare], rare) == pytest.approx(expected)
        assert expected > 0


def test_usual_share_can_be_larger():
    assert compute([50] + [1] * 50, [1])[0] == 0
    assert compute([50] + [1] * 50, [1], usual_share=1.0)[0] == pytest.approx(math.log(101 / 51))
    assert compute([951, 48], [48], usual_share=1.0)[0] == pytest.approx(math.log(952 / 49))


def test_tail_includes_all_values_of_equal_count():
    twenty, thirty = compute([9000, 40, 30, 20, 20], [20, 30])
    assert twenty == pytest.approx(math.log(USUAL_SHARE * 9111 / 41))
    assert thirty == pytest.approx(math.log(USUAL_SHARE * 9111 / 71))


@pytest.mark.parametrize("counts", [[7], [3, 3, 3], [1] * 20, [5, 1]])
def test_most_frequent_value_has_rarity_zero(counts):
    assert compute(counts, [max(counts)])[0] == 0


def test_value_that_never_occurs_is_slightly_rarer_than_single():
    never, once = compute([10] * 900 + [1], [0, 1])
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
    largest = []
    for _ in range(200):
        counts = rng.geometric(rng.uniform(0.001, 0.9), rng.integers(1, 40))
        rarities = compute(counts, np.arange(counts.max() + 1))
        assert (np.diff(rarities) <= 0).all()
        assert (rarities >= 0).all()
        assert rarities.max() <= max(math.log(USUAL_SHARE * (counts.sum() + 1)), 0)
        largest.append(rarities.max())
    assert max(largest) > 1


def test_order_of_the_counts_does_not_matter():
    counts = np.random.default_rng(1).geometric(0.1, 1000)
    expected = compute(counts, counts)
    assert expected.max() > 1
    order = np.random.default_rng(2).permutation(1000)
    np.testing.assert_array_equal(compute(counts[order], counts), expected)


def test_each_result_is_independent_of_others():
    counts = np.random.default_rng(3).geometric(0.05, 101)
    together = compute(counts, counts)
    assert together.max() > 1
    alone = [compute(counts, [count])[0] for count in counts]
    np.testing.assert_array_equal(together, alone)


def test_largest_counts_stay_finite():
    rarities = compute([2**53, 2**53, 1], [0, 1, 2**53])
    assert np.isfinite(rarities).all()
    assert rarities[2] == 0
    assert 30 < rarities[1] <= rarities[0] < 50
