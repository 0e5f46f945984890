import pickle
import threading

import numpy as np
import pytest

from altbi._threads import single_blas_thread
from altbi.networks._iwae_network import IWAENetwork
from altbi.networks._iwae_snapshots import StackedIWAE, _split_into_chunks
from altbi.networks._snapshots import compute_importance_weights, stack_states

SETTINGS = {
    "reference": {"bounded": True},
    "without norms": {"bounded": True, "batch_norm": False},
    "paper": {"bounded": False},
}


def train_states(n_features=5, hidden=(6, 5), latent=2, n_samples=3, *, setting="reference"):
    """Return a network and its states with trained weights and BatchNorm statistics."""
    generator = np.random.default_rng(2)
    network = IWAENetwork(n_features, hidden, latent, n_samples, **SETTINGS[setting])
    network.initialize(generator)
    states = []
    for _ in range(4):
        for _ in range(5):
            network.compute_losses(generator.random((40, n_features), dtype=np.float32))
            gradient = network.compute_gradient(np.full(40, 1 / 40, np.float32))
            network.parameters -= 0.01 * np.sign(gradient)
        network.resample_noise()
        states.append(network.copy_state())
    return network, states


def sample_columns(n_features, n_rows):
    rows = np.random.default_rng(1).random((n_features, n_rows), dtype=np.float32)
    return 3 * rows - 1


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize(("hidden", "n_samples"), [((7,), 1), ((6, 5), 2), ((4, 8, 3), 5)])
def test_stacked_losses_equal_single_networks(hidden, n_samples, setting):
    network, states = train_states(5, hidden, 2, n_samples, setting=setting)
    stacked, columns = StackedIWAE(network, stack_states(states)), sample_columns(5, 96)

    single = []
    for state in states:
        network.load_state(state)
        single.append(network.evaluate_losses(columns.T))

    assert stacked.n_snapshots == 4
    assert np.allclose(stacked.losses(columns), single, rtol=2e-5, atol=2e-5)
    assert stacked.losses(columns).dtype == np.float32


@pytest.mark.parametrize("setting", SETTINGS)
def test_expected_values_equal_torch_reference(setting):
    torch = pytest.importorskip("torch")
    from torch_reference import TorchNetwork

    network, states = train_states(setting=setting)
    arrays, columns = stack_states(states), sample_columns(5, 96)
    context = columns / 2
    expected, distance = StackedIWAE(network, arrays).expect(context, columns)

    model = TorchNetwork(5, (6, 5), 2, 3, **SETTINGS[setting]).eval()
    for index, state in enumerate(states):
        model.load_state_dict({n: torch.from_numpy(a) for n, a in state.items()}, strict=False)
        with torch.no_grad():
            losses, mean, log_variance = model.decode(
                torch.from_numpy(context.T).double(), model.scoring_noise[None]
            )
        weights = torch.softmax(-losses, dim=1)[..., None]
        errors = (torch.from_numpy(columns.T)[:, None] - mean) ** 2 / log_variance.exp() / 2
        means, distances = ((weights * each).sum(1).T.numpy() for each in (mean, errors))
        assert np.allclose(expected[index], means, rtol=1e-4, atol=1e-5)
        assert np.allclose(distance[index], distances, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("setting", SETTINGS)
def test_stacked_contributions_add_up(setting):
    network, states = train_states(setting=setting)
    stacked, columns = StackedIWAE(network, stack_states(states)), sample_columns(5, 96)

    split = stacked.contributions(columns)

    assert split.by_feature.shape == (4, 5, 96)
    total = split.by_feature.sum(1) + split.remainder
    assert np.allclose(total, split.losses, rtol=1e-5, atol=1e-5)
    assert np.allclose(split.losses, stacked.losses(columns), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("n_features", "hidden", "latent", "n_samples"),
    [
        (3, (7,), 1, 1),
        (10, (32, 16), 8, 2),
        (33, (32, 16), 8, 5),
        (100, (128, 64), 32, 2),
        (301, (128, 64), 32, 2),
    ],
)
def test_row_has_same_bits_at_each_position(n_features, hidden, latent, n_samples):
    network, states = train_states(n_features, hidden, latent, n_samples)
    stacked = StackedIWAE(network, stack_states(states[:2]))
    with single_blas_thread():  # as blocks are evaluated
        for n_rows in {stacked.block_rows, stacked.explain_block_rows}:
            check_rolled_rows(stacked, sample_columns(n_features, n_rows))


def check_rolled_rows(stacked, columns):
    losses, split = stacked.losses(columns), stacked.contributions(columns)
    expected, distance = stacked.expect(columns / 2, columns)
    for shift in (1, 7, 24, columns.shape[1] // 2, columns.shape[1] - 1):
        moved = np.roll(columns, shift, axis=1)
        moved_split = stacked.contributions(moved)
        results = [
            (losses, stacked.losses(moved)),
            (split.losses, moved_split.losses),
            (split.by_feature, moved_split.by_feature),
            (split.remainder, moved_split.remainder),
            *zip((expected, distance), stacked.expect(moved / 2, moved), strict=True),
        ]
        for before, after in results:
            assert np.array_equal(np.roll(before, shift, axis=-1), after)


def test_other_rows_do_not_change_a_row():
    network, states = train_states(10, (32, 16), 8, 2)
    stacked = StackedIWAE(network, stack_states(states))
    columns = sample_columns(10, stacked.block_rows)
    padded = np.zeros_like(columns)
    padded[:, :3] = columns[:, :3]
    extreme = columns.copy()
    extreme[:, 3:] = 1e25

    losses = stacked.losses(columns)[:, :3]

    assert np.array_equal(stacked.losses(padded)[:, :3], losses)
    assert np.array_equal(stacked.losses(extreme)[:, :3], losses)
    assert not np.isnan(stacked.losses(extreme)).any()


@pytest.mark.parametrize("n_rows", [1, 300, 700])
def test_unused_columns_of_chunks_are_zero(n_rows):
    columns = np.ones((3, n_rows), np.float32)

    chunks = _split_into_chunks(columns, lambda shape, dtype: np.full(shape, 7, dtype))

    assert np.count_nonzero(chunks[:, :3]) == columns.size
    assert (chunks[:, 3] == 1).all()


@pytest.mark.parametrize(("n_features", "n_samples"), [(1, 1), (10, 2), (100, 2), (2000, 50)])
def test_block_sizes_are_multiples_of_16(n_features, n_samples):
    network = IWAENetwork(n_features, (32, 16), 8, n_samples, bounded=True)
    stacked = StackedIWAE(network, stack_states([network.copy_state()]))

    assert stacked.block_rows % 16 == stacked.explain_block_rows % 16 == 0
    assert 48 <= stacked.explain_block_rows <= stacked.block_rows <= 912


def test_threads_do_not_share_buffers():
    network, states = train_states(10, (32, 16), 8, 2)
    stacked = StackedIWAE(network, stack_states(states))
    blocks = [sample_columns(10, 96) * scale for scale in (0.5, 1, 1.5, 2)]
    expected = [stacked.losses(block) for block in blocks]
    failures = []

    def score(block, losses):
        failures.extend(not np.array_equal(stacked.losses(block), losses) for _ in range(50))

    threads = [
        threading.Thread(target=score, args=pair) for pair in zip(blocks, expected, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(failures) == 200
    assert not any(failures)


def test_stacked_snapshots_can_be_pickled():
    network, states = train_states()
    stacked, columns = StackedIWAE(network, stack_states(states)), sample_columns(5, 48)

    copy = pickle.loads(pickle.dumps(stacked))

    assert np.array_equal(copy.losses(columns), stacked.losses(columns))


def test_other_names_are_ignored():
    network, states = train_states()
    arrays = stack_states(states) | {"encoder.1.num_batches_tracked": np.arange(4)}

    assert StackedIWAE(network, arrays).n_snapshots == 4


def test_importance_weights_average_densities():
    losses = np.array([[0.0, 3.0], [1.0, 3.0]], np.float32)

    bound, log_weights = compute_importance_weights(losses, axis=0)

    assert np.allclose(bound, [-np.log((1 + np.exp(-1)) / 2), 3])
    assert np.allclose(np.exp(log_weights).sum(0), 1)
    assert np.allclose(log_weights[0] - log_weights[1], [1, 0])
