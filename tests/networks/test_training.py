import math

import numpy as np
import pytest

from altbi.errors import TrainingError
from altbi.networks import Schedule, TrainingLabels, train
from altbi.networks._adam import Adam
from altbi.networks._training import (
    average_smallest,
    iter_batches,
    penalize_outliers,
    select_smallest,
)

# The schedule of the paper: truncation from the first step, one update in each step.
PAPER = {"T1": 60, "first_truncated": 1, "updates": 1}


class Centre:
    """A model with one weight, whose optimum is the mean of the rows."""

    def __init__(self, at=0.0, learning_rate=0.1):
        self.at = np.array([at])
        self.adam = Adam(self.at, learning_rate, 0.0)
        self.seen = []  # batches, and the gradients of their losses

    def update(self, rows, objective):
        difference = rows - self.at
        value, gradient = objective((difference**2).sum(axis=1))
        self.adam.step((-2 * difference * gradient[:, None]).sum(axis=0))
        self.seen.append((rows.ravel().tolist(), gradient))
        return value


def seeded(seed):
    return np.random.default_rng(seed)


def fit_centre(rows, schedule, labels=None, at=0.0, learning_rate=0.1):
    model = Centre(at, learning_rate)
    history = list(train(model, rows, schedule, labels, seeded(0)))
    return float(model.at[0]), history


def test_training_converges_to_the_mean():
    rows = np.full((50, 1), 3.0)

    centre, history = fit_centre(rows, Schedule(**PAPER | {"T2": 100}))

    assert centre == pytest.approx(3.0, abs=0.05)
    assert history[-1].loss < 0.01 < history[0].loss


def test_truncated_rows_do_not_change_the_model():
    rows = np.concatenate([np.zeros((90, 1)), np.full((10, 1), 1000.0)])

    truncated, _ = fit_centre(rows, Schedule(**PAPER, T0=0, rho=0.9))
    untruncated, _ = fit_centre(rows, Schedule(**PAPER, T0=0, rho=1.0))

    assert abs(truncated) < 1e-6
    assert untruncated > 5


def test_warm_up_uses_every_loss():
    rows = np.concatenate([np.zeros((90, 1)), np.full((10, 1), 1000.0)])

    moved, _ = fit_centre(rows, Schedule(T0=50, T1=0, T2=1, rho=0.9, updates=1))

    assert moved > 3


def test_first_update_has_length_of_learning_rate():
    # Adam's first step has the length of the learning rate, whatever the gradient.
    centre, _ = fit_centre(
        np.full((5, 1), 7.0), Schedule(T0=0, T1=0, T2=1, updates=1), learning_rate=0.25
    )

    assert centre == pytest.approx(0.25)


@pytest.mark.parametrize("schedule", [Schedule(updates=1), Schedule(updates=5)])
def test_updates_have_scheduled_batch_sizes(schedule):
    model, rows = Centre(), np.arange(2000.0)[:, None]

    steps = list(train(model, rows, schedule, None, seeded(0)))

    sizes = [
        schedule.batch_size_at(step, 2000) for step in range(90) for _ in range(schedule.updates)
    ]
    # Five batches of more than 400 rows exceed the 2000 rows, so that the last one is smaller.
    planned = [size for size in sizes if size * schedule.updates <= 2000]
    seen = [len(batch) for batch, _ in model.seen]
    assert seen[: len(planned)] == planned
    assert len(seen) == 90 * schedule.updates
    assert all(len(set(batch)) == len(batch) for batch, _ in model.seen)
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
    losses = seeded(0).permutation(100).astype(np.float32)

    kept = select_smallest(losses, share)

    assert kept.sum() == count
    assert losses[kept].max() < count


@pytest.mark.parametrize("n_losses", [1, 2, 7, 101, 128, 1322])
@pytest.mark.parametrize("share", [0.001, 0.29, 0.5, 0.9, 0.92, 1.0])
def test_select_smallest_equals_quantile(share, n_losses):
    losses = seeded(0).permutation(n_losses).astype(np.float64)

    kept = select_smallest(losses, share)

    assert np.array_equal(kept, losses <= np.quantile(losses, share) + 1e-9)


@pytest.mark.parametrize("is_inlier", [None, np.array([True, False, False, False])])
def test_nan_losses_are_not_truncated(is_inlier):
    losses = np.array([1.0, 2.0, 3.0, math.nan])

    assert not select_smallest(losses, 0.5).any()
    for value, gradient in (
        average_smallest(losses, 0.5, is_inlier),
        penalize_outliers(np.array([5.0]), losses, 0.5, label_trust=1),
        penalize_outliers(losses, np.array([5.0]), 0.5, label_trust=1),
    ):
        assert math.isnan(value)
        assert not gradient.any()


def test_equal_losses_are_selected_together():
    kept = select_smallest(np.array([1.0, 2.0, 2.0, 2.0, 3.0]), 0.5)

    assert kept.tolist() == [True] * 4 + [False]


@pytest.mark.parametrize("worst", [100.0, math.inf])
def test_truncated_rows_have_no_gradient(worst):
    mean, gradient = average_smallest(np.array([1.0, 2.0, 3.0, worst]), 0.75)

    assert mean == 2
    assert gradient == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])


def test_diverged_training_raises():
    with pytest.raises(TrainingError, match=r"diverged.*step 0.*Lower the backbone's"):
        fit_centre(np.full((4, 1), np.inf), Schedule(updates=1))


def test_overflow_is_reported_as_divergence():
    with np.errstate(all="raise"), pytest.raises(TrainingError, match="Training diverged"):
        fit_centre(np.full((100, 1), 1e200), Schedule(T0=1, T1=1, T2=2))


def test_outliers_without_weight_do_not_join_batches():
    rng, model = np.random.default_rng(0), Centre()
    labels = TrainingLabels(np.zeros(20, dtype=bool), rng.random((4, 1)) + 1, 0, label_trust=1)

    list(train(model, rng.random((20, 1)), Schedule(n0=10, T0=3, T1=1, T2=3), labels, rng))

    assert {len(batch) for batch, _ in model.seen} == {10}


def test_batches_depend_on_generator_only():
    first, second = (next(iter_batches(100, 20, 1, seeded(5))).tolist() for _ in range(2))

    assert first == second


def test_reported_loss_is_truncated_mean():
    rows = np.array([[1.0], [2.0], [3.0], [100.0]])

    _, history = fit_centre(rows, Schedule(T0=0, T1=0, T2=1, rho=0.75, first_truncated=1))

    assert history[0].loss == pytest.approx((1 + 4 + 9) / 3)


def test_labelled_inliers_are_never_truncated():
    rows = np.concatenate([np.zeros((90, 1)), np.full((10, 1), 1000.0)])
    schedule = Schedule(**PAPER, T0=0, rho=0.9)

    def centre(is_inlier):
        labels = TrainingLabels(is_inlier, np.zeros((0, 1)), outlier_weight=1, label_trust=1)
        return fit_centre(rows, schedule, labels)[0]

    assert centre(np.arange(100) >= 95) > 5
    assert centre(np.zeros(100, dtype=bool)) == fit_centre(rows, schedule)[0]
    untruncated, _ = fit_centre(rows, Schedule(**PAPER, T0=0, rho=1.0))
    assert centre(np.ones(100, dtype=bool)) == untruncated


@pytest.mark.parametrize("n_inliers", [0, 3, 10])
def test_truncated_mean_includes_all_labelled_inliers(n_inliers):
    losses = np.arange(10.0)[::-1]  # labelled inliers have the largest losses
    is_inlier = np.arange(10) < n_inliers

    mean, gradient = average_smallest(losses, 0.5, is_inlier)

    others = losses[n_inliers:]
    kept = sorted(others.tolist())[: -(-len(others) // 2)]
    counted = kept + losses[:n_inliers].tolist()
    assert mean == pytest.approx(sum(counted) / len(counted))
    assert gradient @ losses == pytest.approx(mean)
    assert np.count_nonzero(gradient) == len(counted)


@pytest.mark.slow
def test_labelled_outliers_move_the_model_away():
    rows, schedule = np.linspace(0, 2, 100)[:, None], Schedule(T1=100, T2=200, rho=1, updates=1)

    def centre(outlier_weight):
        labels = TrainingLabels(
            np.zeros(100, dtype=bool), np.full((5, 1), 1.8), outlier_weight, label_trust=1
        )
        return fit_centre(rows, schedule, labels, at=1.0, learning_rate=0.02)[0]

    assert centre(0) == pytest.approx(1.0, abs=0.1)
    assert centre(1) < 0.7
    assert centre(5) < centre(1)


def test_untrusted_labels_have_no_gradient():
    outliers = np.array([0.5, 9.0, 10.0, 11.0])

    _, gradient = penalize_outliers(outliers, np.arange(1.0, 5.0), 1.0, label_trust=0.75)

    assert gradient[0] == 0
    assert (gradient[1:] < 0).all()
    assert (np.diff(gradient[1:]) > 0).all()  # larger losses are penalized less


def test_outlier_penalty_matches_formula():
    losses, outliers = np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 5.0])

    def penalty(scale=1.0, share=1.0):
        return penalize_outliers(scale * outliers + 7, scale * losses + 7, share, label_trust=1)[0]

    assert penalty(scale=10) == pytest.approx(10 * penalty())
    largest, scale = 4.0, losses.std()
    expected = scale * np.log1p(np.exp((largest - outliers) / scale + 2)).mean()
    assert penalty() == pytest.approx(expected)
    assert penalty(share=0.5) < penalty()


def test_outlier_penalty_of_equal_losses_is_finite():
    penalty, gradient = penalize_outliers(np.array([2.0, 2.0]), np.full(4, 2.0), 1.0, label_trust=1)

    assert penalty == pytest.approx(1e-3 * np.log1p(np.exp(2)))
    assert gradient == pytest.approx(-0.5 / (1 + np.exp(-2)))


def test_updates_have_a_limited_number_of_outliers():
    rng, model = np.random.default_rng(0), Centre()
    labels = TrainingLabels(np.zeros(20, dtype=bool), rng.random((100, 1)) + 1, 1, label_trust=1)

    list(train(model, rng.random((20, 1)), Schedule(n0=10, T0=3, T1=1, T2=3), labels, rng))

    outliers = [batch[-32:] for batch, _ in model.seen]
    assert {len(batch) for batch, _ in model.seen} == {10 + 32}
    assert min(map(min, outliers)) >= 1
    assert len({tuple(batch) for batch in outliers}) == len(outliers)


def test_outlier_penalty_gradient_equals_finite_differences():
    losses, outliers = np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 5.0, 3.0])

    _, gradient = penalize_outliers(outliers, losses, 1.0, label_trust=1)

    for index in range(3):
        step = np.eye(3)[index] * 1e-6
        above, below = (
            penalize_outliers(outliers + sign * step, losses, 1.0, label_trust=1)[0]
            for sign in (1, -1)
        )
        assert gradient[index] == pytest.approx((above - below) / 2e-6, rel=1e-6)


def test_warm_up_trusts_all_labels():
    rng, model = np.random.default_rng(0), Centre()
    labels = TrainingLabels(np.zeros(20, dtype=bool), rng.random((4, 1)) + 1, 1, label_trust=0.5)
    schedule = Schedule(n0=10, gamma=1, T0=3, T1=1, T2=3, rho=0.9, first_truncated=1)

    list(train(model, rng.random((20, 1)), schedule, labels, rng))

    counted = [np.count_nonzero(gradient[-4:]) for _, gradient in model.seen]
    assert counted == [4, 4, 4, 2, 2, 2]


@pytest.mark.slow
def test_few_of_many_rows_are_sampled_uniformly():
    n_rows, size, count = 60_000, 3_000, 2
    sampled = [
        np.concatenate(list(iter_batches(n_rows, size, count, seeded(seed)))) for seed in range(200)
    ]

    assert all(len(numbers) == size * count == len(set(numbers.tolist())) for numbers in sampled)
    every = np.concatenate(sampled)
    assert (every.min(), every.max()) == (0, n_rows - 1)
    for part in (slice(0, 100), slice(-100, None)):
        numbers = np.concatenate([each[part] for each in sampled])
        # Standard errors of a mean and of shares of 20,000 uniform numbers.
        assert abs(numbers.mean() / n_rows - 0.5) < 4 * 0.2887 / 20_000**0.5
        tenths = np.histogram(numbers, bins=10, range=(0, n_rows))[0] / 20_000
        assert np.abs(tenths - 0.1).max() < 4 * 0.3 / 20_000**0.5


def test_large_steps_use_every_row_once():
    found = np.concatenate(list(iter_batches(60_000, 20_000, 3, seeded(0))))

    assert np.array_equal(np.sort(found), np.arange(60_000))
