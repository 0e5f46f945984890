import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from altbi.networks import Schedule, train
from altbi.torch._flow_steps import (
    ActNorm,
    Coupling,
    FlowStep,
    InvertibleMix,
    TopPrior,
    extract_patches,
)
from altbi.torch._glow import GlowNetwork, _squeeze, count_levels, square_side
from altbi.torch._modes import single_thread
from altbi.torch._training import Adam, TorchTraining


def build_glow(n_features=10, steps=3, hidden=(8, 6), *, seed=0, disturbed=True):
    """Return a flow in double precision, with random weights unless `disturbed` is False."""
    model = GlowNetwork(n_features, steps, hidden).double()
    generator = torch.Generator().manual_seed(seed)
    model.initialize_weights(generator)
    if disturbed:
        disturb(model, generator)
    return model.eval()


@torch.no_grad()
def disturb(module, generator):
    for parameter in module.parameters():
        parameter += 0.2 * torch.randn(parameter.shape, generator=generator, dtype=torch.double)


def sample_squares(model, n_rows=3, seed=1):
    shape = (n_rows, model.side**2)
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def encode(model, squares):
    """Return the latent values of each level, and the log-determinant."""
    z, log_det, latents = model._to_image(squares), 0, []
    for level in model.levels:
        z, level_log_det = level.apply_steps(_squeeze(z))
        log_det = log_det + level_log_det
        z, latent = level.split(z)
        latents.append(latent)
    return latents, log_det


def flatten(latents):
    return torch.cat([latent.flatten(0, 2) for latent in latents]).T


@pytest.mark.parametrize(
    ("n_features", "side"),
    [(1, 4), (16, 4), (17, 6), (36, 6), (37, 8), (64, 8), (65, 10), (166, 14), (1555, 40)],
)
def test_square_side_is_smallest_even_one(n_features, side):
    assert square_side(n_features) == side


def test_levels_match_authors_code():
    two = {side for side in range(4, 42, 2) if count_levels(side) == 2}

    assert two == {8, 16, 24, 32, 40}


@pytest.mark.parametrize("n_features", [10, 64])
def test_log_determinant_equals_jacobian(n_features):
    model = build_glow(n_features, steps=2)
    squares = sample_squares(model, n_rows=1)

    _, log_det = encode(model, squares)

    jacobian = torch.autograd.functional.jacobian(
        lambda square: flatten(encode(model, square[None])[0])[0], squares[0]
    )
    assert torch.linalg.slogdet(jacobian)[1].item() == pytest.approx(log_det.item(), abs=1e-8)


@pytest.mark.parametrize("n_features", [10, 64])
def test_density_is_latent_density_times_determinant(n_features):
    model = build_glow(n_features)
    squares = sample_squares(model)

    latents, log_det = encode(model, squares)
    expected = log_det.clone()
    for level, latent in zip(model.levels, latents, strict=True):
        if level.is_last:
            seen = None
        else:
            flown, _ = level.apply_steps(first_squeeze(squares))
            seen = flown.chunk(2)[0]
        mean, log_std = level.prior(seen).chunk(2)
        gaussian = torch.distributions.Normal(mean, log_std.exp())
        expected += gaussian.log_prob(latent).sum((0, 1, 2))

    assert len(latents) == count_levels(model.side)
    assert torch.allclose(model.log_density(squares), expected)
    assert torch.allclose(-model.log_density(squares), model(remove_noise(model, squares)))


def first_squeeze(squares):
    side = math.isqrt(squares.shape[1])
    return to_rows_last(functional.pixel_unshuffle(squares.view(-1, 1, side, side), 2))


def to_rows_last(images):
    """Move the axis of rows to the end."""
    return images.permute(1, 2, 3, 0).contiguous()


def remove_noise(model, squares):
    """Return the rows whose dequantized squares are given."""
    return squares - model.scoring_noise / 256


def test_density_of_step_integrates_to_one():
    step = FlowStep(channels=2, hidden=(8, 8)).double()
    generator = torch.Generator().manual_seed(0)
    step.mix.initialize_weights(generator)
    step.coupling.initialize_weights(generator)
    disturb(step, generator)
    axis = torch.linspace(-12, 12, 401, dtype=torch.double)
    points = torch.cartesian_prod(axis, axis).T[:, None, None]

    with torch.no_grad():
        z, log_det = step(points)
    log_density = torch.distributions.Normal(0, 1).log_prob(z).sum((0, 1, 2)) + log_det

    assert float(log_density.exp().sum() * (axis[1] - axis[0]) ** 2) == pytest.approx(1, abs=1e-3)
    assert log_density.exp().max() < 0.99  # not a spike


def test_coupling_equals_conv2d():
    coupling = Coupling(4, hidden=(5, 6)).double()
    disturb(coupling, torch.Generator().manual_seed(0))
    image = torch.rand(7, 2, 3, 3, dtype=torch.double)

    shift, scale = coupling(to_rows_last(image))

    outputs = to_rows_last(couple_plainly(coupling, image))
    assert torch.allclose(shift, outputs[0::2])
    assert torch.allclose(scale, outputs[1::2] + 2)


def couple_plainly(coupling, image):
    first = coupling.first.unflatten(1, (9, -1)).transpose(1, 2).unflatten(2, (3, 3))
    hidden = normalize(functional.conv2d(image, first, padding=1), coupling.first_norm).relu()
    second = coupling.second[..., None, None]
    hidden = normalize(functional.conv2d(hidden, second), coupling.second_norm).relu()
    last = coupling.last.weight.unflatten(0, (9, -1)).permute(1, 2, 0).unflatten(2, (3, 3))
    return scale_plainly(coupling.last, functional.conv2d(hidden, last, padding=1))


def scale_plainly(convolution, image):
    scale = (3 * convolution.log_scale).exp()
    return (image + convolution.bias[:, None, None]) * scale[:, None, None]


def convolve_plainly(convolution, image):
    weight = convolution.weight.unflatten(1, (9, -1)).transpose(1, 2).unflatten(2, (3, 3))
    return scale_plainly(convolution, functional.conv2d(image, weight, padding=1))


@pytest.mark.parametrize("n_features", [10, 37])
def test_losses_and_gradients_equal_conv2d(n_features, monkeypatch):
    monkeypatch.setattr("altbi.torch._flow_steps._BLOCK_PIXELS", 32)  # several blocks
    model = build_glow(n_features)
    squares = sample_squares(model, n_rows=9).requires_grad_()
    leaves = [squares, *model.parameters()]
    weights = torch.rand(9, dtype=torch.double)

    losses, expected = model.log_density(squares), compute_log_density_plainly(model, squares)

    assert torch.allclose(losses, expected, rtol=1e-12)
    found, truth = (torch.autograd.grad(weights @ each, leaves) for each in (losses, expected))
    for one, other in zip(found, truth, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-10)


def compute_log_density_plainly(model, squares):
    """Compute the density on images by conv2d, as in the paper."""
    image, total = squares.view(-1, 1, model.side, model.side), 0
    for level in model.levels:
        image = functional.pixel_unshuffle(image, 2)
        for step in level.steps:
            image, gain = step_plainly(step, image)
            total = total + gain
        if level.is_last:
            latent, prior = image, level.prior(None).view(1, -1, 1, 1)
        else:
            image, latent = image.chunk(2, 1)
            prior = convolve_plainly(level.prior, image)
        mean, log_std = prior.chunk(2, 1)
        gaussian = torch.distributions.Normal(mean, log_std.exp())
        total = total + gaussian.log_prob(latent).sum((1, 2, 3))
    return total


def step_plainly(step, image):
    weight = step.mix.weight()
    image = functional.conv2d(normalize(image, step.norm), weight[..., None, None])
    fixed, moved = image.chunk(2, 1)
    outputs = couple_plainly(step.coupling, fixed)
    scale = torch.sigmoid(outputs[:, 1::2] + 2)
    per_pixel = torch.linalg.slogdet(weight)[1] + step.norm.log_scale.sum()
    log_det = image[0, 0].numel() * per_pixel + scale.log().sum((1, 2, 3))
    return torch.cat([fixed, (moved + outputs[:, 0::2]) * scale], 1), log_det


@pytest.mark.parametrize("n_features", [10, 17, 37, 100])
@pytest.mark.parametrize("hidden", [(8, 8), (7, 5), (13, 9)])
def test_loss_does_not_depend_on_position(n_features, hidden):
    model = build_glow(n_features, hidden=hidden).float()
    rows = torch.rand(512, n_features)
    order = torch.randperm(512)

    with single_thread(), torch.no_grad():
        losses, shuffled = model(rows), model(rows[order])

    assert torch.equal(shuffled, losses[order])


def normalize(image, norm):
    return (image + norm.bias[:, None, None]) * norm.log_scale[:, None, None].exp()


def test_mix_is_initialized_as_rotation():
    mix = InvertibleMix(6).double()
    mix.initialize_weights(torch.Generator().manual_seed(0))

    weight = mix.weight()

    assert torch.allclose(weight @ weight.T, torch.eye(6, dtype=torch.double), atol=1e-6)
    assert not torch.allclose(weight, torch.eye(6, dtype=torch.double), atol=0.1)
    disturb(mix, torch.Generator().manual_seed(1))
    log_det = torch.linalg.slogdet(mix.weight())[1]
    assert log_det.item() == pytest.approx(mix.log_diagonal.sum().item())


def test_first_batch_initializes_normalizations():
    model = build_glow(30, disturbed=False).train()
    batch = torch.rand(50, 30, dtype=torch.double) * 5 + 2
    given = {}
    for name, part in model.named_modules():
        if isinstance(part, FlowStep):
            part.register_forward_hook(
                lambda step, args, out, name=name: given.update({name: (step, args[0])})
            )

    model(batch)

    assert len(given) == 3
    for step, z in given.values():
        out = normalize_rows(z.flatten(1).T, step.norm)
        assert torch.allclose(out.mean(0), torch.zeros(4, dtype=torch.double), atol=0.1)
        assert torch.allclose(out.std(0), torch.ones(4, dtype=torch.double), atol=0.1)
        hidden = functional.linear(coupling_patches(step, out, z), step.coupling.first)
        initialized = normalize_rows(hidden, step.coupling.first_norm)
        assert torch.allclose(initialized.mean(0), initialized.new_zeros(8), atol=0.1)
        assert torch.allclose(initialized.std(0), initialized.new_ones(8), atol=0.1)
        second = normalize_rows(
            functional.linear(initialized.relu(), step.coupling.second), step.coupling.second_norm
        )
        assert torch.allclose(second.mean(0), second.new_zeros(6), atol=0.1)
        assert torch.allclose(second.std(0), second.new_ones(6), atol=0.1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model(batch * 100)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def coupling_patches(step, out, like):
    """Return the patches that the first layer of the coupling gets."""
    fixed = functional.linear(out, step.mix.weight()).T.reshape(like.shape).chunk(2)[0]
    return extract_patches(fixed).T


def normalize_rows(rows, norm):
    return (rows + norm.bias) * norm.log_scale.exp()


def test_step_shifts_before_scaling():
    step = FlowStep(channels=4, hidden=(4, 4)).double()
    generator = torch.Generator().manual_seed(0)
    step.mix.initialize_weights(generator)
    disturb(step, generator)
    z = torch.rand(4, 2, 2, 5, dtype=torch.double)

    mixed = step.mix.weight() @ normalize_rows(z.flatten(1).T, step.norm).T
    mixed = mixed.view_as(z)
    shift, scale = step.coupling(mixed[:2])
    moved = (mixed[2:] + shift) * torch.sigmoid(scale)

    assert torch.allclose(step(z)[0], torch.cat([mixed[:2], moved]))


def test_top_prior_is_scaled_bias():
    prior = TopPrior(3).double()
    disturb(prior, torch.Generator().manual_seed(0))

    assert torch.equal(prior(None).flatten(), prior.bias * (3 * prior.log_scale).exp())
    assert prior.log_scale.abs().max() > 0.05


def test_initialization_reaches_optimizer_parameters():
    # Adam makes all parameters views of one vector, which initialization must change.
    model = build_glow(10, disturbed=False).train()
    optimizer = Adam(model.parameters(), learning_rate=0.1, weight_decay=0)
    batch = torch.rand(20, 10, dtype=torch.double) * 9
    model(batch)  # initializes
    model(2 * batch).mean().backward()
    norm = next(part for part in model.modules() if isinstance(part, ActNorm))
    initialized = norm.bias.detach().clone()

    optimizer.step()

    assert initialized.abs().max() > 0.5
    moved = (norm.bias.detach() - initialized).abs().max()
    assert float(moved) == pytest.approx(0.1, rel=1e-3)


@pytest.mark.slow
def test_training_approaches_known_likelihood():
    # The four channels of each pixel are correlated, pixels are not: a mix can undo that.
    rng = np.random.default_rng(0)
    mixing = np.linalg.cholesky(0.01 * (0.9 * np.ones((4, 4)) + 0.1 * np.eye(4)))
    channels = torch.tensor(rng.normal(size=(1500, 4, 4)) @ mixing.T)
    images = functional.pixel_shuffle(channels.transpose(1, 2).reshape(-1, 4, 2, 2), 2)
    rows = (0.5 + images.flatten(1)).float()
    noise = np.eye(4) / 256**2 / 12
    truth = torch.distributions.MultivariateNormal(
        torch.zeros(4, dtype=torch.double), torch.tensor(mixing @ mixing.T + noise)
    )
    model = GlowNetwork(16, steps=2, hidden=(4, 4))
    generator = torch.Generator().manual_seed(0)
    model.initialize_weights(generator)
    plan = Schedule(n0=250, gamma=1, rho=1, T0=1, T1=1, T2=40, updates=5)

    model.train()(rows[:1000])  # initializes the normalizations only
    before = float(evaluate(model, rows[1000:]).mean())
    adam = Adam(model.parameters(), learning_rate=1e-2, weight_decay=0)
    network = TorchTraining(model, model, adam, torch.device("cpu"), random_state=None)
    for _ in train(network, rows[:1000].numpy(), plan, None, rng):
        pass
    after = evaluate(model, rows[1000:])

    exact = -truth.log_prob(channels[1000:]).sum(1)
    best = float(exact.mean())
    # At least 90 % of the possible improvement; no density is better on new rows than the true one.
    assert best - 0.5 < float(after.mean()) < best + 0.1 * (before - best)
    assert np.corrcoef(after, exact)[0, 1] > 0.9


@torch.no_grad()
def evaluate(model, rows):
    return model.eval()(rows)


def test_noise_is_new_in_training_only():
    model = build_glow(10)
    rows = torch.rand(4, 10, dtype=torch.double)

    scored = model(rows)
    assert torch.equal(model(rows), scored)
    model.resample_noise()
    assert not torch.equal(model(rows), scored)
    assert (model.scoring_noise >= 0).all()
    assert model.scoring_noise.max() > 0.5
    model.train()
    assert not torch.equal(model(rows), model(rows))
    noise = model.dequantize(rows) - functional.pad(rows, (0, 6))
    assert (noise >= 0).all()
    assert 0.5 / 256 < noise.max() <= 1 / 256
    many = model.dequantize(torch.zeros(500, 10, dtype=torch.double)) * 256
    uniform = many.new_full((16,), 12**-0.5)
    assert torch.allclose(many.std(0), uniform, atol=0.05)  # padding has noise, too


def test_initialization_depends_on_seed_only():
    states = [build_glow(10, seed=seed, disturbed=False).state_dict() for seed in (1, 1, 2)]

    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not torch.equal(
        states[0]["levels.0.steps.0.mix.lower"], states[2]["levels.0.steps.0.mix.lower"]
    )
