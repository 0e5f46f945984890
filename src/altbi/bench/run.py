"""Runs: one job is one line in a file, and a failure is a line too."""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

from altbi.bench.datasets import Labels, Rows, load, locate, select
from altbi.bench.systems import OTHER_SYSTEMS, SYSTEMS, Scores
from altbi.errors import ParameterError, TableError

__all__ = ["Job", "Run", "append", "latest", "mend", "plan", "quick", "read", "run_job", "todo"]


@dataclass(frozen=True, slots=True)
class Job:
    """One system on one data set with one seed."""

    dataset: str
    system: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What came of a job: measures, or an error.

    Seconds leave out imports, but a library's first fit in a process is slower than later ones.
    """

    dataset: str
    system: str
    seed: int
    n_rows: int
    n_features: int
    n_outliers: int
    auc: float | None = None
    average_precision: float | None = None
    fit_seconds: float | None = None
    score_seconds: float | None = None
    versions: dict[str, str] = field(default_factory=dict)
    error: str | None = None

    @property
    def job(self) -> Job:
        """What was to be done."""
        return Job(self.dataset, self.system, self.seed)


def quick(
    lines_path: Path,
    datasets: Sequence[str] | None,
    seeds: int,
    progress: Callable[[str], None],
    systems: Sequence[str] | None = None,
) -> tuple[list[Job], list[Run]]:
    """Do what the lines file still lacks; give all jobs asked for and all lines there are.

    Lines are trusted: after a change of a system start a new file.
    """
    jobs = plan(datasets, systems, seeds)
    # A missing file should be known before hours of work, not after.
    for dataset in select(datasets):
        locate(dataset)
    mend(lines_path)
    left = todo(jobs, read(lines_path))
    done = len(jobs) - len(left)
    for name, group in groupby(left, key=lambda job: job.dataset):
        X, y = load(*select([name]))
        for job in group:
            run = run_job(job, X, y)
            append(lines_path, run)
            done += 1
            progress(f"[{done}/{len(jobs)}] {_outcome(run)}")
    return jobs, read(lines_path)


def plan(datasets: Sequence[str] | None, systems: Sequence[str] | None, seeds: int) -> list[Job]:
    """List the jobs, small tables first, so that partial results come early."""
    known = SYSTEMS | OTHER_SYSTEMS
    if unknown := [name for name in systems or () if name not in known]:
        raise ParameterError(
            f"No system is called {', '.join(map(repr, unknown))}. "
            f"Expected names among: {', '.join(known)}."
        )
    if seeds < 1:
        raise ParameterError(f"seeds={seeds}, but expected at least 1.")
    return [
        Job(dataset.name, system, seed)
        for dataset in sorted(select(datasets), key=lambda dataset: dataset.n_cells)
        for system in known
        if system in (SYSTEMS if systems is None else systems)
        for seed in range(seeds)
    ]


def run_job(job: Job, X: Rows, y: Labels) -> Run:
    """Fit on all rows without labels, then compare the scores with the labels."""
    measures: dict[str, Any] = {}
    error = None
    try:
        fit = (SYSTEMS | OTHER_SYSTEMS)[job.system](job.seed)
        start = time.perf_counter()
        score = fit(X)
        fitted = time.perf_counter()
        scores = score()
        scored = time.perf_counter()
        measures = _measures(y, scores)
        measures |= {"fit_seconds": fitted - start, "score_seconds": scored - fitted}
    except Exception as cause:  # noqa: BLE001 - one broken system must not end the benchmark
        error = f"{type(cause).__name__}: {cause}"
    return Run(
        **asdict(job),
        **measures,
        n_rows=X.shape[0],
        n_features=X.shape[1],
        n_outliers=int(y.sum()),
        versions={name: version(name) for name in ("altbi", "torch", "scikit-learn")},
        error=error,
    )


def _measures(y: Labels, scores: Scores) -> dict[str, float]:
    """Compare; refuses scores that are not one finite number per row."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    return {
        "auc": float(roc_auc_score(y, scores)),
        "average_precision": float(average_precision_score(y, scores)),
    }


def _outcome(run: Run) -> str:
    head = f"{run.dataset}, {run.system}, seed {run.seed}: "
    if run.error is not None:
        return head + run.error
    seconds = (run.fit_seconds or 0) + (run.score_seconds or 0)
    return head + f"AUC {run.auc:.3f} in {seconds:.1f} s"


def append(path: Path, run: Run) -> None:
    """Write one line, whole and at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(asdict(run), allow_nan=False) + "\n")
        lines.flush()


def mend(path: Path) -> None:
    """Cut off a last line that was not written to its end, so that the next one stands alone."""
    content = path.read_bytes() if path.exists() else b""
    if content and not content.endswith(b"\n"):
        with path.open("r+b") as lines:
            lines.truncate(content.rfind(b"\n") + 1)


def read(path: Path) -> list[Run]:
    """Read all lines; one not written to its end is left out, and its job is still to do."""
    content = path.read_bytes() if path.exists() else b""
    whole = content[: content.rfind(b"\n") + 1].splitlines()
    return [_parse(line, f"{path}, line {number}") for number, line in enumerate(whole, 1)]


def _parse(line: bytes, where: str) -> Run:
    try:
        return _checked(Run(**json.loads(line)))
    except (ValueError, TypeError) as cause:
        raise TableError(
            f"{where}: not a run of the benchmark ({cause}). Remove the line, or name another file."
        ) from cause


def _checked(run: Run) -> Run:
    """Refuse a line that tables could not be made of."""
    named = isinstance(run.dataset, str) and isinstance(run.system, str)
    if not named or not isinstance(run.seed, int):
        raise TypeError("dataset and system must be texts, seed a whole number")
    if not isinstance(run.versions, dict):
        raise TypeError("versions must name packages and their versions")
    measures = () if run.error is not None else (run.auc, run.average_precision)
    if not all(isinstance(value, float) and 0 <= value <= 1 for value in measures):
        raise ValueError("auc and average_precision must lie in [0, 1] where there is no error")
    return run


def latest(runs: Iterable[Run]) -> dict[Job, Run]:
    """Keep one run of each job; a later line replaces an earlier one."""
    return {run.job: run for run in runs}


def todo(jobs: Iterable[Job], runs: Iterable[Run]) -> list[Job]:
    """Give the jobs without a run, or whose last run failed, in order."""
    done = {job for job, run in latest(runs).items() if run.error is None}
    return [job for job in jobs if job not in done]
