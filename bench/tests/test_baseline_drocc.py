"""DROCC: points made up around the rows close the region in which rows are at home."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from altbi.errors import ParameterError
from altbi_bench.baselines.drocc import DROCC, project_to_ring

QUICK = {"warm_up": 5, "batch_size": 64, "learning_rate": 0.02, "radius": 0.8}


def rows_on_a_circle(n_rows=300):
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, n_rows)
    return np.c_[np.cos(angle), np.sin(angle)] + 0.02 * rng.normal(size=(n_rows, 2))


X = rows_on_a_circle()
OUTSIDE = np.array([[2, 2], [-2, 2], [2, -2], [-2, -2], [0, 2.5], [2.5, 0]], dtype=float)


def network_of(n_columns, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return DROCC()._build_network(n_columns)


def some_rows(n_rows, n_columns):
    return torch.randn(n_rows, n_columns, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def fitted():
    return DROCC(**QUICK, epochs=60).fit(X)


@pytest.mark.filterwarnings("ignore::altbi.errors.TableWarning")
def test_training_closes_the_region_around_the_rows(fitted):
    assert fitted.outlier_score(OUTSIDE).min() > fitted.outlier_score(X).max()


@pytest.mark.filterwarnings("ignore::altbi.errors.TableWarning")
def test_warm_up_alone_makes_up_no_points_and_leaves_the_region_open(monkeypatch):
    monkeypatch.setattr(DROCC, "_generate_negatives", None)
    open_region = DROCC(**QUICK, epochs=5).fit(X)

    assert len(open_region.history_) == 5
    assert open_region.history_[-1] < open_region.history_[0]
    assert open_region.outlier_score(OUTSIDE).max() < open_region.outlier_score(X).min()


def test_made_up_points_are_labelled_as_no_rows(monkeypatch):
    monkeypatch.setattr(DROCC, "_generate_negatives", lambda self, network, batch: batch + 3)
    network, rows = network_of(2), some_rows(64, 2)
    with torch.no_grad():
        logits = torch.cat([network.logit(rows), network.logit(rows + 3)])
    labels = torch.cat([torch.ones(64), torch.zeros(64)])

    with torch.random.fork_rng():
        (loss,) = DROCC(epochs=1, warm_up=0, batch_size=64)._train_network(network, rows)

    # both halves are means: together they are twice the mean of all
    expected = 2 * functional.binary_cross_entropy_with_logits(logits, labels)
    assert loss == pytest.approx(float(expected), rel=1e-5)


def test_the_score_is_the_logit_with_its_sign_turned(fitted):
    rows = ((X - X.mean(0)) / X.std(0)).astype(np.float32)
    first, last = fitted.network_.hidden, fitted.network_.last
    units = np.maximum(rows @ first.weight.numpy().T + first.bias.numpy(), 0)
    logit = units @ last.weight.numpy()[0] + last.bias.numpy()

    assert np.allclose(fitted.outlier_score(X), -logit, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("n_columns", [1, 3, 300])
def test_points_climb_along_the_slope_of_the_loss(n_columns):
    network = network_of(n_columns)
    points = some_rows(20, n_columns)
    expected = points.clone()
    for _ in range(8):
        expected.requires_grad_()
        loss = functional.softplus(network.logit(expected)).sum()
        (slope,) = torch.autograd.grad(loss, expected)
        expected = (expected + 0.05 * slope / slope.norm(dim=1, keepdim=True)).detach()

    found = points + network.ascend(points, 8, 0.05)

    assert torch.allclose(found, expected, atol=1e-4)
    assert (network.logit(found) > network.logit(points)).all()


def test_a_point_without_a_slope_stays():
    network = network_of(3)
    with torch.no_grad():
        network.hidden.bias.fill_(-1e6)

    assert torch.equal(network.ascend(some_rows(5, 3), 10, 0.1), torch.zeros(5, 3))


def test_offsets_are_brought_into_the_ring_along_themselves():
    offsets = torch.tensor([[0.3, 0.4], [3.0, 4.0], [30.0, 40.0]])
    expected = torch.tensor([[1.8, 2.4], [3.0, 4.0], [3.6, 4.8]])

    assert torch.allclose(project_to_ring(offsets, 3.0), expected)
    assert project_to_ring(torch.zeros(1, 2), 3.0).isfinite().all()


@pytest.mark.parametrize(("radius", "inner"), [(3.0, 3.0), (0.5, 0.5), ("auto", math.sqrt(30) / 2)])
@pytest.mark.parametrize("ascent_steps", [3, 25])
def test_made_up_points_lie_in_the_ring(radius, inner, ascent_steps):
    rows = some_rows(200, 30)
    detector = DROCC(radius=radius, ascent_steps=ascent_steps, ascent_rate=0.3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made_up = detector._generate_negatives(network_of(30), rows)

    distance = (made_up - rows).norm(dim=1)
    assert (distance >= inner * (1 - 1e-4)).all()
    assert (distance <= 2 * inner * (1 + 1e-4)).all()


def test_longer_and_more_steps_find_points_that_look_more_like_rows():
    network, rows = network_of(5), some_rows(200, 5)

    def mean_logit(**options):
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(0)
            return float(network.logit(DROCC(**options)._generate_negatives(network, rows)).mean())

    near = mean_logit(ascent_steps=10)
    assert mean_logit(ascent_steps=200) > near
    assert mean_logit(ascent_steps=10, ascent_rate=0.1) > near


def test_the_learning_rate_falls_after_the_warm_up():
    detector = DROCC(epochs=200, warm_up=50)
    rates = [detector._rate_at(epoch) for epoch in [0, 49, 50, 95, 96, 140, 141, 185, 186, 199]]

    tenths = [0, 0, 0, 0, 1, 1, 2, 2, 3, 3]
    assert rates == pytest.approx([1e-4 * 0.1**k for k in tenths])
    assert DROCC(epochs=20, warm_up=50)._rate_at(19) == 1e-4


def test_epochs_are_trained_at_their_learning_rates():
    detector = DROCC(epochs=22, warm_up=2, learning_rate=1e-3)
    network = network_of(2)
    moved, before = [], network.last.bias.item()
    with torch.random.fork_rng():
        for _ in detector._train_network(network, some_rows(64, 2)):
            moved.append(abs(network.last.bias.item() - before))
            before = network.last.bias.item()

    # one step of Adam is about as long as the learning rate, and never much longer
    assert moved[0] == pytest.approx(1e-3, rel=0.01)
    assert moved[-1] < 2e-6


@pytest.mark.parametrize("rows", [np.zeros((6, 3)), np.tile(X[:2], (5, 1)), X[:2, :1]])
def test_copies_and_constants_are_borne(rows):
    scores = DROCC(epochs=3, warm_up=1).fit(rows).outlier_score(rows)

    assert np.isfinite(scores).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"warm_up": -1},
        {"radius": 0},
        {"radius": "large"},
        {"radius": float("nan")},
        {"ascent_steps": 0},
        {"ascent_rate": 0},
    ],
)
def test_wrong_parameters_are_refused_by_name(wrong):
    (name,) = wrong

    with pytest.raises(ParameterError, match=f"DROCC: {name}="):
        DROCC(**wrong).fit(X)
