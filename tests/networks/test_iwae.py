import math
from itertools import pairwise

import pytest
import torch
from altbi.networks._generative_model import allocate
from altbi.networks._iwae_losses import combine_samples, compute_gaussian_terms
from torch.distributions import MultivariateNormal, Normal
from torch.func import functional_call

from altbi.networks import IWAENetwork, _iwae, default_sizes

HALF_LOG_TWO_PI = math.log(2 * math.pi) / 2


def build_small(n_samples=2, bounded=False, n_features=3):
    torch.manual_seed(1)
    model = IWAENetwork(n_features, (6, 5), 2, n_samples, bounded=bounded)
    model.resample_noise()
    return model


def build_linear_gaussian(n_samples):
    """Return an IWAE that equals x = A z + b + noise with q(z | x) = p(z), and its density."""
    model = IWAENetwork(2, (4, 4), 2, n_samples, bounded=False)
    loadings = torch.tensor([[1.0, 0.3], [0.0, 0.8]])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        # For positive inputs a ReLU is the identity: both layers add 50.
        for layer in (model.decoder[0], model.decoder[2]):
            layer.weight[:, : layer.in_features].copy_(torch.eye(4)[:, : layer.in_features])
            layer.bias.fill_(50.0)
        model.mean.weight[:, :2] = loadings
        model.mean.bias.copy_(torch.tensor([0.5, -0.5]) - loadings @ torch.tensor([100.0, 100.0]))
        model.log_variance.bias.fill_(math.log(0.25))
    exact = MultivariateNormal(
        torch.tensor([0.5, -0.5]), loadings @ loadings.T + 0.25 * torch.eye(2)
    )
    return model.train(), exact


@pytest.mark.parametrize("bounded", [False, True])
def test_one_sample_gives_negative_elbo(bounded):
    model = build_small(n_samples=1, bounded=bounded).eval()
    x = torch.rand(7, 3)

    m, v = model.encode(x)
    z = m + (v / 2).exp() * model.scoring_noise[0]
    mean, log_variance = (t[:, 0] for t in model.decode(z[:, None]))
    likelihood = Normal(mean, (log_variance / 2).exp()).log_prob(x).sum(-1)
    posterior = Normal(m, (v / 2).exp()).log_prob(z).sum(-1)
    elbo = likelihood + Normal(0, 1).log_prob(z).sum(-1) - posterior
    missing_half = log_variance.sum(-1) / 2 if bounded else 0
    expected = -elbo - 3 * HALF_LOG_TWO_PI + missing_half

    assert torch.allclose(model(x), expected, atol=1e-5)


def test_more_samples_approach_exact_likelihood():
    x = torch.tensor([[0.5, -0.5], [2.0, 1.0], [-1.5, -2.0]])
    torch.manual_seed(0)

    bounds = []
    for n_samples, repeats in ((1, 9000), (2, 4500), (20, 450), (9000, 20)):
        model, exact = build_linear_gaussian(n_samples)
        with torch.no_grad():
            bounds.append(model(x.repeat(repeats, 1)).view(repeats, -1).mean(0))
    truth = -exact.log_prob(x) - 2 * HALF_LOG_TWO_PI

    assert all((looser > tighter).all() for looser, tighter in pairwise(bounds))
    assert torch.allclose(bounds[-1], truth, atol=0.03)
    assert (bounds[0] - truth).min() > 0.2


@pytest.mark.slow
@pytest.mark.parametrize("bounded", [False, True])
def test_gradients_equal_finite_differences(bounded):
    model = build_small(bounded=bounded).double().eval()
    x = torch.rand(4, 3, dtype=torch.float64)
    names, values = zip(*model.named_parameters(), strict=True)

    def loss(*parameters):
        return functional_call(model, dict(zip(names, parameters, strict=True)), (x,))

    assert torch.autograd.gradcheck(loss, values, eps=1e-6, atol=1e-6)


def test_every_parameter_has_a_gradient():
    for bounded in (False, True):
        model = build_small(bounded=bounded)
        model(torch.rand(20, 3)).mean().backward()

        assert all(p.grad.abs().sum() > 0 for p in model.parameters())


def test_noise_is_new_only_in_training():
    model, x = build_small(), torch.rand(1, 3).expand(5, 3)

    trained = model.train()(x)
    scored = model.eval()(x)

    assert len(set(trained.tolist())) == 5
    assert len(set(scored.tolist())) == 1
    assert torch.equal(model(x), scored)


@pytest.mark.parametrize("bounded", [False, True])
def test_initialization_equals_torch_default(bounded):
    torch.manual_seed(8)
    usual = IWAENetwork(3, (6, 5), 2, 2, bounded=bounded)
    state = torch.random.get_rng_state()
    with torch.device("meta"):
        ours = IWAENetwork(3, (6, 5), 2, 2, bounded=bounded)
    allocate(ours, torch.device("cpu"))
    kinds = {name: state.dtype for name, state in ours.state_dict().items()}
    assert kinds == {name: state.dtype for name, state in usual.state_dict().items()}

    ours.scoring_noise.zero_()
    ours.initialize_weights(torch.Generator().manual_seed(8))
    losses = ours(torch.ones(4, 3))
    ours.resample_noise()

    assert torch.equal(torch.random.get_rng_state(), state)
    for name, weight in usual.named_parameters():
        assert torch.equal(weight, ours.get_parameter(name)), name
    assert torch.equal(losses, usual(torch.ones(4, 3)))


def test_resample_noise_changes_losses():
    model = build_small().eval()
    before = model(torch.ones(1, 3))

    model.resample_noise()

    assert not torch.equal(model(torch.ones(1, 3)), before)


def test_bounded_network_matches_authors_code():
    model = IWAENetwork(10, (32, 16), 8, 2, bounded=True)

    kinds = [type(layer).__name__ for layer in model.encoder]
    assert kinds == ["Linear", "BatchNorm1d", "LeakyReLU"] * 2
    norm = model.encoder[1]
    assert (norm.eps, norm.affine, norm.momentum) == (1e-4, False, 0.1)
    assert model.encoder[0].bias is None
    assert (model.latent_mean.bias, model.mean.bias) == (None, None)
    assert model.log_variance_range == (-6, 2)
    mean, log_variance = model.eval().decode(torch.randn(3, 2, 8) * 100)
    assert 0 <= mean.min() <= mean.max() <= 1
    assert -6 <= log_variance.min() <= log_variance.max() <= 2


def test_paper_network_has_no_batch_norm():
    model = IWAENetwork(10, (100, 50), 10, 2, bounded=False)

    assert [type(layer).__name__ for layer in model.encoder] == ["Linear", "ReLU"] * 2
    mean, _ = model.decode(torch.randn(3, 2, 10) * 1000)
    assert mean.abs().max() > 1
    assert model.log_variance_range == (-20, 20)


def test_gaussian_terms_equal_log_densities():
    x, mean, log_variance = torch.randn(3, 50)

    terms = compute_gaussian_terms(x, mean, log_variance, log_weight=0.5)

    exact = -Normal(mean, (log_variance / 2).exp()).log_prob(x) - HALF_LOG_TWO_PI
    assert torch.allclose(terms, exact, atol=1e-4)


def test_combine_samples_averages_densities():
    losses = torch.tensor([[0.0, 1.0], [3.0, 3.0]])

    expected = [-math.log((1 + math.exp(-1)) / 2), 3.0]
    assert torch.allclose(combine_samples(losses, dim=-1), torch.tensor(expected))


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


def build_wide(n_features=80, n_samples=20):
    torch.manual_seed(3)
    model = IWAENetwork(n_features, (12, 6), 3, n_samples, bounded=True).double()
    model.resample_noise()
    # Some samples have relevant importance weights, others have not.
    with torch.no_grad():
        model.log_variance.bias.fill_(-3)
        model.mean.weight.mul_(4)
    return model, torch.rand(9, n_features, dtype=torch.float64)


def compute_gradients(model, rows):
    """Losses and gradients of one batch, with the same noise each time."""
    model.generator = torch.Generator().manual_seed(5)
    model.zero_grad()
    losses = model.train()(rows)
    (losses * torch.linspace(1, 2, len(rows))).sum().backward()
    return losses.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}


def test_selective_gradient_equals_full_gradient(monkeypatch):
    model, rows = build_wide()
    seen = []
    hook = model.mean.register_forward_hook(lambda _, inputs, output: seen.append(inputs[0]))
    losses, gradients = compute_gradients(model, rows)
    hook.remove()
    monkeypatch.setattr(_iwae, "_MANY_SAMPLES", 21)
    plain_losses, plain_gradients = compute_gradients(model, rows)

    n_selected = [len(inputs) for inputs in seen if inputs.requires_grad]
    assert 9 <= sum(n_selected) < 9 * 20 / 2
    assert torch.allclose(losses, plain_losses, rtol=1e-7, atol=0)
    for name, gradient in plain_gradients.items():
        largest = gradient.abs().max()
        assert largest > 0
        assert (gradients[name] - gradient).abs().max() < 1e-6 * largest, name


def test_selective_losses_equal_full_losses(monkeypatch):
    model, rows = build_wide()
    with torch.no_grad():
        scored = model.eval()(rows)
        monkeypatch.setattr(_iwae, "_MANY_SAMPLES", 21)
        plain = model(rows)

    assert torch.allclose(scored, plain, rtol=1e-12)


@pytest.mark.parametrize(
    ("n_features", "n_samples", "is_selective"), [(64, 8, True), (63, 8, False), (64, 7, False)]
)
def test_network_is_selective_from_limits_on(n_features, n_samples, is_selective):
    model = IWAENetwork(n_features, (4, 4), 2, n_samples, bounded=True)

    assert model.is_selective == is_selective
    assert not IWAENetwork(
        n_features, (4, 4), 2, n_samples, bounded=True, batch_norm=False
    ).is_selective


def test_nan_reaches_losses_and_gradients():
    model, rows = build_wide()
    with torch.no_grad():
        model.mean.weight[0, 0] = math.nan

    losses, gradients = compute_gradients(model, rows)

    assert losses.isnan().all()
    assert gradients["mean.weight"].isnan().any()
