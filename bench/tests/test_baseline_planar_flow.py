"""Planar flow: its determinant is the map's, what it gives is a density, and training fits it."""

import math

import numpy as np
import pytest
import torch
from sklearn.base import clone

from altbi.errors import ParameterError
from altbi_bench.baselines.planar_flow import MIN_PRODUCT, PlanarFlow, PlanarLayers


def two_groups(n_rows=600):
    rng = np.random.default_rng(0)
    centres = np.where(np.arange(n_rows) % 2, -3.0, 3.0)
    return (centres + 0.3 * rng.normal(size=n_rows))[:, None]


def strong_bends(n_features_encoded, *, unfolded=True):
    """A flow that bends much, in double precision."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        network = PlanarLayers(n_features_encoded, log_det_only=False).double()
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.normal_()
    if unfolded:
        network.project_to_invertible()
    return network.requires_grad_(requires_grad=False)


def near_a_line(n_rows=600):
    rng = np.random.default_rng(1)
    along = rng.normal(size=(n_rows, 1))
    return along @ np.ones((1, 2)) + 0.1 * rng.normal(size=(n_rows, 2))


@pytest.fixture(scope="module")
def trained():
    return PlanarFlow(epochs=100).fit(near_a_line())


def total_density(network):
    places = torch.linspace(-30, 30, 60_001, dtype=network.shift.dtype)[:, None]
    density = torch.exp(-network.negative_log_density(places))
    return float(torch.trapezoid(density, places[:, 0]))


class TestTraining:
    def test_a_row_off_the_line_becomes_less_likely_than_one_on_it(self, trained):
        on, off = trained.outlier_score([[1.5, 1.5], [1.5, -1.5]])

        # untrained, the flow is a normal distribution, and both are as likely
        assert off > on + 10

    def test_the_rows_become_likelier_than_under_a_normal_distribution(self, trained):
        X = near_a_line()
        normal = math.log(2 * math.pi * math.e)
        truth = normal + 0.5 * np.linalg.slogdet(np.corrcoef(X.T))[1]

        assert truth - 0.1 < trained.outlier_score(X).mean() < normal - 0.6

    def test_what_it_learns_is_a_density_even_if_rows_tempt_it_to_fold(self):
        # the space between two groups is to vanish; without unfolding the total is about 3
        X = two_groups()
        trained = PlanarFlow(epochs=40, learning_rate=0.02, random_state=1).fit(X)
        products = (trained.network_.across * trained.network_.along).sum(1)

        assert float(products.min()) == pytest.approx(MIN_PRODUCT, abs=1e-5)
        assert total_density(trained.network_) == pytest.approx(1, abs=0.01)
        assert trained.outlier_score([[0.0]])[0] > trained.outlier_score(X).max()


class TestMathematics:
    @pytest.mark.parametrize("n_features_encoded", [1, 4])
    def test_the_determinant_is_that_of_the_jacobian(self, n_features_encoded):
        network = strong_bends(n_features_encoded)
        rows = torch.from_numpy(np.random.default_rng(2).normal(size=(20, n_features_encoded)))
        found = network.transform(rows)[1]

        for row, log_det in zip(rows, found, strict=True):
            jacobian = torch.autograd.functional.jacobian(
                lambda r: network.transform(r[None])[0][0], row
            )
            assert float(torch.linalg.slogdet(jacobian)[1]) == pytest.approx(float(log_det))

    def test_all_layers_at_once_are_layer_after_layer(self):
        network = strong_bends(3)
        rows = np.random.default_rng(3).normal(size=(50, 3))
        across, along = network.across.numpy(), network.along.numpy()
        expected = rows.copy()
        for w, u, b in zip(across, along, network.shift.numpy(), strict=True):
            expected += np.tanh(expected @ w + b)[:, None] * u

        assert np.allclose(network.transform(torch.from_numpy(rows))[0].numpy(), expected)

    def test_strong_bends_give_a_density_too(self):
        assert total_density(strong_bends(1)) == pytest.approx(1, abs=1e-3)

    def test_unfolding_moves_only_what_folds_and_as_little_as_it_can(self):
        before, after = strong_bends(3, unfolded=False), strong_bends(3)
        old = (before.across * before.along).sum(1)
        new = (after.across * after.along).sum(1)
        moved = after.along - before.along
        folds = old < MIN_PRODUCT

        assert 0 < folds.sum() < len(folds)
        assert torch.equal(moved[~folds], torch.zeros_like(moved[~folds]))
        assert torch.allclose(new[folds], torch.full_like(new[folds], MIN_PRODUCT))
        # the nearest point of a half-space lies along its normal
        cosines = torch.cosine_similarity(moved[folds], after.across[folds])
        assert torch.allclose(cosines, torch.ones_like(cosines))


class TestParameters:
    def test_the_determinant_alone_scores_if_asked(self):
        X = np.random.default_rng(4).normal(size=(100, 3)) ** 3
        both = PlanarFlow(epochs=3).fit(X)
        alone = clone(both).set_params(log_det_only=True).fit(X)
        rows = torch.from_numpy(((X - X.mean(0)) / X.std(0)).astype(np.float32))
        compress_tails, log_det = both.network_.transform(rows)
        base = -0.5 * compress_tails.square().sum(1).numpy() - 1.5 * math.log(2 * math.pi)

        assert alone.outlier_score(X) == pytest.approx(-log_det.numpy(), abs=1e-5)
        assert alone.outlier_score(X) - base == pytest.approx(both.outlier_score(X), abs=1e-4)

    def test_a_wrong_choice_is_refused(self):
        with pytest.raises(ParameterError, match="PlanarFlow: log_det_only='yes'"):
            PlanarFlow(log_det_only="yes").fit(two_groups(10))

    def test_rows_that_are_all_the_same_are_borne(self):
        X = np.full((70, 2), 3.0)

        assert np.isfinite(PlanarFlow(epochs=20).fit(X).outlier_score(X)).all()
