import copy
import math
import sys
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from altbi.errors import TrainingError
from altbi.networks import Adam, Schedule, TrainingLabels, train
from altbi.networks._training import (
    compute_outlier_penalty,
    compute_truncated_mean,
    iter_batches,
    select_smallest,
)

# The schedule of the paper: truncation from the first step, one update in each step.
PAPER = {"T1": 60, "first_truncated": 1, "updates": 1}


class Centre(nn.Module):
    """A model with one parameter, whose optimum is the mean of the rows."""

    def __init__(self, at=0.0):
        super().__init__()
        self.at = nn.Parameter(torch.tensor([float(at)]))

    def forward(self, rows):
        return (rows - self.at).square().sum(-1)


class Recorder(Centre):
    """A model that records all batches."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, rows):
        self.seen.append((self.training, rows.flatten().tolist()))
        return super().forward(rows)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def fit_centre(rows, schedule, learning_rate=0.1, at=0.0):
    model = Centre(at)
    history = list(train(model, rows, schedule, learning_rate=learning_rate, generator=seeded(0)))
    return float(model.at.detach()), history


def test_training_converges_to_the_mean():
    rows = torch.full((50, 1), 3.0)

    centre, history = fit_centre(rows, Schedule(**PAPER | {"T2": 100}))

    assert centre == pytest.approx(3.0, abs=0.05)
    assert history[-1].loss < 0.01 < history[0].loss


def test_truncated_rows_do_not_change_the_model():
    rows = torch.cat([torch.zeros(90, 1), torch.full((10, 1), 1000.0)])

    truncated, _ = fit_centre(rows, Schedule(**PAPER, T0=0, rho=0.9))
    untruncated, _ = fit_centre(rows, Schedule(**PAPER, T0=0, rho=1.0))

    assert abs(truncated) < 1e-6
    assert untruncated > 5


def test_warm_up_uses_every_loss():
    rows = torch.cat([torch.zeros(90, 1), torch.full((10, 1), 1000.0)])

    moved, _ = fit_centre(rows, Schedule(T0=50, T1=0, T2=1, rho=0.9, updates=1))

    assert moved > 3


def test_first_update_has_length_of_learning_rate():
    # Adam's first step has the length of the learning rate, whatever the gradient.
    centre, _ = fit_centre(
        torch.full((5, 1), 7.0), Schedule(T0=0, T1=0, T2=1, updates=1), learning_rate=0.25
    )

    assert centre == pytest.approx(0.25)


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


def test_weight_decay_shrinks_parameters():
    model = Centre(at=1.0)
    schedule = Schedule(T0=0, T1=0, T2=1, updates=1)

    list(
        train(
            model,
            torch.ones(4, 1),
            schedule,
            learning_rate=0.01,
            weight_decay=0.1,
            generator=seeded(0),
        )
    )

    assert float(model.at.detach()) == pytest.approx(0.99)


@pytest.mark.parametrize("schedule", [Schedule(updates=1), Schedule(updates=5)])
def test_updates_have_scheduled_batch_sizes(schedule):
    model, rows = Recorder(), torch.arange(2000.0)[:, None]

    steps = list(train(model, rows, schedule, learning_rate=1e-3, generator=seeded(0)))

    sizes = [
        schedule.batch_size_at(step, 2000) for step in range(90) for _ in range(schedule.updates)
    ]
    # Five batches of more than 400 rows exceed the 2000 rows, so that the last one is smaller.
    planned = [size for size in sizes if size * schedule.updates <= 2000]
    seen = [len(batch) for _, batch in model.seen]
    assert seen[: len(planned)] == planned
    assert len(seen) == 90 * schedule.updates
    assert all(training and len(set(batch)) == len(batch) for training, batch in model.seen)
    assert [progress.batch_size for progress in steps] == sizes[:: schedule.updates]


def test_batches_are_disjoint_until_rows_are_used():
    sampled = [batch.tolist() for batch in iter_batches(10, 4, 5, seeded(0))]

    assert [len(batch) for batch in sampled] == [4, 4, 2, 4, 4]
    assert sorted(sampled[0] + sampled[1] + sampled[2]) == list(range(10))
    assert len(set(sampled[3] + sampled[4])) == 8


def test_last_single_row_is_skipped():
    assert [len(batch) for batch in iter_batches(9, 4, 5, seeded(0))] == [4, 4, 4, 4, 4]


def test_batches_differ_between_steps():
    generator = seeded(0)

    first, second = (next(iter_batches(100, 20, 1, generator)).tolist() for _ in range(2))

    assert first != second


@pytest.mark.parametrize(("share", "count"), [(1.0, 100), (0.92, 92), (0.5, 50), (0.001, 1)])
def test_select_smallest_selects_the_share(share, count):
    losses = torch.randperm(100).float()

    kept = select_smallest(losses, share)

    assert kept.sum() == count
    assert losses[kept].max() < count


@pytest.mark.parametrize("n_losses", [1, 2, 7, 101, 128, 1322])
@pytest.mark.parametrize("share", [0.001, 0.29, 0.5, 0.9, 0.92, 1.0])
def test_select_smallest_equals_quantile(share, n_losses):
    losses = torch.randperm(n_losses).double()

    kept = select_smallest(losses, share)

    assert torch.equal(kept, losses <= torch.quantile(losses, share) + 1e-9)


def test_nan_losses_are_not_truncated():
    losses = torch.tensor([1.0, 2.0, 3.0, math.nan])

    assert not select_smallest(losses, 0.5).any()
    assert compute_truncated_mean(losses, 0.5).isnan()
    for is_inlier in torch.eye(4, dtype=torch.bool):
        assert compute_truncated_mean(losses, 0.5, is_inlier).isnan()
    assert compute_outlier_penalty(torch.tensor([5.0]), losses, 0.5, label_trust=1).isnan()


def test_equal_losses_are_selected_together():
    assert select_smallest(torch.tensor([1.0, 2.0, 2.0, 2.0, 3.0]), 0.5).tolist() == [True] * 4 + [
        False
    ]


@pytest.mark.parametrize("worst", [100.0, math.inf])
def test_truncated_rows_have_no_gradient(worst):
    losses = torch.tensor([1.0, 2.0, 3.0, worst], requires_grad=True)

    mean = compute_truncated_mean(losses, 0.75)
    mean.backward()

    assert mean.item() == 2
    assert torch.allclose(losses.grad, torch.tensor([1 / 3, 1 / 3, 1 / 3, 0]))


def test_diverged_training_raises():
    with pytest.raises(TrainingError, match=r"diverged.*step 0.*Lower learning_rate"):
        fit_centre(torch.full((4, 1), float("inf")), Schedule(updates=1))


def test_batches_depend_on_generator_only():
    torch.manual_seed(3)
    before = torch.random.get_rng_state()

    first, second = (next(iter_batches(100, 20, 1, seeded(5))).tolist() for _ in range(2))

    assert first == second
    assert torch.equal(torch.random.get_rng_state(), before)


def test_reported_loss_is_truncated_mean():
    rows = torch.tensor([[1.0], [2.0], [3.0], [100.0]])

    _, history = fit_centre(rows, Schedule(T0=0, T1=0, T2=1, rho=0.75, first_truncated=1))

    assert history[0].loss == pytest.approx((1 + 4 + 9) / 3)


def test_labelled_inliers_are_never_truncated():
    rows = torch.cat([torch.zeros(90, 1), torch.full((10, 1), 1000.0)])
    is_inlier = torch.arange(100) >= 95

    def centre(labels):
        model, schedule = Centre(), Schedule(**PAPER, T0=0, rho=0.9)
        list(train(model, rows, schedule, learning_rate=0.1, labels=labels, generator=seeded(0)))
        return float(model.at.detach())

    none = torch.zeros(0, 1)
    assert centre(TrainingLabels(is_inlier, none, outlier_weight=1, label_trust=1)) > 5
    nobody, everybody = torch.zeros(100, dtype=bool), torch.ones(100, dtype=bool)
    assert centre(TrainingLabels(nobody, none, outlier_weight=1, label_trust=1)) == centre(None)
    untruncated, _ = fit_centre(rows, Schedule(**PAPER, T0=0, rho=1.0))
    assert centre(TrainingLabels(everybody, none, outlier_weight=1, label_trust=1)) == untruncated


@pytest.mark.parametrize("n_inliers", [0, 3, 10])
def test_truncated_mean_includes_all_labelled_inliers(n_inliers):
    losses = torch.arange(10.0).flip(0)  # labelled inliers have the largest losses
    is_inlier = torch.arange(10) < n_inliers

    mean = compute_truncated_mean(losses, 0.5, is_inlier)

    others = losses[n_inliers:]
    kept = sorted(others.tolist())[: -(-len(others) // 2)]
    counted = kept + losses[:n_inliers].tolist()
    assert float(mean) == pytest.approx(sum(counted) / len(counted))


def test_labelled_outliers_move_the_model_away():
    rows = torch.linspace(0, 2, 100)[:, None]
    outliers = torch.full((5, 1), 1.8)

    def centre(outlier_weight):
        labels = TrainingLabels(
            torch.zeros(100, dtype=bool), outliers, outlier_weight=outlier_weight, label_trust=1
        )
        model, schedule = Centre(1.0), Schedule(T0=0, T1=100, T2=200, rho=1, updates=1)
        list(train(model, rows, schedule, learning_rate=0.02, labels=labels, generator=seeded(0)))
        return float(model.at.detach())

    assert centre(0) == pytest.approx(1.0, abs=0.1)
    assert centre(1) < 0.7
    assert centre(5) < centre(1)


def test_untrusted_labels_have_no_gradient():
    losses = torch.tensor([1.0, 2.0, 3.0, 4.0])
    outliers = torch.tensor([0.5, 9.0, 10.0, 11.0], requires_grad=True)

    compute_outlier_penalty(outliers, losses, 1.0, label_trust=0.75).backward()

    assert outliers.grad[0] == 0
    assert (outliers.grad[1:] < 0).all()
    assert (outliers.grad[1:].diff() > 0).all()  # larger losses are penalized less


def test_outlier_penalty_matches_formula():
    losses, outliers = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([2.0, 5.0])

    one, ten = (
        compute_outlier_penalty(k * outliers + 7, k * losses + 7, 1.0, label_trust=1)
        for k in (1, 10)
    )

    assert float(ten) == pytest.approx(10 * float(one), rel=1e-5)
    largest, scale = 4.0, float(losses.std(correction=0))
    expected = scale * nn.functional.softplus((largest - outliers) / scale + 2).mean()
    assert float(one) == pytest.approx(float(expected), rel=1e-5)
    assert float(compute_outlier_penalty(outliers, losses, 0.5, label_trust=1)) < float(
        compute_outlier_penalty(outliers, losses, 1, label_trust=1)
    )


def test_warm_up_trusts_all_labels():
    seen = []

    class Recording(Centre):
        def forward(self, rows):
            losses = super().forward(rows)
            losses.register_hook(lambda gradient: seen.append((gradient[-4:] != 0).sum().item()))
            return losses

    labels = TrainingLabels(
        torch.zeros(20, dtype=bool), torch.rand(4, 1) + 1, outlier_weight=1, label_trust=0.5
    )
    schedule = Schedule(n0=10, gamma=1, T0=3, T1=1, T2=3, rho=0.9, first_truncated=1)
    list(
        train(
            Recording(),
            torch.rand(20, 1),
            schedule,
            learning_rate=0.1,
            labels=labels,
            generator=seeded(0),
        )
    )

    assert seen == [4, 4, 4, 2, 2, 2]


@pytest.mark.slow
def test_few_of_many_rows_are_sampled_uniformly(monkeypatch):
    n_rows, size, count = 60_000, 3_000, 2
    monkeypatch.setattr("altbi.networks._training._shuffle", None)  # too slow for many rows
    sampled = [
        torch.cat(list(iter_batches(n_rows, size, count, seeded(seed)))) for seed in range(200)
    ]

    assert all(len(numbers) == size * count == len(numbers.unique()) for numbers in sampled)
    assert torch.equal(sampled[7], torch.cat(list(iter_batches(n_rows, size, count, seeded(7)))))
    every = torch.cat(sampled)
    assert (every.min(), every.max()) == (0, n_rows - 1)
    for part in (slice(0, 100), slice(-100, None)):
        numbers = torch.cat([each[part] for each in sampled]).double()
        # Standard errors of a mean and of shares of 20,000 uniform numbers.
        assert abs(numbers.mean() / n_rows - 0.5) < 4 * 0.2887 / 20_000**0.5
        tenths = torch.histc(numbers, bins=10, min=0, max=n_rows) / 20_000
        assert (tenths - 0.1).abs().max() < 4 * 0.3 / 20_000**0.5


@pytest.mark.parametrize("n_rows", [50, 49_999])
def test_small_tables_are_shuffled(n_rows):
    order = torch.randperm(n_rows, generator=seeded(3))

    found = torch.cat(list(iter_batches(n_rows, 20, 2, seeded(3))))

    assert torch.equal(found, order[:40])


def test_large_steps_use_every_row_once():
    found = torch.cat(list(iter_batches(60_000, 20_000, 3, seeded(0))))

    assert torch.equal(found.sort().values, torch.arange(60_000))


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
