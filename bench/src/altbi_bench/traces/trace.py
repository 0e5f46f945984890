"""Traces: observed trainings, with a number for each step."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from altbi.encoding import TableEncoder
from altbi.errors import ParameterError
from altbi.scorers._loss import compute_loss_ranges
from altbi.table import as_table
from altbi_bench.catalogue.datasets import Labels, Rows, find_file, load
from altbi_bench.catalogue.protocols import sample_table
from altbi_bench.runs.measurement import collect_versions
from altbi_bench.traces.settings import SETTINGS, Losses, Observation, Setting, observe_training

__all__ = [
    "Trace",
    "TraceJob",
    "drop_outliers",
    "failed_trace",
    "mean_losses",
    "run_trace",
]

# The losses of the theory lie in [0, 1]. Ours are clipped at these quantiles of all losses of a
# training, and scaled to that range.
CLIP_QUANTILES = (0.01, 0.99)
DIGITS = 4


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """One training to observe.

    Parameters
    ----------
    file : str
        Path inside the ADBench folder.
    setting : str
        One of `SETTINGS`.
    seed : int
        Seed of weights and batches, and of the outliers that are left out.
    rows : int
        Size of the sample of a larger table.
    share : float or None
        Share of outliers to leave in the table; None: all.
    """

    file: str
    setting: str
    seed: int
    rows: int
    share: float | None = None

    @property
    def title(self) -> str:
        """A name for messages."""
        share = "" if self.share is None else f", {self.share:.0%} outliers"
        rows = f"{self.rows:,} rows at most"
        return f"{Path(self.file).stem}, {self.setting}, seed {self.seed}, {rows}{share}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Measures of a training, a number for each step, the warm-up first.

    Attributes
    ----------
    plan : dict
        Parameters of the training.
    auc : list of float
        AUC of the losses after the step, each averaged over Monte Carlo samples.
    inlier_loss, outlier_loss : list of float
        Mean losses after the step, clipped and scaled to [0, 1].
    kept_outliers : list of float
        Share of outliers among the rows of the step's last batch whose losses counted.
    windows : dict of str to float
        AUC of averages over snapshots, by ``"T1-T2"``, and of each window's last snapshot alone,
        by ``"T2"``. Snapshots have the detector's own Monte Carlo samples.
    """

    file: str
    setting: str
    seed: int
    rows: int
    share: float | None = None
    n_rows: int = 0
    n_outliers: int = 0
    plan: dict[str, Any] = field(default_factory=dict)
    auc: list[float] = field(default_factory=list)
    inlier_loss: list[float] = field(default_factory=list)
    outlier_loss: list[float] = field(default_factory=list)
    kept_outliers: list[float] = field(default_factory=list)
    windows: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    error: str | None = None

    @property
    def job(self) -> TraceJob:
        """The job of this trace."""
        names = ("file", "setting", "seed", "rows", "share")
        return TraceJob(**{name: getattr(self, name) for name in names})


def run_trace(job: TraceJob) -> Trace:
    """Run a job; an error becomes a failed trace."""
    try:
        return _run_trace(job)
    except Exception as cause:  # noqa: BLE001 - one broken training must not end the others
        return failed_trace(job, f"{type(cause).__name__}: {cause}")


def failed_trace(job: TraceJob, reason: str) -> Trace:
    """Return the trace of a training without measures."""
    plan = SETTINGS[job.setting].plan()
    return Trace(**asdict(job), plan=plan, versions=collect_versions("altbi"), error=reason)


def _run_trace(job: TraceJob) -> Trace:
    setting = SETTINGS[job.setting]
    X, y = sample_table(*load(find_file(job.file)[1]), job.rows)
    if job.share is not None:
        X, y = drop_outliers(X, y, job.share, job.seed)
    rows = TableEncoder().fit_transform(as_table(X))
    steps = list(observe_training(rows, y, setting, job.seed))
    losses = np.array([step.losses for step in steps])
    inliers, outliers = mean_losses(losses, y, setting.schedule.T0)
    return Trace(
        **asdict(job),
        n_rows=len(y),
        n_outliers=int(y.sum()),
        plan=setting.plan(),
        auc=_round(compute_auc(y, step.losses) for step in steps),
        inlier_loss=_round(inliers),
        outlier_loss=_round(outliers),
        kept_outliers=_round(step.kept_outliers for step in steps),
        windows=_evaluate_windows(setting, steps, y),
        versions=collect_versions("altbi"),
    )


def drop_outliers(X: Rows, y: Labels, share: float, seed: int) -> tuple[Rows, Labels]:
    """Drop outliers until they are a share of the rows; the order does not change."""
    n_inliers = int((y == 0).sum())
    wanted = round(share / (1 - share) * n_inliers)
    if not 1 <= wanted <= int(y.sum()):
        raise ParameterError(
            f"share={share}: {wanted} outliers for {n_inliers} inliers, but there are "
            f"{int(y.sum())}. Use a smaller share, of at least one row."
        )
    left = np.random.default_rng(seed).choice(np.flatnonzero(y == 1), wanted, replace=False)
    rows = np.sort(np.concatenate([np.flatnonzero(y == 0), left]))
    return X[rows], y[rows]


def mean_losses(
    losses: Losses, y: Labels, warm_up: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean losses of inliers and of outliers in each step, clipped and scaled to [0, 1].

    The range is that of the steps after the warm-up, because the first losses are arbitrary.
    """
    low, high = np.quantile(losses[warm_up:], CLIP_QUANTILES)
    scaled = (np.clip(losses.astype(np.float64), low, high) - low) / max(high - low, 1e-30)
    return scaled[:, y == 0].mean(axis=1), scaled[:, y == 1].mean(axis=1)


def compute_auc(y: Labels, scores: NDArray[Any]) -> float:
    """Compute the area under the ROC curve."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(y, scores))


def _evaluate_windows(
    setting: Setting, steps: Sequence[Observation], y: Labels
) -> dict[str, float]:
    """Return the AUC of averages over snapshots, each scaled as in the authors' code."""
    losses = np.array([step.snapshot for step in steps[setting.schedule.T0 :]])
    low, width = compute_loss_ranges(losses)
    scaled = (losses.astype(np.float64) - low[:, None]) / width[:, None]
    found: dict[str, NDArray[np.float64]] = {}
    for first, last in setting.windows:
        found |= {f"{first}-{last}": scaled[first:last].mean(axis=0), f"{last}": scaled[last - 1]}
    return {name: round(compute_auc(y, scores), 6) for name, scores in found.items()}


def _round(values: Iterable[float]) -> list[float]:
    return [round(float(value), DIGITS) for value in values]
