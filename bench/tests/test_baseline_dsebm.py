"""Tests of DSEBM on Gaussian rows, for which the optimal energy is known."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from altbi.errors import ParameterError
from altbi_bench.baselines.dsebm import DSEBM, Energy

pytestmark = pytest.mark.slow

X = np.random.default_rng(0).multivariate_normal([5, -3], [[1, 0.9], [0.9, 1]], size=1000)
ENOUGH = {"epochs": 60, "learning_rate": 0.01}


def standardise(fitted, rows=X):
    encoded = fitted._standardize(rows)
    return torch.from_numpy(encoded)


def compute_shrinkage(rows, noise):
    """Return the matrix of the optimal linear denoiser of Gaussian rows."""
    spread = np.cov(rows.numpy().T)
    return np.linalg.solve(spread + noise**2 * np.eye(len(spread)), spread)


@pytest.fixture(scope="module")
def fitted():
    return DSEBM(**ENOUGH).fit(X)


@pytest.fixture
def energy():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = Energy(4)
        torch.nn.init.normal_(network.point)
        return network.double()


@pytest.mark.parametrize("noise", [1.0, 0.3])
def test_denoising_is_near_the_optimum(noise):
    trained = DSEBM(noise=noise, **ENOUGH).fit(X)
    rows = standardise(trained)
    best = compute_shrinkage(rows, noise)
    least_loss = np.trace(np.cov(rows.numpy().T) @ (np.eye(2) - best))

    removed = trained.network_.reconstruct(rows).numpy()

    assert np.abs(removed - rows.numpy() @ best).mean() < 0.1
    assert np.mean(trained.history_[-10:]) == pytest.approx(least_loss, rel=0.1)


def test_scores_rank_rows_by_gaussian_energy(fitted):
    rows = standardise(fitted).numpy()
    stiffness = np.eye(2) - compute_shrinkage(standardise(fitted), 1.0)
    known = np.einsum("nd,de,ne->n", rows, stiffness, rows)

    assert spearmanr(fitted.outlier_score(X), known).statistic > 0.97


def test_row_against_the_correlation_has_higher_energy(fitted):
    along, across = fitted.outlier_score([[6.5, -1.5], [6.5, -4.5]])

    # Both have the same distance to the mean. The denoiser keeps 1.9 / 2.9 and 0.1 / 1.1.
    assert across - along == pytest.approx(1.5**2 * (1.9 / 2.9 - 0.1 / 1.1), rel=0.1)


def test_gradient_descent_on_energy_reaches_the_mean(fitted):
    rows = standardise(fitted)[:50]

    for _ in range(200):
        rows = fitted.network_.reconstruct(rows)

    assert rows.abs().max() < 0.3


def test_closed_form_gradient_equals_autograd(energy):
    rows = torch.linspace(-2, 2, 24, dtype=torch.float64).view(6, 4).requires_grad_()

    (gradient,) = torch.autograd.grad(energy(rows).sum(), rows)

    torch.testing.assert_close(energy.reconstruct(rows), rows - gradient)


def test_energy_is_quadratic_minus_softplus_layers(energy):
    rows = np.random.default_rng(1).normal(size=(6, 4))
    weights = {name: value.detach().numpy() for name, value in energy.named_parameters()}
    first = np.logaddexp(0, rows @ weights["first.weight"].T + weights["first.bias"])
    last = np.logaddexp(0, first @ weights["last.weight"].T + weights["last.bias"])
    known = 0.5 * ((rows - weights["point"]) ** 2).sum(1) - last.sum(1)

    np.testing.assert_allclose(energy(torch.from_numpy(rows)).detach(), known)


@pytest.mark.parametrize("noise", [0, -1, "much", float("nan")])
def test_non_positive_noise_raises(noise):
    with pytest.raises(ParameterError, match=r"DSEBM: noise=.*, but expected a number above 0"):
        DSEBM(noise=noise).fit(X)
