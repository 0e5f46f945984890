"""Tests of diffusion time estimation: both networks approximate the Bayes posterior."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal
from torch.nn import functional

from altbi.errors import ParameterError, TableError
from altbi_bench.baselines.dte import DTEC, DTEIG, TIMES, BinEstimator, Dropout, ScaleEstimator

pytestmark = pytest.mark.slow

VARIANCES = 1 - np.cumprod(1 - np.linspace(1e-4, 1e-2, 400))
N_COLUMNS = 8


def standardise(X):
    return (X - X.mean(0)) / X.std(0)


def sample_rows_near_a_plane(n_rows=2000):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n_rows, 2)) @ rng.normal(size=(2, N_COLUMNS))
    return standardise(rows + 0.05 * rng.normal(size=rows.shape))


X = sample_rows_near_a_plane()


def add_noise(time, n_rows=300):
    rng = np.random.default_rng(time)
    return X[:n_rows] + np.sqrt(VARIANCES[time]) * rng.normal(size=(n_rows, N_COLUMNS))


def compute_posterior(rows):
    """Return the posterior probabilities of all times of Gaussian rows with noise."""
    covariance = np.cov(X.T, bias=True)
    logs = [
        multivariate_normal.logpdf(rows, cov=covariance + variance * np.eye(N_COLUMNS))
        for variance in VARIANCES
    ]
    shares = np.exp(logs - np.max(logs, axis=0))
    return (shares / shares.sum(0)).T


NOISE_TIMES = (0, 50, 120, 200, 300, 399)
NOISY = np.vstack([add_noise(time) for time in NOISE_TIMES])


@pytest.fixture(scope="module")
def bin_detector():
    return DTEC(epochs=20, learning_rate=1e-3).fit(X)


@pytest.fixture(scope="module")
def scale_detector():
    return DTEIG(epochs=20, learning_rate=1e-3).fit(X)


class TestDTEC:
    def test_score_is_near_the_posterior_mean_bin(self, bin_detector):
        found = bin_detector.outlier_score(NOISY)
        expected = compute_posterior(NOISY) @ (np.arange(TIMES) * 7 // TIMES)

        assert np.corrcoef(found, expected)[0, 1] > 0.9
        assert np.abs(found - expected).mean() < 0.6

    def test_score_grows_with_noise(self, bin_detector):
        means = [bin_detector.outlier_score(add_noise(time)).mean() for time in NOISE_TIMES]

        assert (np.diff(means) > 0.2).all()

    def test_bins_have_equal_widths(self):
        network = BinEstimator(3, softmax_twice=False)
        certain = 50 * torch.eye(7)
        bins = [
            min(
                range(7),
                key=lambda k: float(network.compute_output_loss(certain[k : k + 1], time[None])),
            )
            for time in torch.arange(TIMES)
        ]

        assert sorted(bins) == bins
        assert [bins.index(k) for k in range(7)] == [0, 58, 115, 172, 229, 286, 343]

    def test_distant_rows_have_different_scores(self, bin_detector):
        far = bin_detector.network_(torch.full((1, N_COLUMNS), 5.0) * torch.tensor([[1.0], [1.2]]))

        assert far[1] > far[0] > 5

    def test_softmax_twice_gives_the_published_loss(self):
        outputs = torch.randn(9, 7, generator=torch.Generator().manual_seed(0))
        times = torch.arange(9) * 40
        once = BinEstimator(3, softmax_twice=False).compute_output_loss(outputs, times)
        twice = BinEstimator(3, softmax_twice=True).compute_output_loss(outputs, times)
        bins = times * 7 // 400

        assert torch.allclose(once, functional.cross_entropy(outputs, bins))
        assert torch.allclose(twice, functional.cross_entropy(outputs.softmax(1), bins))

    def test_softmax_twice_changes_the_training(self):
        once, twice = (
            DTEC(epochs=2, softmax_twice=choice).fit(X[:200]) for choice in (False, True)
        )

        assert not np.array_equal(once.outlier_score(X), twice.outlier_score(X))


class TestDTEIG:
    def test_score_is_near_the_posterior_scale(self, scale_detector):
        found = scale_detector.outlier_score(NOISY)
        # The scale b that minimises mean(b / variance) - shape * log(b).
        expected = (N_COLUMNS / 2 - 1) / (compute_posterior(NOISY) @ (1 / VARIANCES))
        is_noisy = expected > 0.05

        assert np.corrcoef(np.log(found[is_noisy]), np.log(expected[is_noisy]))[0, 1] > 0.8
        assert np.abs(np.log(found[is_noisy] / expected[is_noisy])).mean() < 1

    def test_score_grows_with_noise(self, scale_detector):
        medians = [np.median(scale_detector.outlier_score(add_noise(time))) for time in NOISE_TIMES]

        assert (np.diff(medians) > 0).all()
        assert medians[-1] > 10 * medians[0]

    @pytest.mark.parametrize("n_features_encoded", [3, 4, 50])
    @pytest.mark.parametrize("time", [10, 399])
    def test_loss_is_minimal_at_the_expected_scale(self, n_features_encoded, time):
        network = ScaleEstimator(n_features_encoded, raw_output=False).double()

        def loss(root):
            return float(network.compute_output_loss(torch.tensor([[root]]), torch.tensor([time])))

        root = minimize_scalar(loss, bounds=(1e-4, 10), method="bounded").x
        assert root**2 == pytest.approx(
            (n_features_encoded / 2 - 1) * VARIANCES[time], rel=0.01, abs=2e-5
        )

    def test_raw_output_squared_is_the_scale(self):
        scale = DTEIG(epochs=2).fit(X[:200]).outlier_score(X)
        root = DTEIG(epochs=2, raw_output=True).fit(X[:200]).outlier_score(X)

        assert root**2 == pytest.approx(scale, rel=1e-5)
        assert not np.array_equal(root, scale)

    @pytest.mark.parametrize("n_columns", [1, 2])
    def test_fewer_than_three_columns_raise(self, n_columns):
        with pytest.raises(TableError, match=f"{n_columns} encoded.* needs at least 3.* DTEC"):
            DTEIG(epochs=1).fit(X[:50, :n_columns])

    def test_three_columns_are_accepted(self):
        scores = DTEIG(epochs=2).fit(X[:200, :3]).outlier_score(X[:, :3])

        assert np.isfinite(scores).all()


class TestShared:
    def test_variances_follow_a_linear_schedule(self):
        found = BinEstimator(3, softmax_twice=False).variances.numpy()

        assert np.allclose(found, VARIANCES, atol=1e-6)
        assert found[-1] == pytest.approx(0.868, abs=0.001)

    @pytest.mark.parametrize("share", [0.1, 0.4, 0.5])
    def test_dropout_keeps_the_mean(self, share):
        values = torch.ones(1000, 256, requires_grad=True)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            dropped = Dropout(share)(values)
            other = Dropout(share)(values)
        dropped.sum().backward()

        assert float((dropped == 0).float().mean()) == pytest.approx(share, abs=0.005)
        assert float(dropped.detach().mean()) == pytest.approx(1, abs=0.01)
        assert torch.equal(values.grad, dropped)
        # Masks are independent between calls and between neighbouring values.
        both = ((dropped == 0) & (other == 0)).float().mean()
        neighbours = ((dropped[:, 1:] == 0) & (dropped[:, :-1] == 0)).float().mean()
        assert [float(both), float(neighbours)] == pytest.approx([share**2] * 2, abs=0.005)

    def test_dropout_is_off_in_evaluation(self):
        values = torch.ones(3, 4)

        assert Dropout(0.5).eval()(values) is values

    @pytest.mark.parametrize(
        ("wrong", "name"),
        [(DTEC(softmax_twice=1), "DTEC: softmax_twice=1"), (DTEIG(raw_output=None), "raw_output=")],
    )
    def test_non_boolean_options_raise(self, wrong, name):
        with pytest.raises(ParameterError, match=name):
            wrong.fit(X[:50])
