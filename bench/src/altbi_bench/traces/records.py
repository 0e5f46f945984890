"""Records of observed trainings: one JSON line for each job."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isfinite
from pathlib import Path

from altbi_bench.catalogue.datasets import find_file
from altbi_bench.runs.records import append, lock_records, read_records
from altbi_bench.runs.runner import Limits
from altbi_bench.runs.workers import Failure, run_in_processes
from altbi_bench.traces.settings import SETTINGS
from altbi_bench.traces.trace import Trace, TraceJob, failed_trace, run_trace

__all__ = ["current_traces", "read_traces", "run_traces"]

SERIES = ("auc", "inlier_loss", "outlier_loss", "kept_outliers")
INTEGERS = ("seed", "rows", "n_rows", "n_outliers")


def read_traces(path: Path) -> list[Trace]:
    """Read all traces; an incomplete last line is left out."""
    return read_records(path, _parse_trace)


def _parse_trace(text: bytes) -> Trace:
    """Return the trace of a record, or raise an error if a field has another type."""
    trace = Trace(**json.loads(text))
    if not isinstance(trace.file, str) or trace.setting not in SETTINGS:
        raise ValueError("file must be a text, setting one of the known settings")
    if not all(type(getattr(trace, name)) is int for name in INTEGERS):
        raise TypeError(f"{', '.join(INTEGERS)} must be whole numbers")
    if not (trace.share is None or type(trace.share) is float):
        raise TypeError("share must be a number or null")
    if not isinstance(trace.plan, dict) or not isinstance(trace.windows, dict):
        raise TypeError("plan and windows must be objects")
    if trace.error is not None:
        if not isinstance(trace.error, str):
            raise TypeError("error must be a text or null")
        return trace
    _check_series(trace)
    return trace


def _check_series(trace: Trace) -> None:
    """Raise an error if lengths or values of the series do not fit the setting."""
    find_file(trace.file)
    if not 0 < trace.n_outliers < trace.n_rows:
        raise ValueError("there must be outliers and inliers")
    lengths = {len(getattr(trace, name)) for name in SERIES}
    values = [value for name in SERIES for value in getattr(trace, name)]
    values += trace.windows.values()
    if len(lengths) != 1 or not all(_is_share(value) for value in values):
        raise ValueError(
            f"{', '.join(SERIES)} must have the same length and numbers in [0, 1], like windows"
        )
    setting = SETTINGS[trace.setting]
    if trace.plan == setting.plan():
        if lengths != {setting.schedule.n_steps}:
            raise ValueError(f"{', '.join(SERIES)} must have a number for each step")
        names = {name for first, last in setting.windows for name in (f"{first}-{last}", f"{last}")}
        if lacking := sorted(names - trace.windows.keys()):
            raise ValueError(f"windows must have {', '.join(lacking)}")


def _is_share(value: object) -> bool:
    return isinstance(value, float) and isfinite(value) and 0 <= value <= 1


def current_traces(traces: Iterable[Trace]) -> list[Trace]:
    """Return the last trace of each job, if its parameters are the current ones."""
    last = {trace.job: trace for trace in traces}
    return [trace for trace in last.values() if trace.plan == SETTINGS[trace.setting].plan()]


def run_traces(
    path: Path,
    jobs: Sequence[TraceJob],
    limits: Limits,
    progress: Callable[[Iterator[Trace], int], Iterator[Trace]],
    *,
    retry: bool = False,
) -> list[Trace]:
    """Run the jobs without a record, write a record for each, and return the new traces."""
    with lock_records(path, _parse_trace):
        known = current_traces(read_traces(path))
        finished = {trace.job for trace in known if trace.error is None or not retry}
        left = [job for job in dict.fromkeys(jobs) if job not in finished]
        done = []
        for trace in progress(_run_traces(left, limits), len(left)):
            append(path, trace)
            done.append(trace)
        return done


def _run_traces(jobs: Sequence[TraceJob], limits: Limits) -> Iterator[Trace]:
    for job, trace in run_in_processes(
        run_trace, jobs, processes=limits.processes, seconds=limits.seconds
    ):
        yield failed_trace(job, trace.reason) if isinstance(trace, Failure) else trace
