"""DAGMM: the mixture is a mixture, both networks learn, and the published defect is an option."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.metrics import roc_auc_score
from torch import nn

from altbi.errors import ParameterError
from altbi_bench.baselines.dagmm import DAGMM, energy, errors, moments

QUICK = {"epochs": 60, "batch_size": 64, "learning_rate": 0.01}


def rows_on_a_line(n_rows=300, n_outliers=15, n_columns=8):
    """Give rows whose cells are all alike; in outliers half of them have the other sign."""
    rng = np.random.default_rng(0)
    place = rng.uniform(1, 2, (n_rows, 1)) * rng.choice([-1, 1], (n_rows, 1))
    rows = place + 0.1 * rng.normal(size=(n_rows, n_columns))
    signs = np.repeat([[1, -1]], n_columns // 2, axis=1).repeat(n_outliers, axis=0)
    rows[:n_outliers] *= rng.permuted(signs, axis=1)
    return rows, np.arange(n_rows) < n_outliers


X, is_outlier = rows_on_a_line()


def standardised(rows):
    return torch.from_numpy((rows - rows.mean(0)) / rows.std(0)).float()


def some_codes(n_rows=40):
    rng = np.random.default_rng(1)
    shares = rng.dirichlet(np.ones(4), size=n_rows)
    return rng.normal(size=(n_rows, 3)) @ rng.normal(size=(3, 3)), shares


@pytest.fixture(scope="module")
def fitted():
    return DAGMM(**QUICK).fit(X)


@pytest.fixture(scope="module")
def untrained():
    return DAGMM(untrained=True).fit(X)


def test_training_finds_rows_that_leave_the_line(fitted, untrained):
    assert roc_auc_score(is_outlier, fitted.outlier_score(X)) > 0.95
    assert roc_auc_score(is_outlier, untrained.outlier_score(X)) < 0.8


def test_training_learns_to_rebuild_the_rows(fitted):
    rows = standardised(X)
    rebuilt = fitted.network_.codes(rows)[0]

    assert (rows - rebuilt)[~is_outlier].square().mean() < 0.75
    assert fitted.history_[-1] < 0.01 * fitted.history_[0]


def test_training_learns_to_assign(fitted):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first = nn.utils.parameters_to_vector(fitted._build_network(8).estimator.parameters())
    learned = nn.utils.parameters_to_vector(fitted.network_.estimator.parameters())

    assert (learned - first).abs().max() > 0.1


def test_the_loss_has_an_error_an_energy_and_inverse_variances():
    rows = standardised(X)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = DAGMM()._build_network(8).eval()  # no dropout, which would be another loss
        rebuilt, codes, shares = (part.detach() for part in network.codes(rows))
        (loss,) = DAGMM(epochs=1, batch_size=len(X))._epochs(network, rows)

    mixture = moments(codes, shares)
    inverse_variances = sum(1 / covariance[j, j] for covariance in mixture[2] for j in range(3))
    error = ((rows - rebuilt) ** 2).mean()
    expected = error + 0.1 * energy(codes, mixture).mean() + 0.005 * inverse_variances
    assert loss == pytest.approx(float(expected), rel=1e-6)


def test_the_energy_teaches_the_autoencoder_too():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = DAGMM()._build_network(8)
        _, codes, shares = network.codes(standardised(X))

    energy(codes, moments(codes, shares)).mean().backward()

    assert all(parameter.grad.abs().max() > 0 for parameter in network.parameters())


def test_moments_are_weighted_means_and_covariances():
    codes, shares = some_codes()
    found = moments(torch.from_numpy(codes), torch.from_numpy(shares))

    assert np.allclose(found[0], shares.mean(0))
    for k in range(4):
        assert np.allclose(found[1][k], np.average(codes, axis=0, weights=shares[:, k]))
        expected = np.cov(codes.T, aweights=shares[:, k], ddof=0) + 1e-6 * np.eye(3)
        assert np.allclose(found[2][k], expected, rtol=1e-9, atol=0)


def test_the_energy_is_the_negative_log_density_of_the_mixture():
    codes, shares = some_codes()
    mixture = moments(torch.from_numpy(codes), torch.from_numpy(shares))
    log_densities = [
        np.log(weight) + multivariate_normal(mean, covariance).logpdf(codes)
        for weight, mean, covariance in zip(*(part.numpy() for part in mixture), strict=True)
    ]

    found = energy(torch.from_numpy(codes), mixture)

    assert np.allclose(found, -logsumexp(log_densities, axis=0), rtol=1e-9)


def test_codes_that_are_all_equal_have_an_energy():
    codes = torch.ones(5, 3, dtype=torch.double, requires_grad=True)
    shares = torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=torch.double).expand(5, 4)

    found = energy(codes, moments(codes, shares))
    found.sum().backward()

    assert found.isfinite().all()
    assert codes.grad.isfinite().all()


def test_errors_are_relative_length_and_cosine():
    rows, rebuilt = torch.tensor([[3.0, 4.0]]), torch.tensor([[4.0, 3.0]])

    assert torch.allclose(errors(rows, rebuilt), torch.tensor([[2**0.5 / 5, 24 / 25]]))
    assert torch.equal(errors(0 * rows, 0 * rows), torch.zeros(1, 2))
    assert errors(0 * rows, rebuilt).isfinite().all()


def test_scores_come_from_the_moments_of_all_training_rows(fitted):
    _, codes, shares = (part.numpy() for part in fitted.network_.codes(standardised(X)))
    network = fitted.network_

    assert np.allclose(network.weight, shares.mean(0), rtol=1e-3)
    for k in range(4):
        expected = np.cov(codes.T, aweights=shares[:, k], ddof=0)
        assert np.allclose(network.covariance[k], expected, rtol=1e-2, atol=1e-5)


def test_a_long_training_sample_is_settled_in_blocks(untrained):
    once = [buffer.clone() for buffer in untrained.network_.buffers()]
    network = untrained._build_network(8).eval()
    network.load_state_dict(untrained.network_.state_dict())
    network.block_rows = 7

    network.store_moments(standardised(X))

    for before, after in zip(once, network.buffers(), strict=True):
        assert torch.allclose(before, after, rtol=1e-3, atol=1e-6)


def test_untrained_keeps_the_first_weights_whatever_the_epochs(untrained):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first = untrained._build_network(8)
    longer = DAGMM(untrained=True, epochs=3000).fit(X)

    assert untrained.history_ == []
    for before, after in zip(first.parameters(), untrained.network_.parameters(), strict=True):
        assert torch.equal(before, after)
    assert np.array_equal(longer.outlier_score(X), untrained.outlier_score(X))
    # the Gaussians are those of the rows, not the ones a network begins with
    assert not torch.allclose(untrained.network_.mean, first.mean)


def test_dropout_is_off_when_scoring(fitted):
    assert not any(module.training for module in fitted.network_.modules())
    assert any(isinstance(module, nn.Dropout) for module in fitted.network_.modules())


@pytest.mark.parametrize("rows", [np.zeros((6, 3)), np.tile(X[:2], (5, 1)), X[:2, :1]])
def test_copies_and_constants_are_borne(rows):
    scores = DAGMM(epochs=3).fit(rows).outlier_score(rows)

    assert np.isfinite(scores).all()


def test_a_wrong_option_is_refused():
    with pytest.raises(ParameterError, match="DAGMM: untrained=2, but expected True or False"):
        DAGMM(untrained=2).fit(X)
