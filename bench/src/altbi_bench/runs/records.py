"""Runs as lines of a file: one job, one line, whole or not at all; a failure is a line too."""

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, final

from altbi.errors import TableError
from altbi.io import report_errors_as

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["Job", "Run", "append", "latest", "mended", "parsed", "read", "todo"]

MEASURES = ("auc", "average_precision")
COUNTS = ("n_train", "n_test", "n_features", "n_outliers", "threads")
# How every line begins that is written here.
START = b'{"file": '

Parsed = TypeVar("Parsed")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One system on one file with one seed under one protocol.

    Parameters
    ----------
    file : str
        Path inside the ADBench folder.
    system : str
        Name in the catalogue.
    seed : int
        Of the system, and of the rows where the protocol draws them.
    protocol : str
        Name of the protocol.
    rows : int or None
        Size of the sample that stands for a larger table; None: all rows.
    smoke : bool
        Whether systems are built quick and poor: a trial of the benchmark, barred from tables.
    """

    file: str
    system: str
    seed: int
    protocol: str = "transductive"
    rows: int | None = None
    smoke: bool = False

    @property
    def title(self) -> str:
        """What people call it."""
        rows = "" if self.rows is None else f", {self.rows:,} rows"
        return f"{Path(self.file).stem}, {self.system}, seed {self.seed}, {self.protocol}{rows}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What came of a job: measures, or an error.

    Seconds leave out imports. DistanceScorer is the most that was held during fit and scoring beyond what
    was held before; None where the system does not tell. `n_outliers` and `n_test` are those of
    the rows that were scored. Precision at n is None in lines that are older than the measure.
    """

    file: str
    system: str
    seed: int
    protocol: str
    rows: int | None
    smoke: bool
    n_train: int | None = None
    n_test: int | None = None
    n_features: int | None = None
    n_outliers: int | None = None
    auc: float | None = None
    average_precision: float | None = None
    precision_at_n: float | None = None
    fit_seconds: float | None = None
    score_seconds: float | None = None
    peak_mib: float | None = None
    threads: int | None = None
    source: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    error: str | None = None

    @property
    def job(self) -> Job:
        """What was to be done."""
        return Job(**{each.name: getattr(self, each.name) for each in fields(Job)})

    @property
    def seconds(self) -> float:
        """Of fit and scoring, as far as it came."""
        return sum(each for each in (self.fit_seconds, self.score_seconds) if each is not None)


def append(path: Path, run: "DataclassInstance") -> None:
    """Write one line to its end, or fail."""
    line = json.dumps(asdict(run), allow_nan=False) + "\n"
    with report_errors_as(path), path.open("ab") as lines:
        lines.write(line.encode())
        lines.flush()
        os.fsync(lines.fileno())


@contextmanager
def mended(path: Path, parse: Callable[[bytes], object] | None = None) -> Iterator[None]:
    """Keep the file to oneself; cut off a last line that was not written to its end.

    Its lines are runs, or what `parse` takes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_fifo() or path.is_socket():
        raise _no_file(path)
    with path.open("ab+") as lines:
        try:
            fcntl.flock(lines, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as cause:
            raise TableError(
                f"{path}: another benchmark writes its runs there. Wait for its end, or name "
                "another file with --lines."
            ) from cause
        parsed(
            path, parse or _run
        )  # a file of something else is refused before anything is cut off
        lines.seek(0)
        content = lines.read()
        end = content.rfind(b"\n") + 1
        last = content[end:]
        if last and _is_whole(last):
            lines.write(b"\n")  # an editor may have taken it away
        elif last.startswith(START) or START.startswith(last):
            lines.truncate(end)
        else:
            raise TableError(
                f"{path}: its last line is not a run of the benchmark. Name another file."
            )
        lines.flush()
        yield


def read(path: Path) -> list[Run]:
    """Read all runs; one not written to its end is left out, and its job is still to do."""
    return parsed(path, _run)


def parsed(path: Path, parse: Callable[[bytes], Parsed]) -> list[Parsed]:
    """Read all lines but one that was not written to its end."""
    if path.is_char_device() or path.is_block_device():  # it may have no end
        raise _no_file(path)
    *lines, last = (path.read_bytes() if path.exists() else b"").split(b"\n")
    lines += [last] if last and _is_whole(last) else []
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(parse(line))
        except (ValueError, TypeError, RecursionError) as cause:
            why = cause if _is_whole(line) else "no line of JSON"
            do = "Remove the line, or name another file." if found else "Name another file."
            raise TableError(
                f"{path}, line {number}: not a run of the benchmark ({why}). {do}"
            ) from cause
    return found


def _no_file(path: Path) -> TableError:
    return TableError(f"{path}: a device or a pipe, but expected a file of runs. Name another.")


def _is_whole(line: bytes) -> bool:
    """Tell whether a line without an end was written to its end: no part of an object is JSON."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _run(line: bytes) -> Run:
    return _checked(Run(**json.loads(line)))


def _checked(run: Run) -> Run:
    """Refuse a line that tables could not be made of."""
    texts = (run.file, run.system, run.protocol, run.source)
    if not _are_texts(texts) or type(run.seed) is not int:
        raise TypeError("file, system, protocol and source must be texts, seed a whole number")
    if not (run.rows is None or type(run.rows) is int) or type(run.smoke) is not bool:
        raise TypeError("rows must be a whole number or null, smoke true or false")
    if not isinstance(run.versions, dict) or not _are_texts(run.versions.values()):
        raise TypeError("versions must be an object of texts")
    if not isinstance(run.warnings, list) or not _are_texts(run.warnings):
        raise TypeError("warnings must be a list of texts")
    if not isinstance(run.parameters, dict) or not _is_shallow(run.parameters):
        raise TypeError("parameters must be an object of plain values")
    if not (run.error is None or isinstance(run.error, str)):
        raise TypeError("error must be a text or null")
    return _with_usable_numbers(run)


def _are_texts(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _is_shallow(value: object, depth: int = 4) -> bool:
    """Tell whether lists and objects stand in each other a few times at most."""
    if not isinstance(value, (dict, list)):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_is_shallow(each, depth - 1) for each in inner)


def _with_usable_numbers(run: Run) -> Run:
    measures = [getattr(run, name) for name in MEASURES]
    measures += [] if run.precision_at_n is None else [run.precision_at_n]
    if run.error is not None:
        if any(value is not None for value in measures):
            raise ValueError("a run that failed has no measures")
    elif not all(isinstance(value, float) and 0 <= value <= 1 for value in measures):
        raise ValueError(f"{', '.join(MEASURES)} and precision_at_n must lie in [0, 1]")
    seconds = (run.fit_seconds, run.score_seconds)
    if run.error is None and None in seconds:
        raise ValueError("a run that did not fail has its seconds")
    costs = [cost for cost in (*seconds, run.peak_mib) if cost is not None]
    if not all(isinstance(cost, float) and isfinite(cost) and cost >= 0 for cost in costs):
        raise TypeError("seconds and memory must be numbers from 0 on")
    counts = [count for name in COUNTS if (count := getattr(run, name)) is not None]
    if not all(type(count) is int and count >= 0 for count in counts):
        raise TypeError(f"{', '.join(COUNTS)} must be whole numbers from 0 on, or null")
    return run


def latest(runs: Iterable[Run]) -> dict[Job, Run]:
    """Keep one run of each job; a later line replaces an earlier one."""
    return {run.job: run for run in runs}


def todo(jobs: Iterable[Job], runs: Iterable[Run], *, retry: bool = False) -> list[Job]:
    """Give the jobs without a line, in order; with `retry` also those whose last run failed."""
    done = {job for job, run in latest(runs).items() if run.error is None or not retry}
    return [job for job in jobs if job not in done]
