"""Analysis of observed trainings: losses, single snapshots and averages, fluctuation."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from altbi_bench.ablation.experiments import RATIOS, ROWS, figure_jobs, read_published
from altbi_bench.catalogue.datasets import find_part
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
    "auc_by_share",
    "averaging_effect",
    "curve",
    "few_outliers_effect",
    "group_by_table",
    "measure_fluctuations",
    "window_aucs",
]

REFERENCE = "reference"
# The window that the paper's settings have, as its code counts, and the last step of it.
WINDOW, LAST = "61-80", 80
# One snapshot in place of many: its mean AUC over the steps that windows end with, since a single
# step is high or low by chance.
SINGLE = sorted({last for _, last in WINDOWS})
ALONE, AVERAGED = "one alone", f"one alone, with {N_EVALUATION_SAMPLES} draws"
# How restless a training is shows when the first steps are over.
SETTLED = 50
# What a training comes to is the mean of so many updates.
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
    """A number for each update: mean over trainings, and the standard deviation around it."""

    mean: list[float]
    std: list[float]


@final
@dataclass(frozen=True, slots=True)
class RiskRange:
    """A range of the inlier risk, a1 to a2, in which outliers lose more by a3 at least.

    `share` is that of the steps whose risk lies in it; of no step there is no range, and the
    numbers are None.
    """

    a1: float | None
    a2: float | None
    a3: float | None
    share: float


@final
@dataclass(frozen=True, slots=True)
class Memorisation:
    """Losses of one table during a training: inlier risk and its gap to the outliers.

    Attributes
    ----------
    table : str
        Name of the file.
    risk : tuple of float
        Mean loss of inliers after each step from the end of the warm-up on, brought to [0, 1].
    gap : tuple of float
        Mean loss of outliers minus that.
    last_gap : float
        Mean gap of the last snapshots, those that the score is made of.
    """

    table: str
    risk: tuple[float, ...]
    gap: tuple[float, ...]
    last_gap: float

    def find_risk_range(self, least: float) -> RiskRange:
        """Find the widest range of low inlier risks in which each step has a gap above `least`.

        Assumption 1 of the paper is that there is one with ``least = 0``.
        """
        gaps = np.array(self.gap)[np.argsort(self.risk, kind="stable")]
        risks = np.sort(self.risk)
        n = int((gaps > least).cumprod().sum())
        if not n:
            return RiskRange(None, None, None, 0.0)
        share = n / len(gaps)
        return RiskRange(float(risks[0]), float(risks[n - 1]), float(gaps[:n].min()), share)


@final
@dataclass(frozen=True, slots=True)
class Fluctuation:
    """Mean change of AUC from one update to the next, with growing batches and without."""

    title: str
    growing: float
    constant: float
    effect: Effect


def group_by_table(traces: Iterable[Trace], rows: int = ROWS) -> dict[tuple[str, str], list[Trace]]:
    """Return the traces of one sample size, ordered by seed: (setting, table) -> traces."""
    found: dict[tuple[str, str], list[Trace]] = {}
    for trace in sorted(traces, key=lambda trace: trace.seed):
        if trace.error is None and trace.share is None and trace.rows == rows:
            table = find_part(trace.file)[0].label
            found.setdefault((trace.setting, table), []).append(trace)
    return found


def curve(traces: Sequence[Trace], series: str) -> Curve:
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
            risk = _mean(runs, "inlier_loss")[after : after + LAST]
            gap = _mean(runs, "outlier_loss")[after : after + LAST] - risk
            last_gap = float(gap[first:last].mean())
            found.append(Memorisation(table, tuple(risk.tolist()), tuple(gap.tolist()), last_gap))
    return found


def window_aucs(traces: Sequence[Trace]) -> dict[str, Series]:
    """Return the AUC of each window and of single snapshots, by table; empty without traces.

    Alone one is judged with its own draws (`ALONE`), and with those of all steps (`AVERAGED`).
    """
    groups = [runs for (setting, _), runs in group_by_table(traces).items() if setting == REFERENCE]
    judged = [[{**run.windows, **_alone(run)} for run in runs] for runs in groups]
    names = [*(f"{first}-{last}" for first, last in WINDOWS), ALONE, AVERAGED]
    return {
        name: np.array([np.mean([run[name] for run in runs]) for runs in judged])
        for name in names
        if judged
    }


def _alone(run: Trace) -> dict[str, float]:
    start = SETTINGS[REFERENCE].schedule.T0 - 1
    return {
        ALONE: float(np.mean([run.windows[str(step)] for step in SINGLE])),
        AVERAGED: float(np.mean([run.auc[start + step] for step in SINGLE])),
    }


def averaging_effect(traces: Sequence[Trace], alone: str) -> Effect | None:
    """Return the gain of an average over snapshots over a single one."""
    found = window_aucs(traces)
    return paired_effect(found[WINDOW] - found[alone]) if found else None


def measure_fluctuations(traces: Sequence[Trace]) -> list[Fluctuation]:
    """Measure how much AUC changes from step to step, with growing batches and without."""
    groups = group_by_table(traces)
    found = []
    for title, (growing, constant) in PAIRS_TO_COMPARE.items():
        tables = sorted(_tables(groups, growing) & _tables(groups, constant))
        if tables:
            with_it, without = (
                np.array(
                    [
                        np.mean([_restlessness(run) for run in groups[setting, table]])
                        for table in tables
                    ]
                )
                for setting in (growing, constant)
            )
            effect = paired_effect(with_it - without)
            found.append(Fluctuation(title, float(with_it.mean()), float(without.mean()), effect))
    return found


def _tables(groups: Iterable[tuple[str, str]], setting: str) -> set[str]:
    return {table for name, table in groups if name == setting}


def _restlessness(trace: Trace) -> float:
    return float(np.abs(np.diff(trace.auc[SETTLED:])).mean())


def auc_by_share(traces: Iterable[Trace]) -> dict[float, Series]:
    """Return the AUC of the last updates by the share of outliers, a number for each seed.

    Only seeds that all of the paper's shares have count; nothing where there is none.
    """
    asked = {job: None for job in figure_jobs() if job.share is not None}
    found = {
        (float(trace.share), trace.seed): float(np.mean(trace.auc[-LATE:]))
        for trace in traces
        if trace.error is None and trace.share is not None and trace.job in asked
    }
    seeds = sorted({seed for _, seed in found})
    whole = [seed for seed in seeds if all((share, seed) in found for share in RATIOS)]
    return {share: np.array([found[share, seed] for seed in whole]) for share in RATIOS if whole}


def few_outliers_effect(judged: Mapping[float, Series]) -> Effect:
    """Return the gain of AUC with few outliers: lowest third of the shares minus highest."""
    values = np.array([judged[share] for share in sorted(judged)])
    third = max(len(values) // 3, 1)
    return paired_effect(values[:third].mean(axis=0) - values[-third:].mean(axis=0))


def published_window(name: str) -> float | None:
    """Return the paper's number of a window, if its table has it."""
    return read_published().get(("window", name))


def _mean(runs: Sequence[Trace], series: str) -> Series:
    return np.array([getattr(run, series) for run in runs]).mean(axis=0)
