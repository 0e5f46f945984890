"""Functions and engines for the tests of engines; worker processes import this module."""

import os
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import numpy as np
from partition_tables import PARTITION_ROWS

from altbi.distributed import Engine
from altbi.errors import TableError
from altbi.io import Source

TIMEOUT_SECONDS = 60


def wait_for(condition):
    """Wait until another process has made a condition true."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < end, "timeout"
        time.sleep(0.02)


def double(number):
    return 2 * number


def raise_error(item):
    """Record this attempt in a folder, then raise an error about the data."""
    attempts, number = item
    Path(attempts, f"{number}-{uuid4()}").touch()
    if number == 1:
        raise TableError("row 7 is bad")
    if number == 2:
        raise FileNotFoundError(2, "No such file or directory", "gone.parquet")
    return number


def kill_worker(_):
    os.kill(os.getpid(), signal.SIGKILL)


class FailingSource(Source):
    """A source whose reader is killed after the first batch."""

    def __init__(self, source):
        self.name, self.paths, self.format = source.name, source.paths, source.format
        self.schema, self.n_rows = source.schema, source.n_rows
        self.notes = []
        self.source = source

    def batches(self, columns):
        first = next(iter(self.source.batches(columns)))
        yield first.slice(0, 10)
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class FailingCall:
    """One call of a run, whose first attempt fails in the given way."""

    function: object
    item: object
    index: int
    count: int
    folder: str
    failure: str | None

    @property
    def n_attempts(self):
        return len(list(Path(self.folder).glob(f"try-{self.index}-*")))

    def __call__(self):
        first = not self.n_attempts
        Path(self.folder, f"try-{self.index}-{uuid4()}").touch()
        if self.index:
            wait_for(Path(self.folder, "first-result").exists)
        if first and self.failure == "before the last":
            others = self.count - 1
            wait_for(lambda: len(list(Path(self.folder).glob("done-*"))) >= others)
            kill_worker(None)
        item = self.item
        if first and self.failure == "while writing":
            partition = self.item.partition
            failing = replace(partition, source=FailingSource(partition.source))
            item = replace(self.item, partition=failing)
        if first and self.failure == "memory":
            block = np.ones(1 << 28)  # 2 GiB
            wait_for(lambda: not len(block))
        result = self.function(item)
        Path(self.folder, f"done-{self.index}").touch()
        return result


def run_call(call):
    return call()


class FailingEngine(Engine):
    """An engine on which some calls that score a partition fail at first."""

    def __init__(self, engine, folder, failures, after_first=lambda: None):
        self.engine, self.folder, self.failures = engine, str(folder), failures
        self.after_first = after_first

    def run(self, function, items):
        if function.__name__ != "_score_partition":
            yield from self.engine.run(function, items)
            return
        calls = [
            FailingCall(function, item, index, len(items), self.folder, self.failures.get(index))
            for index, item in enumerate(items)
        ]
        for number, result in enumerate(self.engine.run(run_call, calls)):
            if number == 0:
                Path(self.folder, "first-result").touch()
                self.after_first()
            yield result


class StoppingEngine(Engine):
    """An engine that blocks after some scored partitions."""

    def __init__(self, engine, marker, results):
        self.engine, self.marker, self.results = engine, marker, results

    def run(self, function, items):
        for number, result in enumerate(self.engine.run(function, items), start=1):
            if function.__name__ == "_score_partition" and number == self.results:
                Path(self.marker).touch()
                time.sleep(600)
            yield result

    def close(self):
        self.engine.close()


def run_stopping_command(marker, *arguments):
    """Run a command of altbi whose engine blocks after two scored partitions."""
    from altbi.cli import _commands, main
    from altbi.distributed import _partitions

    create_engine = _commands.create_engine
    _partitions.MAX_PARTITION_ROWS = PARTITION_ROWS
    _commands.create_engine = lambda args: StoppingEngine(create_engine(args), marker, 2)
    return main(arguments)


def find_processes(group):
    """Return the ids of the running processes of a process group."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, number = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:  # it has ended
            continue
        if int(number) == group and state != "Z":
            found.append(int(path.parent.name))
    return found
