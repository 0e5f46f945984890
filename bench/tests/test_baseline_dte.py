"""Diffusion time estimation: both networks come to tell what the Bayes rule tells."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal
from torch.nn import functional

from altbi.errors import ParameterError, TableError
from altbi_bench.baselines.dte import DTEC, DTEIG, TIMES, BinEstimator, Dropout, ScaleEstimator

VARIANCES = 1 - np.cumprod(1 - np.linspace(1e-4, 1e-2, 400))
N_COLUMNS = 8


def standardised(X):
    return (X - X.mean(0)) / X.std(0)


def near_a_plane(n_rows=2000):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n_rows, 2)) @ rng.normal(size=(2, N_COLUMNS))
    return standardised(rows + 0.05 * rng.normal(size=rows.shape))


X = near_a_plane()


def noisy(time, n_rows=300):
    rng = np.random.default_rng(time)
    return X[:n_rows] + np.sqrt(VARIANCES[time]) * rng.normal(size=(n_rows, N_COLUMNS))


def posterior(rows):
    """Probabilities of all times: normal rows with noise are normal rows."""
    covariance = np.cov(X.T, bias=True)
    logs = [
        multivariate_normal.logpdf(rows, cov=covariance + variance * np.eye(N_COLUMNS))
        for variance in VARIANCES
    ]
    shares = np.exp(logs - np.max(logs, axis=0))
    return (shares / shares.sum(0)).T


LEVELS = (0, 50, 120, 200, 300, 399)
NOISY = np.vstack([noisy(time) for time in LEVELS])


@pytest.fixture(scope="module")
def by_bins():
    return DTEC(epochs=20, learning_rate=1e-3).fit(X)


@pytest.fixture(scope="module")
def by_scale():
    return DTEIG(epochs=20, learning_rate=1e-3).fit(X)


class TestDTEC:
    def test_its_mean_bin_is_that_of_the_bayes_rule(self, by_bins):
        found = by_bins.outlier_score(NOISY)
        expected = posterior(NOISY) @ (np.arange(TIMES) * 7 // TIMES)

        assert np.corrcoef(found, expected)[0, 1] > 0.9
        assert np.abs(found - expected).mean() < 0.6

    def test_more_noise_gives_a_higher_score(self, by_bins):
        means = [by_bins.outlier_score(noisy(time)).mean() for time in LEVELS]

        assert (np.diff(means) > 0.2).all()

    def test_its_bins_begin_at_these_times(self):
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

    def test_far_rows_do_not_tie(self, by_bins):
        far = by_bins.network_(torch.full((1, N_COLUMNS), 5.0) * torch.tensor([[1.0], [1.2]]))

        assert far[1] > far[0] > 5

    def test_softmax_twice_is_the_published_loss(self):
        outputs = torch.randn(9, 7, generator=torch.Generator().manual_seed(0))
        times = torch.arange(9) * 40
        once = BinEstimator(3, softmax_twice=False).compute_output_loss(outputs, times)
        twice = BinEstimator(3, softmax_twice=True).compute_output_loss(outputs, times)
        bins = times * 7 // 400

        assert torch.allclose(once, functional.cross_entropy(outputs, bins))
        assert torch.allclose(twice, functional.cross_entropy(outputs.softmax(1), bins))

    def test_softmax_twice_trains_otherwise(self):
        once, twice = (
            DTEC(epochs=2, softmax_twice=choice).fit(X[:200]) for choice in (False, True)
        )

        assert not np.array_equal(once.outlier_score(X), twice.outlier_score(X))


class TestDTEIG:
    def test_its_scale_is_that_of_the_bayes_rule(self, by_scale):
        found = by_scale.outlier_score(NOISY)
        # the scale b with the least mean of b / variance - shape log b
        expected = (N_COLUMNS / 2 - 1) / (posterior(NOISY) @ (1 / VARIANCES))
        much = expected > 0.05

        assert np.corrcoef(np.log(found[much]), np.log(expected[much]))[0, 1] > 0.8
        assert np.abs(np.log(found[much] / expected[much])).mean() < 1

    def test_more_noise_gives_a_higher_score(self, by_scale):
        medians = [np.median(by_scale.outlier_score(noisy(time))) for time in LEVELS]

        assert (np.diff(medians) > 0).all()
        assert medians[-1] > 10 * medians[0]

    @pytest.mark.parametrize("n_features_encoded", [3, 4, 50])
    @pytest.mark.parametrize("time", [10, 399])
    def test_its_loss_is_least_at_the_mode_of_the_variance(self, n_features_encoded, time):
        network = ScaleEstimator(n_features_encoded, raw_output=False).double()

        def loss(root):
            return float(network.compute_output_loss(torch.tensor([[root]]), torch.tensor([time])))

        root = minimize_scalar(loss, bounds=(1e-4, 10), method="bounded").x
        assert root**2 == pytest.approx(
            (n_features_encoded / 2 - 1) * VARIANCES[time], rel=0.01, abs=2e-5
        )

    def test_the_raw_output_is_a_root_of_the_scale(self):
        scale = DTEIG(epochs=2).fit(X[:200]).outlier_score(X)
        root = DTEIG(epochs=2, raw_output=True).fit(X[:200]).outlier_score(X)

        assert root**2 == pytest.approx(scale, rel=1e-5)
        assert not np.array_equal(root, scale)

    @pytest.mark.parametrize("n_columns", [1, 2])
    def test_fewer_than_three_columns_are_refused(self, n_columns):
        with pytest.raises(TableError, match=f"{n_columns} encoded.* needs at least 3.* DTEC"):
            DTEIG(epochs=1).fit(X[:50, :n_columns])

    def test_three_columns_are_enough(self):
        scores = DTEIG(epochs=2).fit(X[:200, :3]).outlier_score(X[:, :3])

        assert np.isfinite(scores).all()


class TestShared:
    def test_variances_are_those_of_a_linear_schedule(self):
        found = BinEstimator(3, softmax_twice=False).variances.numpy()

        assert np.allclose(found, VARIANCES, atol=1e-6)
        assert found[-1] == pytest.approx(0.868, abs=0.001)

    @pytest.mark.parametrize("share", [0.1, 0.4, 0.5])
    def test_dropout_drops_its_share_and_keeps_the_mean(self, share):
        values = torch.ones(1000, 256, requires_grad=True)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            dropped = Dropout(share)(values)
            other = Dropout(share)(values)
        dropped.sum().backward()

        assert float((dropped == 0).float().mean()) == pytest.approx(share, abs=0.005)
        assert float(dropped.detach().mean()) == pytest.approx(1, abs=0.01)
        assert torch.equal(values.grad, dropped)
        # where one drops tells nothing of where the next does, nor of the value beside
        both = ((dropped == 0) & (other == 0)).float().mean()
        beside = ((dropped[:, 1:] == 0) & (dropped[:, :-1] == 0)).float().mean()
        assert [float(both), float(beside)] == pytest.approx([share**2] * 2, abs=0.005)

    def test_dropout_does_nothing_in_evaluation(self):
        values = torch.ones(3, 4)

        assert Dropout(0.5).eval()(values) is values

    @pytest.mark.parametrize(
        ("wrong", "name"),
        [(DTEC(softmax_twice=1), "DTEC: softmax_twice=1"), (DTEIG(raw_output=None), "raw_output=")],
    )
    def test_wrong_choices_are_refused(self, wrong, name):
        with pytest.raises(ParameterError, match=name):
            wrong.fit(X[:50])
