import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import norm

from altbi.torch._noisy_counts import NoisyCounts


def build_counts(epsilon=3.0, seed=0):
    return NoisyCounts(epsilon, 1e-5, np.random.default_rng(seed))


@pytest.fixture
def recorded_noise(monkeypatch):
    """Return the noise of all histograms."""
    noises, count_bins = [], NoisyCounts._count_bins
    monkeypatch.setattr(
        NoisyCounts, "_count_bins", lambda *args: noises.append(args[-1]) or count_bins(*args)
    )
    return noises


def test_number_of_rows_has_recorded_noise():
    rng = np.random.default_rng(0)
    counts = [NoisyCounts(3.0, 1e-5, rng) for _ in range(300)]

    found = np.array([each.count(1000) for each in counts])

    assert found.std() == pytest.approx(counts[0].releases[0].noise, rel=0.15)
    assert found.mean() == pytest.approx(1000, abs=5)
    assert build_counts(epsilon=0.01).count(2) >= 2


def test_histogram_has_given_noise():
    found = build_counts()._count_bins(np.zeros(0), np.arange(5001.0), 3.0)

    assert found.std() == pytest.approx(3.0, rel=0.05)


def test_bounds_are_near_the_values():
    rng = np.random.default_rng(0)
    rows = np.column_stack(
        [rng.normal(size=5000), rng.uniform(1000, 1001, 5000), rng.exponential(1e-3, 5000)]
    )

    low, high = NoisyCounts(3.0, 1e-5, rng).bounds(rows)

    assert (((rows >= low) & (rows <= high)).mean(axis=0) > 0.95).all()
    assert high[1] - low[1] < 20
    assert (high - low)[0] < 30
    assert 1e-3 < (high - low)[2] < 0.1


def test_bounds_of_missing_values_are_valid():
    low, high = build_counts().bounds(np.full((500, 1), np.nan))

    assert low < high


@pytest.mark.parametrize("n_columns", [1, 9])
def test_noise_of_bounds_grows_with_columns(recorded_noise, n_columns):
    counts = build_counts(epsilon=1.0)
    counts.bounds(np.random.default_rng(1).normal(size=(50_000, n_columns)))

    (release,) = counts.releases
    assert set(recorded_noise) == {release.noise * np.sqrt(n_columns)}
    assert n_columns < len(recorded_noise) <= n_columns * release.times


def test_category_of_one_row_is_not_released():
    texts = pa.array(["common"] * 500 + ["unique"])

    for seed in range(200):
        assert build_counts(seed=seed).categories([texts], 32) == [("common",)]


@pytest.mark.parametrize("n_columns", [1, 4])
def test_noise_of_categories_grows_with_columns(monkeypatch, n_columns):
    counts, given = build_counts(epsilon=1.0), []
    monkeypatch.setattr(
        NoisyCounts, "_find_frequent", lambda _, *args: given.append(args[1:]) or ()
    )
    counts.categories([pa.array(["a"])] * n_columns, 5)

    (release,) = counts.releases
    noise = release.noise * np.sqrt(n_columns)
    min_count = 1 + noise * norm.isf(0.1 * 1e-5 / n_columns)
    assert given == [(noise, pytest.approx(min_count))] * n_columns


def test_frequent_categories_are_selected_by_noisy_counts():
    texts = pa.array([str(number) for number in range(2000)] * 3)

    assert 900 < len(build_counts()._find_frequent(texts, 2.0, 3.0)) < 1100


def test_number_of_categories_is_limited():
    texts = pa.array(["a"] * 1000 + ["b"] * 600)

    assert build_counts().categories([texts], 1) == [("a",)]


@pytest.mark.parametrize("share", [0.02, 0.1, 0.4])
def test_threshold_is_exceeded_by_the_share(share):
    scores = np.random.default_rng(0).gumbel(size=5000) * 3 - 40

    threshold = build_counts().threshold(scores, -100.0, 3000.0, share, 5000)

    assert (scores > threshold).mean() == pytest.approx(share, abs=0.03)


def test_every_count_of_threshold_is_recorded(recorded_noise):
    counts = build_counts(epsilon=1.0)
    counts.threshold(np.arange(1000.0), 0.0, 1000.0, 0.1, 1000)

    (release,) = counts.releases
    assert recorded_noise == [release.noise] * release.times
