import numpy as np
import pytest

from altbi import IWAE
from altbi.networks import default_sizes


@pytest.mark.parametrize(
    ("n_features", "sizes"),
    [
        (3, ((32, 16), 2)),
        (4, ((32, 16), 2)),
        (5, ((32, 16), 4)),
        (6, ((32, 16), 4)),
        (7, ((32, 16), 6)),
        (9, ((32, 16), 8)),
        (64, ((32, 16), 8)),
        (65, ((128, 64), 32)),
        (166, ((128, 64), 32)),
        (512, ((128, 64), 32)),
        (513, ((512, 256), 128)),
        (768, ((512, 256), 128)),
        (1555, ((512, 256), 128)),
    ],
)
def test_default_sizes_depend_on_features(n_features, sizes):
    assert default_sizes(n_features) == sizes


def test_auto_learning_rate_depends_on_privacy():
    rates = [IWAE().resolve_learning_rate(private=private) for private in (False, True)]

    assert rates == [1e-3, 1e-2]
    assert IWAE(learning_rate=0.5).resolve_learning_rate(private=True) == 0.5


@pytest.mark.parametrize("hidden", [(7,), (6, 5), (4, 8, 3)])
@pytest.mark.parametrize(
    ("network", "batch_norm"), [("reference", True), ("reference", False), ("paper", True)]
)
def test_described_state_is_that_of_the_network(network, batch_norm, hidden):
    backbone = IWAE(hidden=hidden, latent=3, n_samples=4, network=network)

    described = backbone.describe_state(9, batch_norm=batch_norm)

    state = backbone.choose_sizes(9, batch_norm=batch_norm).build().copy_state()
    assert described == {name: (array.shape, array.dtype) for name, array in state.items()}


def test_describing_a_huge_network_needs_no_memory():
    described = IWAE(hidden=(10**9, 10**9)).describe_state(10**9)

    assert described["encoder.3.weight"][0] == (10**9, 10**9)


def test_sizes_may_be_those_of_fewer_features():
    assert IWAE().choose_sizes(1555, sized_for=512).hidden == (128, 64)
    assert IWAE().choose_sizes(1555).hidden == (512, 256)


def test_update_follows_the_objective():
    rows = np.random.default_rng(0).random((40, 5), dtype=np.float32)
    training = IWAE(learning_rate=0.01).start_training(5, np.random.default_rng(0))
    seen = []

    def only_first_half(losses):
        seen.append(losses.copy())
        weights = (np.arange(40) < 20).astype(np.float32)
        return float(losses @ weights), weights

    values = [training.update(rows, only_first_half) for _ in range(60)]

    assert values == [pytest.approx(losses[:20].sum(), rel=1e-5) for losses in seen]
    assert np.mean(values[-10:]) < np.mean(values[:10]) - 5
