"""Rarity of the time between two dates of a row."""

import math

import msgspec
import numpy as np
import pytest

from altbi.rarities._date_differences import N_BINS, N_POWERS, DateDifference, fit_date_difference
from altbi.rarities._rare_counts import USUAL_SHARE

DAY = 86_400.0
RNG = np.random.default_rng(0)
N_ROWS = 5000
START = DAY * np.arange(N_ROWS)
END = START + RNG.uniform(2, 5, N_ROWS) * DAY


def fit(first, second):
    return fit_date_difference(np.asarray(first), np.asarray(second), first=0, second=1)


@pytest.fixture(scope="module")
def difference():
    return fit(START, END)


def score_of(difference, seconds):
    seconds = np.asarray(seconds, dtype=np.float64)
    return difference.score(np.zeros(len(seconds)), seconds)


def test_usual_times_have_low_rarities(difference):
    assert difference.score(START, END).max() < 1
    assert score_of(difference, [3.5 * DAY])[0] == 0


def test_end_before_start_is_rare(difference):
    (rarity,) = score_of(difference, [-3.5 * DAY])
    assert rarity > 5


def test_equal_dates_have_a_bin_of_their_own():
    equal, later = fit(START, START), fit(START, END)
    assert score_of(equal, [0.0, -0.0]).tolist() == [0, 0]
    assert score_of(later, [0.0])[0] > 5
    assert score_of(equal, [1e-6])[0] > 5
    assert score_of(equal, [-1e-6])[0] > 5


def test_position_of_the_dates_does_not_matter(difference):
    later = 1e9
    np.testing.assert_array_equal(
        difference.score(START + later, END + later), difference.score(START, END)
    )


def test_rarity_is_log_ratio_to_usual_share():
    seconds = np.concatenate([np.full(980, 5.0), np.full(20, -5.0)])
    rarity = score_of(fit(np.zeros(1000), seconds), [5, -5, 500])
    limit = USUAL_SHARE * 1001
    assert rarity == pytest.approx([0, math.log(limit / 21), math.log(limit)])


def test_rarity_is_at_most_log_ratio_of_bins():
    # All bins but one are equally frequent.
    seconds = np.concatenate([np.repeat(2.0 ** np.arange(30), 50), [-5.0]])
    (rarity,) = score_of(fit(np.zeros(1501), seconds), [-5])
    assert rarity == pytest.approx(math.log(51 / 2))


def test_bins_are_powers_of_two():
    difference = fit(np.zeros(100), np.full(100, 5.0))
    rarities = score_of(difference, [3.999999, 4, 7.999999, 8])
    assert (rarities > 1).tolist() == [True, False, False, True]
    assert difference.counts.index(100) == N_POWERS + 3
    assert sum(difference.counts) == 100


def test_outer_bins_are_open():
    difference = fit(np.zeros(100), np.full(100, 2.0**35))
    assert score_of(difference, [2.0**36, 1e15, 1.8e19]).tolist() == [0, 0, 0]
    assert score_of(difference, [-1e15, -1.8e19, 2.0**34]).min() > 1
    below = fit(np.zeros(100), np.full(100, 1e-6))
    assert score_of(below, [1e-6, 0.5, 1.999, 5e-324]).tolist() == [0, 0, 0, 0]


def test_rows_with_missing_dates_have_rarity_zero():
    difference = fit(START, START)
    scores = difference.score(np.array([np.nan, 0.0, np.nan]), np.array([-5.0, np.nan, np.nan]))
    assert scores.tolist() == [0, 0, 0]
    later = fit(START, END)
    assert later.score(np.array([np.nan]), np.array([0.0])).tolist() == [0]


def test_rows_with_missing_dates_do_not_count():
    holes = np.full(30, np.nan)
    first = np.concatenate([START, holes, np.zeros(30), holes])
    second = np.concatenate([END, holes, holes, np.zeros(30)])
    assert fit(first, second) == fit(START, END)


@pytest.mark.parametrize("n_rows", [0, 1, 49])
def test_fewer_than_50_rows_teach_nothing(n_rows):
    assert fit(START[:n_rows], END[:n_rows]) is None
    assert fit([*START[:n_rows], *[np.nan] * 100], [*END[:n_rows], *[0.0] * 100]) is None
    assert fit(START[:50], END[:50]) is not None


def test_indices_of_the_columns_are_kept():
    difference = fit_date_difference(START, END, first=4, second=9)
    assert (difference.first, difference.second) == (4, 9)


def test_extreme_dates_have_finite_rarities(difference):
    dates = np.array([-62_135_596_800, 253_402_300_799, 9.2e18, -9.2e18, 0, 1e-6])
    first, second = (each.ravel() for each in np.meshgrid(dates, dates))
    scores = difference.score(first, second)
    assert np.isfinite(scores).all()
    assert 0 <= scores.min() <= scores.max()
    assert scores.max() == pytest.approx(math.log(USUAL_SHARE * (N_ROWS + 1)))


def test_row_alone_scores_like_in_table(difference):
    first, second = RNG.uniform(-1e9, 1e9, (2, 500))
    second[:100] = first[:100] + RNG.uniform(-10, 10, 100)
    second[::7] = np.nan
    scores = difference.score(first, second)
    alone = [difference.score(first[n : n + 1], second[n : n + 1])[0] for n in range(500)]
    np.testing.assert_array_equal(alone, scores)
    order = RNG.permutation(500)
    np.testing.assert_array_equal(difference.score(first[order], second[order]), scores[order])
    order = RNG.permutation(N_ROWS)
    assert fit(START[order], END[order]) == difference


def test_state_survives_json(difference):
    loaded = msgspec.json.decode(msgspec.json.encode(difference), type=DateDifference)
    assert loaded == difference


# Hostile states

STATE = {"first": 0, "second": 1, "counts": [1] * N_BINS}


@pytest.mark.parametrize(
    "change",
    [
        {"first": -1},
        {"second": -1},
        {"first": 0.5},
        {"second": None},
        {"counts": [1] * (N_BINS - 1)},
        {"counts": [1] * (N_BINS + 1)},
        {"counts": [1] * 10**6},
        {"counts": []},
        {"counts": [-1] * N_BINS},
        {"counts": [2**53 + 1] * N_BINS},
        {"counts": [1.5] * N_BINS},
        {"counts": None},
        {"extra": 1},
    ],
    ids=lambda change: str(change)[:40],
)
def test_invalid_states_are_refused(change):
    msgspec.convert(STATE, DateDifference)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(STATE | change, DateDifference)


@pytest.mark.parametrize("counts", [[0] * N_BINS, [2**53] * N_BINS, [0] * (N_BINS - 1) + [2**53]])
def test_extreme_counts_give_finite_rarities(counts):
    difference = msgspec.convert(STATE | {"counts": counts}, DateDifference)
    scores = score_of(difference, [0, -1, 1, 1e19, -1e19, np.nan])
    assert np.isfinite(scores).all()
    assert 0 <= scores.min() <= scores.max() < 50
