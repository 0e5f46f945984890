"""Tests of GOAD: recognition of transformations, losses and scores."""

import math

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from torch.nn import functional

from altbi.errors import ParameterError
from altbi_bench.baselines.goad import GOAD, Recogniser, closeness_to, triplet_loss

pytestmark = pytest.mark.slow

X = np.random.default_rng(0).exponential(size=(320, 3)) ** 2


def standardise(fitted, rows=X):
    encoded = fitted._standardize(rows)
    return torch.from_numpy(encoded)


def embed_with_numpy(network, rows):
    """Apply the transformations and then the map in double precision."""
    transformed = np.einsum("nd,dmk->nmk", rows.double(), network.matrices.double())
    mapped = transformed @ network.map.weight.detach().double().numpy().T
    return np.where(mapped > 0, mapped, 0.2 * mapped)


@torch.no_grad()
def compute_recognition_loss(network, rows):
    guesses = network.head(network.embed(rows)).flatten(0, 1)
    return float(functional.cross_entropy(guesses, torch.arange(256).repeat(len(rows))))


@pytest.fixture(autouse=True)
def seed_torch():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.fixture(scope="module")
def fitted():
    return GOAD().fit(X)


def test_training_recognises_transformations_better_than_chance():
    trained = GOAD(epochs=8, learning_rate=0.02).fit(X)
    rows = standardise(trained)

    # The least mean cross-entropy of a network without information.
    chance = math.log(256)
    assert compute_recognition_loss(Recogniser(3), rows) > chance
    assert compute_recognition_loss(trained.network_, rows) < chance - 0.05
    assert trained.history_[-1] < trained.history_[0] - 0.1


def test_centres_are_means_under_the_final_network(fitted):
    means = embed_with_numpy(fitted.network_, standardise(fitted)).mean(0)

    np.testing.assert_allclose(fitted.network_.centres, means, rtol=1e-4, atol=1e-5)
    # Equal centres would not distinguish transformations.
    assert means.std(0).min() > 0.05


def test_score_is_negative_log_probability_of_true_transformations(fitted):
    embedded = embed_with_numpy(fitted.network_, standardise(fitted)[:40])
    centres = fitted.network_.centres.double().numpy()
    distances = ((embedded[:, :, None] - centres) ** 2).sum(-1)
    expected = -np.diagonal(log_softmax(-distances, axis=-1), axis1=1, axis2=2).sum(-1)

    np.testing.assert_allclose(fitted.outlier_score(X[:40]), expected, rtol=1e-4)


def test_embedding_is_transformation_followed_by_map():
    network, rows = Recogniser(3), torch.randn(7, 3)

    np.testing.assert_allclose(
        network.embed(rows).detach(), embed_with_numpy(network, rows), rtol=1e-4, atol=1e-5
    )


def test_closeness_orders_centres_by_distance():
    embedded, centres = torch.randn(5, 4, 8), torch.randn(6, 8)
    distances = torch.cdist(embedded, centres.expand(5, 6, 8)) ** 2

    same_for_all = closeness_to(centres, embedded) + distances

    torch.testing.assert_close(same_for_all, same_for_all[..., :1].expand(5, 4, 6))


def test_triplet_loss_uses_the_nearest_other_centre():
    embedded, centres = torch.randn(5, 6, 8), torch.randn(6, 8)
    margins = []
    for row in embedded.numpy():
        for number, point in enumerate(row):
            distances = ((point - centres.numpy()) ** 2).sum(-1)
            margins.append(max(distances[number] + 1 - np.delete(distances, number).min(), 0))

    assert float(triplet_loss(embedded, centres)) == pytest.approx(np.mean(margins), rel=1e-4)


def test_triplet_loss_gradient_includes_the_centres():
    embedded = torch.randn(4, 6, 8, requires_grad=True, dtype=torch.float64)

    assert torch.autograd.gradcheck(lambda points: triplet_loss(points, points.mean(0)), embedded)


def test_running_centres_average_over_training(fitted):
    running = GOAD(running_centres=True).fit(X)
    constant = GOAD(running_centres=True, learning_rate=1e-12).fit(X)
    rows = standardise(constant)

    assert not np.allclose(running.network_.centres, fitted.network_.centres, atol=0.01)
    assert torch.equal(running.network_.map.weight, fitted.network_.map.weight)
    # 320 rows are five complete batches. With constant weights both kinds of centres are equal.
    means = embed_with_numpy(constant.network_, rows).mean(0)
    np.testing.assert_allclose(constant.network_.centres, means, rtol=1e-4, atol=1e-5)


def test_distant_and_wide_rows_get_finite_scores():
    wide = np.random.default_rng(1).normal(size=(70, 300))

    fitted = GOAD().fit(wide)

    scores = fitted.outlier_score(np.vstack([wide, 1e6 * wide]))

    assert np.isfinite(scores).all()


def test_non_boolean_running_centres_raises():
    with pytest.raises(ParameterError, match="GOAD: running_centres='yes', but expected True"):
        GOAD(running_centres="yes").fit(X)


def test_loss_is_recognition_plus_weighted_triplet_loss():
    detector = GOAD(batch_size=64, learning_rate=1e-12)
    rows = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    network = detector._build_network(4)
    with torch.random.fork_rng():
        (loss,) = detector._train_network(network, rows)

    embedded = network.embed(rows).detach()
    guesses = network.head(embedded).detach().double().log_softmax(-1)
    cross_entropy = -guesses.diagonal(dim1=1, dim2=2).mean()
    distances = (embedded[:, :, None] - embedded.mean(0)).square().sum(-1)
    own = distances.diagonal(dim1=1, dim2=2)
    others = distances + torch.diag(torch.full((256,), torch.inf))
    triplets = (own + 1 - others.min(-1).values).clamp(min=0).mean()
    assert loss == pytest.approx(float(cross_entropy + 0.1 * triplets), rel=1e-4)
