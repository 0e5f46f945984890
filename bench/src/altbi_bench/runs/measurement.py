"""Measurement of one job in this process: split, scale, fit, score, compare with the labels."""

import ctypes
import platform
import re
import time
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from altbi.errors import TableError, shorten
from altbi_bench.catalogue.datasets import Labels, Rows, find_file, load
from altbi_bench.catalogue.protocols import Split, find_protocol, sample_table
from altbi_bench.catalogue.systems import Scores, build_fit
from altbi_bench.catalogue.variants import ALL_SYSTEMS
from altbi_bench.runs.code_digest import code_digest
from altbi_bench.runs.records import Job, Run

__all__ = [
    "check_classes",
    "collect_versions",
    "failed_run",
    "find_version",
    "measure",
    "precision_at_n",
]

MAX_WARNINGS = 3
PACKAGES = ("altbi", "numpy", "torch", "scikit-learn")
_CPU_INFO = Path("/proc/cpuinfo")
_CPU_FIELD = re.compile(r"^([^\t:]+?)\s*:[ \t]*(.*)$", re.MULTILINE)
# Vector instructions that change rounding; the first that the processor has is recorded.
_VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2"}


def measure(job: Job, threads: int) -> Run:
    """Run a job; an error becomes a failed run."""
    before = np.random.get_state()  # noqa: NPY002 - some detectors use the global state
    try:
        return _measure(job, threads)
    except Exception as cause:  # noqa: BLE001 - one broken system must not end the benchmark
        return failed_run(job, f"{type(cause).__name__}: {cause}")
    finally:
        np.random.set_state(before)  # noqa: NPY002


def failed_run(job: Job, reason: str) -> Run:
    """Return the run of a job without scores."""
    return Run(**_list_fields(job), **_describe_origin(job), error=reason)


def _measure(job: Job, threads: int) -> Run:
    system, protocol = ALL_SYSTEMS[job.system], find_protocol(job.protocol)
    dataset, _ = find_file(job.file)
    X, y = sample_table(*_load_file(job.file), job.rows)
    split = protocol.split(y, dataset, job.seed)
    check_classes(y[split.test])
    train, test = _select_rows(X, split, standardised=not system.scales_itself)
    _warm_up(system.name)
    fit = build_fit(system, protocol.setting, job.seed, smoke=job.smoke)
    np.random.seed(job.seed)  # noqa: NPY002 - after the warm-up, which only a first job has
    with _limit_threads(threads), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        before = _reset_peak()
        start = time.perf_counter()
        score = fit(train)
        fitted = time.perf_counter()
        scores = score(test)
        scored = time.perf_counter()
        peak = _read_status().get("VmHWM")
    return Run(
        **_list_fields(job),
        **_describe_origin(job),
        **_compute_measures(y[split.test], scores),
        n_train=len(train),
        n_test=len(test),
        n_features=X.shape[1],
        n_outliers=int(y[split.test].sum()),
        fit_seconds=fitted - start,
        score_seconds=scored - fitted,
        peak_mib=None if before is None or peak is None else peak - before,
        threads=threads,
        warnings=sorted({_shorten_message(each.message) for each in caught})[:MAX_WARNINGS],
    )


def check_classes(y: Labels) -> None:
    """Raise an error if the rows to score are not of both classes."""
    if not 0 < y.sum() < len(y):
        raise TableError(
            f"{y.sum()} of the {len(y)} rows to score are outliers, but expected some of both "
            "classes. Use more rows, or another protocol."
        )


def _shorten_message(message: Warning | str) -> str:
    return shorten(str(message).strip().partition("\n")[0], 60)


def _list_fields(job: Job) -> dict[str, Any]:
    return {name: getattr(job, name) for name in Job.__slots__}


def _describe_origin(job: Job) -> dict[str, Any]:
    """Return the source, parameters and versions of a job's system."""
    system, setting = ALL_SYSTEMS[job.system], find_protocol(job.protocol).setting
    source, parameters = system.describe(setting, smoke=job.smoke)
    return {
        "source": source,
        "parameters": parameters,
        "versions": collect_versions("altbi" if system.scales_itself else system.recipe.package),
    }


def collect_versions(package: str) -> dict[str, str]:
    """Return the versions that a result depends on, including that of one more package."""
    names = dict.fromkeys((*PACKAGES, package))
    found = {name: version for name in names if (version := find_version(name))}
    return found | {"altbi code": code_digest(), "processor": describe_processor()}


@cache
def describe_processor() -> str:
    """Return the name of the processor, because rounding may depend on it."""
    text = _CPU_INFO.read_text(encoding="utf-8") if _CPU_INFO.is_file() else ""
    facts = dict(_CPU_FIELD.findall(text))
    flags = set(facts.get("flags", "").split())
    model = facts.get("model name") or platform.processor() or platform.machine()
    return ", ".join([model, *[name for flag, name in _VECTORS.items() if flag in flags][:1]])


def find_version(package: str) -> str | None:
    """Return the version of a package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@lru_cache(maxsize=1)
def _load_file(file: str) -> tuple[Rows, Labels]:
    """Read a file; it is cached because jobs on one file follow each other."""
    return load(find_file(file)[1])


def _select_rows(X: Rows, split: Split, *, standardised: bool) -> tuple[Rows, Rows]:
    """Return the rows of the fit and of the test; the same array if they are the same rows."""
    if standardised:
        from sklearn.preprocessing import StandardScaler

        X = (
            StandardScaler()
            .fit(X[split.train if split.scale is None else split.scale])
            .transform(X)
        )
    train = X[split.train]
    return train, train if split.scores_training_rows else X[split.test]


@cache
def _warm_up(name: str) -> None:
    """Fit a system once, so that imports are not counted in its first job."""
    rows = np.random.default_rng(0).normal(size=(100, 4))
    build_fit(ALL_SYSTEMS[name], "unsupervised", 0, smoke=True)(rows)(rows[:50])


def _compute_measures(y: Labels, scores: Scores) -> dict[str, Any]:
    """Compare scores with labels; scores must be one finite number per row."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    return {
        "auc": float(roc_auc_score(y, scores)),
        "average_precision": float(average_precision_score(y, scores)),
        "precision_at_n": precision_at_n(y, scores),
    }


def precision_at_n(y: Labels, scores: Scores) -> float:
    """Compute the share of outliers among the n highest scores; n is the number of outliers.

    Rows that tie at the n-th score count by their share of outliers, so that order does not matter.

    >>> precision_at_n(np.array([1, 0, 0, 1]), np.array([4.0, 2.0, 1.0, 2.0]))
    0.75
    """
    n = int(y.sum())
    border = np.partition(scores, -n)[-n]
    above, equal = scores > border, scores == border
    n_tied = n - int(above.sum())
    return float((y[above].sum() + n_tied * y[equal].mean()) / n)


def _limit_threads(threads: int) -> AbstractContextManager[Any]:
    """Limit the threads of linear algebra; call it after all libraries are imported."""
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(threads)
    return threadpool_limits(threads)


def _reset_peak() -> float | None:
    """Reset the peak memory, and return the current memory in MiB; None outside Linux."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)  # otherwise memory that an earlier job has freed would not be counted
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return None
    return _read_status().get("VmRSS")


def _read_status() -> Mapping[str, float]:
    try:
        text = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return {}
    pairs = (each.split() for each in text.splitlines() if each.endswith(" kB"))
    return {name.rstrip(":"): int(number) / 1024 for name, number, _ in pairs}
