"""Rarity of missing values."""

import math

import msgspec
import pytest

from altbi.rarities._missing_values import MissingCounts
from altbi.rarities._rare_counts import USUAL_SHARE


def rarity(n_present, n_missing):
    return MissingCounts(n_present=n_present, n_missing=n_missing).rarity


def test_first_missing_value_is_rarest():
    assert rarity(999, 0) == pytest.approx(math.log(USUAL_SHARE * 1000))
    assert rarity(999, 0) > rarity(999, 1) > rarity(999, 10) > rarity(999, 50) > 0


def test_missing_values_of_the_usual_share_are_usual():
    limit = round(1000 * USUAL_SHARE)
    assert rarity(999 - limit, limit) == rarity(600, 400) == 0
    assert rarity(1001 - limit, limit - 2) > 0


def test_missing_values_of_most_rows_are_usual():
    assert rarity(400, 600) == rarity(500, 500) == rarity(0, 1000) == 0


def test_rarity_is_log_ratio_to_usual_share():
    assert rarity(990, 10) == pytest.approx(math.log(USUAL_SHARE * 1001 / 11))
    assert rarity(960, 40) == pytest.approx(math.log(USUAL_SHARE * 1001 / 41))


def test_few_rows_make_no_missing_value_rare():
    assert rarity(0, 0) == 0
    assert rarity(0, 1) == 0
    assert rarity(1, 0) == 0
    limit = round(1 / USUAL_SHARE)
    assert rarity(2, 0) == rarity(limit - 2, 0) == 0
    assert rarity(2 * limit - 1, 0) == pytest.approx(math.log(2))


def test_value_is_expected_where_most_rows_have_one():
    assert MissingCounts(n_present=51, n_missing=49).describe() == "a value"
    assert MissingCounts(n_present=50, n_missing=50).describe() == ""
    assert MissingCounts(n_present=0, n_missing=0).describe() == ""


@pytest.mark.parametrize("counts", [(2**53, 2**53), (2**53, 0), (0, 2**53), (1, 2**53)])
def test_extreme_counts_give_finite_rarities(counts):
    state = msgspec.convert({"n_present": counts[0], "n_missing": counts[1]}, MissingCounts)
    assert 0 <= state.rarity < 50
    assert isinstance(state.rarity, float)


@pytest.mark.parametrize(
    "change",
    [
        {"n_present": -1},
        {"n_missing": -1},
        {"n_present": 2**53 + 1},
        {"n_missing": 10**30},
        {"n_missing": 0.5},
        {"n_missing": "3"},
        {"n_missing": None},
        {"n_missing": True},
        {"extra": 0},
    ],
    ids=str,
)
def test_invalid_states_are_refused(change):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"n_present": 9, "n_missing": 1} | change, MissingCounts)


def test_absent_counts_are_refused():
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"n_present": 9}, MissingCounts)
