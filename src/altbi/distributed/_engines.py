"""Engines: where a function is called on many items, in this process or on a Dask cluster."""

import abc
import logging
import re
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any, Self, TypeVar, final
from uuid import uuid4

from altbi.distributed._tls import (
    TLS,
    build_connection_error,
    check_encryption,
    create_local_security,
    load_security,
)
from altbi.errors import AltbiError, EngineError, import_extra, quote

Item = TypeVar("Item")
Result = TypeVar("Result")

CONNECT_SECONDS = 10
# Time after which the engine waits no longer, and checks that the cluster still has workers.
RESULT_SECONDS = 60
LOGGERS = ("distributed", "distributed.client", "tornado", "asyncio")
# An address needs its port: without one, Dask would wait for its whole timeout.
ADDRESS = re.compile(r"([a-z]+://)?([^\s/]+):(\d{1,5})")
RESUME = "Run the same command again to continue with the partitions that are not finished."


class Engine(abc.ABC):
    """A place where a function is called on many items. Results do not depend on the engine.

    An engine is a context manager, which stops the workers that it has started.
    """

    @abc.abstractmethod
    def run(
        self, function: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result]]:
        """Call a function on every item.

        Parameters
        ----------
        function : callable
            A function of a module, which other processes can import. It may be called again for an
            item whose process was lost. Its exceptions end the run and are raised here.
        items : sequence
            Small values that can be pickled.

        Yields
        ------
        int
            Index of an item. Every item is yielded once, in any order.
        object
            The result for the item.
        """

    def close(self) -> None:  # noqa: B027 - some engines have nothing to stop
        """Stop the workers that the engine has started; by default, do nothing."""

    def __enter__(self) -> Self:
        """Return the engine itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the engine at the end of a ``with`` block; exceptions of the block are raised."""
        self.close()


@final
class Local(Engine):
    """An engine that processes one item after the other, in this process.

    Examples
    --------
    >>> from altbi.distributed import Local
    >>> list(Local().run(abs, [-1, 2]))
    [(0, 1), (1, 2)]
    """

    def run(
        self, function: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result]]:
        """Call the function on one item after the other, and yield the results in their order.

        Parameters
        ----------
        function : callable
            A function of a module.
        items : sequence
            The items.

        Yields
        ------
        int
            Index of an item.
        object
            The result for the item.
        """
        yield from enumerate(map(function, items))


@final
class Dask(Engine):
    """A Dask cluster whose workers see the files under the same paths as this process.

    The scheduler repeats calls that were lost with their worker. Exceptions are not repeated.

    Parameters
    ----------
    scheduler : str, default=None
        Address such as ``tcp://10.0.0.1:8786``. None starts a cluster on this machine.
    workers : int, default=None
        Number of worker processes of a cluster on this machine, each with one thread. None means
        one for each core. Only this process can connect to such a cluster: it uses TLS with a key
        made for the run.
    tls : TLS, default=None
        Certificates and key for a scheduler with an address such as ``tls://10.0.0.1:8786``. None
        means those of Dask's configuration files, if any. Anyone who reaches a scheduler without
        TLS can run programs on its workers.
    quiet : bool, default=False
        Whether to silence Dask's own log. Failures raise an exception in any case.

    Examples
    --------
    >>> import altbi
    >>> from altbi.distributed import Dask
    >>> with Dask(workers=4) as engine:  # doctest: +SKIP
    ...     altbi.detect("payments.parquet", "payments-altbi", engine=engine)
    """

    def __init__(
        self,
        scheduler: str | None = None,
        workers: int | None = None,
        *,
        tls: TLS | None = None,
        quiet: bool = False,
    ) -> None:
        self.scheduler = scheduler
        self.workers = workers
        self.tls = tls
        self.quiet = quiet
        self._client: Any = None
        self._cluster: Any = None

    def run(
        self, function: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result]]:
        """Call the function on all items on the cluster, and yield results as they arrive.

        The first call connects to the cluster, or starts one. If the caller stops early, or a call
        fails, calls that have not finished are cancelled. Without items nothing is started.

        Parameters
        ----------
        function : callable
            A function of a module.
        items : sequence
            The items.

        Yields
        ------
        int
            Index of an item.
        object
            The result for the item.
        """
        if not items:
            return
        client = self._connect()
        run = uuid4().hex
        keys = [f"altbi-{run}-{index}" for index in range(len(items))]
        with warnings.catch_warnings():
            # Dask warns about the total size of the items.
            warnings.simplefilter("ignore", UserWarning)
            futures = client.map(function, items, key=keys, pure=False)
        pending = {future: index for index, future in enumerate(futures)}
        del futures  # a future that is still referenced keeps its result on the cluster
        try:
            while pending:
                yield from self._collect_results(pending)
        finally:
            if pending and client.status == "running":
                client.cancel(list(pending), force=True)

    def close(self) -> None:
        """Disconnect from the cluster, and stop it if this engine has started it.

        Without a connection nothing happens. The engine can be used again.
        """
        for connection in (self._client, self._cluster):
            if connection is not None:
                connection.close()
        self._client = self._cluster = None

    def _collect_results(self, pending: dict[Any, int]) -> Iterator[tuple[int, Any]]:
        """Yield the index and result of calls as they finish, and remove them from `pending`.

        After 60 seconds it returns as soon as no result is ready, so that the caller can try again.
        It raises an `EngineError` if the cluster has no workers then, or does not answer. A failed
        call raises its own exception, or an `EngineError` if the cluster lost it.
        """
        distributed = import_extra("distributed", extra="cluster")
        completed = distributed.as_completed(
            list(pending),
            loop=self._client.loop,
            with_results=True,
            raise_errors=False,
            timeout=RESULT_SECONDS,
        )
        while pending:
            try:
                future, outcome = next(completed)
            except TimeoutError:
                self._check_workers()
                return
            index, value = pending.pop(future), _get_result(future.status, outcome)
            future.release()
            yield index, value

    def _check_workers(self) -> None:
        """Raise an `EngineError` if the cluster has no workers or its scheduler does not answer."""
        try:
            workers = self._client.nthreads()
        except (OSError, ValueError) as cause:
            raise build_connection_error(self.scheduler, cause, RESUME) from cause
        if not workers:
            raise EngineError(
                f"{self._client.scheduler.address}: the Dask cluster has no workers. Start some "
                f"(dask worker ADDRESS --nthreads 1). {RESUME}"
            )

    def _connect(self) -> Any:  # noqa: ANN401 - distributed has no types
        """Return the client of the cluster; the first call connects it.

        Without an address, a cluster is started on this machine. With `quiet`, the loggers of Dask
        are set to critical messages for the process. An invalid address, or a scheduler that does
        not answer, raises an `EngineError`.
        """
        if self._client is not None:
            return self._client
        distributed = import_extra("distributed", extra="cluster")
        for name in LOGGERS if self.quiet else ():
            logging.getLogger(name).setLevel(logging.CRITICAL)
        if self.scheduler is None:
            self._check_local()
            self._cluster = _start_cluster(distributed, self.workers)
            target, security = self._cluster, None  # the client has the key of its cluster
        elif not _is_address(self.scheduler):
            raise EngineError(
                f"{quote(self.scheduler)} is not the address of a Dask scheduler. Expected one "
                "such as tcp://10.0.0.1:8786, as `dask scheduler` prints it."
            )
        else:
            target = self.scheduler
            security = load_security(distributed, self.scheduler, self.tls)
            check_encryption(self.scheduler, security, CONNECT_SECONDS)
        try:
            self._client = distributed.Client(
                target, timeout=CONNECT_SECONDS, set_as_default=False, security=security
            )
        except (OSError, ValueError) as cause:
            raise build_connection_error(self.scheduler, cause, RESUME) from cause
        return self._client

    def _check_local(self) -> None:
        """Raise an `EngineError` if there are TLS files but no scheduler that they are for."""
        if self.tls is not None:
            raise EngineError(
                "TLS files were given without a scheduler, but a cluster on this machine makes its "
                "own key. Pass the address of a scheduler, or leave the files out."
            )


def _is_address(text: str) -> bool:
    """Return whether a text is a host, which names no empty parts, and a port."""
    found = ADDRESS.fullmatch(text)
    if found is None:
        return False
    try:
        found[2].encode("idna")
    except UnicodeError:
        return False
    return int(found[3]) < 1 << 16


def _start_cluster(distributed: Any, workers: int | None) -> Any:  # noqa: ANN401
    """Start a Dask cluster on this machine, whose workers are processes with one thread each.

    None workers means one for each core. Other machines cannot reach the cluster. Other users of
    this machine cannot use it: whoever connects needs a key that is made for this run, and its web
    pages, which need none, are left out.
    """
    dask = import_extra("dask", extra="cluster")
    security = create_local_security(distributed)
    no_pages: dict[str, list[str]] = {
        f"distributed.{role}.http.routes": [] for role in ("scheduler", "worker")
    }
    with _block_interrupts(), dask.config.set(no_pages):
        return distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            security=security,
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            silence_logs=logging.CRITICAL,
        )


@contextmanager
def _block_interrupts() -> Iterator[None]:
    """Block SIGINT inside the block, so that processes started in it ignore Ctrl-C.

    On Ctrl-C this process stops the workers itself.
    """
    resource_tracker.ensure_running()  # starting it later would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _get_result(status: str, outcome: Any) -> Any:  # noqa: ANN401
    """Return the result of a call by its status in Dask, or raise the reason why there is none.

    `outcome` is the result if the status is "finished", and (type, exception, traceback) if it is
    "error". The call's own exception is raised unchanged. Lost workers, modules that a worker
    cannot import, and any other status raise an `EngineError`.
    """
    from distributed.scheduler import KilledWorker

    if status == "finished":
        return outcome
    if status != "error":
        raise EngineError(f"The Dask scheduler has stopped, or has dropped the work. {RESUME}")
    error = outcome[1]
    if isinstance(error, KilledWorker):
        raise EngineError(
            "A partition was tried several times, and its worker was lost each time, probably for "
            f"lack of memory. Give the workers more memory, or write smaller row groups. {RESUME}"
        ) from error
    if isinstance(error, ImportError) and not isinstance(error, AltbiError):
        raise EngineError(
            f"A worker cannot import a module ({error}). Install the same version of "
            "'altbi[cluster]' on every machine."
        ) from error
    raise error
