"""Training of ODIM's networks, and the isolation of training from the caller."""

import numpy as np
import pytest
import torch

from altbi import IWAE, ODIM
from altbi.errors import ParameterError
from altbi.networks import IWAENetwork, search_peak
from altbi.networks._torch_modes import single_thread
from altbi.table import as_table

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4)) * 0.1
X[:12] = RNG.uniform(-3, 3, size=(12, 4))
SMALL = {"backbone": IWAE(n_samples=3), "n_models": 1, "patience": 10}


@pytest.fixture(scope="module")
def odim():
    return ODIM(backbone=IWAE(n_samples=5), n_models=2, patience=40).fit(X)


def encode(detector):
    return torch.from_numpy(detector.encoder_.transform(as_table(X)))


def search(detector, model, generator):
    parameters = ("batch_size", "check_every", "patience", "max_updates", "spread")
    return search_peak(
        model,
        encode(detector),
        **{name: getattr(detector, name) for name in parameters},
        learning_rate=detector.backbone.resolve_learning_rate(),
        weight_decay=detector.backbone.weight_decay,
        generator=generator,
    )


def test_snapshot_is_network_of_best_check(odim):
    def train(last_update):
        generator = torch.Generator().manual_seed(0)
        model = IWAENetwork(4, (32, 16), 2, 5, bounded=True)
        model.initialize_weights(generator)
        checks = []
        with single_thread():
            for check in search(odim, model, generator):
                checks.append(check)
                if check.update == last_update:
                    break
        return model, checks

    _, checks = train(last_update=None)
    best = max(checks, key=lambda check: check.distance)
    model, _ = train(last_update=best.update)

    assert checks[-1].update - best.update >= odim.patience
    assert [check.loss for check in checks] == [s.loss for s in odim.history_[: len(checks)]]
    for name, state in model.state_dict().items():
        assert np.array_equal(state.numpy(), odim.model_.scorer.arrays[name][0]), name


def test_score_is_mean_loss_of_networks(odim):
    arrays, rows, total = odim.model_.scorer.arrays, encode(odim), np.zeros(len(X))
    for index in range(2):
        model = IWAENetwork(4, (32, 16), 2, 5, bounded=True)
        model.load_state_dict({k: torch.from_numpy(v)[index] for k, v in arrays.items()})
        with torch.no_grad():
            total += model.eval()(rows).numpy() / 2

    np.testing.assert_allclose(odim.outlier_score(X), total, rtol=1e-4, atol=1e-4)
    assert set(np.argsort(total)[-10:]) <= set(range(12))


def test_explanation_adds_up_and_finds_column(odim):
    row = X[100:101].copy()
    row[0, 2] = 3.0

    explanation = odim.explain(row)

    assert explanation.reasons(0)[0].column == "x2"
    total = explanation.contributions.sum(1) + explanation.remainder
    np.testing.assert_allclose(total, explanation.score, atol=1e-4)


@pytest.mark.parametrize("n_rows", [2, 63, 65, 129])
def test_small_tables_can_be_fitted(n_rows):
    detector = ODIM(**SMALL | {"patience": 4}).fit(X[:n_rows])

    assert np.isfinite(detector.outlier_score(X[:n_rows])).all()
    assert (detector.predict(X[:n_rows]) == -1).any()


def test_every_parameter_reaches_the_search():
    def fit(backbone=SMALL["backbone"], **changes):
        detector = ODIM(**SMALL | {"backbone": backbone} | changes).fit(X)
        return detector.model_.scorer.arrays["mean.weight"], detector.history_

    weights, history = fit()
    assert not np.array_equal(fit(IWAE(n_samples=3, weight_decay=10.0))[0], weights)
    assert not np.array_equal(fit(IWAE(n_samples=3, learning_rate=0.01))[0], weights)
    assert len(fit(max_updates=2)[1]) < len(history)
    assert fit(batch_size=32)[1][0].batch_size == 32
    assert len(fit(check_every=2)[1]) > len(history)


@pytest.mark.parametrize(
    "invalid",
    [
        {"n_models": 0},
        {"batch_size": 1},
        {"check_every": 0},
        {"patience": 0},
        {"max_updates": 2.5},
        {"spread": "mean"},
    ],
)
def test_invalid_odim_parameter_raises(invalid):
    (name,) = invalid
    with pytest.raises(ParameterError, match=f"ODIM: {name}="):
        ODIM(**invalid).fit(X)


@pytest.mark.parametrize("invalid", [{"n_samples": 0}, {"hidden": ()}, {"latent": 2.5}])
def test_invalid_iwae_parameter_raises(invalid):
    (name,) = invalid
    with pytest.raises(ParameterError, match=f"IWAE: {name}="):
        ODIM(backbone=IWAE(**invalid)).fit(X)


def test_global_random_state_is_not_used():
    scores = []
    for seed in (1, 2):
        np.random.seed(seed)  # noqa: NPY002 - the caller's global state
        torch.manual_seed(seed)
        before = np.random.get_state()[1].copy(), torch.random.get_rng_state()  # noqa: NPY002
        scores.append(ODIM(**SMALL).fit(X).outlier_score(X))
        assert np.array_equal(np.random.get_state()[1], before[0])  # noqa: NPY002
        assert torch.equal(torch.random.get_rng_state(), before[1])

    assert np.array_equal(*scores)
