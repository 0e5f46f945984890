"""Jobs in processes of their own, each with a limit of time: on this machine, or by an engine."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

from altbi.distributed import Engine
from altbi.distributed._processes import Lost, answers
from altbi_bench.runs.measurement import failed, measured
from altbi_bench.runs.records import Job, Run

__all__ = ["results", "results_by"]

Work = Callable[..., Run]


def results(
    jobs: Sequence[Job], *, processes: int, seconds: float, threads: int, work: Work = measured
) -> Iterator[Run]:
    """Do jobs and give their runs as they come.

    A job that takes longer than `seconds`, or whose process dies, is a failed run; the process is
    replaced. Left early, all processes are ended. What does a job is a function of a module.
    """
    told = answers(partial(work, threads=threads), jobs, processes=processes, seconds=seconds)
    for place, answer in told:
        yield failed(jobs[place], answer.reason) if isinstance(answer, Lost) else answer


def results_by(
    engine: Engine, jobs: Sequence[Job], *, seconds: float, threads: int, work: Work = measured
) -> Iterator[Run]:
    """Do the same jobs where an engine runs: each in a process of its own beside the engine's."""
    tasks = [_Task(job, seconds, threads, work) for job in jobs]
    for _, run in engine.run(_alone, tasks):
        yield run


@final
@dataclass(frozen=True, slots=True)
class _Task:
    job: Job
    seconds: float
    threads: int
    work: Work


def _alone(task: _Task) -> Run:
    """Do one job in a fresh process, which can be ended when it takes too long."""
    # The workers of a cluster are daemons, which may have no children unless they ask for it.
    multiprocessing.current_process().daemon = False
    (run,) = results(
        [task.job], processes=1, seconds=task.seconds, threads=task.threads, work=task.work
    )
    return run
