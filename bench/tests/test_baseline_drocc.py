"""Tests of DROCC: adversarial points around the rows bound the region of inliers."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from altbi.errors import ParameterError
from altbi_bench.baselines.drocc import DROCC, project_to_ring

pytestmark = pytest.mark.slow

QUICK = {"warm_up": 5, "batch_size": 64, "learning_rate": 0.02, "radius": 0.8}


def sample_rows_on_a_circle(n_rows=300):
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, n_rows)
    return np.c_[np.cos(angle), np.sin(angle)] + 0.02 * rng.normal(size=(n_rows, 2))


X = sample_rows_on_a_circle()
OUTSIDE = np.array([[2, 2], [-2, 2], [2, -2], [-2, -2], [0, 2.5], [2.5, 0]], dtype=float)


def build_network(n_columns, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return DROCC()._build_network(n_columns)


def sample_rows(n_rows, n_columns):
    return torch.randn(n_rows, n_columns, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def fitted():
    return DROCC(**QUICK, epochs=60).fit(X)


@pytest.mark.filterwarnings("ignore::altbi.errors.TableWarning")
def test_training_separates_rows_from_distant_points(fitted):
    assert fitted.outlier_score(OUTSIDE).min() > fitted.outlier_score(X).max()


@pytest.mark.filterwarnings("ignore::altbi.errors.TableWarning")
def test_warm_up_generates_no_adversarial_points(monkeypatch):
    monkeypatch.setattr(DROCC, "_generate_negatives", None)
    open_region = DROCC(**QUICK, epochs=5).fit(X)

    assert len(open_region.history_) == 5
    assert open_region.history_[-1] < open_region.history_[0]
    assert open_region.outlier_score(OUTSIDE).max() < open_region.outlier_score(X).min()


def test_adversarial_points_have_the_negative_label(monkeypatch):
    monkeypatch.setattr(DROCC, "_generate_negatives", lambda self, network, batch: batch + 3)
    network, rows = build_network(2), sample_rows(64, 2)
    with torch.no_grad():
        logits = torch.cat([network.logit(rows), network.logit(rows + 3)])
    labels = torch.cat([torch.ones(64), torch.zeros(64)])

    with torch.random.fork_rng():
        (loss,) = DROCC(epochs=1, warm_up=0, batch_size=64)._train_network(network, rows)

    # The loss is the sum of two means, which is twice the mean over all points.
    expected = 2 * functional.binary_cross_entropy_with_logits(logits, labels)
    assert loss == pytest.approx(float(expected), rel=1e-5)


def test_score_is_the_negative_logit(fitted):
    rows = ((X - X.mean(0)) / X.std(0)).astype(np.float32)
    first, last = fitted.network_.hidden, fitted.network_.last
    hidden = np.maximum(rows @ first.weight.numpy().T + first.bias.numpy(), 0)
    logit = hidden @ last.weight.numpy()[0] + last.bias.numpy()

    assert np.allclose(fitted.outlier_score(X), -logit, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("n_columns", [1, 3, 300])
def test_points_ascend_the_gradient_of_the_loss(n_columns):
    network = build_network(n_columns)
    points = sample_rows(20, n_columns)
    expected = points.clone()
    for _ in range(8):
        expected.requires_grad_()
        loss = functional.softplus(network.logit(expected)).sum()
        (gradient,) = torch.autograd.grad(loss, expected)
        expected = (expected + 0.05 * gradient / gradient.norm(dim=1, keepdim=True)).detach()

    found = points + network.ascend(points, 8, 0.05)

    assert torch.allclose(found, expected, atol=1e-4)
    assert (network.logit(found) > network.logit(points)).all()


def test_point_with_zero_gradient_does_not_move():
    network = build_network(3)
    with torch.no_grad():
        network.hidden.bias.fill_(-1e6)

    assert torch.equal(network.ascend(sample_rows(5, 3), 10, 0.1), torch.zeros(5, 3))


def test_offsets_are_projected_radially_into_the_ring():
    offsets = torch.tensor([[0.3, 0.4], [3.0, 4.0], [30.0, 40.0]])
    expected = torch.tensor([[1.8, 2.4], [3.0, 4.0], [3.6, 4.8]])

    assert torch.allclose(project_to_ring(offsets, 3.0), expected)
    assert project_to_ring(torch.zeros(1, 2), 3.0).isfinite().all()


@pytest.mark.parametrize(("radius", "inner"), [(3.0, 3.0), (0.5, 0.5), ("auto", math.sqrt(30) / 2)])
@pytest.mark.parametrize("ascent_steps", [3, 25])
def test_adversarial_points_lie_in_the_ring(radius, inner, ascent_steps):
    rows = sample_rows(200, 30)
    detector = DROCC(radius=radius, ascent_steps=ascent_steps, ascent_rate=0.3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        adversarial = detector._generate_negatives(build_network(30), rows)

    distance = (adversarial - rows).norm(dim=1)
    assert (distance >= inner * (1 - 1e-4)).all()
    assert (distance <= 2 * inner * (1 + 1e-4)).all()


def test_more_ascent_raises_the_logit_of_points():
    network, rows = build_network(5), sample_rows(200, 5)

    def compute_mean_logit(**options):
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(0)
            return float(network.logit(DROCC(**options)._generate_negatives(network, rows)).mean())

    near = compute_mean_logit(ascent_steps=10)
    assert compute_mean_logit(ascent_steps=200) > near
    assert compute_mean_logit(ascent_steps=10, ascent_rate=0.1) > near


def test_learning_rate_decays_after_the_warm_up():
    detector = DROCC(epochs=200, warm_up=50)
    rates = [detector._rate_at(epoch) for epoch in [0, 49, 50, 95, 96, 140, 141, 185, 186, 199]]

    n_decays = [0, 0, 0, 0, 1, 1, 2, 2, 3, 3]
    assert rates == pytest.approx([1e-4 * 0.1**k for k in n_decays])
    assert DROCC(epochs=20, warm_up=50)._rate_at(19) == 1e-4


def test_epochs_use_their_learning_rates():
    detector = DROCC(epochs=22, warm_up=2, learning_rate=1e-3)
    network = build_network(2)
    moved, before = [], network.last.bias.item()
    with torch.random.fork_rng():
        for _ in detector._train_network(network, sample_rows(64, 2)):
            moved.append(abs(network.last.bias.item() - before))
            before = network.last.bias.item()

    # The length of Adam's first step is about the learning rate.
    assert moved[0] == pytest.approx(1e-3, rel=0.01)
    assert moved[-1] < 2e-6


@pytest.mark.parametrize("rows", [np.zeros((6, 3)), np.tile(X[:2], (5, 1)), X[:2, :1]])
def test_duplicates_and_constants_get_finite_scores(rows):
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
def test_invalid_parameters_raise_with_their_name(wrong):
    (name,) = wrong

    with pytest.raises(ParameterError, match=f"DROCC: {name}="):
        DROCC(**wrong).fit(X)
