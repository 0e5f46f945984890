"""Processes that run jobs, each with a time limit."""

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, TypeVar, final

from pebble import ProcessExpired, ProcessPool

from altbi_bench.runs.measurement import failed_run, measure
from altbi_bench.runs.records import Job, Run

if TYPE_CHECKING:
    from altbi.distributed import Engine

__all__ = ["Failure", "run_in_processes", "run_jobs", "run_jobs_on_engine"]

Item = TypeVar("Item")
Result = TypeVar("Result")
Work = Callable[..., Run]


@final
@dataclass(frozen=True, slots=True)
class Failure:
    """Why an item has no result."""

    reason: str


def run_in_processes(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    processes: int,
    seconds: float,
) -> Iterator[tuple[Item, Result | Failure]]:
    """Call a function on items in processes, and yield each item with its result.

    Results are yielded in the order of completion. An item that takes longer than `seconds`, or
    whose process dies, has a `Failure`, and the process is replaced. If the iterator is closed
    early, all processes are ended.

    Parameters
    ----------
    function : callable
        A function of a module, so that other processes can import it.
    items : sequence
        Values that can be pickled.
    processes : int
        Largest number of processes at a time.
    seconds : float
        Time limit of one item.

    Yields
    ------
    tuple
        An item and its result.
    """
    if not items:
        return
    pool = ProcessPool(
        max_workers=min(processes, len(items)),
        initializer=_start_parent_watcher,
        context=multiprocessing.get_context("spawn"),
    )
    try:
        futures: dict[Future[Result], Item] = {
            pool.schedule(function, (item,), timeout=seconds): item for item in items
        }
        for future in as_completed(futures):
            yield futures[future], _resolve(future.result, seconds)
    finally:
        pool.stop()  # type: ignore[no-untyped-call]  # pebble has no annotation for it
        pool.join()


def _resolve(result: Callable[[], Result], seconds: float) -> Result | Failure:
    try:
        return result()
    except ProcessExpired as lost:
        return Failure(f"its process ended with exit code {lost.exitcode}")
    except TimeoutError:
        return Failure(f"over the limit of {seconds:g} seconds")
    except Exception as error:  # noqa: BLE001 - one broken item must not end the others
        return Failure(f"{type(error).__name__}: {error}")


def _start_parent_watcher() -> None:
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """End this process when its parent was killed, even in the middle of an item."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def run_jobs(
    jobs: Sequence[Job], *, processes: int, seconds: float, threads: int, work: Work = measure
) -> Iterator[Run]:
    """Run jobs in processes of this machine, and yield their runs as they complete."""
    function = partial(work, threads=threads)
    for job, run in run_in_processes(function, jobs, processes=processes, seconds=seconds):
        yield failed_run(job, run.reason) if isinstance(run, Failure) else run


def run_jobs_on_engine(
    engine: "Engine", jobs: Sequence[Job], *, seconds: float, threads: int, work: Work = measure
) -> Iterator[Run]:
    """Run jobs on the workers of an engine, each in a process of its own."""
    tasks = [_Task(job, seconds, threads, work) for job in jobs]
    for _, run in engine.run(_run_task, tasks):
        yield run


@final
@dataclass(frozen=True, slots=True)
class _Task:
    job: Job
    seconds: float
    threads: int
    work: Work


def _run_task(task: _Task) -> Run:
    """Run one job in a new process, which can be ended when it takes too long."""
    # Dask workers are daemons, which may not have child processes.
    multiprocessing.current_process().daemon = False
    (run,) = run_jobs(
        [task.job], processes=1, seconds=task.seconds, threads=task.threads, work=task.work
    )
    return run
