"""Work for tests of engines, which other processes import by this module's name."""

import os
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import numpy as np

from altbi.distributed import Engine
from altbi.errors import TableError
from altbi.io import Source

PATIENCE = 60


def wait_for(condition):
    """Wait for something that another process does, but not for ever."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def double(number):
    return 2 * number


def refuse(item):
    """Leave a mark of this attempt, then say that the data are at fault."""
    marks, place = item
    Path(marks, f"{place}-{uuid4()}").touch()
    if place == 1:
        raise TableError("row 7 is bad")
    if place == 2:
        raise FileNotFoundError(2, "No such file or directory", "gone.parquet")
    return place


def end_worker(_):
    os.kill(os.getpid(), signal.SIGKILL)


class DyingSource(Source):
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
class Troubled:
    """One call of a run, with the trouble that its first attempt gets into."""

    function: object
    item: object
    place: int
    count: int
    marks: str
    trouble: str | None

    @property
    def attempts(self):
        return len(list(Path(self.marks).glob(f"try-{self.place}-*")))

    def __call__(self):
        first = not self.attempts
        Path(self.marks, f"try-{self.place}-{uuid4()}").touch()
        if self.place:
            wait_for(Path(self.marks, "one result came").exists)
        if first and self.trouble == "before the last":
            others = self.count - 1
            wait_for(lambda: len(list(Path(self.marks).glob("done-*"))) >= others)
            end_worker(None)
        item = self.item
        if first and self.trouble == "while it writes":
            part = self.item.part
            item = replace(self.item, part=replace(part, source=DyingSource(part.source)))
        if first and self.trouble == "memory":
            hog = np.ones(1 << 28)  # 2 GiB
            wait_for(lambda: not len(hog))
        result = self.function(item)
        Path(self.marks, f"done-{self.place}").touch()
        return result


def go(call):
    return call()


class TroubledEngine(Engine):
    """Runs everything by another engine; work on scores gets into trouble on the way."""

    def __init__(self, engine, marks, troubles, after_first=lambda: None):
        self.engine, self.marks, self.troubles = engine, str(marks), troubles
        self.after_first = after_first

    def run(self, function, items):
        if function.__name__ != "_score_partition":
            yield from self.engine.run(function, items)
            return
        calls = [
            Troubled(function, item, place, len(items), self.marks, self.troubles.get(place))
            for place, item in enumerate(items)
        ]
        for number, result in enumerate(self.engine.run(go, calls)):
            if number == 0:
                Path(self.marks, "one result came").touch()
                self.after_first()
            yield result


class HoldingEngine(Engine):
    """Runs work by another engine, and stops for good after some results on scores."""

    def __init__(self, engine, mark, results):
        self.engine, self.mark, self.results = engine, mark, results

    def run(self, function, items):
        for number, result in enumerate(self.engine.run(function, items), start=1):
            if function.__name__ == "_score_partition" and number == self.results:
                Path(self.mark).touch()
                time.sleep(600)
            yield result
