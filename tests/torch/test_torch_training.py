import copy
import sys
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn

from altbi import Schedule
from altbi.networks import train
from altbi.torch import CustomBackbone
from altbi.torch._training import Adam


class Centre(nn.Module):
    """A model with one parameter, whose optimum is the mean of the rows."""

    def __init__(self, n_features=1):
        super().__init__()
        self.at = nn.Parameter(torch.zeros(n_features))

    def forward(self, rows):
        return (rows - self.at).square().sum(-1)


def test_torch_network_is_trained_by_the_objective():
    network = CustomBackbone(Centre, learning_rate=0.1, device="cpu").start_training(
        1, np.random.default_rng(0)
    )
    rows = np.full((50, 1), 3.0, dtype=np.float32)
    rows[:4] = 1000.0
    schedule = Schedule(T0=0, T1=60, T2=100, rho=0.9, first_truncated=1, updates=1)

    history = list(train(network, rows, schedule, None, np.random.default_rng(0)))

    assert network.copy_state()["module.at"] == pytest.approx(3.0, abs=0.05)
    assert history[-1].loss < 0.01 < history[0].loss


def test_update_uses_gradient_of_the_objective():
    network = CustomBackbone(Centre, learning_rate=0.25, device="cpu").start_training(
        1, np.random.default_rng(0)
    )

    # Only the second row counts, and a negative gradient makes its loss larger.
    value = network.update(
        np.array([[5.0], [-7.0]], dtype=np.float32),
        lambda losses: (float(losses[1]), np.array([0, -1], dtype=np.float32)),
    )

    assert value == 49
    assert network.copy_state()["module.at"] == pytest.approx(0.25)


@pytest.mark.slow
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.5, 0.99)])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adam_equals_torch_adam(weight_decay, betas):
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)).double()
    theirs = copy.deepcopy(ours)
    rows = torch.randn(20, 3, dtype=torch.float64)

    adam = Adam(ours.parameters(), 0.01, weight_decay, betas)
    reference = torch.optim.Adam(
        theirs.parameters(), lr=0.01, weight_decay=weight_decay, betas=betas
    )
    for _ in range(50):
        for model, optimizer in ((ours, adam), (theirs, reference)):
            model.zero_grad()
            model(rows).square().mean().backward()
            optimizer.step()

    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(mine, other, rtol=1e-9, atol=1e-12)


def test_minimize_equals_backward_and_step():
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
    theirs, rows = copy.deepcopy(ours), torch.randn(20, 3)
    mine, other = (Adam(model.parameters(), 0.01, 0.1) for model in (ours, theirs))
    for _ in range(3):
        mine.minimize(ours(rows).square().mean())
        theirs.zero_grad()
        theirs(rows).square().mean().backward()
        other.step()

    assert torch.equal(mine.vector, other.vector)


@pytest.mark.parametrize("lowers", [False, True])
def test_adam_keeps_frozen_and_unused_parameters(lowers):
    model = nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1), nn.Linear(1, 1)])
    model[1].requires_grad_(False)
    before = [parameter.clone() for parameter in model.parameters()]

    adam = Adam(model.parameters(), 0.01, 0.0)
    if lowers:
        adam.minimize(model[0](torch.ones(1, 1)).sum())
    else:
        model[0](torch.ones(1, 1)).sum().backward()
        adam.step()

    moved = [not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)]
    assert moved == [True, True, False, False, False, False]


class DenormalGradient(nn.Module):
    """A model whose gradient is a denormal number."""

    def __init__(self, *, fails):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.weight.register_hook(self.record)
        self.fails, self.seen = fails, []

    def record(self, gradient):
        self.seen.append((flushes_denormals(), float(gradient)))
        if self.fails:
            raise ArithmeticError

    def forward(self):
        return (self.weight * torch.finfo(torch.float32).tiny).sum() * 0.5


def flushes_denormals():
    return sys.float_info.min / 2 == 0


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("flushed", [False, True])
def test_minimize_flushes_denormals_and_restores_mode(flushed, fails):
    torch.set_flush_denormal(flushed)
    try:
        model = DenormalGradient(fails=fails)
        with pytest.raises(ArithmeticError) if fails else nullcontext():
            Adam(model.parameters(), 0.01, 0.0).minimize(model())
        after = flushes_denormals()
    finally:
        torch.set_flush_denormal(False)

    assert model.seen == [(True, 0.0)]
    assert after == flushed
