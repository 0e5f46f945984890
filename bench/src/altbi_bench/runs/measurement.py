"""One job, done here: split, scale, fit, score, compare with the labels."""

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

from altbi.errors import TableError
from altbi._terminal import shorten
from altbi_bench.catalogue.datasets import Labels, Rows, find_part, load
from altbi_bench.catalogue.protocols import Split, find_protocol, sampled
from altbi_bench.catalogue.systems import Scores, ready_to_fit
from altbi_bench.catalogue.variants import KNOWN
from altbi_bench.runs.code_digest import code_digest
from altbi_bench.runs.records import Job, Run

__all__ = ["failed", "measured", "precision_at_n", "version_of", "versions"]

MOST_WARNINGS = 3
PACKAGES = ("altbi", "numpy", "torch", "scikit-learn")
_ABOUT_PROCESSOR = Path("/proc/cpuinfo")
# A line of Linux's account of the processor, and what sums are taken with: the wider of the two.
_FACT = re.compile(r"^([^\t:]+?)\s*:[ \t]*(.*)$", re.MULTILINE)
_VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2"}


def measured(job: Job, threads: int) -> Run:
    """Do a job; what goes wrong is told in the run."""
    before = np.random.get_state()  # noqa: NPY002 - some detectors draw from it unasked
    try:
        return _measured(job, threads)
    except Exception as cause:  # noqa: BLE001 - one broken system must not end the benchmark
        return failed(job, f"{type(cause).__name__}: {cause}")
    finally:
        np.random.set_state(before)  # noqa: NPY002


def failed(job: Job, reason: str) -> Run:
    """Tell of a job that gave no scores."""
    return Run(**_fields(job), **_origin(job), error=reason)


def _measured(job: Job, threads: int) -> Run:
    system, protocol = KNOWN[job.system], find_protocol(job.protocol)
    dataset, _ = find_part(job.file)
    X, y = sampled(*_loaded(job.file), job.rows)
    split = protocol.split(y, dataset, job.seed)
    _check_classes(y[split.test])
    train, test = _rows(X, split, standardised=not system.scales_itself)
    _warm_up(system.name)
    fit = ready_to_fit(system, protocol.setting, job.seed, smoke=job.smoke)
    np.random.seed(job.seed)  # noqa: NPY002 - after the warm-up, which draws in a first job only
    with _threads(threads), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        before = _reset_peak()
        start = time.perf_counter()
        score = fit(train)
        fitted = time.perf_counter()
        scores = score(test)
        scored = time.perf_counter()
        peak = _peak()
    return Run(
        **_fields(job),
        **_origin(job),
        **_measures(y[split.test], scores),
        n_train=len(train),
        n_test=len(test),
        n_features=X.shape[1],
        n_outliers=int(y[split.test].sum()),
        fit_seconds=fitted - start,
        score_seconds=scored - fitted,
        peak_mib=None if before is None or peak is None else peak - before,
        threads=threads,
        warnings=sorted({_first_line(each.message) for each in said})[:MOST_WARNINGS],
    )


def _check_classes(y: Labels) -> None:
    """Refuse rows that no ranking can be judged by, before a system spends time on them."""
    if not 0 < y.sum() < len(y):
        raise TableError(
            f"{y.sum()} of the {len(y)} rows to score are outliers, but expected some of both "
            "classes. Take more rows, or another protocol."
        )


def _first_line(message: Warning | str) -> str:
    return shorten(str(message).strip().partition("\n")[0], 60)


def _fields(job: Job) -> dict[str, Any]:
    return {name: getattr(job, name) for name in Job.__slots__}


def _origin(job: Job) -> dict[str, Any]:
    """Say what was built, and of which versions."""
    system, setting = KNOWN[job.system], find_protocol(job.protocol).setting
    source, parameters = system.told(setting, smoke=job.smoke)
    return {
        "source": source,
        "parameters": parameters,
        "versions": versions("altbi" if system.scales_itself else system.recipe.package),
    }


def versions(package: str) -> dict[str, str]:
    """Name the versions that a result depends on: ours, those of what we build on, a package."""
    names = dict.fromkeys((*PACKAGES, package))
    found = {name: version for name in names if (version := version_of(name))}
    return found | {"altbi code": code_digest(), "processor": processor()}


@cache
def processor() -> str:
    """Name the processor: another one may round sums otherwise, which moves scores a little."""
    about = _ABOUT_PROCESSOR.read_text(encoding="utf-8") if _ABOUT_PROCESSOR.is_file() else ""
    facts = dict(_FACT.findall(about))
    flags = set(facts.get("flags", "").split())
    model = facts.get("model name") or platform.processor() or platform.machine()
    return ", ".join([model, *[name for flag, name in _VECTORS.items() if flag in flags][:1]])


def version_of(package: str) -> str | None:
    """Give the version; None where a package is lacking, which may be what a run has to tell."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@lru_cache(maxsize=1)
def _loaded(file: str) -> tuple[Rows, Labels]:
    """Read a file; jobs on one file come one after the other."""
    return load(find_part(file)[1])


def _rows(X: Rows, split: Split, *, standardised: bool) -> tuple[Rows, Rows]:
    """Take the rows of the fit and of the test, one and the same array where they are the same."""
    if standardised:
        from sklearn.preprocessing import StandardScaler

        X = (
            StandardScaler()
            .fit(X[split.train if split.scale is None else split.scale])
            .transform(X)
        )
    train = X[split.train]
    return train, train if split.scores_its_own else X[split.test]


@cache
def _warm_up(name: str) -> None:
    """Let a system compile and import once, so that its first job is not the slowest."""
    rows = np.random.default_rng(0).normal(size=(100, 4))
    ready_to_fit(KNOWN[name], "unsupervised", 0, smoke=True)(rows)(rows[:50])


def _measures(y: Labels, scores: Scores) -> dict[str, Any]:
    """Compare; refuses scores that are not one finite number per row."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    return {
        "auc": float(roc_auc_score(y, scores)),
        "average_precision": float(average_precision_score(y, scores)),
        "precision_at_n": precision_at_n(y, scores),
    }


def precision_at_n(y: Labels, scores: Scores) -> float:
    """Share of outliers among the n highest scores, n being the number of outliers.

    Rows with equal scores at the border count by their share, so that order changes nothing.

    >>> precision_at_n(np.array([1, 0, 0, 1]), np.array([4.0, 2.0, 1.0, 2.0]))
    0.75
    """
    n = int(y.sum())
    border = np.partition(scores, -n)[-n]
    above, equal = scores > border, scores == border
    places = n - int(above.sum())
    return float((y[above].sum() + places * y[equal].mean()) / n)


def _threads(threads: int) -> AbstractContextManager[Any]:
    """Hold linear algebra to some threads: libraries are loaded by now."""
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(threads)
    return threadpool_limits(threads)


def _reset_peak() -> float | None:
    """Forget the highest memory so far; give what is held now, in MiB, where Linux tells."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)  # else memory that an earlier job left would serve this one unseen
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return None
    return _status().get("VmRSS")


def _peak() -> float | None:
    return _status().get("VmHWM")


def _status() -> Mapping[str, float]:
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    pairs = (line.split() for line in lines if line.endswith(" kB"))
    return {words[0].rstrip(":"): int(words[1]) / 1024 for words in pairs}
