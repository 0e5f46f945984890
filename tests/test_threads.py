import gc
import os
import signal
import sys
import threading
import types
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from altbi import _threads
from altbi._threads import (
    count_threads,
    is_worker_thread,
    limit_threads,
    map_ahead,
    map_blocks,
    map_in_threads,
    single_blas_thread,
)

ROWS = np.random.default_rng(0).normal(size=(995, 5)).astype(np.float32)


def count_blas_threads():
    """Return the numbers of threads of the loaded BLAS libraries."""
    return {found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    monkeypatch.setattr(_threads, "_count_cpus", lambda: 2)
    with threadpool_limits(2, "blas"):
        yield
        assert count_blas_threads() == {2}


def test_threads_are_limited_by_cpus(monkeypatch):
    monkeypatch.setattr(_threads, "_count_cpus", lambda: 1)

    assert count_threads() == 1


def test_threads_are_limited_by_user():
    assert count_threads() == 2
    with threadpool_limits(1, "blas"):
        assert count_threads() == 1
        with single_blas_thread():
            pass
        assert count_blas_threads() == {1}


def test_without_blas_library_cpus_count(monkeypatch):
    monkeypatch.setattr(type(_threads._BLAS), "_find", lambda _: [])

    assert count_threads() == 2


def test_limit_holds_for_the_process():
    try:
        limit_threads(1)
        assert (count_blas_threads(), count_threads()) == ({1}, 1)
    finally:
        limit_threads(2)


def test_libraries_are_searched_after_an_import(monkeypatch):
    libraries, searches = _threads._BlasLibraries(), []
    controller = _threads.ThreadpoolController

    def search():
        searches.append(len(sys.modules))
        return controller()

    monkeypatch.setattr(_threads, "ThreadpoolController", search)
    libraries.count_threads()
    libraries.count_threads()
    assert len(searches) == 1
    monkeypatch.setitem(sys.modules, "another_module", types.ModuleType("another_module"))

    libraries.count_threads()

    assert len(searches) == 2


class OpenMPLibrary(threading.local):
    """A BLAS library with a limit for each thread."""

    threading_layer = "openmp"
    num_threads = 2

    def set_num_threads(self, n_threads):
        self.num_threads = n_threads


def test_openmp_is_limited_in_each_thread(monkeypatch):
    libraries, library = _threads._BlasLibraries(), OpenMPLibrary()
    libraries._libraries = [library]
    monkeypatch.setattr(type(libraries), "_find", lambda _: [library])
    monkeypatch.setattr(_threads, "_BLAS", libraries)

    def run(_):
        with single_blas_thread():
            return library.num_threads

    assert list(map_in_threads(run, range(6))) == [1] * 6
    assert library.num_threads == 2
    with single_blas_thread():
        assert library.num_threads == 1
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(run, 0).result() == 1
            assert pool.submit(lambda: library.num_threads).result() == 2
    assert library.num_threads == 2


def test_limits_of_another_thread_are_overruled():
    """threadpoolctl lets only one thread set limits of OpenBLAS."""
    with ThreadPoolExecutor(1) as pool, threadpool_limits(1, "blas"):

        def run():
            with single_blas_thread():
                return count_blas_threads()

        with threadpool_limits(2, "blas"):
            assert pool.submit(run).result() == {1}
            assert count_blas_threads() == {2}
        assert count_blas_threads() == {1}


def test_nested_blocks_restore_at_the_end():
    with single_blas_thread():
        with single_blas_thread():
            assert count_blas_threads() == {1}
        assert (count_blas_threads(), count_threads()) == ({1}, 1)
    assert (count_blas_threads(), count_threads()) == ({2}, 2)


def test_error_restores_the_limit():
    with pytest.raises(ZeroDivisionError), single_blas_thread():
        1 / 0  # noqa: B018

    assert (count_blas_threads(), count_threads()) == ({2}, 2)


@pytest.mark.parametrize("first", [0, 1])
def test_concurrent_blocks_restore_in_any_order(first):
    opened = threading.Barrier(3, timeout=60)
    ends = [threading.Event(), threading.Event()]

    def run(number):
        with single_blas_thread():
            opened.wait()
            assert ends[number].wait(60)

    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(run, number) for number in range(2)]
        opened.wait()
        assert count_blas_threads() == {1}
        # Other threads may still use as many threads as the user allows.
        assert count_threads() == 2
        ends[first].set()
        runs[first].result()
        assert count_blas_threads() == {1}
        ends[1 - first].set()
        runs[1 - first].result()
    assert count_blas_threads() == {2}


def test_concurrent_maps_stay_single_threaded():
    def run(_):
        return [*map_in_threads(lambda _: count_blas_threads(), range(20))]

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, range(4))) == [[{1}] * 20] * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_process_does_not_wait_for_threads():
    is_held, may_end = threading.Event(), threading.Event()

    def hold():
        with _threads._BLAS.lock:
            is_held.set()
            may_end.wait(0.1)

    holding = threading.Thread(target=hold)
    holding.start()
    assert is_held.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(5)  # ends the process if it waits
        os._exit(count_threads())
    may_end.set()
    holding.join()

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2


@pytest.mark.parametrize("mapping", [map_in_threads, map_ahead])
@pytest.mark.parametrize("limit", [1, 2])
def test_results_keep_their_order(limit, mapping):
    with threadpool_limits(limit, "blas"):
        assert list(mapping(lambda task: task**2, range(50))) == [n**2 for n in range(50)]
        assert list(mapping(str, range(0))) == []


@pytest.mark.parametrize("mapping", [map_in_threads, map_ahead])
def test_tasks_run_in_parallel(mapping):
    barrier = threading.Barrier(2, timeout=60)

    assert list(mapping(lambda _: barrier.wait() >= 0, range(4))) == [True] * 4


@pytest.mark.parametrize("mapping", [map_in_threads, map_ahead])
def test_workers_are_marked(mapping):
    assert list(mapping(lambda _: is_worker_thread(), range(4))) == [True] * 4
    assert not is_worker_thread()


@pytest.mark.parametrize("mapping", [map_in_threads, map_ahead])
@pytest.mark.parametrize("n_tasks", [1, 3])
def test_one_thread_is_the_caller(n_tasks, mapping):
    with threadpool_limits(3 - min(n_tasks, 2), "blas"):
        found = list(mapping(lambda _: threading.get_ident(), range(n_tasks)))

    assert found == [threading.get_ident()] * n_tasks


@pytest.mark.parametrize("mapping", [map_in_threads, map_ahead])
def test_nested_maps_start_no_threads(mapping):
    def run(_):
        return {*mapping(lambda _: threading.get_ident(), range(5))}, threading.get_ident()

    assert all(inner == {outer} for inner, outer in mapping(run, range(4)))


@pytest.mark.parametrize("mapping", [map_in_threads, map_ahead])
@pytest.mark.parametrize("limit", [1, 2])
def test_error_ends_the_iteration(limit, mapping):
    def run(task):
        if task == 1:
            raise ValueError("task 1")
        return task

    with threadpool_limits(limit, "blas"):
        results = mapping(run, range(10))
        assert next(results) == 0
        with pytest.raises(ValueError, match="task 1"):
            next(results)
        assert count_blas_threads() == {limit}


@pytest.mark.parametrize("mapping", [map_in_threads, map_ahead])
@pytest.mark.parametrize("limit", [1, 2])
def test_closed_iterator_leaves_nothing_behind(limit, mapping):
    before, finished = threading.active_count(), []

    def run(task):
        if task > 2:
            assert closed.wait(60)
        finished.append(task)

    closed = threading.Event()
    with threadpool_limits(limit, "blas"):
        results = mapping(run, range(100))
        next(results)
        assert count_blas_threads() == {1}
        # Another thread may close it, for example in a garbage collection.
        closing = threading.Thread(target=results.close)
        closing.start()
        # Running tasks end only after the others have been cancelled.
        closing.join(0.1)
        closed.set()
        closing.join()
        assert (count_blas_threads(), count_threads()) == ({limit}, limit)

    assert len(finished) <= 5
    assert threading.active_count() == before


@pytest.mark.parametrize("mapping", [map_in_threads, map_ahead])
@pytest.mark.parametrize("limit", [1, 2])
def test_tasks_use_error_state_of_caller(limit, mapping):
    def overflow(_):
        return float((np.float32([3e38]) * np.float32(10))[0])

    with threadpool_limits(limit, "blas"):
        with np.errstate(over="ignore"):
            assert list(mapping(overflow, range(4))) == [np.inf] * 4
        with np.errstate(over="raise"), pytest.raises(FloatingPointError):
            list(mapping(overflow, range(4)))


@pytest.mark.parametrize("limit", [1, 2])
def test_error_of_items_comes_when_it_is_due(limit):
    def request():
        yield from range(3)
        raise ValueError("item 3")

    with threadpool_limits(limit, "blas"):
        results = map_ahead(str, request())
        assert [next(results) for _ in range(3)] == ["0", "1", "2"]
        with pytest.raises(ValueError, match="item 3"):
            next(results)
        # An earlier item has an error of its own.
        with pytest.raises(ZeroDivisionError):
            list(map_ahead(lambda item: 1 // (2 - item), request()))


def test_few_items_are_requested_ahead():
    requested = []

    def request():
        for number in range(100):
            requested.append(number)
            yield number

    results = map_ahead(abs, request())
    assert [next(results) for _ in range(50)] == [*range(50)]
    assert len(requested) <= 50 + 2
    results.close()


def test_many_threads_request_few_items_ahead(monkeypatch):
    monkeypatch.setattr(_threads, "count_threads", lambda: 64)
    requested = []

    def request():
        for number in range(200):
            requested.append(number)
            yield number

    results = map_ahead(abs, request())

    assert next(results) == 0
    assert len(requested) == 9
    results.close()


def test_single_item_may_use_all_threads():
    assert list(map_ahead(lambda _: count_threads(), [0])) == [2]
    assert list(map_ahead(lambda _: count_threads(), [0, 1])) == [1, 1]


def test_threads_change_no_bit_of_blocks():
    weights = np.random.default_rng(1).normal(size=(7, 5)).astype(np.float32)
    results = []
    for limit in (1, 2):
        with threadpool_limits(limit, "blas"):
            results.append(map_blocks(lambda columns: weights @ columns, ROWS, 32))

    assert np.array_equal(*results)
    np.testing.assert_allclose(results[0], weights @ ROWS.T, rtol=1e-4, atol=1e-6)


def test_all_blocks_have_the_same_shape():
    blocks = []

    def compute(columns):
        blocks.append(columns)
        return columns[:1]

    results = map_blocks(compute, ROWS[:23], block_rows=10)

    assert [block.shape for block in blocks] == [(5, 10)] * 3
    assert sum(not block[:, 3:].any() for block in blocks) == 1
    assert np.array_equal(results, ROWS[:23, :1].T)
    assert map_blocks(compute, ROWS[:0], block_rows=10).shape == (1, 0)


def test_results_of_blocks_are_freed():
    created, alive = [], []

    def compute(columns):
        gc.collect()
        alive.append(sum(result() is not None for result in created))
        sums = columns.sum(axis=0, keepdims=True)
        created.append(weakref.ref(sums))
        return sums

    assert map_blocks(compute, ROWS, block_rows=100).shape == (1, 995)
    assert max(alive) <= 2
