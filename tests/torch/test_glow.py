"""GLOW: an exact density, whatever its weights, that learns what it is shown."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from altbi.networks._torch_modes import single_thread
from altbi.networks import Glow
from altbi.torch._convolutions import network, patches
from altbi.torch._flow_steps import (
    ActNorm,
    Coupling,
    Mix,
    Step,
    TopPrior,
    ZeroConvolution,
)
from altbi.torch._glow import level_count, square_side
from altbi.networks._schedule import Schedule
from altbi.networks._training import Adam, train


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
    return torch.cat([latent.flatten(0, 2) for latent in latents]).T


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

    assert sum(latent[..., 0].numel() for latent in latents) == model.side**2
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
            seen = flown.chunk(2)[0]
        mean, log_deviation = level.prior(seen).chunk(2)
        gaussian = torch.distributions.Normal(mean, log_deviation.exp())
        expected += gaussian.log_prob(latent).sum((0, 1, 2))

    assert len(latents) == level_count(model.side)
    assert torch.allclose(model.log_density(there), expected)
    assert torch.allclose(-model.log_density(there), model(unblurred(model, there)))


def first_squeeze(there):
    side = math.isqrt(there.shape[1])
    return rows_last(functional.pixel_unshuffle(there.view(-1, 1, side, side), 2))


def rows_last(images):
    """Put rows behind channels and places, where the flow wants them."""
    return images.permute(1, 2, 3, 0).contiguous()


def unblurred(model, there):
    """Rows whose squares, with the noise that is used for scoring, are these."""
    return there - model.scoring_noise / 256


def test_a_step_s_density_integrates_to_one_in_two_dimensions():
    step = Step(channels=2, hidden=(8, 8)).double()
    generator = torch.Generator().manual_seed(0)
    step.mix.start(generator)
    step.coupling.start(generator)
    disturb(step, generator)
    axis = torch.linspace(-12, 12, 401, dtype=torch.double)
    points = torch.cartesian_prod(axis, axis).T[:, None, None]

    with torch.no_grad():
        z, log_det = step(points)
    log_density = torch.distributions.Normal(0, 1).log_prob(z).sum((0, 1, 2)) + log_det

    assert float(log_density.exp().sum() * (axis[1] - axis[0]) ** 2) == pytest.approx(1, abs=1e-3)
    assert log_density.exp().max() < 0.99  # a spike would integrate to one as well


def test_a_coupling_is_torch_s_convolutions():
    coupling = Coupling(4, hidden=(5, 6)).double()
    disturb(coupling, torch.Generator().manual_seed(0))
    image = torch.rand(7, 2, 3, 3, dtype=torch.double)

    shift, scale = coupling(rows_last(image))

    moves = rows_last(plain_moves(coupling, image))
    assert torch.allclose(shift, moves[0::2])
    assert torch.allclose(scale, moves[1::2] + 2)


def plain_moves(coupling, image):
    first = coupling.first.unflatten(1, (9, -1)).transpose(1, 2).unflatten(2, (3, 3))
    hidden = normed(functional.conv2d(image, first, padding=1), coupling.first_norm).relu()
    second = coupling.second[..., None, None]
    hidden = normed(functional.conv2d(hidden, second), coupling.second_norm).relu()
    last = coupling.last.weight.unflatten(0, (9, -1)).permute(1, 2, 0).unflatten(2, (3, 3))
    return plain_scaled(coupling.last, functional.conv2d(hidden, last, padding=1))


def plain_scaled(convolution, image):
    scale = (3 * convolution.log_scale).exp()
    return (image + convolution.bias[:, None, None]) * scale[:, None, None]


def plain_gathered(convolution, image):
    weight = convolution.weight.unflatten(1, (9, -1)).transpose(1, 2).unflatten(2, (3, 3))
    return plain_scaled(convolution, functional.conv2d(image, weight, padding=1))


@pytest.mark.parametrize("n_features", [10, 37])
def test_losses_and_gradients_are_those_of_torch_s_convolutions(n_features, monkeypatch):
    monkeypatch.setattr("altbi.torch._convolutions._PLACES_AT_ONCE", 32)  # several parts
    model = glow(n_features)
    there = squares(model, n_rows=9).requires_grad_()
    leaves = [there, *model.parameters()]
    weights = torch.rand(9, dtype=torch.double)

    losses, expected = model.log_density(there), plain_log_density(model, there)

    assert torch.allclose(losses, expected, rtol=1e-12)
    found, truth = (torch.autograd.grad(weights @ each, leaves) for each in (losses, expected))
    for one, other in zip(found, truth, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-10)


def plain_log_density(model, there):
    """The flow on images, channel by channel as in the paper."""
    image, total = there.view(-1, 1, model.side, model.side), 0
    for level in model.levels:
        image = functional.pixel_unshuffle(image, 2)
        for step in level.steps:
            image, gain = plain_step(step, image)
            total = total + gain
        if level.is_last:
            leaving, prior = image, level.prior(None).view(1, -1, 1, 1)
        else:
            image, leaving = image.chunk(2, 1)
            prior = plain_gathered(level.prior, image)
        mean, log_deviation = prior.chunk(2, 1)
        gaussian = torch.distributions.Normal(mean, log_deviation.exp())
        total = total + gaussian.log_prob(leaving).sum((1, 2, 3))
    return total


def plain_step(step, image):
    weight = step.mix.weight()
    image = functional.conv2d(normed(image, step.norm), weight[..., None, None])
    fixed, moved = image.chunk(2, 1)
    moves = plain_moves(step.coupling, fixed)
    scale = torch.sigmoid(moves[:, 1::2] + 2)
    of_place = torch.linalg.slogdet(weight)[1] + step.norm.log_scale.sum()
    log_det = image[0, 0].numel() * of_place + scale.log().sum((1, 2, 3))
    return torch.cat([fixed, (moved + moves[:, 0::2]) * scale], 1), log_det


def test_a_gathered_convolution_is_torch_s():
    convolution = ZeroConvolution(2, 3, gathered=True).double()
    disturb(convolution, torch.Generator().manual_seed(0))
    image = torch.rand(5, 2, 4, 4, dtype=torch.double)

    expected = plain_gathered(convolution, image)

    assert torch.allclose(convolution(rows_last(image)), rows_last(expected))


def test_gradients_of_the_network_agree_with_finite_differences(monkeypatch):
    monkeypatch.setattr("altbi.torch._convolutions._PLACES_AT_ONCE", 20)  # several parts
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, 3, 3, 5), (6, 18), (6, 1), (5, 6), (5, 1), (36, 5)]
    z, first, first_bias, second, second_bias, last = (
        torch.randn(shape, generator=generator, dtype=torch.double).requires_grad_()
        for shape in shapes
    )

    def moves(z, first, first_bias, second, second_bias, last):
        return network(z, (first, first_bias), (second, second_bias), last)

    assert torch.autograd.gradcheck(moves, (z, first, first_bias, second, second_bias, last))
    assert torch.autograd.gradcheck(patches, z)


@pytest.mark.parametrize("n_features", [10, 17, 37, 100])
@pytest.mark.parametrize("hidden", [(8, 8), (7, 5), (13, 9)])
def test_a_row_s_loss_is_the_same_to_the_bit_wherever_it_stands(n_features, hidden):
    model = glow(n_features, hidden=hidden).float()
    rows = torch.rand(512, n_features)
    order = torch.randperm(512)

    with single_thread(), torch.no_grad():
        losses, shuffled = model(rows), model(rows[order])

    assert torch.equal(shuffled, losses[order])


def normed(image, norm):
    return (image + norm.bias[:, None, None]) * norm.log_scale[:, None, None].exp()


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
        out = normed_rows(z.flatten(1).T, step.norm)
        assert torch.allclose(out.mean(0), torch.zeros(4, dtype=torch.double), atol=0.1)
        assert torch.allclose(out.std(0), torch.ones(4, dtype=torch.double), atol=0.1)
        hidden = functional.linear(seen_patches(step, out, z), step.coupling.first)
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


def seen_patches(step, out, like):
    """What the coupling's first layer sees of normalized values."""
    fixed = functional.linear(out, step.mix.weight()).T.reshape(like.shape).chunk(2)[0]
    return patches(fixed).T


def normed_rows(rows, norm):
    return (rows + norm.bias) * norm.log_scale.exp()


def test_a_step_shifts_before_it_scales():
    step = Step(channels=4, hidden=(4, 4)).double()
    generator = torch.Generator().manual_seed(0)
    step.mix.start(generator)
    disturb(step, generator)
    z = torch.rand(4, 2, 2, 5, dtype=torch.double)

    mixed = step.mix.weight() @ normed_rows(z.flatten(1).T, step.norm).T
    mixed = mixed.view_as(z)
    shift, scale = step.coupling(mixed[:2])
    moved = (mixed[2:] + shift) * torch.sigmoid(scale)

    assert torch.allclose(step(z)[0], torch.cat([mixed[:2], moved]))


def test_the_last_prior_is_a_scaled_bias():
    prior = TopPrior(3).double()
    disturb(prior, torch.Generator().manual_seed(0))

    assert torch.equal(prior(None).flatten(), prior.bias * (3 * prior.log_scale).exp())
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
    with single_thread():
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
