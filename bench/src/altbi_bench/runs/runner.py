"""Plans of jobs, and runs of those that have no record yet."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from altbi.errors import ParameterError
from altbi_bench.catalogue.datasets import DataFile, Dataset, is_available, no_files_error
from altbi_bench.catalogue.protocols import PROTOCOLS, find_protocol
from altbi_bench.catalogue.systems import DTE_SEEDS, System
from altbi_bench.catalogue.variants import ALL_SYSTEMS
from altbi_bench.runs.records import Job, Run, append, find_missing, lock_records, read_runs
from altbi_bench.runs.workers import run_jobs, run_jobs_on_engine

if TYPE_CHECKING:
    from altbi.distributed import Engine

__all__ = ["DTE_PROTOCOLS", "Limits", "Question", "keep_current", "plan_jobs", "run_all"]

DEFAULT_SEEDS = (0, 1, 2)
DTE_PROTOCOLS = ("dte", "semi-dte")
MIN_ROWS = 10
MAX_SEED = 2**32 - 1


@final
@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a benchmark: processes, threads in each, seconds of one job."""

    processes: int = 1
    threads: int = 1
    seconds: float = 600.0


@final
@dataclass(frozen=True, slots=True)
class Question:
    """How systems are evaluated on each file.

    Parameters
    ----------
    protocol : str
        Name of the protocol.
    rows : int or None
        Size of the sample of larger tables; None: all rows.
    seeds : tuple of int or None
        None: three seeds; under DTE's protocols, those of the published numbers.
    smoke : bool
        Whether systems are made fast and inaccurate, to try the benchmark itself.
    """

    protocol: str = "transductive"
    rows: int | None = None
    seeds: tuple[int, ...] | None = None
    smoke: bool = False

    def list_jobs(self, data_file: DataFile, system: System) -> list[Job]:
        """List the jobs of one system on one file."""
        return [
            Job(
                file=data_file.path,
                system=system.name,
                seed=seed,
                protocol=self.protocol,
                rows=self._sample_size(data_file),
                smoke=self.smoke,
            )
            for seed in self._find_seeds(system)
        ]

    def _sample_size(self, data_file: DataFile) -> int | None:
        """Return the size of the sample; None if the file is not larger."""
        if self.rows is not None and (type(self.rows) is not int or self.rows < MIN_ROWS):
            raise ParameterError(
                f"rows={self.rows!r}, but expected a whole number of at least {MIN_ROWS}."
            )
        n_rows = data_file.rows_in_paper if data_file.n_rows is None else data_file.n_rows
        is_small = self.rows is None or (n_rows is not None and n_rows <= self.rows)
        return None if is_small else self.rows

    def _find_seeds(self, system: System) -> tuple[int, ...]:
        """Return the seeds; only one if neither the system nor the rows depend on it."""
        published = {"dte": system.dte_seeds, "semi-dte": DTE_SEEDS}
        default = published.get(self.protocol, DEFAULT_SEEDS)
        seeds = default if self.seeds is None else self.seeds
        if not seeds or not all(type(seed) is int and 0 <= seed <= MAX_SEED for seed in seeds):
            raise ParameterError(
                f"seeds={seeds!r}, but expected one or more whole numbers from 0 to {MAX_SEED}."
            )
        matters = find_protocol(self.protocol).seeded or system.seeded
        return tuple(dict.fromkeys(seeds)) if matters else seeds[:1]


def plan_jobs(
    datasets: Sequence[Dataset], systems: Sequence[System], question: Question
) -> list[Job]:
    """Return the jobs on available files, small files first, so that partial results come early."""
    files = [
        data_file for dataset in datasets for data_file in dataset.files if is_available(data_file)
    ]
    return [
        job
        for data_file in sorted(
            files, key=lambda data_file: (data_file.n_rows or 0) * data_file.n_features
        )
        for system in systems
        for job in question.list_jobs(data_file, system)
    ]


def keep_current(runs: Iterable[Run]) -> list[Run]:
    """Return the runs whose system has the same parameters today."""
    return [
        run
        for run in runs
        if run.system in ALL_SYSTEMS and run.protocol in PROTOCOLS and _is_current(run)
    ]


def _is_current(run: Run) -> bool:
    setting = find_protocol(run.protocol).setting
    return ALL_SYSTEMS[run.system].matches(run.source, run.parameters, setting, smoke=run.smoke)


def run_all(
    path: Path,
    jobs: Sequence[Job],
    limits: Limits,
    on_progress: Callable[[Iterator[Run], int], Iterator[Run]],
    *,
    retry: bool = False,
    engine: "Engine | None" = None,
) -> list[Run]:
    """Run the jobs without a record, write a record for each, and return the new runs.

    With an engine, jobs run on its workers, and this process writes the records. Records are valid
    while the system has the same parameters. If its scores change otherwise, use a new file.
    """
    if not jobs:
        raise no_files_error()
    with lock_records(path):
        left = find_missing(jobs, keep_current(read_runs(path)), retry=retry)
        limit: dict[str, Any] = {"seconds": limits.seconds, "threads": limits.threads}
        if engine is None:
            runs = run_jobs(left, processes=limits.processes, **limit)
        else:
            runs = run_jobs_on_engine(engine, left, **limit)
        done = []
        for run in on_progress(runs, len(left)):
            append(path, run)
            done.append(run)
        return done
