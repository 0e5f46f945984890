"""Rarity of which values are missing together."""

import math

import msgspec
import numpy as np
import pytest

from altbi.rarities._missing_patterns import (
    MAX_COLUMNS,
    MAX_PATTERNS,
    MissingPatterns,
    choose_columns,
    fit_missing_patterns,
)
from altbi.rarities._rare_counts import USUAL_SHARE

BOTH, NONE, FIRST, SECOND = [True, True], [False, False], [True, False], [False, True]
SAMPLE = np.array([BOTH] * 300 + [NONE] * 699 + [FIRST])


@pytest.fixture(scope="module")
def patterns():
    return fit_missing_patterns([4, 7], SAMPLE)


def test_only_broken_patterns_are_rare(patterns):
    rarities, _ = patterns.score(np.array([BOTH, NONE, FIRST, SECOND]))
    rare = math.log(USUAL_SHARE * 1001 / 2)
    np.testing.assert_allclose(rarities, [0, 0, rare, rare])


def test_column_that_restores_the_usual_pattern_explains_it(patterns):
    _, columns = patterns.score(np.array([FIRST, SECOND]))
    assert columns.tolist() == [4, 7]  # without it, nothing is missing, as in most rows


def test_column_of_the_nearest_pattern_is_blamed():
    is_missing = np.zeros((1000, 4), dtype=bool)
    is_missing[:300] = True
    is_missing[999] = [False, False, False, True]
    patterns = fit_missing_patterns([3, 5, 8, 9], is_missing)
    rows = np.array([[0, 0, 0, 1], [0, 0, 1, 1], [1, 1, 0, 1]], dtype=bool)
    rarities, columns = patterns.score(rows)
    assert rarities.min() > 4
    assert columns.tolist() == [9, 8, 8]


def test_columns_that_never_miss_together_are_a_pattern():
    sample = np.array([FIRST] * 400 + [SECOND] * 400 + [NONE] * 200)
    rarities, _ = fit_missing_patterns([0, 1], sample).score(np.array([BOTH, FIRST, NONE]))
    assert rarities[0] > 4
    assert rarities[1:].max() == 0


def test_values_missing_by_chance_are_not_rare():
    is_missing = np.random.default_rng(0).random((2000, 12)) < 0.3
    rarities, _ = fit_missing_patterns(range(12), is_missing).score(is_missing)
    assert np.mean(rarities > 0) < 0.2


def test_row_alone_has_the_same_rarity(patterns):
    rows = np.array([BOTH, FIRST, NONE, SECOND, FIRST])
    rarities, columns = patterns.score(rows)
    for index in range(len(rows)):
        alone = patterns.score(rows[index : index + 1])
        assert (alone[0][0], alone[1][0]) == (rarities[index], columns[index])


def test_columns_that_hardly_ever_miss_are_left_out():
    assert choose_columns(np.array([0.0, 0.005, 0.02, 0.5, 0.98, 0.995, 1.0])) == (2, 3, 4)
    chosen = choose_columns(np.linspace(0.1, 0.9, 201))
    assert chosen == tuple(range(100 - MAX_COLUMNS // 2, 100 + MAX_COLUMNS // 2))
    assert fit_missing_patterns([3], SAMPLE[:, :1]) is None


def test_number_of_patterns_is_bounded():
    is_missing = np.random.default_rng(0).random((3000, MAX_COLUMNS)) < 0.5
    found = fit_missing_patterns(range(MAX_COLUMNS), is_missing)
    assert len(found.patterns) == MAX_PATTERNS
    assert found.n_other == 3000 - sum(found.counts)
    assert max(found.patterns) < 1 << MAX_COLUMNS
    rarities, _ = found.score(is_missing)
    assert rarities.max() == 0


def test_state_survives_json(patterns):
    state = msgspec.json.decode(msgspec.json.encode(patterns), type=MissingPatterns)
    np.testing.assert_array_equal(state.score(SAMPLE)[0], patterns.score(SAMPLE)[0])


@pytest.mark.parametrize(
    "change",
    [
        {"columns": []},
        {"columns": [4, 4]},
        {"columns": [4, 100_000]},
        {"columns": [4]},
        {"patterns": [0, 3]},
        {"patterns": [0, 3, 3]},
        {"patterns": [0, 3, 4]},
        {"patterns": [0, 3, -1]},
        {"patterns": [], "counts": []},
        {"counts": [1, 1, 0]},
        {"counts": [2**53, 2**53, 2**53]},
        {"n_other": -1},
        {"n_other": 2**53},
    ],
    ids=str,
)
def test_hostile_states_are_refused(patterns, change):
    state = msgspec.to_builtins(patterns) | change
    with pytest.raises((ValueError, msgspec.ValidationError)):
        msgspec.convert(state, MissingPatterns)
