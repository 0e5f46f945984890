"""Runs of systems on the pools of tables: each fits and scores the same rows, without labels."""

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, final

import numpy as np

from altbi_bench.catalogue.datasets import Rows
from altbi_bench.catalogue.pools import PoolTable, load_pool_table, select_by_hash
from altbi_bench.catalogue.systems import SYSTEMS, Scores, System, build_fit
from altbi_bench.runs.measurement import check_classes
from altbi_bench.runs.other_version import VersionProcess
from altbi_bench.runs.workers import Failure, run_in_processes

__all__ = [
    "N_SLOW_TABLES",
    "OLD",
    "OURS",
    "POOL_SYSTEMS",
    "SLOW",
    "PoolJob",
    "get_key",
    "list_jobs",
    "measure_pool_job",
    "run_pool_jobs",
]

OURS, OLD = "OutlierDetector", "ALTBI() of 0.1"
# Slow systems are run on tables that a hash selects.
SLOW = ("ODIM", "GLOW")
N_SLOW_TABLES = 60
# Columns from which a slow system, or MCD, takes minutes.
WIDE_FEATURES = 100
_KNN = SYSTEMS["kNN"]
# Names in the records and the recipes of the catalogue; None: a detector of another version.
POOL_SYSTEMS: dict[str, System | None] = {
    OURS: SYSTEMS["ALTBI"],
    OLD: None,
    "ALTBI": SYSTEMS["ALTBI-I (reference)"],
    "ODIM": SYSTEMS["ODIM"],
    "GLOW": SYSTEMS["ALTBI-G (light)"],
    "kNN 5": replace(_KNN, recipe=_KNN.recipe_for("semisupervised")),
    "kNN 32": _KNN,
    **{
        name: SYSTEMS[name]
        for name in (
            "DTE-NP",
            "IForest",
            "ECOD",
            "COPOD",
            "HBOS",
            "MCD",
            "PCA",
            "OCSVM",
            "LOF",
        )
    },
}
Record = dict[str, Any]


@final
@dataclass(frozen=True, slots=True)
class PoolJob:
    """One system on one table with one seed.

    Parameters
    ----------
    pool, half, table, system, seed
        Fields of the record.
    path : Path
        An npz file with the rows and labels of the table.
    old : Path or None
        Sources of version 0.1, if the system is of this version.
    """

    pool: str
    half: str
    table: str
    system: str
    seed: int
    path: Path
    old: Path | None = None

    @property
    def record(self) -> Record:
        """The fields of the record that describe the job."""
        names = ("pool", "half", "table", "system", "seed")
        return {name: getattr(self, name) for name in names}


def get_key(record: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what identifies a run."""
    return tuple(record[name] for name in ("pool", "table", "system", "seed"))


def list_jobs(
    tables: Sequence[PoolTable],
    folder: Path,
    *,
    systems: Sequence[str],
    n_seeds: int,
    done: set[tuple[object, ...]],
    old: Path | None = None,
) -> list[PoolJob]:
    """Return the jobs that have no record, and write their tables to a folder.

    The order is chosen for interrupted runs. Seed 0 comes before other seeds, slow systems follow
    the fast ones, and the slowest jobs, on wide tables, are last. Tables are ordered from small to
    large, and all systems of a table follow one another.
    """
    selected = {(each.pool, each.name) for each in select_by_hash(list(tables), N_SLOW_TABLES)}
    found: list[tuple[tuple[object, ...], PoolJob]] = []
    for number, table in enumerate(tables):
        missing = [
            (system, seed)
            for system in systems
            for seed in range(_count_seeds(system, n_seeds))
            if (table.pool, table.name, system, seed) not in done
            and (system not in SLOW or (table.pool, table.name) in selected)
        ]
        if missing:
            path = folder / f"{number}.npz"
            X, y = load_pool_table(table)
            np.savez(path, X=X, y=y)
        for system, seed in missing:
            is_slowest = X.shape[1] >= WIDE_FEATURES and system in (*SLOW, "MCD")
            job = PoolJob(table.pool, table.half, table.name, system, seed, path, old)
            found.append(((is_slowest, seed > 0, system in SLOW, X.size, number), job))
    return [job for _, job in sorted(found, key=lambda pair: pair[0])]


def _count_seeds(name: str, n_seeds: int) -> int:
    system = POOL_SYSTEMS[name]
    return n_seeds if system is None or system.seeded else 1


def run_pool_jobs(jobs: Sequence[PoolJob], *, seconds: float) -> Iterator[Record]:
    """Run jobs one by one in a process, and yield their records; a failure has its reason.

    Parameters
    ----------
    jobs : sequence of PoolJob
        The jobs.
    seconds : float
        Time limit of one job.

    Yields
    ------
    dict
        Fields of the job with "auc", "ap" and "seconds", or with "error".
    """
    for job, result in run_in_processes(measure_pool_job, jobs, processes=1, seconds=seconds):
        found = {"error": result.reason} if isinstance(result, Failure) else result
        yield job.record | found


def measure_pool_job(job: PoolJob) -> dict[str, float]:
    """Fit and score a table, and return "auc", "ap" and "seconds" of processor time.

    Raises
    ------
    TableError
        If the labels have only one class.
    ValueError
        If a score is not finite.
    """
    with np.load(job.path) as arrays:
        X, y = arrays["X"], arrays["y"]
    check_classes(y)
    system = POOL_SYSTEMS[job.system]
    if system is None:
        assert job.old is not None
        return _measure_old(job, job.old)
    _warm_up(job.system)
    if not system.scales_itself:
        from sklearn.preprocessing import StandardScaler

        X = StandardScaler().fit_transform(X)
    np.random.seed(job.seed)  # noqa: NPY002 - some detectors use the global state
    start = time.process_time()
    scores = _fit_and_score(system, X, job.seed)
    seconds = time.process_time() - start
    from sklearn.metrics import average_precision_score, roc_auc_score

    auc, ap = roc_auc_score(y, scores), average_precision_score(y, scores)
    return {"auc": float(auc), "ap": float(ap), "seconds": seconds}


def _fit_and_score(system: System, X: Rows, seed: int, *, smoke: bool = False) -> Scores:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return build_fit(system, "unsupervised", seed, smoke=smoke)(X)(X)


@cache
def _warm_up(name: str) -> None:
    """Fit a system once, so that imports are not counted in its first job."""
    system = POOL_SYSTEMS[name]
    assert system is not None
    _fit_and_score(system, np.random.default_rng(0).normal(size=(100, 4)), 0, smoke=True)


def _measure_old(job: PoolJob, source: Path) -> dict[str, float]:
    process = _start_version(source)
    try:
        return process.measure({"path": str(job.path), "detector": "ALTBI", "seed": job.seed})
    except ChildProcessError:
        _start_version.cache_clear()  # the next job starts a new process
        raise


@cache
def _start_version(source: Path) -> VersionProcess:
    return VersionProcess(source)
