import re
import threading
import time

import numpy as np
import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from altbi.networks._torch_modes import single_thread
from altbi.scorers._loss import LossScorer, map_in_threads, compute_loss_ranges, map_blocks
from altbi.networks import IWAE, StackedIWAE


def stacked_iwae(n_snapshots=3, n_features=5, bounded=True):
    torch.manual_seed(0)
    models = [IWAE(n_features, (8, 6), 3, 2, bounded=bounded) for _ in range(n_snapshots)]
    for model in models:
        model.redraw()
    states = [model.state_dict() for model in models]
    return StackedIWAE(models[0], {k: torch.stack([s[k] for s in states]) for k in states[0]})


def rows_of(n, n_features=5, seed=0):
    return np.random.default_rng(seed).random((n, n_features), dtype=np.float32)


def test_over_blocks_keeps_no_result_of_a_block_beside_the_whole():
    given, alive = [], []

    def look(columns):
        alive.append(sum(not result.expired() for result in given))
        losses = columns.sum(0, keepdim=True)
        given.append(StorageWeakRef(losses.untyped_storage()))
        return losses

    rows = rows_of(995)
    found = map_blocks(look, rows, block_rows=10)

    assert len(alive) == 100
    assert max(alive) <= torch.get_num_threads()
    assert np.allclose(found[0], rows.sum(1))


def test_over_blocks_gives_each_row_what_belongs_to_it():
    rows = rows_of(103)

    found = map_blocks(lambda columns: columns.sum(0, keepdim=True), rows, block_rows=10)

    assert found.shape == (1, 103)
    assert np.allclose(found[0], rows.sum(1))


def test_every_block_has_the_same_shape():
    shapes = []

    def look(columns):
        shapes.append(tuple(columns.shape))
        return columns[:1]

    map_blocks(look, rows_of(23), block_rows=10)

    assert shapes == [(5, 10)] * 3


@pytest.mark.parametrize("threads", [1, 2])
def test_a_task_computes_alone_to_its_end_whatever_it_borrows(threads):
    """A task that lends and returns threads on its way must not go on with several."""

    def task(_):
        with single_thread():
            pass
        return torch.get_num_threads()

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert list(map_in_threads(task, range(6))) == [1] * 6
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_tasks_run_side_by_side_and_leave_the_caller_alone():
    together = threading.Barrier(2, timeout=60)

    def task(_):
        together.wait()  # alone, a task would wait for ever
        return torch.is_inference_mode_enabled()

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = map_in_threads(task, range(4))
        assert next(found)
        # Whoever takes results one by one, or leaves them to another thread, keeps the threads.
        assert (torch.get_num_threads(), torch.is_inference_mode_enabled()) == (2, False)
        closing = threading.Thread(target=found.close)
        closing.start()
        closing.join()
        with single_thread():
            pass
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif("mkl_get_max" not in torch.__config__.parallel_info(), reason="without MKL")
def test_a_task_that_ends_does_not_split_the_products_of_the_others():
    """Part of the number of threads is the process's: it stays one until all tasks are done."""
    together = threading.Barrier(2, timeout=60)

    def products_take():
        (number,) = re.findall(r"mkl_get_max_threads\(\) : (\d+)", torch.__config__.parallel_info())
        return int(number)

    def task(number):
        together.wait()
        time.sleep(0.3 * number)  # the other has ended meanwhile
        return products_take()

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert list(map_in_threads(task, range(2))) == [1, 1]
        assert products_take() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2])
def test_tasks_within_a_task_keep_its_thread_and_modes(threads):
    def inner(_):
        return torch.get_num_threads(), torch.is_inference_mode_enabled(), threading.get_ident()

    def outer(_):
        with torch.inference_mode(mode=False), torch.enable_grad():  # as a model of a user may
            found = list(map_in_threads(inner, range(3)))
        return [*found, inner(0)]

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for found in map_in_threads(outer, range(2)):
            assert found == [(1, True, found[0][2])] * 4
        assert (torch.get_num_threads(), torch.is_inference_mode_enabled()) == (threads, False)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_loss_is_the_same_to_the_bit_in_any_company(bounded, threads):
    stacked, rows = stacked_iwae(bounded=bounded), rows_of(1000)
    whole = map_blocks(stacked.losses, rows, stacked.block_rows)
    order = np.random.default_rng(1).permutation(1000)

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        shuffled = map_blocks(stacked.losses, rows[order], stacked.block_rows)
        alone = np.concatenate(
            [map_blocks(stacked.losses, rows[i : i + 1], stacked.block_rows) for i in range(40)], 1
        )
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)

    assert np.array_equal(shuffled, whole[:, order])
    assert np.array_equal(alone, whole[:, :40])
    assert len(np.unique(whole[0])) > 990


def test_the_score_is_the_mean_of_scaled_losses():
    ensemble = LossScorer(stacked_iwae(2), low=np.array([1.0, -2.0]), width=np.array([2.0, 4.0]))

    scores = ensemble.combine(np.array([[1.0, 3.0], [0.0, 2.0]], dtype=np.float32))

    assert scores.tolist() == [(0 + 0.5) / 2, (1 + 1) / 2]


def test_ranges_are_those_of_each_snapshot():
    low, width = compute_loss_ranges(np.array([[1.0, 4.0, 2.0], [5.0, 5.0, 5.0]], dtype=np.float32))

    assert low.tolist() == [1, 5]
    assert width.tolist() == [3, 1]


def test_parts_add_up_to_the_score():
    low, width = np.array([1.0, -2.0, 0.0]), np.array([2.0, 4.0, 0.5])
    ensemble, rows = LossScorer(stacked_iwae(), low, width), rows_of(300)

    contributions = ensemble.contributions(rows)

    assert np.array_equal(contributions.score, ensemble.score(rows))
    assert np.allclose(contributions.cells.sum(1) + contributions.rest, contributions.score, atol=1e-5)
    assert contributions.cells.shape == rows.shape


def test_expectations_are_those_of_the_known_rows_and_distances_those_of_the_others():
    ensemble = LossScorer(stacked_iwae(), np.zeros(3), np.ones(3))
    known, rows = rows_of(300), rows_of(300, seed=1)

    expected, distance = ensemble.expect(known, rows)
    alone = ensemble.expect(known[:1], rows[:1])

    assert expected.shape == distance.shape == rows.shape
    assert np.array_equal(alone[0], expected[:1])
    assert np.array_equal(alone[1], distance[:1])
    assert np.array_equal(ensemble.expect(known, known)[0], expected)
    assert (distance >= 0).all()
    assert not np.array_equal(ensemble.expect(known, known)[1], distance)
