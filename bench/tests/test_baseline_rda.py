"""Tests of RDA: errors that cannot be reconstructed are removed from the training target."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import nn

from altbi.errors import ParameterError
from altbi_bench.baselines.base import Trainer
from altbi_bench.baselines.rda import RDA, shrink_rows

pytestmark = pytest.mark.slow

QUICK = {"epochs": 60, "batch_size": 32, "learning_rate": 0.005, "shrink_every": 1}


def sample_rows_near_a_plane(n_rows=300, n_outliers=30, n_columns=6):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n_rows, 2)) @ rng.normal(size=(2, n_columns))
    rows += 0.05 * rng.normal(size=rows.shape)
    rows[:n_outliers] = 6 * rng.normal(size=(n_outliers, n_columns))
    return rows, np.arange(n_rows) < n_outliers


X, is_outlier = sample_rows_near_a_plane()


def standardise(rows):
    return torch.from_numpy((rows - rows.mean(0)) / rows.std(0)).float()


def build_network(detector, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return detector._build_network(X.shape[1])


@pytest.fixture(scope="module")
def strict():
    return RDA(**QUICK, penalty=0.05).fit(X)


@pytest.fixture(scope="module")
def plain():
    return RDA(**QUICK, penalty=1e9).fit(X)


def test_training_detects_rows_off_the_plane(strict):
    scores = strict.outlier_score(X)

    # Columns have variance 1, so the error of an untrained autoencoder is about 1.
    assert np.median(scores[~is_outlier]) < 0.01
    assert np.quantile(scores[~is_outlier], 0.95) < np.quantile(scores[is_outlier], 0.05)


def test_small_penalty_excludes_outliers_from_training(strict, plain):
    robust, naive = strict.outlier_score(X), plain.outlier_score(X)

    assert np.median(robust[is_outlier]) > 3 * np.median(naive[is_outlier])
    assert np.median(robust[~is_outlier]) < 0.5 * np.median(naive[~is_outlier])


def test_large_penalty_trains_a_plain_autoencoder(plain):
    rows = standardise(X)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = plain._build_network(X.shape[1])
        trainer = Trainer(network.parameters(), learning_rate=0.005, batch_size=32)
        losses = [
            trainer.epoch(rows, lambda batch: nn.functional.mse_loss(network.layers(batch), batch))
            for _ in range(60)
        ]

    assert np.allclose(losses, plain.history_, rtol=1e-3)


def test_score_is_the_mean_squared_error(strict):
    rows = standardise(X)
    reconstructed = strict.network_.layers(rows)

    expected = ((rows - reconstructed) ** 2).mean(1).numpy()

    assert np.allclose(strict.outlier_score(X), expected, rtol=1e-3, atol=1e-6)


def test_shrinkage_minimises_the_penalised_objective():
    row = np.array([3.0, -4.0, 12.0])

    def compute_objective(rest, penalty):
        return 0.5 * np.sum((row - rest) ** 2) + penalty * np.linalg.norm(rest)

    for penalty in [0.5, 5.0, 12.9]:
        best = minimize(compute_objective, row, args=(penalty,), tol=1e-10).x
        assert np.allclose(shrink_rows(torch.from_numpy(row[None]), penalty)[0], best, atol=1e-4)


def test_rows_shorter_than_the_penalty_become_zero():
    rows = torch.tensor([[0.0, 0.0], [0.3, 0.4], [3.0, 4.0]])

    assert torch.equal(shrink_rows(rows, 0.5)[:2], torch.zeros(2, 2))
    assert torch.allclose(shrink_rows(rows, 0.5)[2], 0.9 * rows[2])
    assert torch.equal(shrink_rows(rows, 0.0), rows)


def test_long_errors_are_clipped_in_training_target(monkeypatch):
    network = build_network(RDA())
    rows = standardise(X)
    reconstructed = network.layers(rows).detach()
    target = rows.clone()

    monkeypatch.setattr("altbi_bench.baselines.rda.BLOCK_ROWS", 37)
    network.update_learned_rows(target, rows, 0.7)

    length = (rows - reconstructed).norm(dim=1)
    is_long = length > 0.7
    assert torch.allclose((target - reconstructed).norm(dim=1), length.clamp(max=0.7), atol=1e-5)
    assert torch.allclose(target[~is_long], rows[~is_long])
    assert is_long.any()


def test_sparse_component_is_updated_every_shrink_epochs(monkeypatch):
    network = build_network(RDA())
    updates, losses = [], []
    monkeypatch.setattr(
        network,
        "update_learned_rows",
        lambda *arguments: updates.append((len(losses), arguments[2])),
    )

    for loss in RDA(epochs=7, shrink_every=3, penalty=0.5)._train_network(network, standardise(X)):
        losses.append(loss)

    assert updates == [(3, 0.5 * 6**0.5), (6, 0.5 * 6**0.5)]


def test_training_does_not_modify_its_rows():
    rows = standardise(X)
    before = rows.clone()

    list(RDA(epochs=2, shrink_every=1, penalty=0.0)._train_network(build_network(RDA()), rows))

    assert torch.equal(rows, before)


@pytest.mark.parametrize("rows", [np.zeros((6, 3)), np.tile(X[:2], (5, 1)), X[:2, :1]])
def test_duplicates_and_constants_get_finite_scores(rows):
    scores = RDA(epochs=3, shrink_every=1).fit(rows).outlier_score(rows)

    assert np.isfinite(scores).all()


@pytest.mark.parametrize(
    "wrong", [{"penalty": -1}, {"penalty": "x"}, {"shrink_every": 0}, {"shrink_every": 1.5}]
)
def test_invalid_parameters_raise_with_their_name(wrong):
    (name,) = wrong

    with pytest.raises(ParameterError, match=f"RDA: {name}="):
        RDA(**wrong).fit(X)
