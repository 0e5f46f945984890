"""GOAD: transformations are recognised, and scores are what the method says."""

import math

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from torch.nn import functional

from altbi.errors import ParameterError
from altbi_bench.baselines.goad import GOAD, Recogniser, closeness_to, triplet_loss

X = np.random.default_rng(0).exponential(size=(320, 3)) ** 2


def standardised(fitted, rows=X):
    units = fitted._standardize(rows)
    return torch.from_numpy(units)


def embedded_by_numpy(network, rows):
    """Transform first, then map, in double precision."""
    transformed = np.einsum("nd,dmk->nmk", rows.double(), network.matrices.double())
    mapped = transformed @ network.map.weight.detach().double().numpy().T
    return np.where(mapped > 0, mapped, 0.2 * mapped)


@torch.no_grad()
def recognition(network, rows):
    guesses = network.head(network.embed(rows)).flatten(0, 1)
    return float(functional.cross_entropy(guesses, torch.arange(256).repeat(len(rows))))


@pytest.fixture(autouse=True)
def same_draws():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.fixture(scope="module")
def fitted():
    return GOAD().fit(X)


def test_training_recognises_transformations_better_than_guessing():
    trained = GOAD(epochs=8, learning_rate=0.02).fit(X)
    rows = standardised(trained)

    # whatever it guesses, a network that knows nothing pays at least this on average
    guessing = math.log(256)
    assert recognition(Recogniser(3), rows) > guessing
    assert recognition(trained.network_, rows) < guessing - 0.05
    assert trained.history_[-1] < trained.history_[0] - 0.1


def test_centres_are_the_means_under_the_final_network(fitted):
    means = embedded_by_numpy(fitted.network_, standardised(fitted)).mean(0)

    np.testing.assert_allclose(fitted.network_.centres, means, rtol=1e-4, atol=1e-5)
    # they differ: centres that are all the same would recognise nothing
    assert means.std(0).min() > 0.05


def test_the_score_is_the_surprise_at_the_true_transformations(fitted):
    embedded = embedded_by_numpy(fitted.network_, standardised(fitted)[:40])
    centres = fitted.network_.centres.double().numpy()
    distances = ((embedded[:, :, None] - centres) ** 2).sum(-1)
    surprise = -np.diagonal(log_softmax(-distances, axis=-1), axis1=1, axis2=2).sum(-1)

    np.testing.assert_allclose(fitted.outlier_score(X[:40]), surprise, rtol=1e-4)


def test_the_product_of_transformation_and_map_is_both_in_turn():
    network, rows = Recogniser(3), torch.randn(7, 3)

    np.testing.assert_allclose(
        network.embed(rows).detach(), embedded_by_numpy(network, rows), rtol=1e-4, atol=1e-5
    )


def test_closeness_orders_centres_by_distance():
    embedded, centres = torch.randn(5, 4, 8), torch.randn(6, 8)
    distances = torch.cdist(embedded, centres.expand(5, 6, 8)) ** 2

    same_for_all = closeness_to(centres, embedded) + distances

    torch.testing.assert_close(same_for_all, same_for_all[..., :1].expand(5, 4, 6))


def test_the_triplet_loss_takes_the_nearest_other_centre():
    embedded, centres = torch.randn(5, 6, 8), torch.randn(6, 8)
    lacks = []
    for row in embedded.numpy():
        for number, point in enumerate(row):
            distances = ((point - centres.numpy()) ** 2).sum(-1)
            lacks.append(max(distances[number] + 1 - np.delete(distances, number).min(), 0))

    assert float(triplet_loss(embedded, centres)) == pytest.approx(np.mean(lacks), rel=1e-4)


def test_the_triplet_loss_moves_points_and_centres():
    embedded = torch.randn(4, 6, 8, requires_grad=True, dtype=torch.float64)

    assert torch.autograd.gradcheck(lambda points: triplet_loss(points, points.mean(0)), embedded)


def test_running_centres_are_those_met_on_the_way(fitted):
    met = GOAD(running_centres=True).fit(X)
    unmoved = GOAD(running_centres=True, learning_rate=1e-12).fit(X)
    rows = standardised(unmoved)

    assert not np.allclose(met.network_.centres, fitted.network_.centres, atol=0.01)
    assert torch.equal(met.network_.map.weight, fitted.network_.map.weight)
    # 320 rows are five whole batches: when nothing moves, both kinds of centres are the same
    means = embedded_by_numpy(unmoved.network_, rows).mean(0)
    np.testing.assert_allclose(unmoved.network_.centres, means, rtol=1e-4, atol=1e-5)


def test_rows_that_are_far_or_many_columns_wide_get_finite_scores():
    wide = np.random.default_rng(1).normal(size=(70, 300))

    fitted = GOAD().fit(wide)

    scores = fitted.outlier_score(np.vstack([wide, 1e6 * wide]))

    assert np.isfinite(scores).all()


def test_centres_are_chosen_by_true_or_false():
    with pytest.raises(ParameterError, match="GOAD: running_centres='yes', but expected True"):
        GOAD(running_centres="yes").fit(X)


def test_the_loss_is_recognition_and_a_tenth_of_the_triplets():
    detector = GOAD(batch_size=64, learning_rate=1e-12)
    rows = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    network = detector._build_network(4)
    with torch.random.fork_rng():
        (loss,) = detector._train_network(network, rows)

    embedded = network.embed(rows).detach()
    guesses = network.head(embedded).detach().double().log_softmax(-1)
    recognition = -guesses.diagonal(dim1=1, dim2=2).mean()
    distances = (embedded[:, :, None] - embedded.mean(0)).square().sum(-1)
    own = distances.diagonal(dim1=1, dim2=2)
    others = distances + torch.diag(torch.full((256,), torch.inf))
    triplets = (own + 1 - others.min(-1).values).clamp(min=0).mean()
    assert loss == pytest.approx(float(recognition + 0.1 * triplets), rel=1e-4)
