import pytest
import torch

from altbi.networks import IWAENetwork, _stacked_iwae
from altbi.networks._stacked_iwae import StackedIWAE


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
    monkeypatch.setattr(_stacked_iwae, "_BLOCK_ACTIVATIONS", 2 * 64 * 3 * 6)
    grouped = stack(models[0], states)
    columns = torch.rand(3, 64)

    assert grouped.groups == [slice(0, 2), slice(2, 4), slice(4, 6)]
    assert len(ungrouped.groups) == 1
    assert torch.allclose(grouped.losses(columns), ungrouped.losses(columns), rtol=1e-5)
    assert len(set(grouped.losses(columns)[:, 0].tolist())) == 5
