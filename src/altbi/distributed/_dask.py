"""A Dask cluster: the same calls on many machines; a worker that is lost is made up for."""

import logging
import os
import re
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType
from typing import Any, TypeVar, final
from uuid import uuid4

from altbi.distributed._engine import Engine
from altbi.errors import AltbiError, EngineError, import_extra

__all__ = ["Dask"]

Item = TypeVar("Item")
Result = TypeVar("Result")

_CONNECT_SECONDS = 10
# So long a cluster may be without any worker; between two looks, nothing is asked of it.
_PATIENCE_SECONDS = 60
_LOGS = ("distributed", "distributed.client", "tornado", "asyncio")
# With its port; else Dask would wait, and complain once more when it is all over.
_ADDRESS = re.compile(r"([a-z]+://)?[^\s/]+:\d+")
_GOES_ON = "The same command goes on from what is finished."


@final
class Dask(Engine):
    """A cluster of Dask workers, which find the files under the same names as this process.

    A call that was lost with its worker is made again by the scheduler. What a call raises is not
    tried again.

    Parameters
    ----------
    scheduler : str, default=None
        Address such as ``tcp://10.0.0.1:8786``; None starts a cluster of this machine.
    workers : int, default=None
        Processes of the cluster of this machine, each with one thread; None means one for each
        core that this process may use.
    quiet : bool, default=False
        Whether this process keeps Dask's own log to itself; what goes wrong is an error anyway.
    """

    def __init__(
        self, scheduler: str | None = None, workers: int | None = None, *, quiet: bool = False
    ) -> None:
        self.scheduler = scheduler
        self.workers = workers
        self.quiet = quiet
        self._client: Any = None
        self._cluster: Any = None

    def run(
        self, function: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result]]:
        """Give the results as they come."""
        if not items:
            return
        client = self._connected()
        run = uuid4().hex
        keys = [f"altbi-{run}-{place}" for place in range(len(items))]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of many items, which are small each
            futures = client.map(function, items, key=keys, pure=False)
        pending = {future: place for place, future in enumerate(futures)}
        del futures
        try:
            while pending:
                yield from self._finished(pending)
        finally:
            if pending and client.status == "running":
                client.cancel(list(pending), force=True)

    def close(self) -> None:
        """Leave the cluster; end one that was started here."""
        for part in (self._client, self._cluster):
            if part is not None:
                part.close()
        self._client = self._cluster = None

    def _finished(self, pending: dict[Any, int]) -> Iterator[tuple[int, Any]]:
        """Give what comes; return when all has come, or nothing for a while."""
        distributed = import_extra("distributed", extra="cluster")
        ready = distributed.as_completed(
            list(pending),
            loop=self._client.loop,
            with_results=True,
            raise_errors=False,
            timeout=_PATIENCE_SECONDS,
        )
        while pending:
            try:
                future, result = next(ready)
            except TimeoutError:
                self._check_workers()
                return
            place, whole = pending.pop(future), _checked(future, result)
            future.release()
            yield place, whole

    def _check_workers(self) -> None:
        """Refuse to wait for a cluster that has nobody to work."""
        try:
            there = self._client.nthreads()
        except (OSError, ValueError) as cause:
            raise _no_scheduler(self.scheduler) from cause
        if not there:
            raise EngineError(
                f"The cluster at {self._client.scheduler.address} has no workers. Start some (dask "
                f"worker ADDRESS --nthreads 1). {_GOES_ON}"
            )

    def _connected(self) -> Any:  # noqa: ANN401 - distributed has no types here
        if self._client is None:
            distributed = import_extra("distributed", extra="cluster")
            for name in _LOGS if self.quiet else ():
                logging.getLogger(name).setLevel(logging.CRITICAL)
            if self.scheduler is not None and not _ADDRESS.fullmatch(self.scheduler):
                raise EngineError(
                    f"{self.scheduler!r} is not the address of a Dask scheduler. Expected one such "
                    "as tcp://10.0.0.1:8786, as `dask scheduler` prints it."
                )
            if self.scheduler is None:
                self._cluster = _started(distributed, self.workers or usable_cores())
            try:
                self._client = distributed.Client(
                    self._cluster or self.scheduler, timeout=_CONNECT_SECONDS, set_as_default=False
                )
            except (OSError, ValueError) as cause:
                raise _no_scheduler(self.scheduler) from cause
        return self._client


def _started(distributed: Any, workers: int) -> Any:  # noqa: ANN401
    """Start processes of one thread each, which nobody reaches from outside."""
    with no_interrupts():
        return distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        )


def _no_scheduler(address: str | None) -> EngineError:
    return EngineError(
        f"No Dask scheduler answers at {address or 'this machine'}. Expected an address such as "
        f"tcp://10.0.0.1:8786, where `dask scheduler` runs. {_GOES_ON}"
    )


def _checked(future: Any, result: Any) -> Any:  # noqa: ANN401
    """Give the result of a call, or raise what went wrong."""
    from distributed.scheduler import KilledWorker

    if future.status == "finished":
        return result
    if future.status != "error":
        raise EngineError(f"The Dask scheduler has gone away, or has dropped the work. {_GOES_ON}")
    error = result[1]
    if isinstance(error, KilledWorker):
        raise EngineError(
            "A part was tried several times, and each time its worker was lost, probably for want "
            f"of memory. Give the workers more memory, or write smaller row groups. {_GOES_ON}"
        ) from error
    if isinstance(error, ImportError) and not isinstance(error, AltbiError):
        raise EngineError(
            f"A worker cannot import what it needs ({error}). Install the same version of "
            "'altbi[cluster]' on every machine."
        ) from error
    raise error


def usable_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
