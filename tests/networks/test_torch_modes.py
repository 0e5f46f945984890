import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from altbi.networks._torch_modes import (
    PrivateRandomState,
    default_modes,
    map_blocks,
    map_in_threads,
    resolve_device,
    single_thread,
)
from torch.multiprocessing.reductions import StorageWeakRef

from altbi.errors import ParameterError

ROWS = np.random.default_rng(0).random((995, 5), dtype=np.float32)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_auto_prefers_cuda(monkeypatch):
    assert resolve_device("auto") == resolve_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto") == torch.device("cuda")


@pytest.mark.parametrize("name", ["nonsense", "cuda:77"])
def test_unavailable_device_raises(name):
    with pytest.raises(ParameterError, match=f"device='{name}': torch cannot use this device"):
        resolve_device(name)


def test_default_modes_override_inference_and_autocast():
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        with default_modes():
            weight = torch.ones(2, 2, requires_grad=True)
            product = weight @ weight
            product.sum().backward()
        outside = torch.ones(2, 2) @ torch.ones(2, 2)

    assert product.dtype == torch.float32
    assert weight.grad is not None
    assert outside.dtype == torch.bfloat16


@pytest.mark.usefixtures("two_threads")
def test_single_thread_restores_threads_after_error():
    with single_thread():
        inside = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), single_thread():
        _ = 1 / 0

    assert (inside, torch.get_num_threads()) == (1, 2)


@pytest.mark.usefixtures("two_threads")
def test_nested_single_thread_restores_only_outside():
    with single_thread():
        with single_thread():
            pass
        between = torch.get_num_threads()

    assert (between, torch.get_num_threads()) == (1, 2)


@pytest.mark.usefixtures("two_threads")
def test_concurrent_single_threads_all_restore():
    barrier = threading.Barrier(3)

    def run(_):
        barrier.wait()
        with single_thread():
            barrier.wait()
        barrier.wait()
        return torch.get_num_threads()

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(run, range(3))) == [2, 2, 2]
    assert torch.get_num_threads() == 2


def test_private_random_states_can_be_nested():
    alone, outer = PrivateRandomState(seed=1), PrivateRandomState(seed=1)

    with alone.active():
        sampled = torch.rand(4)
    with outer.active():
        first = torch.rand(2)
        with PrivateRandomState(seed=2).active():
            torch.rand(5)
        second = torch.rand(2)

    assert torch.equal(torch.cat([first, second]), sampled)


@pytest.fixture
def set_threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_map_blocks_frees_results_of_blocks():
    created, alive = [], []

    def compute(columns):
        alive.append(sum(not result.expired() for result in created))
        losses = columns.sum(0, keepdim=True)
        created.append(StorageWeakRef(losses.untyped_storage()))
        return losses

    results = map_blocks(compute, ROWS, block_rows=10)

    assert len(alive) == 100
    assert max(alive) <= torch.get_num_threads()
    assert results.shape == (1, 995)
    assert np.allclose(results[0], ROWS.sum(1))


def test_all_blocks_have_the_same_shape():
    shapes = []

    def compute(columns):
        shapes.append(tuple(columns.shape))
        return columns[:1]

    map_blocks(compute, ROWS[:23], block_rows=10)

    assert shapes == [(5, 10)] * 3


@pytest.mark.parametrize("threads", [1, 2])
def test_tasks_stay_single_threaded(threads, set_threads):
    def task(_):
        with single_thread():
            pass
        return torch.get_num_threads()

    set_threads(threads)

    assert list(map_in_threads(task, range(6))) == [1] * 6
    assert torch.get_num_threads() == threads


def test_tasks_run_in_parallel(set_threads):
    barrier = threading.Barrier(2, timeout=60)

    def task(_):
        barrier.wait()
        return torch.is_inference_mode_enabled()

    set_threads(2)
    results = map_in_threads(task, range(4))

    assert next(results)
    # The caller's threads and modes do not change, even if another thread closes the iterator.
    assert (torch.get_num_threads(), torch.is_inference_mode_enabled()) == (2, False)
    closing = threading.Thread(target=results.close)
    closing.start()
    closing.join()
    with single_thread():
        pass
    assert torch.get_num_threads() == 2


@pytest.mark.skipif("mkl_get_max" not in torch.__config__.parallel_info(), reason="without MKL")
def test_process_threads_are_restored_after_all_tasks(set_threads):
    barrier = threading.Barrier(2, timeout=60)

    def count_mkl_threads():
        (number,) = re.findall(r"mkl_get_max_threads\(\) : (\d+)", torch.__config__.parallel_info())
        return int(number)

    def task(number):
        barrier.wait()
        time.sleep(0.1 * number)  # the other task has ended meanwhile
        return count_mkl_threads()

    set_threads(2)

    assert list(map_in_threads(task, range(2))) == [1, 1]
    assert count_mkl_threads() == 2


@pytest.mark.parametrize("threads", [1, 2])
def test_nested_tasks_keep_thread_and_modes(threads, set_threads):
    def inner(_):
        return torch.get_num_threads(), torch.is_inference_mode_enabled(), threading.get_ident()

    def outer(_):
        with torch.inference_mode(mode=False), torch.enable_grad():  # as custom networks may do
            results = list(map_in_threads(inner, range(3)))
        return [*results, inner(0)]

    set_threads(threads)

    for results in map_in_threads(outer, range(2)):
        assert results == [(1, True, results[0][2])] * 4
    assert (torch.get_num_threads(), torch.is_inference_mode_enabled()) == (threads, False)
