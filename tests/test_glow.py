"""GLOW: an exact density, whatever its weights, that learns what it is shown."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from altbi.borrow import one_thread
from altbi.models import Glow
from altbi.models.flow_steps import (
    ActNorm,
    Coupling,
    Mix,
    Step,
    TopPrior,
    ZeroConvolution,
    _patches,
)
from altbi.models.glow import level_count, square_side
from altbi.schedule import Schedule
from altbi.train import Adam, train


def glow(n_features=10, steps=3, hidden=(8, 6), *, seed=0, disturbed=True):
    """A flow with weights that are no longer those of its start, in double precision."""
    model = Glow(n_features, steps, hidden).double()
    generator = torch.Generator().manual_seed(seed)
    model.start(generator)
    if disturbed:
        disturb(model, generator)
    return model.eval()


@torch.no_grad()
def disturb(module, generator):
    for parameter in module.parameters():
        parameter += 0.2 * torch.randn(parameter.shape, generator=generator, dtype=torch.double)


def squares(model, n_rows=3, seed=1):
    shape = (n_rows, model.side**2)
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def flat(latents):
    return torch.cat([latent.flatten(1) for latent in latents], 1)


@pytest.mark.parametrize(
    ("n_features", "side"),
    [(1, 4), (16, 4), (17, 6), (36, 6), (37, 8), (64, 8), (65, 10), (166, 14), (1555, 40)],
)
def test_rows_fill_the_smallest_even_square(n_features, side):
    assert square_side(n_features) == side


def test_levels_are_those_of_the_reference():
    two = {side for side in range(4, 42, 2) if level_count(side) == 2}

    assert two == {8, 16, 24, 32, 40}


@pytest.mark.parametrize("n_features", [10, 30, 64])
def test_the_way_to_the_latent_values_can_be_gone_back(n_features):
    model = glow(n_features)
    there = squares(model)

    latents, _ = model.encode(there)

    assert sum(latent[0].numel() for latent in latents) == model.side**2
    assert torch.allclose(model.decode(latents), there, atol=1e-9)
    assert not torch.allclose(flat(latents), there, atol=0.1)


@pytest.mark.parametrize("n_features", [10, 64])
def test_the_log_determinant_is_that_of_the_jacobian(n_features):
    model = glow(n_features)
    there = squares(model)

    _, log_det = model.encode(there)

    for row, expected in zip(there, log_det, strict=True):
        jacobian = torch.autograd.functional.jacobian(
            lambda square: flat(model.encode(square[None])[0])[0], row
        )
        found = torch.linalg.slogdet(jacobian)[1]
        assert float(found) == pytest.approx(expected.item(), abs=1e-8)


@pytest.mark.parametrize("n_features", [10, 64])
def test_the_density_is_that_of_the_latent_values_times_the_determinant(n_features):
    model = glow(n_features)
    there = squares(model)

    latents, log_det = model.encode(there)
    expected = log_det.clone()
    for level, latent in zip(model.levels, latents, strict=True):
        if level.is_last:
            seen = None
        else:
            flown, _ = level.flow(first_squeeze(there))
            seen = flown.chunk(2, -1)[0]
        mean, log_deviation = level.prior(seen).chunk(2, -1)
        gaussian = torch.distributions.Normal(mean, log_deviation.exp())
        expected += gaussian.log_prob(latent).sum((1, 2))

    assert len(latents) == level_count(model.side)
    assert torch.allclose(model.log_density(there), expected)
    assert torch.allclose(-model.log_density(there), model(unblurred(model, there)))


def first_squeeze(there):
    side = math.isqrt(there.shape[1])
    images = there.view(-1, 1, side, side)
    return functional.pixel_unshuffle(images, 2).flatten(2).transpose(1, 2)


def unblurred(model, there):
    """Rows whose squares, with the noise that is used for scoring, are these."""
    return there - model.scoring_noise / 256


def test_a_step_s_density_integrates_to_one_in_two_dimensions():
    step = Step(channels=2, side=1, hidden=(8, 8)).double()
    generator = torch.Generator().manual_seed(0)
    step.mix.start(generator)
    step.coupling.start(generator)
    disturb(step, generator)
    axis = torch.linspace(-12, 12, 401, dtype=torch.double)
    points = torch.cartesian_prod(axis, axis)[:, None]

    with torch.no_grad():
        z, log_det = step(points)
    log_density = torch.distributions.Normal(0, 1).log_prob(z).sum((1, 2)) + log_det

    assert float(log_density.exp().sum() * (axis[1] - axis[0]) ** 2) == pytest.approx(1, abs=1e-3)
    assert log_density.exp().max() < 0.99  # a spike would integrate to one as well


def test_a_coupling_is_torch_s_convolutions():
    side, channels = 3, 4
    coupling = Coupling(channels, side, hidden=(5, 6)).double()
    disturb(coupling, torch.Generator().manual_seed(0))
    z = torch.rand(7, side * side, channels // 2, dtype=torch.double)
    image = z.transpose(1, 2).reshape(7, channels // 2, side, side)

    first = coupling.first.view(5, 9, 2).transpose(1, 2).reshape(5, 2, 3, 3)
    hidden = normed(functional.conv2d(image, first, padding=1), coupling.first_norm).relu()
    second = coupling.second[..., None, None]
    hidden = normed(functional.conv2d(hidden, second), coupling.second_norm).relu()
    last = coupling.last.weight.view(9, channels, 6).permute(1, 2, 0).reshape(channels, 6, 3, 3)
    moves = functional.conv2d(hidden, last, padding=1) + coupling.last.bias[:, None, None]
    moves = (moves * (3 * coupling.last.log_scale[:, None, None]).exp()).flatten(2).transpose(1, 2)

    shift, scale = coupling(z)
    assert torch.allclose(shift, moves[..., 0::2])
    assert torch.allclose(scale, moves[..., 1::2] + 2)


def normed(image, norm):
    return (image + norm.bias[:, None, None]) * norm.log_scale[:, None, None].exp()


def test_a_gathered_convolution_is_torch_s():
    convolution = ZeroConvolution(2, 3, side=4, gathered=True).double()
    disturb(convolution, torch.Generator().manual_seed(0))
    z = torch.rand(5, 16, 2, dtype=torch.double)

    weight = convolution.weight.view(3, 9, 2).transpose(1, 2).reshape(3, 2, 3, 3)
    image = z.transpose(1, 2).reshape(5, 2, 4, 4)
    expected = functional.conv2d(image, weight, convolution.bias, padding=1)
    expected = expected * (3 * convolution.log_scale[:, None, None]).exp()

    assert torch.allclose(convolution(z), expected.flatten(2).transpose(1, 2))


def test_a_mix_starts_as_a_rotation_and_knows_its_determinant():
    mix = Mix(6).double()
    mix.start(torch.Generator().manual_seed(0))

    weight = mix.weight()

    assert torch.allclose(weight @ weight.T, torch.eye(6, dtype=torch.double), atol=1e-6)
    assert not torch.allclose(weight, torch.eye(6, dtype=torch.double), atol=0.1)
    disturb(mix, torch.Generator().manual_seed(1))
    log_det = torch.linalg.slogdet(mix.weight())[1]
    assert log_det.item() == pytest.approx(mix.log_diagonal.sum().item())


def test_the_first_batch_in_training_sets_the_normalizations_and_no_other_does():
    model = glow(30, disturbed=False).train()
    batch = torch.rand(50, 30, dtype=torch.double) * 5 + 2
    given = {}
    for name, part in model.named_modules():
        if isinstance(part, Step):
            part.register_forward_hook(
                lambda step, args, out, name=name: given.update({name: (step, args[0])})
            )

    model(batch)

    assert len(given) == 3
    for step, z in given.values():
        out = (z + step.norm.bias) * step.norm.log_scale.exp()
        assert torch.allclose(out.mean((0, 1)), torch.zeros(4, dtype=torch.double), atol=0.1)
        assert torch.allclose(out.std((0, 1)), torch.ones(4, dtype=torch.double), atol=0.1)
        hidden = functional.linear(patches(step, out), step.coupling.first)
        settled = normed_rows(hidden, step.coupling.first_norm)
        assert torch.allclose(settled.mean(0), settled.new_zeros(8), atol=0.1)
        assert torch.allclose(settled.std(0), settled.new_ones(8), atol=0.1)
        second = normed_rows(
            functional.linear(settled.relu(), step.coupling.second), step.coupling.second_norm
        )
        assert torch.allclose(second.mean(0), second.new_zeros(6), atol=0.1)
        assert torch.allclose(second.std(0), second.new_ones(6), atol=0.1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model(batch * 100)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def patches(step, out):
    """What the coupling's first layer sees of normalized values."""
    fixed = functional.linear(out, step.mix.weight()).chunk(2, -1)[0]
    return _patches(fixed, step.coupling.side).flatten(0, 1)


def normed_rows(rows, norm):
    return (rows + norm.bias) * norm.log_scale.exp()


def test_a_step_shifts_before_it_scales():
    step = Step(channels=4, side=2, hidden=(4, 4)).double()
    generator = torch.Generator().manual_seed(0)
    step.mix.start(generator)
    disturb(step, generator)
    z = torch.rand(5, 4, 4, dtype=torch.double)

    mixed = ((z + step.norm.bias) * step.norm.log_scale.exp()) @ step.mix.weight().T
    shift, scale = step.coupling(mixed[..., :2])
    moved = (mixed[..., 2:] + shift) * torch.sigmoid(scale)

    assert torch.allclose(step(z)[0], torch.cat([mixed[..., :2], moved], -1))


def test_the_last_prior_is_a_scaled_bias():
    prior = TopPrior(3).double()
    disturb(prior, torch.Generator().manual_seed(0))

    assert torch.equal(prior(None), prior.bias * (3 * prior.log_scale).exp())
    assert prior.log_scale.abs().max() > 0.05


def test_settling_reaches_parameters_that_an_optimizer_holds():
    # Adam makes all parameters views of one vector: what the first batch sets must be in it.
    model = glow(10, disturbed=False).train()
    optimizer = Adam(model.parameters(), learning_rate=0.1, weight_decay=0)
    batch = torch.rand(20, 10, dtype=torch.double) * 9
    model(batch)  # settles
    model(2 * batch).mean().backward()
    norm = next(part for part in model.modules() if isinstance(part, ActNorm))
    settled = norm.bias.detach().clone()

    optimizer.step()

    assert settled.abs().max() > 0.5
    moved = (norm.bias.detach() - settled).abs().max()
    assert float(moved) == pytest.approx(0.1, rel=1e-3)


def test_it_learns_the_likelihood_of_a_known_gaussian():
    # The four channels of each place are correlated, places are not: a mix can undo that.
    rng = np.random.default_rng(0)
    mixing = np.linalg.cholesky(0.01 * (0.9 * np.ones((4, 4)) + 0.1 * np.eye(4)))
    channels = torch.tensor(rng.normal(size=(1500, 4, 4)) @ mixing.T)
    images = functional.pixel_shuffle(channels.transpose(1, 2).reshape(-1, 4, 2, 2), 2)
    rows = (0.5 + images.flatten(1)).float()
    blur = np.eye(4) / 256**2 / 12
    truth = torch.distributions.MultivariateNormal(
        torch.zeros(4, dtype=torch.double), torch.tensor(mixing @ mixing.T + blur)
    )
    model = Glow(16, steps=2, hidden=(4, 4))
    generator = torch.Generator().manual_seed(0)
    model.start(generator)
    plan = Schedule(n0=250, gamma=1, rho=1, T0=1, T1=1, T2=40, updates=5)

    model.train()(rows[:1000])  # settles, learns nothing else
    before = float(held_out(model, rows[1000:]).mean())
    with one_thread():
        for _ in train(model, rows[:1000], plan, learning_rate=1e-2, generator=generator):
            pass
        after = held_out(model, rows[1000:])

    exact = -truth.log_prob(channels[1000:]).sum(1)
    best = float(exact.mean())
    # Nearly all of the way, but not beyond: no density is better on new rows than the true one.
    assert best - 0.5 < float(after.mean()) < best + 0.1 * (before - best)
    assert np.corrcoef(after, exact)[0, 1] > 0.9


@torch.no_grad()
def held_out(model, rows):
    return model.eval()(rows)


def test_noise_is_fresh_in_training_and_stored_in_evaluation():
    model = glow(10)
    rows = torch.rand(4, 10, dtype=torch.double)

    scored = model(rows)
    assert torch.equal(model(rows), scored)
    model.redraw()
    assert not torch.equal(model(rows), scored)
    assert (model.scoring_noise >= 0).all()
    assert model.scoring_noise.max() > 0.5
    model.train()
    assert not torch.equal(model(rows), model(rows))
    blur = model.squares(rows) - functional.pad(rows, (0, 6))
    assert (blur >= 0).all()
    assert 0.5 / 256 < blur.max() <= 1 / 256
    many = model.squares(torch.zeros(500, 10, dtype=torch.double)) * 256
    uniform = many.new_full((16,), 12**-0.5)
    assert torch.allclose(many.std(0), uniform, atol=0.05)  # padding is blurred as well


def test_two_starts_with_one_seed_are_alike():
    states = [glow(10, seed=seed, disturbed=False).state_dict() for seed in (1, 1, 2)]

    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not torch.equal(
        states[0]["levels.0.steps.0.mix.lower"], states[2]["levels.0.steps.0.mix.lower"]
    )
    assert isinstance(glow(), nn.Module)
