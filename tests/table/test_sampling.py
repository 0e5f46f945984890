"""The training sample: uniform, seeded and independent of chunks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from altbi.errors import ParameterError
from altbi.table import row_keys, sample_rows


@given(st.integers(0, 200), st.integers(0, 200), st.integers(0, 200), st.integers(-(2**70), 2**70))
def test_keys_do_not_depend_on_the_chunks(a, b, c, seed):
    first, middle, last = sorted((a, b, c))
    chunks = [row_keys(first, middle, seed), row_keys(middle, last, seed)]
    np.testing.assert_array_equal(np.concatenate(chunks), row_keys(first, last, seed))


def test_smallest_keys_of_chunks_are_the_sample():
    kept = np.empty((0, 2), dtype=np.uint64)
    for start in range(0, 1000, 70):
        rows = np.arange(start, min(start + 70, 1000), dtype=np.uint64)
        keys = row_keys(start, start + len(rows), seed=5)
        kept = np.vstack([kept, np.column_stack([keys, rows])])
        kept = kept[np.argsort(kept[:, 0])][:50]
    np.testing.assert_array_equal(np.sort(kept[:, 1]), sample_rows(1000, 50, seed=5))


def test_sample_is_sorted_and_bounded():
    rows = sample_rows(10_000, 300, seed=1)
    assert rows.dtype == np.int64
    assert len(rows) == 300
    assert (np.diff(rows) > 0).all()
    np.testing.assert_array_equal(sample_rows(7, 7, seed=1), range(7))
    with pytest.raises(ParameterError, match="at least 1"):
        sample_rows(5, 0, seed=0)


def test_keys_are_splitmix64():
    """The keys of seed s are those of splitmix64 with the state mix(s + golden)."""
    golden, word = 0x9E3779B97F4A7C15, 2**64 - 1

    def mixed(z):
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & word
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & word
        return z ^ (z >> 31)

    state = mixed((3 + golden) & word)
    expected = [mixed((state + (row + 1) * golden) & word) for row in range(4)]
    assert row_keys(0, 4, seed=3).tolist() == expected
    assert mixed(golden) == 0xE220A8397B1DCDAF  # the published first output for seed 0


def test_rows_are_sampled_uniformly():
    n_rows, limit, n_seeds = 200, 20, 4000
    counts = np.zeros(n_rows)
    for seed in range(n_seeds):
        counts[sample_rows(n_rows, limit, seed)] += 1
    share = limit / n_rows
    z = (counts - n_seeds * share) / np.sqrt(n_seeds * share * (1 - share))
    chi_square = (z**2).sum() * (1 - 1 / n_rows)
    # 199 degrees of freedom: standard deviation 20; the seeds are fixed.
    assert abs(chi_square - (n_rows - 1)) < 4 * np.sqrt(2 * (n_rows - 1))


def test_pairs_of_rows_are_sampled_independently():
    n_seeds, limit, n_rows = 4000, 50, 100
    chosen = np.zeros((n_seeds, n_rows))
    for seed in range(n_seeds):
        chosen[seed, sample_rows(n_rows, limit, seed)] = 1
    together = np.corrcoef(chosen.T)[np.triu_indices(n_rows, 1)]
    assert abs(together.mean() + 1 / (n_rows - 1)) < 1e-3  # a fixed size makes it slightly negative
    assert np.abs(together).max() < 6 / np.sqrt(n_seeds)


@pytest.mark.parametrize("step", [1, 2, 2**32])
def test_neighbouring_seeds_are_independent(step):
    overlaps = []
    for seed in range(200):
        one, two = sample_rows(1000, 100, seed), sample_rows(1000, 100, seed + step)
        overlaps.append([len(np.intersect1d(one + shift, two)) for shift in (-1, 0, 1)])
    # Independent samples share 10 rows with a standard deviation of 2.85, so the mean has 0.2.
    np.testing.assert_allclose(np.mean(overlaps, axis=0), 10, atol=1)
    assert np.max(overlaps) < 30
