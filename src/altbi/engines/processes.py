"""Processes of this machine: several at once, each replaced when it dies or takes too long."""

import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any, Generic, TypeVar, final

from altbi.engines.base import Engine
from altbi.errors import EngineError

__all__ = ["Lost", "Processes", "answers", "no_interrupts", "usable_cores"]

Item = TypeVar("Item")
Result = TypeVar("Result")

_CONTEXT = multiprocessing.get_context("spawn")
_LONGEST_WAIT = 3600.0  # the system's call cannot wait for more than some weeks


@final
@dataclass(frozen=True, slots=True)
class Lost:
    """What became of an item that gave no result."""

    reason: str


@final
class Processes(Engine):
    """Processes of this machine, which are started with the first items and stay until `close`.

    Parameters
    ----------
    workers : int, default=None
        How many; None means one for each core that this process may use.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or usable_cores()
        self._started: list[_Worker[Any, Any]] = []

    def run(
        self, function: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result]]:
        """Give the results as they come."""
        missing = min(self.workers, len(items)) - len(self._started)
        self._started += [_Worker(_answered) for _ in range(missing)]
        calls = [(function, item) for item in items]
        whole = False
        try:
            for place, answer in _served(self._started, calls, math.inf):
                yield place, _checked(answer)
            whole = True
        finally:
            if not whole:  # some are still at work
                self.close()

    def close(self) -> None:
        """End the processes, whatever they do."""
        for worker in self._started:
            worker.end()
        self._started = []


def usable_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@final
@dataclass(frozen=True, slots=True)
class _Answer:
    result: Any
    error: Exception | None = None


def _answered(call: tuple[Callable[[Any], Any], Any]) -> _Answer:
    """Call a function; its errors are answers, too: a process does not die of them."""
    function, item = call
    try:
        return _Answer(function(item))
    except Exception as error:  # noqa: BLE001 - raised again where the items come from
        return _Answer(None, error)


def _checked(answer: _Answer | Lost) -> Any:  # noqa: ANN401
    """Give the result, or raise what went wrong."""
    if isinstance(answer, Lost):
        raise EngineError(
            f"A worker was lost: {answer.reason}, perhaps for want of memory. Take fewer "
            "--workers; the same command goes on from what is finished."
        )
    if answer.error is not None:
        raise answer.error
    return answer.result


def answers(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    processes: int,
    seconds: float = math.inf,
) -> Iterator[tuple[int, Result | Lost]]:
    """Call a function in processes, and give results with the items' places, as they come.

    An item that takes longer than `seconds`, or whose process dies, is lost; the process is
    replaced. Left early, all processes are ended.
    """
    workers = [_Worker(function) for _ in range(min(processes, len(items)))]
    try:
        yield from _served(workers, items, seconds)
    finally:
        for worker in workers:
            worker.end()


def _served(
    workers: "Sequence[_Worker[Item, Result]]", items: Sequence[Item], seconds: float
) -> Iterator[tuple[int, Result | Lost]]:
    """Hand items to workers that have nothing to do."""
    left = enumerate(items)
    busy = [worker for worker in workers if worker.take(next(left, None), seconds)]
    while busy:
        soonest = min(worker.deadline for worker in busy)
        patience = min(max(0, soonest - time.monotonic()), _LONGEST_WAIT)
        ready = wait([worker.ours for worker in busy], patience)
        for worker in list(busy):
            answer = worker.finished() if worker.ours in ready else worker.overdue(seconds)
            if answer is None:
                continue
            yield answer
            if not worker.take(next(left, None), seconds):
                busy.remove(worker)


@final
class _Worker(Generic[Item, Result]):
    """A process that takes one item after the other, and is replaced when it fails to answer."""

    def __init__(self, function: Callable[[Item], Result]) -> None:
        self.function = function
        self.place: int | None = None
        self.deadline = 0.0
        self._start()

    def _start(self) -> None:
        self.ours, theirs = _CONTEXT.Pipe()
        self.process = _CONTEXT.Process(target=_serve, args=(theirs, self.function), daemon=True)
        with no_interrupts():
            self.process.start()
        theirs.close()

    def take(self, numbered: tuple[int, Item] | None, seconds: float) -> bool:
        """Begin with an item, if there is one."""
        self.place = None
        if numbered is None:
            return False
        self.place, item = numbered
        self.deadline = time.monotonic() + seconds
        try:
            self.ours.send(item)
        except OSError:  # nobody listens any more
            self.end()
            self._start()
            self.ours.send(item)
        return True

    def finished(self) -> tuple[int, Result | Lost] | None:
        """Give the result that was sent, or say that the process died."""
        if self.place is None:
            return None
        try:
            result: Result = self.ours.recv()
        except (EOFError, OSError):  # the latter if it died before it took the item
            self.process.join()
            return self.place, Lost(f"its process ended with exit code {self.process.exitcode}")
        return self.place, result

    def overdue(self, seconds: float) -> tuple[int, Lost] | None:
        """End work that is over its limit."""
        if self.place is None or time.monotonic() < self.deadline:
            return None
        self.end()
        return self.place, Lost(f"over the limit of {seconds:g} seconds")

    def end(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()
        self.process.join()
        self.ours.close()


@contextmanager
def no_interrupts() -> Iterator[None]:
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


def _serve(theirs: Connection, function: Callable[[Any], Any]) -> None:
    """Take items until nobody asks any more."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            item = theirs.recv()
        except (EOFError, ConnectionResetError):  # a killed caller may leave either
            return
        theirs.send(function(item))


def _end_with_parent() -> None:
    """Leave no orphan at work when the parent was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
