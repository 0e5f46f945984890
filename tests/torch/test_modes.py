import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from threadpoolctl import threadpool_limits

from altbi._threads import map_in_threads
from altbi.errors import ParameterError
from altbi.torch._modes import (
    PrivateRandomState,
    allow_workers,
    default_modes,
    resolve_device,
    single_thread,
)


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


def count_mkl_threads():
    (number,) = re.findall(r"mkl_get_max_threads\(\) : (\d+)", torch.__config__.parallel_info())
    return int(number)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_tasks_stay_single_threaded(threads, set_threads):
    def task(_):
        with single_thread():
            return torch.get_num_threads()

    set_threads(threads)
    with allow_workers():
        assert list(map_in_threads(task, range(6))) == [1] * 6

    assert torch.get_num_threads() == threads


@pytest.mark.skipif("mkl_get_max" not in torch.__config__.parallel_info(), reason="without MKL")
def test_workers_do_not_restore_threads_of_others(set_threads):
    entered, barrier = threading.Event(), threading.Barrier(2, timeout=60)

    def task(number):
        barrier.wait()
        if number:
            entered.wait(60)  # the other task has ended meanwhile
        with single_thread():
            pass
        entered.set()
        return count_mkl_threads()

    set_threads(2)
    with allow_workers(), threadpool_limits(2):
        assert list(map_in_threads(task, range(2))) == [1, 1]

    assert count_mkl_threads() == 2


def test_nested_workers_leave_the_limit_of_the_block(two_threads):
    with single_thread():
        with allow_workers():
            pass
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
