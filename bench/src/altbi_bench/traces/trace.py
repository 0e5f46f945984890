"""One training to watch: what is to be done, and what was seen, a number for each step."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from altbi.encoding import TableEncoder
from altbi.scorers._loss import compute_loss_ranges
from altbi.errors import ParameterError
from altbi.table import as_table
from altbi_bench.catalogue.datasets import Labels, Rows, find_part, load
from altbi_bench.catalogue.protocols import sampled
from altbi_bench.runs.measurement import versions
from altbi_bench.traces.settings import SETTINGS, TableScan, Losses, Setting, on_progress

__all__ = ["Trace", "TraceJob", "failed", "mean_losses", "traced", "with_share"]

# Losses have no bounds, those of the theory lie in [0, 1]: beyond these shares of all losses of a
# training they are held, and what lies between is brought to that range.
HELD = (0.01, 0.99)
DIGITS = 4


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """One training to watch.

    Parameters
    ----------
    file : str
        Path inside the ADBench folder.
    setting : str
        One of `SETTINGS`.
    seed : int
        Of weights and batches, and of the outliers that are left out.
    rows : int
        Size of the sample that stands for a larger table.
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
        """What people call it."""
        share = "" if self.share is None else f", {self.share:.0%} outliers"
        rows = f"{self.rows:,} rows at most"
        return f"{Path(self.file).stem}, {self.setting}, seed {self.seed}, {rows}{share}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What was seen in a training, a number for each step, the warm-up first.

    Attributes
    ----------
    plan : dict
        What the training depended on.
    auc : list of float
        Of the losses after the step, each the mean over some draws.
    inlier_loss, outlier_loss : list of float
        Mean losses after the step, held and brought to [0, 1].
    kept_outliers : list of float
        Share of outliers among the rows of the step's last batch whose losses counted.
    windows : dict of str to float
        AUC of averages over snapshots with the detector's own draws, by ``"T1-T2"``; that of each
        window's last snapshot alone by ``"T2"``.
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
        """What was to be done."""
        names = ("file", "setting", "seed", "rows", "share")
        return TraceJob(**{name: getattr(self, name) for name in names})


def traced(job: TraceJob) -> Trace:
    """Do a job; what goes wrong is told in the trace."""
    try:
        return _traced(job)
    except Exception as cause:  # noqa: BLE001 - one broken training must not end the others
        return failed(job, f"{type(cause).__name__}: {cause}")


def failed(job: TraceJob, reason: str) -> Trace:
    """Tell of a training that nothing was seen of."""
    plan = SETTINGS[job.setting].plan()
    return Trace(**asdict(job), plan=plan, versions=versions("altbi"), error=reason)


def _traced(job: TraceJob) -> Trace:
    setting = SETTINGS[job.setting]
    X, y = sampled(*load(find_part(job.file)[1]), job.rows)
    if job.share is not None:
        X, y = with_share(X, y, job.share, job.seed)
    looks = list(on_progress(TableEncoder().fit_transform(as_table(X)), y, setting, job.seed))
    losses = np.array([look.losses for look in looks])
    inliers, outliers = mean_losses(losses, y, setting.schedule.T0)
    return Trace(
        **asdict(job),
        n_rows=len(y),
        n_outliers=int(y.sum()),
        plan=setting.plan(),
        auc=_rounded(auc_of(y, look.losses) for look in looks),
        inlier_loss=_rounded(inliers),
        outlier_loss=_rounded(outliers),
        kept_outliers=_rounded(look.kept_outliers for look in looks),
        windows=_windows(setting, looks, y),
        versions=versions("altbi"),
    )


def with_share(X: Rows, y: Labels, share: float, seed: int) -> tuple[Rows, Labels]:
    """Leave out outliers until they are that share of the rows; order stays."""
    n_inliers = int((y == 0).sum())
    wanted = round(share / (1 - share) * n_inliers)
    if not 1 <= wanted <= int(y.sum()):
        raise ParameterError(
            f"share={share}: {wanted} outliers beside {n_inliers} inliers, but there are "
            f"{int(y.sum())}. Ask for a smaller share, of at least one row."
        )
    left = np.random.default_rng(seed).choice(np.flatnonzero(y == 1), wanted, replace=False)
    rows = np.sort(np.concatenate([np.flatnonzero(y == 0), left]))
    return X[rows], y[rows]


def mean_losses(
    losses: Losses, y: Labels, warm_up: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give the mean losses of inliers and of outliers in each step, held and brought to [0, 1].

    The range is that of the steps after the warm-up: how large first losses are is up to chance.
    """
    low, high = np.quantile(losses[warm_up:], HELD)
    held = (np.clip(losses.astype(np.float64), low, high) - low) / max(high - low, 1e-30)
    return held[:, y == 0].mean(axis=1), held[:, y == 1].mean(axis=1)


def auc_of(y: Labels, scores: NDArray[Any]) -> float:
    """Area under the ROC curve."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(y, scores))


def _windows(setting: Setting, looks: Sequence[TableScan], y: Labels) -> dict[str, float]:
    """Judge averages over snapshots, each brought to its own range, as the authors' code does."""
    losses = np.array([look.snapshot for look in looks[setting.schedule.T0 :]])
    low, width = compute_loss_ranges(losses)
    scaled = (losses.astype(np.float64) - low[:, None]) / width[:, None]
    found: dict[str, NDArray[np.float64]] = {}
    for first, last in setting.windows:
        found |= {f"{first}-{last}": scaled[first:last].mean(axis=0), f"{last}": scaled[last - 1]}
    return {name: round(auc_of(y, scores), 6) for name, scores in found.items()}


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(float(value), DIGITS) for value in values]
