import pytest

from altbi.report._axes import (
    build_axis,
    build_score_axis,
    compute_count_ticks,
    compute_ticks,
    extend_to_ticks,
    format_ticks,
    locate_count,
)

BINS = ((0.0, 1.0, 5), (1.0, 2.0, 3), (2.0, 3.0, 1))


def test_axis_contains_bins_and_threshold():
    axis = build_score_axis(BINS, 4.0)

    assert [axis.locate(value) for value in (0.0, 1.0, 4.0)] == [0.0, 0.25, 1.0]


def test_wide_last_bin_is_as_wide_as_four():
    axis = build_score_axis((*BINS, (3.0, 5003.0, 1)), 2.0)

    assert [axis.locate(value) for value in (3.0, 5003.0)] == pytest.approx([3 / 7, 1.0])
    assert axis.locate(2503.0) == pytest.approx(5 / 7)


def test_last_bin_of_four_widths_is_not_compressed():
    axis = build_score_axis((*BINS, (3.0, 7.0, 1)), 2.0)

    assert axis.shrink == 1.0


@pytest.mark.parametrize("bins", [(), ((2.0, 2.0, 7),)])
def test_equal_scores_are_in_the_middle(bins):
    assert build_score_axis(bins, 2.0).locate(2.0) == 0.5


def test_tiny_differences_count_as_equal():
    axis = build_score_axis(((0.0, 5e-324, 7),), 0.0)

    assert axis.locate(0.0) == 0.5
    assert compute_ticks(axis, 2) == [-0.5, 0.0, 0.5]


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.0, 10.0, [0, 2, 4, 6, 8, 10]),
        (4.1, 894.9, [200, 400, 600, 800]),
        (-0.35, 0.1, [-0.3, -0.2, -0.1, 0.0, 0.1]),
        (1e-7, 3e-7, [1e-7, 1.5e-7, 2e-7, 2.5e-7, 3e-7]),
        (1e12, 3e12, [1e12, 1.5e12, 2e12, 2.5e12, 3e12]),
    ],
)
def test_ticks_are_round_and_on_the_axis(low, high, ticks):
    assert compute_ticks(build_axis(low, high), 5) == pytest.approx(ticks)


def test_extended_axis_ends_at_ticks():
    axis, ticks = extend_to_ticks(build_axis(-88.1, -0.1), 5)

    assert (axis.low, axis.high) == (ticks[0], ticks[-1]) == (-100, 0)


@pytest.mark.parametrize(
    ("most", "ticks"),
    [
        (0, [0, 1]),
        (1, [0, 1]),
        (45, [0, 1, 3, 10, 30]),
        (1000, [0, 1, 10, 100, 1000]),
        (20_000, [0, 1, 10, 100, 1000, 10_000]),
    ],
)
def test_ticks_of_counts_are_powers_of_ten(most, ticks):
    assert compute_count_ticks(most) == ticks


def test_single_row_is_visible_on_the_axis():
    for most in (1, 1000, 10**9):
        assert 0.03 < locate_count(1, most) <= locate_count(most, most) < 1


@pytest.mark.parametrize(
    ("ticks", "labels"),
    [
        ([0.0, 0.1, 0.2], ["0", "0.1", "0.2"]),
        ([-40.0, -20.0, 0.0], ["\u221240", "\u221220", "0"]),
        ([0.1 * 3, 0.4], ["0.3", "0.4"]),
        ([1000, 2000], ["1,000", "2,000"]),
        ([0, 250_000, 500_000], ["0", "250k", "500k"]),
        ([1_500_000, 2_000_000], ["1.5M", "2.0M"]),
        ([1e12, 2e12], ["1e+12", "2e+12"]),
        ([1e-7, 2e-7], ["1e\u221207", "2e\u221207"]),
        ([0], ["0"]),
        ([], []),
    ],
)
def test_labels_have_few_characters(ticks, labels):
    assert format_ticks(ticks) == labels
