"""The training sample: uniform, seeded and independent of chunks."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from altbi.errors import ParameterError
from altbi.table import RowSampler, compute_largest_sample_key, compute_row_keys, sample_rows


@given(st.integers(0, 200), st.integers(0, 200), st.integers(0, 200), st.integers(-(2**70), 2**70))
def test_keys_do_not_depend_on_the_chunks(a, b, c, seed):
    first, middle, last = sorted((a, b, c))
    chunks = [compute_row_keys(first, middle, seed), compute_row_keys(middle, last, seed)]
    np.testing.assert_array_equal(np.concatenate(chunks), compute_row_keys(first, last, seed))


def test_smallest_keys_of_chunks_are_the_sample():
    kept = np.empty((0, 2), dtype=np.uint64)
    for start in range(0, 1000, 70):
        rows = np.arange(start, min(start + 70, 1000), dtype=np.uint64)
        keys = compute_row_keys(start, start + len(rows), seed=5)
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
    assert compute_row_keys(0, 4, seed=3).tolist() == expected
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


def sample_in_chunks(n_rows, limit, seed, size):
    sampler = RowSampler(limit, seed)
    for first in range(0, n_rows, size):
        sampler.add(pa.record_batch({"x": np.arange(first, min(first + size, n_rows))}))
    table, rows = sampler.result()
    assert table["x"].to_pylist() == rows.tolist()
    assert sampler.next_row == n_rows
    return rows.tolist()


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
@pytest.mark.parametrize("limit", [1, 5, 99, 100, 500])
def test_sample_does_not_depend_on_chunks(size, limit):
    assert sample_in_chunks(100, limit, 3, size) == sample_rows(100, limit, 3).tolist()


@pytest.mark.slow
def test_rows_and_pairs_are_sampled_uniformly():
    trials, n_rows, limit = 3000, 12, 4
    single, pairs = Counter(), Counter()
    for seed in range(trials):
        rows = sample_in_chunks(n_rows, limit, seed, size=5)
        single.update(rows)
        pairs.update((a, b) for a in rows for b in rows if a < b)

    expected = trials * limit / n_rows
    spread = np.sqrt(trials * limit / n_rows * (1 - limit / n_rows))
    assert all(abs(single[row] - expected) < 4.5 * spread for row in range(n_rows))
    chance = limit / n_rows * (limit - 1) / (n_rows - 1)
    counts = np.array([pairs[a, b] for a in range(n_rows) for b in range(a + 1, n_rows)])
    chi_square = ((counts - trials * chance) ** 2 / (trials * chance)).sum()
    assert chi_square < 130  # 65 degrees of freedom: mean 65, standard deviation 11


def test_sampler_frees_the_batches():
    sampler = RowSampler(limit=5, seed=0)
    for _ in range(50):
        sampler.add(pa.record_batch({"x": np.zeros(10_000)}))

    table, _ = sampler.result()

    assert sum(len(batch) for batch in sampler._batches) <= 10
    assert table.nbytes < 1000


@given(st.integers(1, 400), st.integers(1, 120), st.integers(0, 5), st.integers(1, 90))
def test_samples_of_partitions_are_the_full_sample(n_rows, limit, seed, size):
    max_key, found = compute_largest_sample_key(n_rows, limit, seed), []
    for first in range(0, n_rows, size):
        sampler = RowSampler(limit, seed, first_row=first, max_key=max_key)
        sampler.add(pa.record_batch({"n": np.arange(first, min(first + size, n_rows))}))
        found += sampler.result()[1].tolist()

    assert found == sample_rows(n_rows, limit, seed).tolist()
