"""Runs: which jobs there are, which are left, and doing those."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from altbi.distributed import Engine
from altbi.errors import ParameterError
from altbi_bench.catalogue.datasets import Dataset, Part, is_at_hand, none_at_hand
from altbi_bench.catalogue.protocols import PROTOCOLS, find_protocol
from altbi_bench.catalogue.systems import DTE_SEEDS, System
from altbi_bench.catalogue.variants import KNOWN
from altbi_bench.runs.records import Job, Run, append, mended, read, todo
from altbi_bench.runs.workers import results, results_by

__all__ = ["DTE_PROTOCOLS", "Limits", "Question", "current", "plan", "run_all"]

DEFAULT_SEEDS = (0, 1, 2)
DTE_PROTOCOLS = ("dte", "semi-dte")
FEWEST_ROWS = 10
MAX_SEED = 2**32 - 1


@final
@dataclass(frozen=True, slots=True)
class Limits:
    """How much of the machine a benchmark may take: processes, threads in each, time for a job."""

    processes: int = 1
    threads: int = 1
    seconds: float = 600.0


@final
@dataclass(frozen=True, slots=True)
class Question:
    """What systems are asked on each file.

    Parameters
    ----------
    protocol : str
        How they are judged.
    rows : int or None
        Size of the sample that stands for a larger table; None: whole files.
    seeds : tuple of int or None
        None: three, under DTE's protocols those of the published numbers.
    smoke : bool
        Whether systems are built quick and poor, to try the benchmark itself.
    """

    protocol: str = "transductive"
    rows: int | None = None
    seeds: tuple[int, ...] | None = None
    smoke: bool = False

    def jobs(self, part: Part, system: System) -> list[Job]:
        """List the jobs of one system on one file."""
        return [
            Job(
                file=part.file,
                system=system.name,
                seed=seed,
                protocol=self.protocol,
                rows=self._sample_of(part),
                smoke=self.smoke,
            )
            for seed in self._seeds_of(system)
        ]

    def _sample_of(self, part: Part) -> int | None:
        """Give the size of a sample; None where the file is not larger: it is the same job then."""
        if self.rows is not None and (type(self.rows) is not int or self.rows < FEWEST_ROWS):
            raise ParameterError(
                f"rows={self.rows!r}, but expected a whole number of at least {FEWEST_ROWS}."
            )
        n_rows = part.rows_in_paper if part.n_rows is None else part.n_rows
        fits = self.rows is None or (n_rows is not None and n_rows <= self.rows)
        return None if fits else self.rows

    def _seeds_of(self, system: System) -> tuple[int, ...]:
        """Give the seeds; one is enough where neither the system nor the rows depend on it."""
        published = {"dte": system.dte_seeds, "semi-dte": DTE_SEEDS}
        default = published.get(self.protocol, DEFAULT_SEEDS)
        seeds = default if self.seeds is None else self.seeds
        if not seeds or not all(type(seed) is int and 0 <= seed <= MAX_SEED for seed in seeds):
            raise ParameterError(
                f"seeds={seeds!r}, but expected one or more whole numbers from 0 to {MAX_SEED}."
            )
        matters = find_protocol(self.protocol).seeded or system.seeded
        return tuple(dict.fromkeys(seeds)) if matters else seeds[:1]


def plan(datasets: Sequence[Dataset], systems: Sequence[System], question: Question) -> list[Job]:
    """List the jobs on files at hand, small files first, so that partial results come early."""
    parts = [part for dataset in datasets for part in dataset.parts if is_at_hand(part)]
    return [
        job
        for part in sorted(parts, key=lambda part: (part.n_rows or 0) * part.n_features)
        for system in systems
        for job in question.jobs(part, system)
    ]


def current(runs: Iterable[Run]) -> list[Run]:
    """Leave out runs of systems that are built otherwise by now: they are to be done again."""
    return [
        run
        for run in runs
        if run.system in KNOWN and run.protocol in PROTOCOLS and _is_built_so(run)
    ]


def _is_built_so(run: Run) -> bool:
    setting = find_protocol(run.protocol).setting
    return KNOWN[run.system].is_told(run.source, run.parameters, setting, smoke=run.smoke)


def run_all(
    path: Path,
    jobs: Sequence[Job],
    limits: Limits,
    on_progress: Callable[[Iterator[Run], int], Iterator[Run]],
    *,
    retry: bool = False,
    engine: Engine | None = None,
) -> list[Run]:
    """Do what the lines file still lacks, a line for each; give the runs that were done.

    With an engine, jobs are done where it runs; the lines are written here.

    Lines are trusted as long as the system is built with the same arguments; after another change
    that moves its scores, start a new file.
    """
    if not jobs:
        raise none_at_hand()
    with mended(path):
        left = todo(jobs, current(read(path)), retry=retry)
        share: dict[str, Any] = {"seconds": limits.seconds, "threads": limits.threads}
        if engine is None:
            runs = results(left, processes=limits.processes, **share)
        else:
            runs = results_by(engine, left, **share)
        done = []
        for run in on_progress(runs, len(left)):
            append(path, run)
            done.append(run)
        return done
