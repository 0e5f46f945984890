"""Tests of DAGMM: its mixture, the training of both networks, and the option ``untrained``."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.metrics import roc_auc_score
from torch import nn

from altbi.errors import ParameterError
from altbi_bench.baselines.dagmm import DAGMM, energy, errors, moments

pytestmark = pytest.mark.slow

QUICK = {"epochs": 60, "batch_size": 64, "learning_rate": 0.01}


def sample_rows_near_a_line(n_rows=300, n_outliers=15, n_columns=8):
    """Return rows of nearly equal values; half of an outlier's values have the other sign."""
    rng = np.random.default_rng(0)
    common = rng.uniform(1, 2, (n_rows, 1)) * rng.choice([-1, 1], (n_rows, 1))
    rows = common + 0.1 * rng.normal(size=(n_rows, n_columns))
    signs = np.repeat([[1, -1]], n_columns // 2, axis=1).repeat(n_outliers, axis=0)
    rows[:n_outliers] *= rng.permuted(signs, axis=1)
    return rows, np.arange(n_rows) < n_outliers


X, is_outlier = sample_rows_near_a_line()


def standardise(rows):
    return torch.from_numpy((rows - rows.mean(0)) / rows.std(0)).float()


def sample_codes(n_rows=40):
    rng = np.random.default_rng(1)
    shares = rng.dirichlet(np.ones(4), size=n_rows)
    return rng.normal(size=(n_rows, 3)) @ rng.normal(size=(3, 3)), shares


@pytest.fixture(scope="module")
def fitted():
    return DAGMM(**QUICK).fit(X)


@pytest.fixture(scope="module")
def untrained():
    return DAGMM(untrained=True).fit(X)


def test_training_detects_outliers_off_the_line(fitted, untrained):
    assert roc_auc_score(is_outlier, fitted.outlier_score(X)) > 0.95
    assert roc_auc_score(is_outlier, untrained.outlier_score(X)) < 0.8


def test_training_lowers_reconstruction_error(fitted):
    rows = standardise(X)
    reconstructed = fitted.network_.codes(rows)[0]

    assert (rows - reconstructed)[~is_outlier].square().mean() < 0.75
    assert fitted.history_[-1] < 0.01 * fitted.history_[0]


def test_training_updates_the_estimation_network(fitted):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first = nn.utils.parameters_to_vector(fitted._build_network(8).estimator.parameters())
    learned = nn.utils.parameters_to_vector(fitted.network_.estimator.parameters())

    assert (learned - first).abs().max() > 0.1


def test_loss_sums_error_energy_and_inverse_variances():
    rows = standardise(X)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = DAGMM()._build_network(8).eval()  # dropout would change the loss
        rebuilt, codes, shares = (each.detach() for each in network.codes(rows))
        (loss,) = DAGMM(epochs=1, batch_size=len(X))._epochs(network, rows)

    mixture = moments(codes, shares)
    inverse_variances = sum(1 / covariance[j, j] for covariance in mixture[2] for j in range(3))
    error = ((rows - rebuilt) ** 2).mean()
    expected = error + 0.1 * energy(codes, mixture).mean() + 0.005 * inverse_variances
    assert loss == pytest.approx(float(expected), rel=1e-6)


def test_energy_has_gradients_for_all_parameters():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = DAGMM()._build_network(8)
        _, codes, shares = network.codes(standardise(X))

    energy(codes, moments(codes, shares)).mean().backward()

    assert all(parameter.grad.abs().max() > 0 for parameter in network.parameters())


def test_moments_are_weighted_means_and_covariances():
    codes, shares = sample_codes()
    found = moments(torch.from_numpy(codes), torch.from_numpy(shares))

    assert np.allclose(found[0], shares.mean(0))
    for k in range(4):
        assert np.allclose(found[1][k], np.average(codes, axis=0, weights=shares[:, k]))
        expected = np.cov(codes.T, aweights=shares[:, k], ddof=0) + 1e-6 * np.eye(3)
        assert np.allclose(found[2][k], expected, rtol=1e-9, atol=0)


def test_energy_is_negative_log_density_of_mixture():
    codes, shares = sample_codes()
    mixture = moments(torch.from_numpy(codes), torch.from_numpy(shares))
    log_densities = [
        np.log(weight) + multivariate_normal(mean, covariance).logpdf(codes)
        for weight, mean, covariance in zip(*(each.numpy() for each in mixture), strict=True)
    ]

    found = energy(torch.from_numpy(codes), mixture)

    assert np.allclose(found, -logsumexp(log_densities, axis=0), rtol=1e-9)


def test_equal_codes_have_finite_energy_and_gradient():
    codes = torch.ones(5, 3, dtype=torch.double, requires_grad=True)
    shares = torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=torch.double).expand(5, 4)

    found = energy(codes, moments(codes, shares))
    found.sum().backward()

    assert found.isfinite().all()
    assert codes.grad.isfinite().all()


def test_errors_are_relative_distance_and_cosine():
    rows, rebuilt = torch.tensor([[3.0, 4.0]]), torch.tensor([[4.0, 3.0]])

    assert torch.allclose(errors(rows, rebuilt), torch.tensor([[2**0.5 / 5, 24 / 25]]))
    assert torch.equal(errors(0 * rows, 0 * rows), torch.zeros(1, 2))
    assert errors(0 * rows, rebuilt).isfinite().all()


def test_scores_use_moments_of_all_training_rows(fitted):
    _, codes, shares = (each.numpy() for each in fitted.network_.codes(standardise(X)))
    network = fitted.network_

    assert np.allclose(network.weight, shares.mean(0), rtol=1e-3)
    for k in range(4):
        expected = np.cov(codes.T, aweights=shares[:, k], ddof=0)
        assert np.allclose(network.covariance[k], expected, rtol=1e-2, atol=1e-5)


def test_moments_do_not_depend_on_block_size(untrained):
    once = [buffer.clone() for buffer in untrained.network_.buffers()]
    network = untrained._build_network(8).eval()
    network.load_state_dict(untrained.network_.state_dict())
    network.block_rows = 7

    network.store_moments(standardise(X))

    for before, after in zip(once, network.buffers(), strict=True):
        assert torch.allclose(before, after, rtol=1e-3, atol=1e-6)


def test_untrained_keeps_initial_weights_for_any_epochs(untrained):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first = untrained._build_network(8)
    longer = DAGMM(untrained=True, epochs=3000).fit(X)

    assert untrained.history_ == []
    for before, after in zip(first.parameters(), untrained.network_.parameters(), strict=True):
        assert torch.equal(before, after)
    assert np.array_equal(longer.outlier_score(X), untrained.outlier_score(X))
    # The Gaussians are estimated from the rows.
    assert not torch.allclose(untrained.network_.mean, first.mean)


def test_dropout_is_off_when_scoring(fitted):
    assert not any(module.training for module in fitted.network_.modules())
    assert any(isinstance(module, nn.Dropout) for module in fitted.network_.modules())


@pytest.mark.parametrize("rows", [np.zeros((6, 3)), np.tile(X[:2], (5, 1)), X[:2, :1]])
def test_duplicates_and_constants_get_finite_scores(rows):
    scores = DAGMM(epochs=3).fit(rows).outlier_score(rows)

    assert np.isfinite(scores).all()


def test_non_boolean_untrained_raises():
    with pytest.raises(ParameterError, match="DAGMM: untrained=2, but expected True or False"):
        DAGMM(untrained=2).fit(X)
