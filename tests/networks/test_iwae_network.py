import math
from itertools import pairwise

import numpy as np
import pytest

from altbi.networks import _iwae_network
from altbi.networks._iwae_network import IWAENetwork

SETTINGS = {
    "reference": {"bounded": True},
    "without norms": {"bounded": True, "batch_norm": False},
    "paper": {"bounded": False},
}
SHAPES = [((7,), 1), ((6, 5), 2), ((8, 7, 6), 5)]


def build_network(n_features=5, hidden=(6, 5), n_samples=2, *, setting="reference"):
    """Return a float64 network in which some log-variances are clamped and samples differ."""
    network = IWAENetwork(n_features, hidden, 3, n_samples, dtype=np.float64, **SETTINGS[setting])
    network.initialize(np.random.default_rng(3))
    state = network.copy_state()
    limit = 20 if setting == "paper" else 6
    for name in ("latent_log_variance", "log_variance"):
        state[f"{name}.weight"] *= 8
        # One of the log-variances is always clamped.
        state[f"{name}.bias"][0] = -10 * limit
    state["mean.weight"] *= 4
    network.load_state(state)
    return network


def sample_rows(n_rows=12, n_features=5):
    return 2 * np.random.default_rng(1).random((n_rows, n_features)) - 0.5


def fix_noise(network, n_rows):
    """Let all training batches have the same noise, and return it."""
    noise = np.random.default_rng(2).standard_normal((network.latent, network.n_samples, n_rows))
    network._sample_noise = lambda _: noise
    return noise


def name_gradients(network, gradient):
    """Return a gradient vector split by the names of the weights."""
    shape = network.hidden, network.latent, network.n_samples
    named = IWAENetwork(
        network.n_features,
        *shape,
        bounded=network.bounded,
        batch_norm=network.batch_norm,
        dtype=np.float64,
    )
    named.parameters[:] = gradient
    state = named.copy_state()
    return {name: state[name] for name in state if name.endswith(("weight", "bias"))}


def build_wide(n_samples=20):
    """Return a selective network, of which some samples have negligible importance weights."""
    network = IWAENetwork(80, (12, 6), 3, n_samples, bounded=True, dtype=np.float64)
    network.initialize(np.random.default_rng(3))
    state = network.copy_state()
    state["log_variance.bias"][:] = -3
    state["mean.weight"] *= 4
    network.load_state(state)
    return network, np.random.default_rng(4).random((9, 80))


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize(("hidden", "n_samples"), SHAPES)
def test_gradient_vector_equals_finite_differences(hidden, n_samples, setting):
    network, rows = build_network(5, hidden, n_samples, setting=setting), sample_rows()
    fix_noise(network, len(rows))
    factors = np.linspace(1, 2, len(rows))

    network.compute_losses(rows)
    gradient = network.compute_gradient(factors).copy()

    differences = np.empty_like(gradient)
    for index, value in enumerate(network.parameters.copy()):
        sides = []
        for step in (1e-6, -1e-6):
            network.parameters[index] = value + step
            sides.append(factors @ network.compute_losses(rows))
        network.parameters[index] = value
        differences[index] = (sides[0] - sides[1]) / 2e-6
    # Numbers near a kink or a clamp have no derivative.
    is_close = np.isclose(gradient, differences, rtol=1e-5, atol=1e-6 * abs(gradient).max())
    assert is_close.all()
    assert np.count_nonzero(gradient) > 0.6 * len(gradient)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize(("hidden", "n_samples"), SHAPES)
def test_gradient_vector_equals_torch_autograd(hidden, n_samples, setting):
    torch = pytest.importorskip("torch")
    from torch_reference import TorchNetwork

    network, rows = build_network(5, hidden, n_samples, setting=setting), sample_rows(30)
    model = TorchNetwork(5, hidden, 3, n_samples, **SETTINGS[setting])
    state = {name: torch.from_numpy(array) for name, array in network.copy_state().items()}
    model.load_state_dict(state, strict=False)
    noise = torch.from_numpy(fix_noise(network, len(rows)).transpose(2, 1, 0).copy())
    factors = np.linspace(1, 2, len(rows))

    losses = network.compute_losses(rows).copy()
    gradients = name_gradients(network, network.compute_gradient(factors))
    expected = model.train()(torch.from_numpy(rows), noise)
    (expected * torch.from_numpy(factors)).sum().backward()

    assert np.allclose(losses, expected.detach().numpy(), rtol=1e-10)
    assert set(gradients) == {name for name, _ in model.named_parameters()}
    for name, parameter in model.named_parameters():
        difference = gradients[name] - parameter.grad.numpy()
        assert abs(difference).max() < 1e-7 * parameter.grad.abs().max().item(), name
    state = network.copy_state()
    for name, buffer in model.named_buffers():
        if "running" in name:
            assert np.allclose(state[name], buffer.numpy(), rtol=1e-10), name


def test_selective_gradient_vector_equals_full_one(monkeypatch):
    network, rows = build_wide()
    fix_noise(network, len(rows))
    factors = np.linspace(1, 2, len(rows))
    results = []
    for limit in (8, 21):
        monkeypatch.setattr(_iwae_network, "_MANY_SAMPLES", limit)
        losses = network.compute_losses(rows).copy()
        share = np.count_nonzero(network._batch.weights) / network._batch.weights.size
        results.append((losses, network.compute_gradient(factors).copy()))
        assert network.is_selective == (limit == 8)

    (losses, gradient), (full_losses, full_gradient) = results
    assert 1 / 20 <= share < 1 / 2
    assert np.allclose(losses, full_losses, rtol=1e-12)
    assert abs(gradient - full_gradient).max() < 1e-10 * abs(full_gradient).max()


def test_negligible_samples_do_not_matter(monkeypatch):
    network, rows = build_wide()
    fix_noise(network, len(rows))
    gradients = []
    for smallest in (1e-8, 0):
        monkeypatch.setattr(_iwae_network, "_MIN_WEIGHT", smallest)
        network.compute_losses(rows)
        gradients.append(network.compute_gradient(np.ones(len(rows))).copy())

    assert 0 < abs(gradients[0] - gradients[1]).max() < 1e-6 * abs(gradients[1]).max()


def compute_elbo(network, rows):
    """Compute the ELBO of rows by a network without BatchNorm and K = 1, row by row."""
    state, slope = network.copy_state(), 0.01 if network.bounded else 0

    def apply(name, values):
        return state[f"{name}.weight"] @ values + state[f"{name}.bias"]

    def apply_layers(prefix, values):
        for index in (0, 2):
            values = apply(f"{prefix}.{index}", values)
            values = np.where(values > 0, values, slope * values)
        return values

    def log_density(x, mean, log_variance):
        return -0.5 * np.sum(
            math.log(2 * math.pi) + log_variance + (x - mean) ** 2 / np.exp(log_variance)
        )

    elbos = []
    for row in rows:
        hidden = apply_layers("encoder", row)
        latent = apply("latent_mean", hidden), apply("latent_log_variance", hidden)
        z_log_variance = latent[1].clip(*network.log_variance_range)
        z = latent[0] + np.exp(z_log_variance / 2) * network.scoring_noise[0]
        hidden = apply_layers("decoder", z)
        mean, log_variance = apply("mean", hidden), apply("log_variance", hidden)
        mean = 1 / (1 + np.exp(-mean)) if network.bounded else mean
        log_variance = log_variance.clip(*network.log_variance_range)
        elbo = log_density(row, mean, log_variance) + log_density(z, 0, 0 * z)
        elbo -= log_density(z, latent[0], z_log_variance)
        elbo -= (network.log_weight - 0.5) * log_variance.sum()
        elbos.append(elbo + len(row) * math.log(2 * math.pi) / 2)
    return np.array(elbos)


@pytest.mark.parametrize("setting", ["without norms", "paper"])
def test_loss_of_one_sample_is_negative_elbo(setting):
    network, rows = build_network(5, (6, 5), 1, setting=setting), sample_rows()
    network.resample_noise()

    losses = network.evaluate_losses(rows)
    elbos = compute_elbo(network, rows)

    assert np.allclose(losses, -elbos, rtol=1e-10)
    noise = np.repeat(network.scoring_noise.T[:, :, None], len(rows), axis=2)
    network._sample_noise = lambda _: noise
    assert np.allclose(network.compute_losses(rows), -elbos, rtol=1e-10)


def build_factor_analyser(n_samples):
    """Return an IWAE of x = A z + b + noise with q(z | x) = p(z), and its exact losses."""
    loadings, variance = np.array([[1.0, 0.3], [0.0, 0.8]]), 0.25
    network = IWAENetwork(2, (4, 4), 2, n_samples, bounded=False, dtype=np.float64)
    network.initialize(np.random.default_rng(0))
    state = {name: np.zeros_like(array) for name, array in network.copy_state().items()}
    # For positive inputs a ReLU is the identity: both layers add 50.
    for name in ("decoder.0", "decoder.2"):
        size = state[f"{name}.weight"].shape[1]
        state[f"{name}.weight"][:, :size] = np.eye(4)[:, :size]
        state[f"{name}.bias"][:] = 50
    state["mean.weight"][:, :2] = loadings
    state["mean.bias"][:] = np.array([0.5, -0.5]) - loadings @ [100, 100]
    state["log_variance.bias"][:] = math.log(variance)
    network.load_state(state)
    covariance = loadings @ loadings.T + variance * np.eye(2)

    def compute_exact_losses(rows):
        centered = rows - [0.5, -0.5]
        distances = (centered @ np.linalg.inv(covariance) * centered).sum(1)
        return (distances + np.linalg.slogdet(covariance)[1]) / 2

    return network, compute_exact_losses


def test_bound_tightens_towards_exact_likelihood():
    rows = np.array([[0.5, -0.5], [2.0, 1.0], [-1.5, -2.0]])
    means = []
    for n_samples, repeats in ((1, 9000), (2, 4500), (20, 450), (9000, 20)):
        network, compute_exact_losses = build_factor_analyser(n_samples)
        losses = network.compute_losses(np.tile(rows, (repeats, 1)))
        means.append(losses.reshape(repeats, -1).mean(0))

    exact = compute_exact_losses(rows)
    assert all((looser > tighter).all() for looser, tighter in pairwise(means))
    assert np.allclose(means[-1], exact, atol=0.03)
    assert (means[0] - exact).min() > 0.2


def test_training_noise_differs_scoring_noise_does_not():
    network, rows = build_network(setting="paper"), np.ones((5, 5))

    assert len(set(network.compute_losses(rows))) == 5
    before = network.evaluate_losses(rows)
    assert len(set(before)) == 1
    assert np.array_equal(network.evaluate_losses(rows), before)
    network.resample_noise()
    assert not np.allclose(network.evaluate_losses(rows), before)


@pytest.mark.parametrize("setting", SETTINGS)
def test_initial_weights_have_torch_distribution(setting):
    torch = pytest.importorskip("torch")
    from torch_reference import TorchNetwork

    network = IWAENetwork(40, (60, 50), 30, 2, **SETTINGS[setting])
    network.initialize(np.random.default_rng(0))
    torch.manual_seed(0)
    model = TorchNetwork(40, (60, 50), 30, 2, **SETTINGS[setting])

    state = network.copy_state()
    expected = {n: a for n, a in model.state_dict().items() if "num_batches" not in n}
    assert {name: a.shape for name, a in state.items()} == {
        name: tuple(a.shape) for name, a in expected.items()
    }
    for name, _ in model.named_parameters():
        ours, theirs = state[name], expected[name].numpy()
        assert ours.dtype == np.float32
        assert ours.std() == pytest.approx(theirs.std(), rel=0.35), name
        assert abs(ours).max() == pytest.approx(abs(theirs).max(), rel=0.15), name


def test_same_seed_gives_same_training():
    results = []
    for _ in range(2):
        network = IWAENetwork(5, (6, 5), 2, 2, bounded=True)
        network.initialize(np.random.default_rng(5))
        for _ in range(3):
            network.compute_losses(sample_rows().astype(np.float32))
            network.parameters -= 0.1 * network.compute_gradient(np.ones(12, np.float32))
        network.resample_noise()
        results.append(network.copy_state())

    for name, array in results[0].items():
        assert array.dtype == np.float32
        assert np.array_equal(array, results[1][name]), name


def test_initialization_forgets_the_training():
    network, fresh = build_network(), build_network()
    for _ in range(3):
        network.compute_losses(sample_rows())
        network.parameters -= 0.1 * network.compute_gradient(np.ones(12))
    network.resample_noise()

    for each in (network, fresh):
        each.initialize(np.random.default_rng(7))

    states = network.copy_state(), fresh.copy_state()
    assert all(np.array_equal(states[0][name], array) for name, array in states[1].items())


def test_gradient_descent_reduces_losses():
    rows = np.random.default_rng(0).random((64, 1)) * np.linspace(0.5, 1, 5)
    rows = rows.astype(np.float32)
    network = IWAENetwork(5, (16, 8), 2, 2, bounded=True)
    network.initialize(np.random.default_rng(1))
    first = network.compute_losses(rows).mean()
    for _ in range(300):
        network.compute_losses(rows)
        network.parameters -= 0.02 * network.compute_gradient(np.full(64, 1 / 64, np.float32))

    assert network.compute_losses(rows).mean() < first - 5
    assert network.evaluate_losses(rows).mean() < first - 5


def test_loaded_state_restores_losses():
    network, rows = build_network(), sample_rows()
    network.compute_losses(rows)
    network.resample_noise()
    other = IWAENetwork(5, (6, 5), 3, 2, bounded=True, dtype=np.float64)
    state = network.copy_state() | {"encoder.1.num_batches_tracked": np.array(1)}
    other.load_state(state)
    before = network.evaluate_losses(rows)
    network.parameters += 1

    assert np.array_equal(other.evaluate_losses(rows), before)
    with pytest.raises(ValueError, match=r"'mean\.weight' of the shape \(5, 6\)"):
        other.load_state(state | {"mean.weight": np.zeros((5, 1))})


def test_blocks_of_evaluation_do_not_matter(monkeypatch):
    network, rows = build_network(), sample_rows(23)
    losses = network.evaluate_losses(rows)

    monkeypatch.setattr(_iwae_network, "_BLOCK_ROWS", 7)

    assert np.allclose(network.evaluate_losses(rows), losses, rtol=1e-12)


def test_batches_of_other_sizes_reuse_buffers():
    network, rows = build_network(), sample_rows()
    fix_noise(network, 12)
    losses = network.compute_losses(rows).copy()
    gradient = network.compute_gradient(np.ones(12)).copy()
    fix_noise(network, 30)
    network.compute_losses(sample_rows(30))
    network.compute_gradient(np.ones(30))

    fix_noise(network, 12)
    assert np.array_equal(network.compute_losses(rows), losses)
    assert np.array_equal(network.compute_gradient(np.ones(12)), gradient)


def test_single_row_needs_network_without_norms():
    with pytest.raises(ValueError, match="at least two rows"):
        build_network().compute_losses(np.ones((1, 5)))

    network = build_network(setting="paper")
    assert network.compute_losses(np.ones((1, 5))).shape == (1,)
    assert np.isfinite(network.compute_gradient(np.ones(1))).all()


def test_gradient_of_unused_losses_is_zero():
    for network, rows in (build_wide(), (build_network(), sample_rows())):
        network.compute_losses(rows)

        assert not network.compute_gradient(np.zeros(len(rows))).any()


def test_gradient_needs_preceding_losses():
    network, rows = build_network(), sample_rows()
    network.compute_losses(rows)
    network.evaluate_losses(rows)

    with pytest.raises(ValueError, match="Call compute_losses before"):
        network.compute_gradient(np.ones(12))


@pytest.mark.parametrize(
    ("n_features", "n_samples", "is_selective"), [(64, 8, True), (63, 8, False), (64, 7, False)]
)
def test_network_selects_samples_from_limits_on(n_features, n_samples, is_selective):
    network = IWAENetwork(n_features, (4, 4), 2, n_samples, bounded=True)
    plain = IWAENetwork(n_features, (4, 4), 2, n_samples, bounded=True, batch_norm=False)

    assert network.is_selective == is_selective
    assert not plain.is_selective


def test_nan_weight_reaches_losses_and_gradient():
    for network, rows in (build_wide(), (build_network(), sample_rows())):
        state = network.copy_state()
        state["mean.weight"][0, 0] = math.nan
        network.load_state(state)

        assert np.isnan(network.compute_losses(rows)).all()
        assert np.isnan(network.compute_gradient(np.ones(len(rows)))).any()


def test_sampled_rows_follow_the_decoder():
    network, _ = build_factor_analyser(2)

    rows = network.sample_rows(20_000, np.random.default_rng(0))

    assert rows.shape == (20_000, 2)
    assert np.allclose(rows.mean(0), [0.5, -0.5], atol=0.05)
    assert np.allclose(np.cov(rows.T), [[1.34, 0.24], [0.24, 0.89]], atol=0.05)


def count_denormals(arrays):
    smallest = np.finfo(np.float32).tiny
    return sum(np.count_nonzero((array != 0) & (abs(array) < smallest)) for array in arrays)


@pytest.mark.parametrize("n_samples", [2, 8])
def test_wide_sparse_table_makes_no_denormals(n_samples):
    generator = np.random.default_rng(0)
    rows = (generator.random((100, 300)) < 0.01).astype(np.float32)
    network = IWAENetwork(300, (64, 32), 16, n_samples, bounded=True)
    network.initialize(generator)
    # Means far below 0 and small variances are what a long training leads to.
    state = network.copy_state()
    state["mean.weight"] *= 60
    state["log_variance.bias"] -= 4
    network.load_state(state)
    buffers = [network._buffers, *(layer.buffers for layer in network._encoder + network._decoder)]
    counts = []
    for _ in range(20):
        network.compute_losses(rows)
        counts.append(count_denormals(a for b in buffers for a in b.views.values()))
        gradient = network.compute_gradient(np.full(100, 0.01, np.float32))
        counts.append(count_denormals(a for b in buffers for a in b.views.values()))
        counts.append(count_denormals([gradient]))
        network.parameters -= 1e-3 * gradient / (abs(gradient) + 1e-12)

    assert sum(counts) == 0
