"""Trainings that were watched, as lines of a file: one job, one line, whole or not at all."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isfinite
from pathlib import Path

from altbi.distributed._processes import Lost, answers
from altbi_bench.catalogue.datasets import find_part
from altbi_bench.runs.records import append, mended, parsed
from altbi_bench.runs.runner import Limits
from altbi_bench.traces.settings import SETTINGS
from altbi_bench.traces.trace import Trace, TraceJob, failed, traced

__all__ = ["current_traces", "read_traces", "run_traces"]

SERIES = ("auc", "inlier_loss", "outlier_loss", "kept_outliers")
WHOLE_NUMBERS = ("seed", "rows", "n_rows", "n_outliers")


def read_traces(path: Path) -> list[Trace]:
    """Read all lines; one not written to its end is left out, and its job is still to do."""
    return parsed(path, _trace)


def _trace(line: bytes) -> Trace:
    """Refuse a line that figures could not be made of."""
    trace = Trace(**json.loads(line))
    if not isinstance(trace.file, str) or trace.setting not in SETTINGS:
        raise ValueError("file must be a text, setting one of those that are watched")
    if not all(type(getattr(trace, name)) is int for name in WHOLE_NUMBERS):
        raise TypeError(f"{', '.join(WHOLE_NUMBERS)} must be whole numbers")
    if not (trace.share is None or type(trace.share) is float):
        raise TypeError("share must be a number or null")
    if not isinstance(trace.plan, dict) or not isinstance(trace.windows, dict):
        raise TypeError("plan and windows must be objects")
    if trace.error is not None:
        if not isinstance(trace.error, str):
            raise TypeError("error must be a text or null")
        return trace
    return _with_usable_series(trace)


def _with_usable_series(trace: Trace) -> Trace:
    find_part(trace.file)
    if not 0 < trace.n_outliers < trace.n_rows:
        raise ValueError("there must be outliers and inliers")
    lengths = {len(getattr(trace, name)) for name in SERIES}
    values = [value for name in SERIES for value in getattr(trace, name)]
    values += trace.windows.values()
    if len(lengths) != 1 or not all(_is_share(value) for value in values):
        raise ValueError(f"{', '.join(SERIES)} must be as many numbers in [0, 1], windows too")
    setting = SETTINGS[trace.setting]
    if trace.plan == setting.plan():
        if lengths != {setting.schedule.steps}:
            raise ValueError(f"{', '.join(SERIES)} must have a number for each step")
        names = {name for first, last in setting.windows for name in (f"{first}-{last}", f"{last}")}
        if lacking := sorted(names - trace.windows.keys()):
            raise ValueError(f"windows must have {', '.join(lacking)}")
    return trace


def _is_share(value: object) -> bool:
    return isinstance(value, float) and isfinite(value) and 0 <= value <= 1


def current_traces(traces: Iterable[Trace]) -> list[Trace]:
    """Leave out trainings with other settings than now, and all but the last line of a job."""
    last = {trace.job: trace for trace in traces}
    return [trace for trace in last.values() if trace.plan == SETTINGS[trace.setting].plan()]


def run_traces(
    path: Path,
    jobs: Sequence[TraceJob],
    limits: Limits,
    meter: Callable[[Iterator[Trace], int], Iterator[Trace]],
    *,
    retry: bool = False,
) -> list[Trace]:
    """Do what the lines file still lacks, a line for each; give the traces that were done."""
    with mended(path, _trace):
        known = current_traces(read_traces(path))
        there = {trace.job for trace in known if trace.error is None or not retry}
        left = [job for job in dict.fromkeys(jobs) if job not in there]
        done = []
        for trace in meter(_traces(left, limits), len(left)):
            append(path, trace)
            done.append(trace)
        return done


def _traces(jobs: Sequence[TraceJob], limits: Limits) -> Iterator[Trace]:
    for place, answer in answers(traced, jobs, processes=limits.processes, seconds=limits.seconds):
        yield failed(jobs[place], answer.reason) if isinstance(answer, Lost) else answer
