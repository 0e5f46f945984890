"""TextFormat and writing beside other work."""

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar, final

import pyarrow as pa

from altbi.io._writers import TableWriter

__all__ = ["prefetch", "write_in_background"]

Item = TypeVar("Item")


def prefetch(items: Iterable[Item]) -> Iterator[Item]:
    """Let a thread make the next item while the last one is worked on.

    What goes wrong there is raised here, when its item is due.

    Examples
    --------
    >>> list(prefetch(iter("abc")))
    ['a', 'b', 'c']
    """
    iterator = iter(items)
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, iterator, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, iterator, None)
            yield item


@contextmanager
def write_in_background(sink: TableWriter) -> Iterator[TableWriter]:
    """Let a thread write a table while the next one is made; it waits when two are on their way."""
    with ThreadPoolExecutor(1) as pool:
        writer = _BackgroundWriter(sink, pool)
        yield writer
        writer.close()


@final
class _BackgroundWriter(TableWriter):
    def __init__(self, sink: TableWriter, pool: ThreadPoolExecutor) -> None:
        self.sink = sink
        self.pool = pool
        self.last: Future[None] | None = None

    def write(self, table: pa.Table) -> None:
        self.close()
        self.last = self.pool.submit(self.sink.write, table)

    def close(self) -> None:
        """Wait for the last table; the sink itself stays open."""
        if self.last is not None:
            self.last.result()
