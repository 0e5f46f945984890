"""Tests of ICL: contrastive matching of windows of columns with the other columns."""

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from sklearn.metrics import roc_auc_score

from altbi.errors import ParameterError, TableError
from altbi_bench.baselines import icl
from altbi_bench.baselines.icl import ICL, WindowMatcher, compute_chunked_loss, window_length

pytestmark = pytest.mark.slow

N_OUTLIERS = 15


def sample_waves():
    """Return rows that follow a sine wave; the last ones have values of random rows."""
    rng = np.random.default_rng(0)
    rows = np.sin(rng.uniform(0, 2 * np.pi, size=(300, 1)) + np.arange(6))
    rows[-N_OUTLIERS:] = rng.permuted(rows, axis=0)[-N_OUTLIERS:]
    return rows


X = sample_waves()
IS_OUTLIER = np.arange(len(X)) >= len(X) - N_OUTLIERS


@pytest.fixture
def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = WindowMatcher(5)
        with torch.no_grad():
            network(torch.randn(50, 5))  # set the running statistics of BatchNorm
    return network.eval()


def apply_with_numpy(layers, values):
    """Apply the layers one after the other in NumPy."""
    for layer in layers:
        state = {name: value.numpy() for name, value in layer.state_dict().items()}
        if isinstance(layer, torch.nn.Linear):
            values = values @ state["weight"].T + state["bias"]
        elif isinstance(layer, torch.nn.Tanh):
            values = np.tanh(values)
        elif isinstance(layer, torch.nn.LeakyReLU):
            values = np.where(values > 0, values, 0.2 * values)
        else:
            spread = np.sqrt(state["running_var"] + layer.eps)
            share = (values - state["running_mean"][:, None]) / spread[:, None]
            values = share * state["weight"][:, None] + state["bias"][:, None]
    return values


def test_training_detects_inconsistent_columns():
    trained = ICL(epochs=40).fit(X)

    # Outliers differ from inliers only in the joint distribution of the columns.
    assert roc_auc_score(IS_OUTLIER, trained.outlier_score(X)) > 0.9
    assert trained.history_[-1] < 0.5 * np.log(5)


def test_untrained_network_does_not_detect_outliers():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        fresh = WindowMatcher(6).eval()

    scores = fresh(torch.from_numpy(X).float()).detach()

    assert roc_auc_score(IS_OUTLIER, scores) < 0.7
    assert scores.median() > 0.9 * np.log(5)


def test_score_is_mean_contrastive_loss_of_windows(network):
    row = np.array([0.3, -1.0, 2.0, 0.5, -0.2], dtype=np.float32)
    windows = np.stack([row[start : start + 2] for start in range(4)])
    rests = np.stack([np.delete(row, [start, start + 1]) for start in range(4)])
    rests, windows = (
        apply_with_numpy(network.rest, rests),
        apply_with_numpy(network.window, windows),
    )
    for dim in (0, 1):
        rests = rests / np.linalg.norm(rests, axis=dim, keepdims=True)
        windows = windows / np.linalg.norm(windows, axis=dim, keepdims=True)
    expected = -log_softmax(rests @ windows.T / 0.1, axis=1).diagonal().mean()

    score = network(torch.from_numpy(row)[None]).item()

    assert score == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("n_features_encoded", "length"),
    [(3, 2), (40, 2), (41, 10), (160, 10), (161, 11), (400, 250)],
)
def test_windows_and_complements_partition_the_columns(n_features_encoded, length):
    assert window_length(n_features_encoded) == length
    starts = range(n_features_encoded - length + 1)
    rests = [
        np.delete(np.arange(n_features_encoded), range(start, start + length)) for start in starts
    ]

    assert np.array_equal(WindowMatcher(n_features_encoded).others, rests)


@pytest.mark.parametrize("pairs", [40, 50, 10**6])
def test_chunked_loss_has_the_gradient_of_the_batch(network, monkeypatch, pairs):
    monkeypatch.setattr(icl, "PAIRS_AT_ONCE", pairs)
    batch = torch.linspace(-2, 2, 115).view(23, 5)
    parameters = list(network.parameters())
    complete = network(batch).mean()

    loss = compute_chunked_loss(network, batch)

    torch.testing.assert_close(loss, complete)
    torch.testing.assert_close(
        torch.autograd.grad(loss, parameters), torch.autograd.grad(complete, parameters)
    )


def test_training_stops_below_the_stop_loss():
    complete = ICL(epochs=4, stop_loss=0).fit(X).history_

    stopped = ICL(epochs=4, stop_loss=np.mean(complete[1:3])).fit(X).history_

    assert len(complete) == 4
    assert stopped == complete[:3]


@pytest.mark.parametrize(("n_features_encoded", "loss"), [(40, 0.001), (41, 0.01)])
def test_default_stop_loss_depends_on_number_of_features(n_features_encoded, loss):
    assert ICL()._stop_loss(n_features_encoded) == loss


def test_wide_tables_with_duplicates_get_finite_scores():
    wide = np.repeat(np.random.default_rng(0).normal(size=(2, 170)), 4, axis=0)

    assert np.isfinite(ICL(epochs=2).fit(wide).outlier_score(wide)).all()


def test_two_columns_raise():
    with pytest.raises(TableError, match=r"ICL: the table has 2 .* at least 3: .* Add columns"):
        ICL().fit(X[:, :2])


@pytest.mark.parametrize("wrong", [-1, "never", None, float("nan")])
def test_invalid_stop_loss_raises(wrong):
    with pytest.raises(ParameterError, match=r"ICL: stop_loss=.*, but expected 'auto' or"):
        ICL(stop_loss=wrong).fit(X)
