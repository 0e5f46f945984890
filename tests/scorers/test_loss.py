from types import SimpleNamespace

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from altbi._threads import map_blocks
from altbi.networks import stack_states
from altbi.networks._iwae_network import IWAENetwork
from altbi.networks._iwae_snapshots import StackedIWAE
from altbi.scorers import LossScorer
from altbi.scorers._loss import compute_loss_ranges, fit_typical_rows


def build_stacked(n_snapshots=3, bounded=True):
    network, generator = IWAENetwork(5, (8, 6), 3, 2, bounded=bounded), np.random.default_rng(0)
    states = []
    for _ in range(n_snapshots):
        network.initialize(generator)
        network.resample_noise()
        states.append(network.copy_state())
    return StackedIWAE(network, stack_states(states))


def build_scorer(low, width):
    stacked = build_stacked(len(low))
    return LossScorer(stacked, np.array(low), np.array(width), arrays={})


def sample_rows(n_rows, seed=0):
    return np.random.default_rng(seed).random((n_rows, 5), dtype=np.float32)


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_losses_do_not_depend_on_other_rows(bounded, threads):
    stacked, rows = build_stacked(bounded=bounded), sample_rows(1000)
    losses = map_blocks(stacked.losses, rows, stacked.block_rows)
    order = np.random.default_rng(1).permutation(1000)

    with threadpool_limits(threads, "blas"):
        shuffled = map_blocks(stacked.losses, rows[order], stacked.block_rows)
        alone = np.concatenate(
            [map_blocks(stacked.losses, rows[i : i + 1], stacked.block_rows) for i in range(10)], 1
        )
        assert {
            each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"
        } == {threads}

    assert np.array_equal(shuffled, losses[:, order])
    assert np.array_equal(alone, losses[:, :10])
    assert len(np.unique(losses[0])) > 990


def test_score_is_mean_of_scaled_losses():
    scorer = build_scorer(low=[1.0, -2.0], width=[2.0, 4.0])

    scores = scorer.combine(np.array([[1.0, 3.0], [0.0, 2.0]], dtype=np.float32))

    assert scores.tolist() == [(0 + 0.5) / 2, (1 + 1) / 2]


def test_mean_of_snapshots_does_not_depend_on_shape():
    generator = np.random.default_rng(0)
    losses = generator.normal(size=(19, 50)).astype(np.float32)
    scorer = build_scorer(generator.normal(size=19), 1 + generator.random(19))
    scores = scorer.combine(losses)

    assert [scorer.combine(losses[:, [n]])[0] for n in range(50)] == scores.tolist()


def test_loss_ranges_are_computed_per_snapshot():
    low, width = compute_loss_ranges(np.array([[1.0, 4.0, 2.0], [5.0, 5.0, 5.0]], dtype=np.float32))

    assert low.tolist() == [1, 5]
    assert width.tolist() == [3, 1]


def test_baseline_is_the_mean_of_simple_columns():
    rows = np.random.default_rng(0).random((500, 5), dtype=np.float32)
    scorer = build_scorer([0.0] * 3, [1.0] * 3)
    encoder = SimpleNamespace(
        feature_columns=np.array([0, 1, 2, 2, 3]),
        sum_by_column=lambda values: np.add.reduceat(values, [0, 1, 2, 4], axis=1),
    )

    typical = fit_typical_rows(scorer, encoder, rows)

    means = scorer.split_losses(rows)[0].mean(axis=0)
    assert typical.baseline[[0, 1, 3]] == pytest.approx(means[[0, 1, 4]].mean())
    assert typical.baseline[2] == pytest.approx(means[2:4].sum())
    assert typical.neutral == pytest.approx(np.median(rows, axis=0))


def test_contributions_add_up_to_score():
    scorer, rows = build_scorer([1.0, -2.0, 0.0], [2.0, 4.0, 0.5]), sample_rows(300)

    split = scorer.contributions(rows)

    assert np.array_equal(split.score, scorer.score(rows))
    assert np.allclose(split.by_feature.sum(1) + split.remainder, split.score, atol=1e-5)
    assert split.by_feature.shape == rows.shape


def test_expected_values_depend_on_context_only():
    scorer = build_scorer([0.0] * 3, [1.0] * 3)
    context, rows = sample_rows(300), sample_rows(300, seed=1)

    expected, distance = scorer.expect(context, rows)
    alone = scorer.expect(context[:1], rows[:1])
    own = scorer.expect(context, context)

    assert expected.shape == distance.shape == rows.shape
    assert np.array_equal(alone[0], expected[:1])
    assert np.array_equal(alone[1], distance[:1])
    assert np.array_equal(own[0], expected)
    assert (distance >= 0).all()
    assert not np.array_equal(own[1], distance)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_contributions_that_overflow_belong_to_the_remainder(monkeypatch, value):
    scorer, rows = build_scorer([0.0], [1.0]), sample_rows(4)
    by_feature, remainder = scorer.split_losses(rows)
    broken = by_feature.copy()
    broken[2, 1] = value
    monkeypatch.setattr(LossScorer, "split_losses", lambda *_: (broken, remainder))

    found = scorer.contributions(rows)

    assert found.by_feature[2, 1] == 0
    sums = found.by_feature.sum(axis=1) + found.remainder
    np.testing.assert_allclose(sums, found.score, rtol=1e-6)
    assert np.array_equal(found.by_feature[:2], by_feature[:2])
    assert np.array_equal(found.remainder[:2], remainder[:2])
