"""What watched trainings show: the gap of losses, single snapshots and averages, fluctuation."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray

from altbi.bench.ablation import ROWS, published
from altbi.bench.statistics import Effect, paired_effect
from altbi.bench.traces import SETTINGS, WINDOWS, Trace

__all__ = [
    "Curve",
    "Held",
    "Memorised",
    "Wobble",
    "averaged",
    "curve",
    "memorised",
    "on_tables",
    "shares_judged",
    "window_aucs",
    "wobbles",
]

REFERENCE = "reference"
# The window that the paper's settings have, as its code counts, and the last step of it.
WINDOW, LAST = "61-80", 80
# How restless a training is shows when the first steps are over.
SETTLED = 50
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
    n: int


@final
@dataclass(frozen=True, slots=True)
class Held:
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
class Memorised:
    """How the losses of one table part while a model learns: risks and gaps of the steps.

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

    def held(self, least: float) -> Held:
        """Find the widest range of low inlier risks in which each step has a gap above `least`.

        Assumption 1 of the paper is that there is one with ``least = 0``.
        """
        gaps = np.array(self.gap)[np.argsort(self.risk, kind="stable")]
        risks = np.sort(self.risk)
        n = int((gaps > least).cumprod().sum())
        if not n:
            return Held(None, None, None, 0.0)
        share = n / len(gaps)
        return Held(float(risks[0]), float(risks[n - 1]), float(gaps[:n].min()), share)


@final
@dataclass(frozen=True, slots=True)
class Wobble:
    """Mean change of AUC from one update to the next, with growing batches and without."""

    title: str
    growing: float
    constant: float
    effect: Effect


def on_tables(traces: Iterable[Trace]) -> dict[tuple[str, str], list[Trace]]:
    """Take the trainings of whole tables in one sample size: (setting, file) -> by seed."""
    last = {
        trace.job: trace
        for trace in traces
        if trace.error is None and trace.share is None and trace.rows == ROWS
    }
    found: dict[tuple[str, str], list[Trace]] = {}
    for trace in sorted(last.values(), key=lambda trace: trace.seed):
        found.setdefault((trace.setting, trace.file), []).append(trace)
    return found


def curve(traces: Sequence[Trace], series: str) -> Curve:
    """Average a series over trainings."""
    values = np.array([getattr(trace, series) for trace in traces])
    return Curve(values.mean(axis=0).tolist(), values.std(axis=0).tolist(), len(values))


def memorised(traces: Sequence[Trace]) -> list[Memorised]:
    """Look at the losses of each table from the end of the warm-up on, averaged over seeds."""
    after = SETTINGS[REFERENCE].schedule.T0
    first, last = map(int, WINDOW.split("-"))
    found = []
    for (setting, file), runs in sorted(on_tables(traces).items()):
        if setting != REFERENCE:
            continue
        risk = _mean(runs, "inlier_loss")[after : after + LAST]
        gap = _mean(runs, "outlier_loss")[after : after + LAST] - risk
        last_gap = float(gap[first:last].mean())
        table = Path(file).stem.partition("_")[2]
        found.append(Memorised(table, tuple(risk.tolist()), tuple(gap.tolist()), last_gap))
    return found


def window_aucs(traces: Sequence[Trace]) -> tuple[dict[str, Series], Series]:
    """Give the AUC of each window, and that of the last snapshot alone, by table."""
    groups = [runs for (setting, _), runs in on_tables(traces).items() if setting == REFERENCE]
    names = [f"{first}-{last}" for first, last in WINDOWS]
    by_window = {
        name: np.array([np.mean([run.windows[name] for run in runs]) for runs in groups])
        for name in names
    }
    place = SETTINGS[REFERENCE].schedule.T0 + LAST - 1
    return by_window, np.array([np.mean([run.auc[place] for run in runs]) for runs in groups])


def averaged(traces: Sequence[Trace]) -> Effect | None:
    """Say what the average over snapshots gains against the last one alone."""
    windows, single = window_aucs(traces)
    return paired_effect(windows[WINDOW] - single) if len(single) else None


def wobbles(traces: Sequence[Trace]) -> list[Wobble]:
    """Measure how much AUC changes from update to update, with growing batches and without."""
    groups = on_tables(traces)
    found = []
    for title, (growing, constant) in PAIRS_TO_COMPARE.items():
        files = sorted(
            {f for s, f in groups if s == growing} & {f for s, f in groups if s == constant}
        )
        if not files:
            continue
        with_it, without = (
            np.array([np.mean([_restlessness(run) for run in groups[setting, f]]) for f in files])
            for setting in (growing, constant)
        )
        effect = paired_effect(with_it - without)
        found.append(Wobble(title, float(with_it.mean()), float(without.mean()), effect))
    return found


def _files(groups: Iterable[tuple[str, str]], setting: str) -> set[str]:
    return {file for name, file in groups if name == setting}


def _restlessness(trace: Trace) -> float:
    return float(np.abs(np.diff(trace.auc[SETTLED:])).mean())


def shares_judged(traces: Iterable[Trace]) -> Mapping[float, tuple[float, float, int]]:
    """Give the AUC after the last update by the share of outliers: mean, deviation, trainings."""
    last = {trace.job: trace for trace in traces if trace.error is None and trace.share is not None}
    found: dict[float, list[float]] = {}
    for trace in last.values():
        found.setdefault(float(trace.share or 0), []).append(trace.auc[-1])
    return {
        share: (float(np.mean(aucs)), float(np.std(aucs)), len(aucs))
        for share, aucs in sorted(found.items())
    }


def published_window(name: str) -> float | None:
    """Give the paper's number of a window, if its table has it."""
    return published().get(("window", name))


def _mean(runs: Sequence[Trace], series: str) -> Series:
    return np.array([getattr(run, series) for run in runs]).mean(axis=0)
