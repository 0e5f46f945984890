"""Runs of systems on the mixed tables: each fits and scores the same rows, without labels."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from altbi_bench.mixed.systems import ROW_SYSTEMS, score_rows
from altbi_bench.mixed.tables import MixedTable
from altbi_bench.runs.workers import Failure, run_in_processes

__all__ = ["MixedJob", "get_key", "list_mixed_jobs", "measure_mixed_job", "run_mixed_jobs"]

# Digits of a record.
DIGITS = 5
Record = dict[str, Any]


@final
@dataclass(frozen=True, slots=True)
class MixedJob:
    """One system on one table with one seed.

    Parameters
    ----------
    table : MixedTable
        The table.
    system : str
        Name of the system.
    seed : int
        The seed.
    old : Path or None
        Sources of version 0.1.
    """

    table: MixedTable
    system: str
    seed: int
    old: Path | None = None

    @property
    def record(self) -> Record:
        """The fields of the record that describe the job."""
        return {"table": self.table.name, "system": self.system, "seed": self.seed}


def get_key(record: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what identifies a run."""
    return tuple(record[name] for name in ("table", "system", "seed"))


def list_mixed_jobs(
    tables: Sequence[MixedTable],
    systems: Iterable[str],
    *,
    n_seeds: int,
    done: set[tuple[object, ...]],
    old: Path | None,
) -> list[MixedJob]:
    """Return the jobs that have no record; seed 0 of all systems comes first."""
    jobs = [
        MixedJob(table, system, seed, old)
        for seed in range(n_seeds)
        for system in systems
        if seed == 0 or ROW_SYSTEMS[system].seeded
        for table in tables
    ]
    return [job for job in jobs if get_key(job.record) not in done]


def run_mixed_jobs(jobs: Sequence[MixedJob], *, seconds: float) -> Iterator[Record]:
    """Run jobs one by one in a process, and yield their records; a failure has its reason.

    Parameters
    ----------
    jobs : sequence of MixedJob
        The jobs.
    seconds : float
        Time limit of one job.

    Yields
    ------
    dict
        Fields of the job with "auc", "ap" and "seconds", or with "error".
    """
    for job, result in run_in_processes(measure_mixed_job, jobs, processes=1, seconds=seconds):
        found = {"error": result.reason} if isinstance(result, Failure) else result
        yield job.record | found


def measure_mixed_job(job: MixedJob) -> dict[str, float]:
    """Fit and score a table; return "auc", "ap" (average precision) and "seconds" that it took."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    frame, labels = job.table.load()
    start = time.perf_counter()
    scores = score_rows(job.system, frame, job.seed, job.old)
    seconds = time.perf_counter() - start
    return {
        "auc": round(float(roc_auc_score(labels, scores)), DIGITS),
        "ap": round(float(average_precision_score(labels, scores)), DIGITS),
        "seconds": round(seconds, 2),
    }
