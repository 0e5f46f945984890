"""Jobs in processes of their own: several at once, each with a limit of time."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import final

from altbi.bench.lines import Job, Run
from altbi.bench.measure import failed, measured

__all__ = ["results"]

Work = Callable[[Job, int], Run]

_CONTEXT = multiprocessing.get_context("spawn")
_LONGEST_WAIT = 3600.0  # the system's call cannot wait for more than some weeks


def results(
    jobs: Sequence[Job], *, processes: int, seconds: float, threads: int, work: Work = measured
) -> Iterator[Run]:
    """Do jobs and give their runs as they come.

    A job that takes longer than `seconds`, or whose process dies, is a failed run; the process is
    replaced. Left early, all processes are ended. What does a job is a function of a module.
    """
    left = iter(jobs)
    workers = [_Worker(work, threads) for _ in range(min(processes, len(jobs)))]
    try:
        busy = [worker for worker in workers if worker.take(next(left, None), seconds)]
        while busy:
            soonest = min(worker.deadline for worker in busy)
            patience = min(max(0, soonest - time.monotonic()), _LONGEST_WAIT)
            ready = wait([worker.ours for worker in busy], patience)
            for worker in list(busy):
                run = worker.finished() if worker.ours in ready else worker.overdue(seconds)
                if run is None:
                    continue
                yield run
                if not worker.take(next(left, None), seconds):
                    busy.remove(worker)
    finally:
        for worker in workers:
            worker.end()


@final
class _Worker:
    """A process that does one job after the other, and is replaced when it fails to answer."""

    def __init__(self, work: Work, threads: int) -> None:
        self.work = work
        self.threads = threads
        self.job: Job | None = None
        self.deadline = 0.0
        self._start()

    def _start(self) -> None:
        self.ours, theirs = _CONTEXT.Pipe()
        self.process = _CONTEXT.Process(
            target=_serve, args=(theirs, self.threads, self.work), daemon=True
        )
        with _no_interrupts():
            self.process.start()
        theirs.close()

    def take(self, job: Job | None, seconds: float) -> bool:
        """Begin a job, if there is one."""
        self.job = job
        if job is None:
            return False
        self.deadline = time.monotonic() + seconds
        try:
            self.ours.send(job)
        except OSError:  # nobody listens any more
            self.end()
            self._start()
            self.ours.send(job)
        return True

    def finished(self) -> Run | None:
        """Give the run that was sent, or say that the process died."""
        if self.job is None:
            return None
        try:
            run: Run = self.ours.recv()
        except (EOFError, OSError):  # the latter if it died before it took the job
            self.process.join()
            return failed(self.job, f"its process ended with exit code {self.process.exitcode}")
        return run

    def overdue(self, seconds: float) -> Run | None:
        """End a job that is over its limit."""
        if self.job is None or time.monotonic() < self.deadline:
            return None
        self.end()
        return failed(self.job, f"over the limit of {seconds:g} seconds")

    def end(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()
        self.process.join()
        self.ours.close()


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach: it is for the parent, which ends them."""
    resource_tracker.ensure_running()  # its own start would let interrupts through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with _interrupts_later():
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Hold an interrupt that another thread took back until the process has all it needs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[tuple[int, FrameType | None]] = []
    before = signal.signal(signal.SIGINT, lambda *taken: held.append(taken))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if held and callable(before):
        before(*held[0])


def _serve(theirs: Connection, threads: int, work: Work = measured) -> None:
    """Do jobs until nobody asks any more."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            job = theirs.recv()
        except EOFError:
            return
        theirs.send(work(job, threads))


def _end_with_parent() -> None:
    """Leave no orphan at work when the parent was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
