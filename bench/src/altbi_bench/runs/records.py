"""Records of runs: one JSON line for each job, failed jobs included."""

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

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = [
    "Job",
    "Run",
    "append",
    "find_missing",
    "keep_latest",
    "lock_records",
    "read_records",
    "read_runs",
]

MEASURES = ("auc", "average_precision")
COUNTS = ("n_train", "n_test", "n_features", "n_outliers", "threads")
# First bytes of every record.
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
        Seed of the system, and of the rows if the protocol samples them.
    protocol : str
        Name of the protocol.
    rows : int or None
        Size of the sample of a larger table; None: all rows.
    smoke : bool
        Whether systems are made fast and inaccurate. Such runs are left out of tables.
    """

    file: str
    system: str
    seed: int
    protocol: str = "transductive"
    rows: int | None = None
    smoke: bool = False

    @property
    def title(self) -> str:
        """A name for messages."""
        rows = "" if self.rows is None else f", {self.rows:,} rows"
        return f"{Path(self.file).stem}, {self.system}, seed {self.seed}, {self.protocol}{rows}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The result of a job: measures, or an error.

    Seconds leave out imports. `peak_mib` is the peak memory during fit and scoring minus the memory
    before; None if the operating system does not report it. `n_outliers` and `n_test` count the
    rows that were scored. `precision_at_n` is None in records older than this measure.
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
        """The job of this run."""
        return Job(**{each.name: getattr(self, each.name) for each in fields(Job)})

    @property
    def seconds(self) -> float:
        """Seconds of fit and scoring."""
        return sum(each for each in (self.fit_seconds, self.score_seconds) if each is not None)


def append(path: Path, record: "DataclassInstance") -> None:
    """Add one record to a file."""
    from altbi.io import report_errors_as  # slow to import

    text = json.dumps(asdict(record), allow_nan=False) + "\n"
    with report_errors_as(path), path.open("ab") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def lock_records(path: Path, parse: Callable[[bytes], object] | None = None) -> Iterator[None]:
    """Lock a file of records, and remove an incomplete last line.

    `parse` converts one record; by default records are runs.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_fifo() or path.is_socket():
        raise _device_error(path)
    with path.open("ab+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as cause:
            raise TableError(
                f"{path}: another benchmark is writing to this file. Wait until it ends, or pass "
                "another file with --records."
            ) from cause
        read_records(path, parse or _parse_run)  # other files are refused before they are changed
        file.seek(0)
        content = file.read()
        end = content.rfind(b"\n") + 1
        last = content[end:]
        if last and _is_json(last):
            file.write(b"\n")  # an editor may have removed it
        elif last.startswith(START) or START.startswith(last):
            file.truncate(end)
        else:
            raise TableError(
                f"{path}: the last line is not a record of the benchmark. Pass another file."
            )
        file.flush()
        yield


def read_runs(path: Path) -> list[Run]:
    """Read all runs; an incomplete last line is left out."""
    return read_records(path, _parse_run)


def read_records(path: Path, parse: Callable[[bytes], Parsed]) -> list[Parsed]:
    """Read all records of a file; an incomplete last line is left out."""
    if path.is_char_device() or path.is_block_device():  # it may have no end
        raise _device_error(path)
    *encoded, last = (path.read_bytes() if path.exists() else b"").split(b"\n")
    encoded += [last] if last and _is_json(last) else []
    found = []
    for number, each in enumerate(encoded, 1):
        try:
            found.append(parse(each))
        except (ValueError, TypeError, RecursionError) as cause:
            why = cause if _is_json(each) else "not JSON"
            hint = "Remove the line, or pass another file." if found else "Pass another file."
            raise TableError(
                f"{path}, line {number}: not a record of the benchmark ({why}). {hint}"
            ) from cause
    return found


def _device_error(path: Path) -> TableError:
    return TableError(f"{path}: a device or a pipe, but expected a file. Pass another path.")


def _is_json(text: bytes) -> bool:
    """Return whether a record is complete: the beginning of an object is not valid JSON."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _parse_run(text: bytes) -> Run:
    """Return the run of a record, or raise an error if a field has another type."""
    run = Run(**json.loads(text))
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
    _check_numbers(run)
    return run


def _are_texts(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _is_shallow(value: object, depth: int = 4) -> bool:
    """Return whether lists and objects are nested at most a few times."""
    if not isinstance(value, (dict, list)):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_is_shallow(each, depth - 1) for each in inner)


def _check_numbers(run: Run) -> None:
    """Raise an error if a number is out of range."""
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


def keep_latest(runs: Iterable[Run]) -> dict[Job, Run]:
    """Return the last run of each job."""
    return {run.job: run for run in runs}


def find_missing(jobs: Iterable[Job], runs: Iterable[Run], *, retry: bool = False) -> list[Job]:
    """Return the jobs without a record, in order; with `retry` also those whose last run failed."""
    done = {job for job, run in keep_latest(runs).items() if run.error is None or not retry}
    return [job for job in jobs if job not in done]
