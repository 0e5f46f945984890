"""Analysis of observed trainings: losses, single snapshots and averages, fluctuation."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from altbi_bench.ablation.experiments import RATIOS, ROWS, list_figure_jobs, read_published
from altbi_bench.catalogue.datasets import find_file
from altbi_bench.statistics import Effect, paired_effect
from altbi_bench.traces.settings import N_EVALUATION_SAMPLES, SETTINGS, WINDOWS
from altbi_bench.traces.trace import Trace

__all__ = [
    "ALONE",
    "AVERAGED",
    "Curve",
    "Fluctuation",
    "Memorisation",
    "RiskRange",
    "analyse_memorisation",
    "compute_averaging_effect",
    "compute_curve",
    "compute_few_outliers_effect",
    "compute_window_aucs",
    "group_auc_by_share",
    "group_by_table",
    "measure_fluctuations",
]

REFERENCE = "reference"
# The window of the paper's settings, as counted by the authors' code, and its last step.
WINDOW, LAST = "61-80", 80
# Steps whose mean AUC is that of a single snapshot; one step alone is noisy.
SINGLE = sorted({last for _, last in WINDOWS})
ALONE, AVERAGED = "single snapshot", f"single snapshot, {N_EVALUATION_SAMPLES} samples"
# First updates, which are not counted in the fluctuation.
SKIPPED_UPDATES = 50
# Number of last updates whose mean AUC is the result of a training.
LATE = 10
PAIRS_TO_COMPARE = {
    "ALTBI-I, growth of 1.03": ("reference", "reference, no growth"),
    "VAE, growth of 1.1": ("VAE, growth", "VAE"),
    "VAE with truncation, growth of 1.1": ("VAE, both", "VAE, truncation"),
}

Series = NDArray[np.float64]


@final
@dataclass(frozen=True, slots=True)
class Curve:
    """Mean and standard deviation over trainings, for each update."""

    mean: list[float]
    std: list[float]


@final
@dataclass(frozen=True, slots=True)
class RiskRange:
    """A range [a1, a2] of the inlier risk in which the outlier risk is higher by at least a3.

    `share` is the share of steps with a risk in this range. If it is 0, the other numbers are None.
    """

    a1: float | None
    a2: float | None
    a3: float | None
    share: float


@final
@dataclass(frozen=True, slots=True)
class Memorisation:
    """Losses of one table during a training.

    Attributes
    ----------
    table : str
        Name of the file.
    risk : tuple of float
        Mean loss of inliers after each step after the warm-up, scaled to [0, 1].
    difference : tuple of float
        Mean loss of outliers minus that of inliers.
    last_difference : float
        Mean difference of the snapshots that are averaged for the score.
    """

    table: str
    risk: tuple[float, ...]
    difference: tuple[float, ...]
    last_difference: float

    def find_risk_range(self, least: float) -> RiskRange:
        """Return the widest range of low inlier risks with a difference above `least` in each step.

        Assumption 1 of the paper is that there is such a range with ``least = 0``.
        """
        differences = np.array(self.difference)[np.argsort(self.risk, kind="stable")]
        risks = np.sort(self.risk)
        n = int((differences > least).cumprod().sum())
        if not n:
            return RiskRange(None, None, None, 0.0)
        share = n / len(differences)
        return RiskRange(float(risks[0]), float(risks[n - 1]), float(differences[:n].min()), share)


@final
@dataclass(frozen=True, slots=True)
class Fluctuation:
    """Mean change of AUC between updates, with growing and with constant batches."""

    title: str
    growing: float
    constant: float
    effect: Effect


def group_by_table(traces: Iterable[Trace], rows: int = ROWS) -> dict[tuple[str, str], list[Trace]]:
    """Return the traces of one sample size, ordered by seed: (setting, table) -> traces."""
    found: dict[tuple[str, str], list[Trace]] = {}
    for trace in sorted(traces, key=lambda trace: trace.seed):
        if trace.error is None and trace.share is None and trace.rows == rows:
            table = find_file(trace.file)[0].label
            found.setdefault((trace.setting, table), []).append(trace)
    return found


def compute_curve(traces: Sequence[Trace], series: str) -> Curve:
    """Return the mean and standard deviation of a series over trainings."""
    values = np.array([getattr(trace, series) for trace in traces])
    return Curve(values.mean(axis=0).tolist(), values.std(axis=0).tolist())


def analyse_memorisation(traces: Sequence[Trace]) -> list[Memorisation]:
    """Return the losses of each table after the warm-up, averaged over seeds."""
    after = SETTINGS[REFERENCE].schedule.T0
    first, last = map(int, WINDOW.split("-"))
    found = []
    for (setting, table), runs in sorted(group_by_table(traces).items()):
        if setting == REFERENCE:
            risk = _average(runs, "inlier_loss")[after : after + LAST]
            difference = _average(runs, "outlier_loss")[after : after + LAST] - risk
            last_difference = float(difference[first:last].mean())
            found.append(
                Memorisation(
                    table, tuple(risk.tolist()), tuple(difference.tolist()), last_difference
                )
            )
    return found


def compute_window_aucs(traces: Sequence[Trace]) -> dict[str, Series]:
    """Return the AUC of each window and of single snapshots, by table; empty without traces.

    A single snapshot has its own Monte Carlo samples (`ALONE`) or the common ones (`AVERAGED`).
    """
    groups = [runs for (setting, _), runs in group_by_table(traces).items() if setting == REFERENCE]
    aucs = [[{**run.windows, **_average_single(run)} for run in runs] for runs in groups]
    names = [*(f"{first}-{last}" for first, last in WINDOWS), ALONE, AVERAGED]
    return {
        name: np.array([np.mean([run[name] for run in runs]) for runs in aucs])
        for name in names
        if aucs
    }


def _average_single(run: Trace) -> dict[str, float]:
    start = SETTINGS[REFERENCE].schedule.T0 - 1
    return {
        ALONE: float(np.mean([run.windows[str(step)] for step in SINGLE])),
        AVERAGED: float(np.mean([run.auc[start + step] for step in SINGLE])),
    }


def compute_averaging_effect(traces: Sequence[Trace], alone: str) -> Effect | None:
    """Return the gain of an average over snapshots over a single one."""
    found = compute_window_aucs(traces)
    return paired_effect(found[WINDOW] - found[alone]) if found else None


def measure_fluctuations(traces: Sequence[Trace]) -> list[Fluctuation]:
    """Compute the mean change of AUC between updates, with growing and constant batches."""
    groups = group_by_table(traces)
    found = []
    for title, (growing, constant) in PAIRS_TO_COMPARE.items():
        tables = sorted(_find_tables(groups, growing) & _find_tables(groups, constant))
        if tables:
            with_it, without = (
                np.array(
                    [
                        np.mean([_compute_fluctuation(run) for run in groups[setting, table]])
                        for table in tables
                    ]
                )
                for setting in (growing, constant)
            )
            effect = paired_effect(with_it - without)
            found.append(Fluctuation(title, float(with_it.mean()), float(without.mean()), effect))
    return found


def _find_tables(groups: Iterable[tuple[str, str]], setting: str) -> set[str]:
    return {table for name, table in groups if name == setting}


def _compute_fluctuation(trace: Trace) -> float:
    return float(np.abs(np.diff(trace.auc[SKIPPED_UPDATES:])).mean())


def group_auc_by_share(traces: Iterable[Trace]) -> dict[float, Series]:
    """Return the mean AUC of the last updates by share of outliers, one number for each seed.

    Only seeds with all of the paper's shares count; empty if there are none.
    """
    planned = {job: None for job in list_figure_jobs() if job.share is not None}
    found = {
        (float(trace.share), trace.seed): float(np.mean(trace.auc[-LATE:]))
        for trace in traces
        if trace.error is None and trace.share is not None and trace.job in planned
    }
    seeds = sorted({seed for _, seed in found})
    complete = [seed for seed in seeds if all((share, seed) in found for share in RATIOS)]
    return {
        share: np.array([found[share, seed] for seed in complete]) for share in RATIOS if complete
    }


def compute_few_outliers_effect(aucs: Mapping[float, Series]) -> Effect:
    """Return the gain of AUC with few outliers: lowest third of the shares minus highest."""
    values = np.array([aucs[share] for share in sorted(aucs)])
    third = max(len(values) // 3, 1)
    return paired_effect(values[:third].mean(axis=0) - values[-third:].mean(axis=0))


def find_published_window(name: str) -> float | None:
    """Return the paper's number of a window, if its table has it."""
    return read_published().get(("window", name))


def _average(runs: Sequence[Trace], series: str) -> Series:
    return np.array([getattr(run, series) for run in runs]).mean(axis=0)
