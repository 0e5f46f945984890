import math

import numpy as np
import pytest
import torch

from altbi.torch._truncation import Tracked, Trimmed, create_truncation


def test_trimmed_selects_smallest_losses():
    losses = torch.tensor([3.0, 1.0, 2.0, 1.0, math.nan])

    assert Trimmed().select(losses, 0.6).tolist() == [False, True, True, True, False]
    assert Trimmed().select(losses, 0.3).tolist() == [False, True, False, True, False]
    assert Trimmed().select(torch.zeros(0), 0.5).tolist() == []


def test_tracked_threshold_approaches_quantile():
    generator = torch.Generator().manual_seed(0)
    rule = Tracked(n_features_encoded=2)
    for _ in range(150):
        losses = 2 * (torch.randn(500, generator=generator) - 3)
        rule.observe(losses, 10 * float(torch.randn((), generator=generator)), 500.0, 0.9)

    assert float((losses <= 2 * rule.per_feature).double().mean()) == pytest.approx(0.9, abs=0.05)


@pytest.mark.parametrize(("noise", "direction"), [(60.0, -1), (-60.0, 1), (1e9, -1), (-1e9, 1)])
def test_noise_moves_threshold_within_limits(noise, direction):
    quiet, noisy = Tracked(4), Tracked(4)
    losses = torch.linspace(-4, 4, 100)
    for _ in range(200):
        quiet.observe(losses, 0.0, 100.0, 0.9)
        noisy.observe(losses, noise, 100.0, 0.9)

    assert np.sign(noisy.per_feature - quiet.per_feature) == direction
    assert -7 < noisy.per_feature < 210


def test_rules_are_created_by_name_or_class():
    assert isinstance(create_truncation("tracked", 3), Tracked)
    assert isinstance(create_truncation("trimmed", 3), Trimmed)
    assert isinstance(create_truncation(Trimmed, 3), Trimmed)
