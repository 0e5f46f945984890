import copy
import math
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from altbi.errors import TrainingError
from altbi.networks._schedule import Schedule
from altbi.networks._torch_modes import default_modes, single_thread
from altbi.networks._training import (
    Adam,
    KnownLabels,
    batches,
    outlier_penalty,
    select_smallest,
    train,
    truncated_mean,
)


class Centre(nn.Module):
    """The simplest model of all: one learned point."""

    def __init__(self, at=0.0):
        super().__init__()
        self.at = nn.Parameter(torch.tensor([float(at)]))

    def forward(self, rows):
        return (rows - self.at).square().sum(-1)


class Recorder(Centre):
    """Writes down every batch it sees."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, rows):
        self.seen.append((self.training, rows.flatten().tolist()))
        return super().forward(rows)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def centre_of(rows, plan, learning_rate=0.1, at=0.0):
    model = Centre(at)
    history = list(train(model, rows, plan, learning_rate=learning_rate, generator=seeded(0)))
    return float(model.at.detach()), history


def test_training_moves_the_model_to_the_rows():
    rows = torch.full((50, 1), 3.0)

    centre, history = centre_of(rows, Schedule(T2=100))

    assert centre == pytest.approx(3.0, abs=0.05)
    assert history[-1].loss < 0.01 < history[0].loss


def test_truncated_rows_do_not_pull_the_model():
    rows = torch.cat([torch.zeros(90, 1), torch.full((10, 1), 1000.0)])

    truncated, _ = centre_of(rows, Schedule(T0=0, rho=0.9))
    whole, _ = centre_of(rows, Schedule(T0=0, rho=1.0))

    assert abs(truncated) < 1e-6
    assert whole > 5


def test_the_warm_up_counts_every_loss():
    rows = torch.cat([torch.zeros(90, 1), torch.full((10, 1), 1000.0)])

    pulled, _ = centre_of(rows, Schedule(T0=50, T1=0, T2=1, rho=0.9))

    assert pulled > 3


def test_the_first_update_is_adam_s():
    # Adam's first step has the length of the learning rate, whatever the gradient.
    centre, _ = centre_of(torch.full((5, 1), 7.0), Schedule(T0=0, T1=0, T2=1), learning_rate=0.25)

    assert centre == pytest.approx(0.25)


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.5, 0.99)])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adam_is_torch_s_adam(weight_decay, betas):
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


def test_adam_lowers_a_loss_by_its_gradient():
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
    theirs, rows = copy.deepcopy(ours), torch.randn(20, 3)
    mine, other = (Adam(model.parameters(), 0.01, 0.1) for model in (ours, theirs))
    for _ in range(3):
        mine.lower(ours(rows).square().mean())
        theirs.zero_grad()
        theirs(rows).square().mean().backward()
        other.step()

    assert torch.equal(mine.vector, other.vector)


@pytest.mark.parametrize("lowers", [False, True])
def test_adam_leaves_frozen_and_unused_parameters_alone(lowers):
    model = nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1), nn.Linear(1, 1)])
    model[1].requires_grad_(False)
    before = [parameter.clone() for parameter in model.parameters()]

    adam = Adam(model.parameters(), 0.01, 0.0)
    if lowers:
        adam.lower(model[0](torch.ones(1, 1)).sum())
    else:
        model[0](torch.ones(1, 1)).sum().backward()
        adam.step()

    moved = [not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)]
    assert moved == [True, True, False, False, False, False]


def test_weight_decay_pulls_towards_zero():
    model = Centre(at=1.0)
    plan = Schedule(T0=0, T1=0, T2=1)

    list(
        train(
            model, torch.ones(4, 1), plan, learning_rate=0.01, weight_decay=0.1, generator=seeded(0)
        )
    )

    assert float(model.at.detach()) == pytest.approx(0.99)


@pytest.mark.parametrize("plan", [Schedule(), Schedule(T1=61, updates=5, first_truncated=2)])
def test_every_update_sees_the_planned_number_of_different_rows(plan):
    model, rows = Recorder(), torch.arange(2000.0)[:, None]

    steps = list(train(model, rows, plan, learning_rate=1e-3, generator=seeded(0)))

    sizes = [plan.batch_size_at(step, 2000) for step in range(90) for _ in range(plan.updates)]
    # Five batches of more than 400 rows use up the 2000 rows; what is left over is a batch too.
    planned = [size for size in sizes if size * plan.updates <= 2000]
    seen = [len(batch) for _, batch in model.seen]
    assert seen[: len(planned)] == planned
    assert len(seen) == 90 * plan.updates
    assert all(training and len(set(batch)) == len(batch) for training, batch in model.seen)
    assert [progress.batch_size for progress in steps] == sizes[:: plan.updates]


def test_the_batches_of_a_step_share_no_row_until_all_were_used():
    drawn = [batch.tolist() for batch in batches(10, 4, 5, seeded(0))]

    assert [len(batch) for batch in drawn] == [4, 4, 2, 4, 4]
    assert sorted(drawn[0] + drawn[1] + drawn[2]) == list(range(10))
    assert len(set(drawn[3] + drawn[4])) == 8


def test_a_single_row_left_over_is_no_batch():
    assert [len(batch) for batch in batches(9, 4, 5, seeded(0))] == [4, 4, 4, 4, 4]


def test_batches_differ_from_step_to_step():
    generator = seeded(0)

    first, second = (next(batches(100, 20, 1, generator)).tolist() for _ in range(2))

    assert first != second


@pytest.mark.parametrize(("share", "count"), [(1.0, 100), (0.92, 92), (0.5, 50), (0.001, 1)])
def test_keep_smallest_marks_the_share_with_the_smallest_losses(share, count):
    losses = torch.randperm(100).float()

    kept = select_smallest(losses, share)

    assert kept.sum() == count
    assert losses[kept].max() < count


@pytest.mark.parametrize("n_losses", [1, 2, 7, 101, 128, 1322])
@pytest.mark.parametrize("share", [0.001, 0.29, 0.5, 0.9, 0.92, 1.0])
def test_kept_is_what_is_not_above_the_quantile(share, n_losses):
    losses = torch.randperm(n_losses).double()

    kept = select_smallest(losses, share)

    assert torch.equal(kept, losses <= torch.quantile(losses, share) + 1e-9)


def test_a_loss_that_is_no_number_is_not_left_out():
    losses = torch.tensor([1.0, 2.0, 3.0, math.nan])

    assert not select_smallest(losses, 0.5).any()
    assert truncated_mean(losses, 0.5).isnan()
    assert outlier_penalty(torch.tensor([5.0]), losses, 0.5, label_trust=1).isnan()


def test_losses_that_are_equal_are_kept_together():
    assert select_smallest(torch.tensor([1.0, 2.0, 2.0, 2.0, 3.0]), 0.5).tolist() == [True] * 4 + [
        False
    ]


@pytest.mark.parametrize("worst", [100.0, math.inf])
def test_rows_left_out_have_no_gradient(worst):
    losses = torch.tensor([1.0, 2.0, 3.0, worst], requires_grad=True)

    mean = truncated_mean(losses, 0.75)
    mean.backward()

    assert mean.item() == 2
    assert torch.allclose(losses.grad, torch.tensor([1 / 3, 1 / 3, 1 / 3, 0]))


def test_a_diverging_run_says_what_to_do():
    with pytest.raises(TrainingError, match=r"diverged.*step 0.*Lower learning_rate"):
        centre_of(torch.full((4, 1), float("inf")), Schedule())


def test_batches_come_from_the_generator_alone():
    torch.manual_seed(3)
    before = torch.random.get_rng_state()

    first, second = (next(batches(100, 20, 1, seeded(5))).tolist() for _ in range(2))

    assert first == second
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_first_loss_is_the_mean_over_the_kept_rows():
    rows = torch.tensor([[1.0], [2.0], [3.0], [100.0]])

    _, history = centre_of(rows, Schedule(T0=0, T1=0, T2=1, rho=0.75))

    assert history[0].loss == pytest.approx((1 + 4 + 9) / 3)


def test_plain_torch_keeps_the_caller_s_modes_out():
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        with default_modes():
            weight = torch.ones(2, 2, requires_grad=True)
            product = weight @ weight
            product.sum().backward()
        outside = torch.ones(2, 2) @ torch.ones(2, 2)

    assert product.dtype == torch.float32
    assert weight.grad is not None
    assert outside.dtype == torch.bfloat16


def test_the_caller_s_threads_are_given_back_even_after_an_error():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with single_thread():
            inside = torch.get_num_threads()
        with pytest.raises(ZeroDivisionError), single_thread():
            _ = 1 / 0
        assert (inside, torch.get_num_threads()) == (1, 2)
    finally:
        torch.set_num_threads(before)


def test_a_block_within_a_block_gives_no_threads_back():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with single_thread():
            with single_thread():
                pass
            between = torch.get_num_threads()
        assert (between, torch.get_num_threads()) == (1, 2)
    finally:
        torch.set_num_threads(before)


def test_threads_that_borrow_at_the_same_time_all_get_theirs_back():
    before = torch.get_num_threads()
    together = threading.Barrier(3)

    def borrow(_):
        together.wait()
        with single_thread():
            together.wait()
        together.wait()
        return torch.get_num_threads()

    try:
        torch.set_num_threads(2)
        with ThreadPoolExecutor(3) as pool:
            found = list(pool.map(borrow, range(3)))
        assert found == [2, 2, 2]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_known_inliers_are_never_left_out():
    rows = torch.cat([torch.zeros(90, 1), torch.full((10, 1), 1000.0)])
    is_inlier = torch.arange(100) >= 95

    def centre(known):
        model, plan = Centre(), Schedule(T0=0, rho=0.9)
        list(train(model, rows, plan, learning_rate=0.1, known=known, generator=seeded(0)))
        return float(model.at.detach())

    none = torch.zeros(0, 1)
    assert centre(KnownLabels(is_inlier, none, outlier_weight=1, label_trust=1)) > 5
    nobody, everybody = torch.zeros(100, dtype=bool), torch.ones(100, dtype=bool)
    assert centre(KnownLabels(nobody, none, outlier_weight=1, label_trust=1)) == centre(None)
    whole, _ = centre_of(rows, Schedule(T0=0, rho=1.0))
    assert centre(KnownLabels(everybody, none, outlier_weight=1, label_trust=1)) == whole


@pytest.mark.parametrize("n_inliers", [0, 3, 10])
def test_the_mean_is_over_kept_unknown_rows_and_all_inliers(n_inliers):
    losses = torch.arange(10.0).flip(0)  # the known ones have the largest
    is_inlier = torch.arange(10) < n_inliers

    mean = truncated_mean(losses, 0.5, is_inlier)

    others = losses[n_inliers:]
    kept = sorted(others.tolist())[: -(-len(others) // 2)]
    counted = kept + losses[:n_inliers].tolist()
    assert float(mean) == pytest.approx(sum(counted) / len(counted))


def test_labelled_outliers_push_the_model_away():
    rows = torch.linspace(0, 2, 100)[:, None]
    outliers = torch.full((5, 1), 1.8)

    def centre(outlier_weight):
        known = KnownLabels(torch.zeros(100, dtype=bool), outliers, outlier_weight=outlier_weight, label_trust=1)
        model, plan = Centre(1.0), Schedule(T0=0, T1=100, T2=200, rho=1)
        list(train(model, rows, plan, learning_rate=0.02, known=known, generator=seeded(0)))
        return float(model.at.detach())

    assert centre(0) == pytest.approx(1.0, abs=0.1)
    assert centre(1) < 0.7
    assert centre(5) < centre(1)


def test_labels_that_look_wrong_are_left_out():
    losses = torch.tensor([1.0, 2.0, 3.0, 4.0])
    odd = torch.tensor([0.5, 9.0, 10.0, 11.0], requires_grad=True)

    outlier_penalty(odd, losses, 1.0, label_trust=0.75).backward()

    assert odd.grad[0] == 0
    assert (odd.grad[1:] < 0).all()
    assert (odd.grad[1:].diff() > 0).all()  # the further away, the less it is pushed


def test_the_shortfall_knows_no_unit():
    losses, odd = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([2.0, 5.0])

    one, ten = (outlier_penalty(k * odd + 7, k * losses + 7, 1.0, label_trust=1) for k in (1, 10))

    assert float(ten) == pytest.approx(10 * float(one), rel=1e-5)
    level, unit = 4.0, float(losses.std(correction=0))
    expected = unit * nn.functional.softplus((level - odd) / unit + 2).mean()
    assert float(one) == pytest.approx(float(expected), rel=1e-5)
    assert float(outlier_penalty(odd, losses, 0.5, label_trust=1)) < float(outlier_penalty(odd, losses, 1, label_trust=1))


def test_before_losses_are_left_out_every_label_is_believed():
    seen = []

    class Watched(Centre):
        def forward(self, rows):
            losses = super().forward(rows)
            losses.register_hook(lambda gradient: seen.append((gradient[-4:] != 0).sum().item()))
            return losses

    known = KnownLabels(torch.zeros(20, dtype=bool), torch.rand(4, 1) + 1, outlier_weight=1, label_trust=0.5)
    plan = Schedule(n0=10, gamma=1, T0=3, T1=1, T2=3, rho=0.9)
    list(
        train(
            Watched(), torch.rand(20, 1), plan, learning_rate=0.1, known=known, generator=seeded(0)
        )
    )

    assert seen == [4, 4, 4, 2, 2, 2]


def test_few_of_many_rows_are_drawn_as_if_all_were_shuffled(monkeypatch):
    """No row twice in a step, every row equally likely, in every place; the same for a seed."""
    n_rows, size, count = 60_000, 3_000, 2
    monkeypatch.setattr("altbi.networks._training._shuffled", None)  # which would cost more than a batch
    drawn = [torch.cat(list(batches(n_rows, size, count, seeded(seed)))) for seed in range(200)]

    assert all(len(numbers) == size * count == len(numbers.unique()) for numbers in drawn)
    assert torch.equal(drawn[7], torch.cat(list(batches(n_rows, size, count, seeded(7)))))
    every = torch.cat(drawn)
    assert (every.min(), every.max()) == (0, n_rows - 1)
    for place in (slice(0, 100), slice(-100, None)):
        numbers = torch.cat([each[place] for each in drawn]).double()
        # Deviations of a mean and of shares of 20,000 uniform numbers.
        assert abs(numbers.mean() / n_rows - 0.5) < 4 * 0.2887 / 20_000**0.5
        tenths = torch.histc(numbers, bins=10, min=0, max=n_rows) / 20_000
        assert (tenths - 0.1).abs().max() < 4 * 0.3 / 20_000**0.5


@pytest.mark.parametrize("n_rows", [50, 49_999])
def test_fewer_rows_are_shuffled_whole(n_rows):
    order = torch.randperm(n_rows, generator=seeded(3))

    found = torch.cat(list(batches(n_rows, 20, 2, seeded(3))))

    assert torch.equal(found, order[:40])


def test_a_step_that_needs_many_of_many_rows_gets_them_all_once():
    found = torch.cat(list(batches(60_000, 20_000, 3, seeded(0))))

    assert torch.equal(found.sort().values, torch.arange(60_000))


def takes_tiny_for_zero():
    """Whether half of the smallest number of full precision is zero to this thread's processor."""
    return sys.float_info.min / 2 == 0


class Faint(nn.Module):
    """A model whose slope is half of the smallest number of full precision."""

    def __init__(self, *, breaks):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.weight.register_hook(self.looked_at)
        self.breaks, self.seen = breaks, []

    def looked_at(self, slope):
        self.seen.append((takes_tiny_for_zero(), float(slope)))
        if self.breaks:
            raise ArithmeticError("on the way back")

    def forward(self):
        return (self.weight * torch.finfo(torch.float32).tiny).sum() * 0.5


@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("flushed", [False, True])
def test_slopes_next_to_nothing_are_zero_and_the_caller_s_mode_comes_back(flushed, breaks):
    torch.set_flush_denormal(flushed)
    try:
        model = Faint(breaks=breaks)
        with pytest.raises(ArithmeticError) if breaks else nullcontext():
            Adam(model.parameters(), 0.01, 0.0).lower(model())
        after = takes_tiny_for_zero()
    finally:
        torch.set_flush_denormal(False)

    assert model.seen == [(True, 0.0)]
    assert after == flushed
