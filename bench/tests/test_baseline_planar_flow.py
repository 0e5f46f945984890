"""Tests of the planar flow: determinant, normalised density and training."""

import math

import numpy as np
import pytest
import torch
from sklearn.base import clone

from altbi.errors import ParameterError
from altbi_bench.baselines.planar_flow import MIN_PRODUCT, PlanarFlow, PlanarLayers

pytestmark = pytest.mark.slow


def sample_two_clusters(n_rows=600):
    rng = np.random.default_rng(0)
    centres = np.where(np.arange(n_rows) % 2, -3.0, 3.0)
    return (centres + 0.3 * rng.normal(size=n_rows))[:, None]


def build_random_flow(n_features_encoded, *, unfolded=True):
    """Return a flow with large random weights in double precision."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        network = PlanarLayers(n_features_encoded, log_det_only=False).double()
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.normal_()
    if unfolded:
        network.project_to_invertible()
    return network.requires_grad_(requires_grad=False)


def sample_rows_near_a_line(n_rows=600):
    rng = np.random.default_rng(1)
    along = rng.normal(size=(n_rows, 1))
    return along @ np.ones((1, 2)) + 0.1 * rng.normal(size=(n_rows, 2))


@pytest.fixture(scope="module")
def trained():
    return PlanarFlow(epochs=100).fit(sample_rows_near_a_line())


def integrate_density(network):
    points = torch.linspace(-30, 30, 60_001, dtype=network.shift.dtype)[:, None]
    density = torch.exp(-network.negative_log_density(points))
    return float(torch.trapezoid(density, points[:, 0]))


class TestTraining:
    def test_outlier_is_less_likely_than_inlier(self, trained):
        on, off = trained.outlier_score([[1.5, 1.5], [1.5, -1.5]])

        # The untrained flow is a normal distribution, under which both are equally likely.
        assert off > on + 10

    def test_likelihood_exceeds_that_of_a_normal_distribution(self, trained):
        X = sample_rows_near_a_line()
        normal = math.log(2 * math.pi * math.e)
        truth = normal + 0.5 * np.linalg.slogdet(np.corrcoef(X.T))[1]

        assert truth - 0.1 < trained.outlier_score(X).mean() < normal - 0.6

    def test_trained_flow_is_a_normalised_density(self):
        # Without unfolding, the density of two clusters integrates to about 3.
        X = sample_two_clusters()
        trained = PlanarFlow(epochs=40, learning_rate=0.02, random_state=1).fit(X)
        products = (trained.network_.across * trained.network_.along).sum(1)

        assert float(products.min()) == pytest.approx(MIN_PRODUCT, abs=1e-5)
        assert integrate_density(trained.network_) == pytest.approx(1, abs=0.01)
        assert trained.outlier_score([[0.0]])[0] > trained.outlier_score(X).max()


class TestMathematics:
    @pytest.mark.parametrize("n_features_encoded", [1, 4])
    def test_log_determinant_equals_autograd_jacobian(self, n_features_encoded):
        network = build_random_flow(n_features_encoded)
        rows = torch.from_numpy(np.random.default_rng(2).normal(size=(20, n_features_encoded)))
        found = network.transform(rows)[1]

        for row, log_det in zip(rows, found, strict=True):
            jacobian = torch.autograd.functional.jacobian(
                lambda r: network.transform(r[None])[0][0], row
            )
            assert float(torch.linalg.slogdet(jacobian)[1]) == pytest.approx(float(log_det))

    def test_fused_layers_equal_sequential_layers(self):
        network = build_random_flow(3)
        rows = np.random.default_rng(3).normal(size=(50, 3))
        across, along = network.across.numpy(), network.along.numpy()
        expected = rows.copy()
        for w, u, b in zip(across, along, network.shift.numpy(), strict=True):
            expected += np.tanh(expected @ w + b)[:, None] * u

        assert np.allclose(network.transform(torch.from_numpy(rows))[0].numpy(), expected)

    def test_random_flow_is_a_normalised_density(self):
        assert integrate_density(build_random_flow(1)) == pytest.approx(1, abs=1e-3)

    def test_unfolding_projects_only_non_invertible_layers(self):
        before, after = build_random_flow(3, unfolded=False), build_random_flow(3)
        old = (before.across * before.along).sum(1)
        new = (after.across * after.along).sum(1)
        moved = after.along - before.along
        is_folded = old < MIN_PRODUCT

        assert 0 < is_folded.sum() < len(is_folded)
        assert torch.equal(moved[~is_folded], torch.zeros_like(moved[~is_folded]))
        assert torch.allclose(new[is_folded], torch.full_like(new[is_folded], MIN_PRODUCT))
        # The projection onto a half-space is along its normal.
        cosines = torch.cosine_similarity(moved[is_folded], after.across[is_folded])
        assert torch.allclose(cosines, torch.ones_like(cosines))


class TestParameters:
    def test_log_det_only_scores_by_determinant(self):
        X = np.random.default_rng(4).normal(size=(100, 3)) ** 3
        both = PlanarFlow(epochs=3).fit(X)
        alone = clone(both).set_params(log_det_only=True).fit(X)
        rows = torch.from_numpy(((X - X.mean(0)) / X.std(0)).astype(np.float32))
        transformed, log_det = both.network_.transform(rows)
        base = -0.5 * transformed.square().sum(1).numpy() - 1.5 * math.log(2 * math.pi)

        assert alone.outlier_score(X) == pytest.approx(-log_det.numpy(), abs=1e-5)
        assert alone.outlier_score(X) - base == pytest.approx(both.outlier_score(X), abs=1e-4)

    def test_non_boolean_log_det_only_raises(self):
        with pytest.raises(ParameterError, match="PlanarFlow: log_det_only='yes'"):
            PlanarFlow(log_det_only="yes").fit(sample_two_clusters(10))

    def test_equal_rows_get_finite_scores(self):
        X = np.full((70, 2), 3.0)

        assert np.isfinite(PlanarFlow(epochs=20).fit(X).outlier_score(X)).all()
