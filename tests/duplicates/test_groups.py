import numpy as np
import pytest

from altbi.duplicates._groups import RowGroups, find_groups


def list_rows(groups):
    return [rows.tolist() for rows in groups]


@pytest.mark.parametrize("seed", range(5))
def test_groups_are_those_of_a_loop(seed):
    keys = np.random.default_rng(seed).integers(0, 60, 80)
    expected = {}
    for row, key in enumerate(keys.tolist()):
        expected.setdefault(key, []).append(row)

    groups = find_groups(keys)

    assert list_rows(groups) == [rows for rows in expected.values() if len(rows) > 1]
    assert groups.firsts.tolist() == [rows[0] for rows in list_rows(groups)]
    assert len(groups) == len(list_rows(groups))


def test_rows_have_their_own_numbers():
    groups = find_groups(np.array([4, 5, 4]), np.array([10, 20, 35]))

    assert list_rows(groups) == [[10, 35]]


@pytest.mark.parametrize("keys", [[], [3], [1, 2, 3]])
def test_distinct_keys_form_no_group(keys):
    groups = find_groups(np.array(keys, dtype=np.int64))

    assert (len(groups), list_rows(groups), groups.firsts.tolist()) == (0, [], [])


@pytest.mark.parametrize(
    ("n_rows", "expected"),
    [(0, []), (1, [[0, 1]]), (2, [[0, 1]]), (3, [[0, 1], [2, 3]]), (5, [[0, 1], [2, 3, 4]])],
)
def test_cut_keeps_at_least_two_rows(n_rows, expected):
    groups = RowGroups(np.arange(5), np.array([0, 0, 1, 1, 1]))

    assert list_rows(groups.cut(n_rows)) == expected
