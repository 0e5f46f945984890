"""Per-row gradients, their sensitivity on neighbouring tables, the noise, and an attack."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import beta

from altbi import Schedule
from altbi.model._privacy_accounting import calibrate_noise, compute_epsilons
from altbi.networks._iwae import NetworkSizes
from altbi.torch import _private_training
from altbi.torch._iwae_module import build_iwae
from altbi.torch._private_training import (
    COUNT_SHARE,
    NoisyPlan,
    Tracked,
    Trimmed,
    attach_per_row_gradients,
    create_truncation,
    release_noisy_sum,
    train_privately,
)

N_FEATURES = 4
CLIP = 0.5
DELTA = 1e-5
ROUNDING = 1 + 1e-5
SCHEDULE = Schedule(n0=16, T0=1, T1=2, T2=4, updates=1, first_truncated=1)


def build_model(n_samples=2, seed=0):
    model = build_iwae(NetworkSizes(N_FEATURES, (8, 6), 3, n_samples, True, False))
    model.initialize(torch.Generator().manual_seed(seed))
    return model


def fix_noise(model):
    """Use the same noise for every row, so that losses do not depend on other rows."""
    noise = torch.randn(model.scoring_noise.shape, generator=torch.Generator().manual_seed(1))
    model._sample_noise = lambda rows: noise.expand(len(rows), *noise.shape)
    return model


def sample_rows(count, seed=0):
    return torch.rand(count, N_FEATURES, generator=torch.Generator().manual_seed(seed))


def build_plan(schedule=SCHEDULE, n_rows=64, noise=1.0, count_share=0.02, **changes):
    return NoisyPlan(
        schedule=schedule,
        n_rows=n_rows,
        clip=CLIP,
        noise=noise,
        count_share=count_share,
        steps=schedule.n_steps,
        **changes,
    )


@pytest.mark.parametrize("n_samples", [1, 2, 5])
def test_per_row_gradients_equal_autograd(n_samples):
    model, rows = build_model(n_samples), sample_rows(7)
    noise = torch.randn(7, *model.scoring_noise.shape, generator=torch.Generator().manual_seed(2))
    with attach_per_row_gradients(model, torch.Generator()) as gradients:
        model._sample_noise = lambda _: noise
        found = gradients.compute(rows)
    for number in range(7):
        model._sample_noise = lambda _, number=number: noise[number : number + 1]
        model.zero_grad()
        torch.autograd.backward(model(rows[number : number + 1]).sum())
        alone = torch.cat([p.grad.flatten() for p in model.parameters()])
        assert torch.allclose(found[number], alone, rtol=1e-4, atol=1e-5)


def test_hooks_are_removed():
    model, rows = build_model(), sample_rows(5)
    with attach_per_row_gradients(model, torch.Generator().manual_seed(0)) as gradients:
        gradients.compute(rows)
    torch.autograd.backward(model(rows).sum())
    assert all(getattr(p, "grad_sample", None) is None for p in model.parameters())
    assert not any(layer._forward_hooks or layer._backward_hooks for layer in model.modules())


def test_losses_and_gradients_share_noise():
    model, rows = build_model(), sample_rows(40)
    generator = torch.Generator().manual_seed(3)
    with attach_per_row_gradients(model, generator) as gradients:
        first = gradients.losses(rows)
        assert torch.equal(first, gradients.losses(rows))
        gradients.compute(rows)
        assert not torch.equal(first, gradients.losses(rows))


def test_clipped_sum_does_not_depend_on_blocks():
    model, rows = fix_noise(build_model()), sample_rows(23)
    kept = torch.arange(23) % 3 > 0
    with attach_per_row_gradients(model, torch.Generator()) as gradients:
        total = gradients.clipped_sum(rows, kept, CLIP)
        gradients.block_rows = 5
        assert torch.allclose(gradients.clipped_sum(rows, kept, CLIP), total, atol=1e-5)
        alone = torch.cat([gradients.losses(row[None]) for row in rows])
        assert torch.allclose(gradients.losses(rows), alone, rtol=1e-5)


def test_nan_rows_add_nothing():
    model, rows = fix_noise(build_model()), sample_rows(4)
    rows[2] = math.nan
    with attach_per_row_gradients(model, torch.Generator()) as gradients:
        kept = torch.ones(4, dtype=torch.bool)
        total = gradients.clipped_sum(rows, kept, CLIP)
        others = gradients.clipped_sum(rows[[0, 1, 3]], kept[:3], CLIP)
    assert torch.isfinite(total).all()
    assert torch.allclose(total, others)


def measure_change(rule, batch, neighbour, share=0.75):
    """Return the change of sum and count, before noise, from a batch to its neighbour."""
    sums, counts = [], []
    model = fix_noise(build_model())
    with torch.no_grad():
        # With the right variance for corners, gradients point to them.
        model.log_variance.weight.zero_()
        model.log_variance.bias.fill_(math.log(0.125))
    with attach_per_row_gradients(model, torch.Generator()) as gradients:
        for rows in (batch, neighbour):
            losses = gradients.losses(rows)
            sums.append(gradients.clipped_sum(rows, rule.select(losses, share), CLIP))
            counts.append(float((rule.select(losses, share).double() - 0.5).sum()))
    return float((sums[0] - sums[1]).norm()) / CLIP, abs(counts[0] - counts[1])


def build_neighbours(seed):
    """Return a batch, and the batch without one row; some rows are extreme, corners or copies."""
    rows = sample_rows(9, seed)
    rows = rows.round() if seed % 2 else rows
    rows[seed % 9] = 50.0 * (seed % 3)
    rows[(seed + 1) % 9] = rows[(seed + 2) % 9]
    without = torch.arange(9) != seed % 7
    return rows, rows[without]


@pytest.mark.slow
@pytest.mark.parametrize("per_feature", [-2.0, 0.1, 0.5, 30.0])
def test_tracked_has_sensitivity_one(per_feature):
    rule = Tracked(N_FEATURES)
    rule.per_feature = per_feature
    found = [measure_change(rule, *build_neighbours(seed)) for seed in range(30)]
    plan = build_plan(noise=1.3, count_share=rule.count_share)
    for change, count_change in found:
        assert change <= ROUNDING
        assert count_change == 0.5
        # Sum and count are one vector with one noise in the ledger.
        joint = math.hypot(change / plan.gradient_noise, count_change / plan.count_noise)
        assert joint <= ROUNDING / plan.noise
    assert max(change for change, _ in found) > 0.9 or per_feature == -2.0


@pytest.mark.slow
def test_trimmed_has_sensitivity_two():
    change = [
        measure_change(Trimmed(), *build_neighbours(seed), share)[0]
        for seed in range(30)
        for share in (0.4, 0.75)
    ]
    assert max(change) <= 2 * ROUNDING
    # One clipping norm would be too little, because another row may be selected.
    assert max(change) > 1.2


def release_many(rule, step, plan, count=400):
    model = fix_noise(build_model())
    secret = np.random.default_rng(4)
    with attach_per_row_gradients(model, torch.Generator()) as gradients:
        return torch.stack(
            [
                release_noisy_sum(gradients, sample_rows(0), step, plan, rule, secret)
                for _ in range(count)
            ]
        )


@pytest.mark.parametrize(
    ("rule", "step", "sensitivity"),
    [(Tracked(N_FEATURES), 3, 1), (Trimmed(), 3, 2), (Trimmed(), 0, 1)],
    ids=["tracked", "trimmed", "trimmed, warm-up"],
)
def test_sums_have_noise_of_ledger(rule, step, sensitivity):
    plan = build_plan(noise=1.5, count_share=rule.count_share)
    assert (plan.schedule.kept_share_at(step) < 1) == (step > 0)
    deviation = float(release_many(rule, step, plan).std())
    assert deviation == pytest.approx(plan.gradient_noise * CLIP * sensitivity, rel=0.02)


def test_joint_noise_equals_plan():
    plan = build_plan(noise=0.7, count_share=0.02)
    joint = (plan.gradient_noise**-2 + (2 * plan.count_noise) ** -2) ** -0.5
    assert joint == pytest.approx(0.7)


def test_counts_have_noise_of_ledger():
    plan, seen = build_plan(noise=1.5), []
    rule = Tracked(N_FEATURES)
    rule.observe = lambda losses, noise, expected, share: seen.append(noise)
    release_many(rule, 3, plan)
    assert np.std(seen) == pytest.approx(plan.count_noise, rel=0.15)


def test_releases_include_every_update():
    schedule = Schedule(n0=10, gamma=1.5, T0=2, T1=2, T2=4, updates=3)
    plan = build_plan(schedule, n_rows=40)
    rates = [10 / 40] * 3 + [15 / 40, 22 / 40, 33 / 40]
    assert [plan.sampling_rate(step) for step in range(6)] == rates
    found = {release.rate: release.times for release in plan.releases()}
    assert found == {10 / 40: 9, 15 / 40: 3, 22 / 40: 3, 33 / 40: 3}
    assert build_plan(schedule, n_rows=7).sampling_rate(5) == 1.0


@pytest.mark.slow
def test_batches_are_poisson_samples(monkeypatch):
    seen = []

    def record(gradients, batch, *rest):
        seen.append(batch[:, 0].clone())
        return release_noisy_sum(gradients, batch, *rest)

    monkeypatch.setattr(_private_training, "release_noisy_sum", record)
    schedule = Schedule(n0=20, gamma=1.0, T0=0, T1=100, T2=200, updates=1)
    rows = torch.arange(80.0)[:, None].expand(80, N_FEATURES) / 80
    steps = train_privately(
        build_model(), rows, build_plan(schedule, n_rows=80), Trimmed(),
        learning_rate=1e-3, weight_decay=0.0, generator=torch.Generator(),
        secret=np.random.default_rng(0),
    )  # fmt: skip
    assert sum(1 for _ in steps) == len(seen) == 200
    sizes = np.array([len(batch) for batch in seen])
    assert sizes.mean() == pytest.approx(20, abs=1)
    assert sizes.var() == pytest.approx(80 * 0.25 * 0.75, rel=0.35)
    sampled = np.bincount((torch.cat(seen) * 80).round().long().numpy(), minlength=80)
    assert sampled.min() > 25


def build_attacked_plan(noise):
    schedule = Schedule(n0=12, gamma=1.25, T0=1, T1=1, T2=2, updates=1, first_truncated=1)
    return NoisyPlan(
        schedule=schedule, n_rows=15, clip=CLIP, noise=noise, count_share=COUNT_SHARE, steps=3
    )


def attack(noise_factor, n_runs, monkeypatch):
    """Return the epsilon of the ledger, and a lower bound that an attacker proves.

    The attacker decides from all released sums whether a row, the canary, was in the table. The
    bound is that of Clopper and Pearson at 95 % confidence, with a threshold chosen on other runs.
    """
    noise = calibrate_noise(lambda noise: build_attacked_plan(noise).releases(), 3.0, DELTA)
    claimed = compute_epsilons(build_attacked_plan(noise).releases(), DELTA)[1]
    canary, secret = torch.tensor([[0.6, 0.4, 0.6, 0.4]]), np.random.default_rng(0)
    with attach_per_row_gradients(fix_noise(build_model()), torch.Generator()) as gradients:
        gradient = gradients.clipped_sum(canary, torch.ones(1, dtype=torch.bool), CLIP)

    def run(rows):
        sums = []

        def record(*arguments):
            sums.append(release_noisy_sum(*arguments))
            return sums[-1].clone()

        monkeypatch.setattr(_private_training, "release_noisy_sum", record)
        plan = build_attacked_plan(noise * noise_factor)
        for _ in train_privately(
            fix_noise(build_model()), rows, plan, Tracked(N_FEATURES),
            learning_rate=1e-4, weight_decay=0.0, generator=torch.Generator(), secret=secret,
        ):  # fmt: skip
            pass
        return float(sum(sums) @ gradient)

    without, present = (
        np.array([run(rows) for _ in range(n_runs)]) for rows in (canary[:0], canary)
    )
    return claimed, bound_epsilon(without, present)


def bound_epsilon(without, present):
    half = len(without) // 2

    def bound(threshold, first, second):
        false, true = int((first > threshold).sum()), int((second > threshold).sum())
        max_false = beta.ppf(0.975, false + 1, len(first) - false)
        min_true = beta.ppf(0.025, true, len(second) - true + 1) if true else 0.0
        return math.log(max(min_true - DELTA, 1e-12) / max_false)

    candidates = np.concatenate([without[:half], present[:half]])
    best = max(candidates, key=lambda each: bound(each, without[:half], present[:half]))
    return bound(best, without[half:], present[half:])


@pytest.mark.slow
def test_attack_stays_below_ledger(monkeypatch):
    claimed, bound = attack(noise_factor=1.0, n_runs=400, monkeypatch=monkeypatch)

    assert 2 < claimed <= 3
    assert 0.1 < bound < claimed  # the attack works at all


@pytest.mark.slow
def test_attack_detects_missing_noise(monkeypatch):
    claimed, bound = attack(noise_factor=0.01, n_runs=300, monkeypatch=monkeypatch)

    assert bound > claimed


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
