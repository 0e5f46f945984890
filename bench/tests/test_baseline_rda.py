"""RDA: what cannot be rebuilt leaves the table that is learned from."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import nn

from altbi.errors import ParameterError
from altbi_bench.baselines.base import Trainer
from altbi_bench.baselines.rda import RDA, shrink_rows

QUICK = {"epochs": 60, "batch_size": 32, "learning_rate": 0.005, "shrink_every": 1}


def rows_near_a_plane(n_rows=300, n_wild=30, n_columns=6):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n_rows, 2)) @ rng.normal(size=(2, n_columns))
    rows += 0.05 * rng.normal(size=rows.shape)
    rows[:n_wild] = 6 * rng.normal(size=(n_wild, n_columns))
    return rows, np.arange(n_rows) < n_wild


X, is_wild = rows_near_a_plane()


def standardised(rows):
    return torch.from_numpy((rows - rows.mean(0)) / rows.std(0)).float()


def network_of(detector, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return detector._build_network(X.shape[1])


@pytest.fixture(scope="module")
def strict():
    return RDA(**QUICK, penalty=0.05).fit(X)


@pytest.fixture(scope="module")
def plain():
    return RDA(**QUICK, penalty=1e9).fit(X)


def test_training_learns_the_plane_and_finds_the_wild_rows(strict):
    scores = strict.outlier_score(X)

    # the rows have variance 1 in each column: an autoencoder that learned nothing errs by 1
    assert np.median(scores[~is_wild]) < 0.01
    assert np.quantile(scores[~is_wild], 0.95) < np.quantile(scores[is_wild], 0.05)


def test_a_small_penalty_keeps_wild_rows_from_being_learned(strict, plain):
    robust, naive = strict.outlier_score(X), plain.outlier_score(X)

    assert np.median(robust[is_wild]) > 3 * np.median(naive[is_wild])
    assert np.median(robust[~is_wild]) < 0.5 * np.median(naive[~is_wild])


def test_a_very_large_penalty_is_a_plain_autoencoder(plain):
    rows = standardised(X)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = plain._build_network(X.shape[1])
        trainer = Trainer(network.parameters(), learning_rate=0.005, batch_size=32)
        losses = [
            trainer.epoch(rows, lambda batch: nn.functional.mse_loss(network.layers(batch), batch))
            for _ in range(60)
        ]

    assert np.allclose(losses, plain.history_, rtol=1e-3)


def test_the_score_is_the_mean_squared_error_of_a_row(strict):
    rows = standardised(X)
    rebuilt = strict.network_.layers(rows)

    expected = ((rows - rebuilt) ** 2).mean(1).numpy()

    assert np.allclose(strict.outlier_score(X), expected, rtol=1e-3, atol=1e-6)


def test_shrinking_solves_its_problem():
    row = np.array([3.0, -4.0, 12.0])

    def objective(rest, penalty):
        return 0.5 * np.sum((row - rest) ** 2) + penalty * np.linalg.norm(rest)

    for penalty in [0.5, 5.0, 12.9]:
        best = minimize(objective, row, args=(penalty,), tol=1e-10).x
        assert np.allclose(shrink_rows(torch.from_numpy(row[None]), penalty)[0], best, atol=1e-4)


def test_short_rows_shrink_to_nothing_and_none_shrink_at_no_penalty():
    rows = torch.tensor([[0.0, 0.0], [0.3, 0.4], [3.0, 4.0]])

    assert torch.equal(shrink_rows(rows, 0.5)[:2], torch.zeros(2, 2))
    assert torch.allclose(shrink_rows(rows, 0.5)[2], 0.9 * rows[2])
    assert torch.equal(shrink_rows(rows, 0.0), rows)


def test_what_is_left_to_learn_is_the_rebuilt_row_and_a_short_error(monkeypatch):
    network = network_of(RDA())
    rows = standardised(X)
    rebuilt = network.layers(rows).detach()
    learned = rows.clone()

    monkeypatch.setattr("altbi_bench.baselines.rda.BLOCK_ROWS", 37)
    network.update_learned_rows(learned, rows, 0.7)

    length = (rows - rebuilt).norm(dim=1)
    is_long = length > 0.7
    assert torch.allclose((learned - rebuilt).norm(dim=1), length.clamp(max=0.7), atol=1e-5)
    assert torch.allclose(learned[~is_long], rows[~is_long])
    assert is_long.any()


def test_the_rest_is_chosen_anew_after_the_passes_asked_for(monkeypatch):
    network = network_of(RDA())
    chosen, passes = [], []
    monkeypatch.setattr(
        network, "update_learned_rows", lambda *parts: chosen.append((len(passes), parts[2]))
    )

    for loss in RDA(epochs=7, shrink_every=3, penalty=0.5)._train_network(network, standardised(X)):
        passes.append(loss)

    assert chosen == [(3, 0.5 * 6**0.5), (6, 0.5 * 6**0.5)]


def test_the_table_itself_stays_as_it_is():
    rows = standardised(X)
    before = rows.clone()

    list(RDA(epochs=2, shrink_every=1, penalty=0.0)._train_network(network_of(RDA()), rows))

    assert torch.equal(rows, before)


@pytest.mark.parametrize("rows", [np.zeros((6, 3)), np.tile(X[:2], (5, 1)), X[:2, :1]])
def test_copies_and_constants_are_borne(rows):
    scores = RDA(epochs=3, shrink_every=1).fit(rows).outlier_score(rows)

    assert np.isfinite(scores).all()


@pytest.mark.parametrize(
    "wrong", [{"penalty": -1}, {"penalty": "x"}, {"shrink_every": 0}, {"shrink_every": 1.5}]
)
def test_wrong_parameters_are_refused_by_name(wrong):
    (name,) = wrong

    with pytest.raises(ParameterError, match=f"RDA: {name}="):
        RDA(**wrong).fit(X)
