"""ICL: the rest of a row finds its window, unless the parts do not belong together."""

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from sklearn.metrics import roc_auc_score

from altbi.errors import ParameterError, TableError
from altbi_bench.baselines import icl
from altbi_bench.baselines.icl import ICL, WindowMatcher, compute_chunked_loss, window_length

N_ODD = 15


def waves():
    """Rows follow a wave, but the last ones: their cells are taken from any row."""
    rng = np.random.default_rng(0)
    rows = np.sin(rng.uniform(0, 2 * np.pi, size=(300, 1)) + np.arange(6))
    rows[-N_ODD:] = rng.permuted(rows, axis=0)[-N_ODD:]
    return rows


X = waves()
IS_ODD = np.arange(len(X)) >= len(X) - N_ODD


@pytest.fixture
def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = WindowMatcher(5)
        with torch.no_grad():
            network(torch.randn(50, 5))  # BatchNorm meets some rows
    return network.eval()


def by_numpy(layers, values):
    """Compute the layers one after the other, as they are defined."""
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


def test_training_finds_the_rows_whose_parts_do_not_belong_together():
    trained = ICL(epochs=40).fit(X)

    # each column alone looks the same in odd rows: only what goes together tells
    assert roc_auc_score(IS_ODD, trained.outlier_score(X)) > 0.9
    assert trained.history_[-1] < 0.5 * np.log(5)


def test_without_training_nothing_is_found():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        fresh = WindowMatcher(6).eval()

    scores = fresh(torch.from_numpy(X).float()).detach()

    assert roc_auc_score(IS_ODD, scores) < 0.7
    assert scores.median() > 0.9 * np.log(5)


def test_the_score_is_the_mean_surprise_at_own_windows(network):
    row = np.array([0.3, -1.0, 2.0, 0.5, -0.2], dtype=np.float32)
    windows = np.stack([row[start : start + 2] for start in range(4)])
    rests = np.stack([np.delete(row, [start, start + 1]) for start in range(4)])
    rests, windows = by_numpy(network.rest, rests), by_numpy(network.window, windows)
    for dim in (0, 1):
        rests = rests / np.linalg.norm(rests, axis=dim, keepdims=True)
        windows = windows / np.linalg.norm(windows, axis=dim, keepdims=True)
    surprise = -log_softmax(rests @ windows.T / 0.1, axis=1).diagonal().mean()

    score = network(torch.from_numpy(row)[None]).item()

    assert score == pytest.approx(surprise, rel=1e-4)


@pytest.mark.parametrize(
    ("n_features_encoded", "length"),
    [(3, 2), (40, 2), (41, 10), (160, 10), (161, 11), (400, 250)],
)
def test_windows_and_rests_share_no_column_and_leave_none_out(n_features_encoded, length):
    assert window_length(n_features_encoded) == length
    starts = range(n_features_encoded - length + 1)
    rests = [
        np.delete(np.arange(n_features_encoded), range(start, start + length)) for start in starts
    ]

    assert np.array_equal(WindowMatcher(n_features_encoded).others, rests)


@pytest.mark.parametrize("pairs", [40, 50, 10**6])
def test_parts_of_a_batch_add_up_to_its_gradient(network, monkeypatch, pairs):
    monkeypatch.setattr(icl, "PAIRS_AT_ONCE", pairs)
    batch = torch.linspace(-2, 2, 115).view(23, 5)
    parameters = list(network.parameters())
    whole = network(batch).mean()

    loss = compute_chunked_loss(network, batch)

    torch.testing.assert_close(loss, whole)
    torch.testing.assert_close(
        torch.autograd.grad(loss, parameters), torch.autograd.grad(whole, parameters)
    )


def test_training_ends_after_an_epoch_below_the_stop_loss():
    whole = ICL(epochs=4, stop_loss=0).fit(X).history_

    stopped = ICL(epochs=4, stop_loss=np.mean(whole[1:3])).fit(X).history_

    assert len(whole) == 4
    assert stopped == whole[:3]


@pytest.mark.parametrize(("n_features_encoded", "loss"), [(40, 0.001), (41, 0.01)])
def test_the_stop_loss_follows_from_the_width(n_features_encoded, loss):
    assert ICL()._stop_loss(n_features_encoded) == loss


def test_wide_tables_and_copies_of_rows_get_finite_scores():
    wide = np.repeat(np.random.default_rng(0).normal(size=(2, 170)), 4, axis=0)

    assert np.isfinite(ICL(epochs=2).fit(wide).outlier_score(wide)).all()


def test_two_columns_are_too_few():
    with pytest.raises(TableError, match=r"ICL: the table has 2 .* at least 3: .* Add columns"):
        ICL().fit(X[:, :2])


@pytest.mark.parametrize("wrong", [-1, "never", None, float("nan")])
def test_wrong_stop_losses_are_refused(wrong):
    with pytest.raises(ParameterError, match=r"ICL: stop_loss=.*, but expected 'auto' or"):
        ICL(stop_loss=wrong).fit(X)
