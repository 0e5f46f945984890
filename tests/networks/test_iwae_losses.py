import copy

import pytest
import torch
from altbi.networks._iwae_losses import StackedIWAE

from altbi.networks import IWAENetwork, _iwae_losses


def build_network(n_features=3, hidden=(6, 5), n_samples=2, *, bounded=True, batch_norm=True):
    torch.manual_seed(4)
    return IWAENetwork(
        n_features, hidden, 3, n_samples, bounded=bounded, batch_norm=batch_norm
    ).double()


def compute_gradients(model, rows):
    """Return losses and gradients of one batch, with the same noise each time."""
    model.generator = torch.Generator().manual_seed(5)
    model.zero_grad()
    losses = model.train()(rows)
    (losses * torch.linspace(1, 2, len(rows))).sum().backward()
    return losses.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}


def is_hand_written(losses):
    return "_Bounds" in type(losses.grad_fn).__name__


@pytest.mark.parametrize("n_samples", [1, 2, 6])
@pytest.mark.parametrize("hidden", [(7,), (6, 5), (8, 7, 6)])
def test_gradient_equals_autograd(hidden, n_samples):
    model = build_network(5, hidden, n_samples)
    with torch.no_grad():
        # Some log-variances are clamped, others are not, and samples differ in weight.
        for head in (model.latent_log_variance, model.log_variance):
            head.weight.mul_(8)
        model.mean.weight.mul_(4)
    plain, rows = copy.deepcopy(model), 2 * torch.rand(30, 5, dtype=torch.float64) - 0.5

    losses, gradients = compute_gradients(model, rows)
    # The network uses autograd if gradients of the rows are needed.
    plain_losses, plain_gradients = compute_gradients(plain, rows.clone().requires_grad_())

    _, log_variance = plain.encode(rows)
    assert 0 < (log_variance.abs() < 2).sum() < log_variance.numel()
    assert is_hand_written(model(rows))
    assert torch.allclose(losses, plain_losses, rtol=1e-10)
    for name, gradient in plain_gradients.items():
        largest = gradient.abs().max()
        assert largest > 0
        assert (gradients[name] - gradient).abs().max() < 1e-9 * largest, name


def test_running_statistics_equal_batch_norm():
    model = build_network()
    plain, rows = copy.deepcopy(model), torch.rand(12, 3, dtype=torch.float64)
    for _ in range(3):
        compute_gradients(model, rows)
        compute_gradients(plain, rows.clone().requires_grad_())

    for (name, ours), theirs in zip(model.named_buffers(), plain.buffers(), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-10), name
    assert model.encoder[1].num_batches_tracked == 3
    assert (model.decoder[1].running_var - 1).abs().max() > 0.01


@pytest.mark.parametrize(
    "case", ["evaluation", "no norms", "paper", "selective", "row gradients", "frozen encoder"]
)
def test_other_cases_use_autograd(case):
    n_features = 80 if case == "selective" else 3
    model = build_network(
        n_features,
        n_samples=20 if case == "selective" else 2,
        bounded=case != "paper",
        batch_norm=case != "no norms",
    )
    rows = torch.rand(12, n_features, dtype=torch.float64)
    if case == "evaluation":
        model.eval()
    elif case == "row gradients":
        rows.requires_grad_()
    elif case == "frozen encoder":
        model.encoder.eval()

    assert not is_hand_written(model(rows))


def stack(model, states):
    return StackedIWAE(model, {k: torch.stack([s[k] for s in states]) for k in states[0]})


def train_snapshots(bounded, n_features, hidden, latent, n_samples):
    """Return snapshots with trained weights and BatchNorm statistics."""
    torch.manual_seed(2)
    model, states = IWAENetwork(n_features, hidden, latent, n_samples, bounded=bounded), []
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(4):
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.rand(40, n_features)).mean().backward()
            optimizer.step()
        model.resample_noise()
        states.append({name: state.clone() for name, state in model.state_dict().items()})
    return model, states


@pytest.mark.slow
@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("n_samples", [1, 3])
@pytest.mark.parametrize("hidden", [(6, 5), (7,), (4, 8, 3)])
def test_losses_equal_those_of_single_networks(bounded, n_samples, hidden):
    model, states = train_snapshots(bounded, 5, hidden, 2, n_samples)
    stacked = stack(model, states)
    x = torch.rand(30, 5) * 3 - 1

    single = []
    for state in states:
        model.load_state_dict(state)
        single.append(model.eval()(x))

    assert torch.allclose(stacked.losses(x.T), torch.stack(single), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bounded", [False, True])
def test_contributions_add_up_to_losses(bounded):
    model, states = train_snapshots(bounded, 5, (6, 5), 2, 3)
    stacked = stack(model, states)
    x = torch.rand(5, 30) * 3 - 1

    split = stacked.contributions(x)

    assert torch.allclose(split.losses, stacked.losses(x))
    assert torch.allclose(
        split.by_feature.sum(1) + split.remainder, split.losses, rtol=1e-5, atol=1e-5
    )
    assert split.by_feature.shape == (4, 5, 30)


def test_distance_is_half_squared_z_score():
    model, states = train_snapshots(True, 5, (6, 5), 2, 1)
    model.load_state_dict(states[0])
    stacked = StackedIWAE(model, {name: state[None] for name, state in states[0].items()})
    context, values = torch.rand(2, 5, 30)

    expected, distance = stacked.expect(context, values)

    z_mean, z_log_variance = model.eval().encode(context.T)
    z = z_mean + (z_log_variance / 2).exp() * model.scoring_noise
    mean, log_variance = (t[:, 0].T for t in model.decode(z[:, None]))
    assert torch.allclose(expected[0], mean, atol=1e-5)
    assert torch.allclose(distance[0], (values - mean) ** 2 / log_variance.exp() / 2, rtol=1e-3)


def test_groups_of_snapshots_have_same_losses(monkeypatch):
    torch.manual_seed(1)
    models = [IWAENetwork(3, (6, 5), 2, 3, bounded=True) for _ in range(5)]
    for shift, model in enumerate(models):
        for state in (model.scoring_noise, *model.parameters()):
            state.data += 0.1 * shift
    states = [model.state_dict() for model in models]
    ungrouped = stack(models[0], states)
    # With 64 rows, 3 samples and 6 activations, two snapshots fit into the limit.
    monkeypatch.setattr(_iwae_losses, "_BLOCK_ACTIVATIONS", 2 * 64 * 3 * 6)
    grouped = stack(models[0], states)
    columns = torch.rand(3, 64)

    assert grouped.groups == [slice(0, 2), slice(2, 4), slice(4, 6)]
    assert len(ungrouped.groups) == 1
    assert torch.allclose(grouped.losses(columns), ungrouped.losses(columns), rtol=1e-5)
    assert len(set(grouped.losses(columns)[:, 0].tolist())) == 5
