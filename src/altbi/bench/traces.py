"""Trainings watched step by step: how far the losses of outliers are from those of inliers.

Labels are used to watch only; the training is that of `altbi.ALTBI`.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from altbi.bench.datasets import Labels, Rows, find_part, load
from altbi.bench.lines import append, mended, parsed
from altbi.bench.measure import versions
from altbi.bench.protocols import sampled
from altbi.bench.run import Limits
from altbi.borrow import one_thread, plain_torch
from altbi.encode import TableEncoder
from altbi.engines.processes import Lost, answers
from altbi.ensemble import loss_ranges
from altbi.errors import ParameterError
from altbi.models import IWAE, sized_iwae
from altbi.schedule import Schedule
from altbi.table import as_table
from altbi.train import keep_smallest, train

__all__ = ["SETTINGS", "Trace", "TraceJob", "read_traces", "run_traces", "traced", "watch"]

LEARNING_RATE, WEIGHT_DECAY = 1e-3, 5e-7
# Losses have no bounds, those of the theory lie in [0, 1]: beyond these shares of all losses of a
# training they are held, and what lies between is brought to that range.
HELD = (0.01, 0.99)
DIGITS = 4
SERIES = ("auc", "inlier_loss", "outlier_loss", "kept_outliers")

Losses = NDArray[np.float32]


@final
@dataclass(frozen=True, slots=True)
class Setting:
    """A training to watch: draws of the bound, schedule, and the averages to judge.

    Each window (T1, T2) is a mean over the snapshots of the steps T1 + 1 to T2, counted after the
    warm-up.
    """

    draws: int
    schedule: Schedule
    windows: tuple[tuple[int, int], ...] = ()


def _reference(**changes: float) -> Setting:
    """Do what produced the paper's numbers, for longer, so that later windows can be seen."""
    plan: dict[str, Any] = {"gamma": 1.03, "rho": 0.92, **changes}
    schedule = Schedule(n0=128, T0=10, T1=61, T2=100, updates=5, first_truncated=2, **plan)
    return Setting(2, schedule, WINDOWS)


def _vae(**changes: float) -> Setting:
    """Train the VAE of the paper's figures: a hundred updates."""
    plan: dict[str, Any] = {"gamma": 1.0, "rho": 1.0, **changes}
    return Setting(1, Schedule(n0=128, T0=10, T1=0, T2=90, updates=1, first_truncated=1, **plan))


# The paper's Table B.10, and the window of the authors' code.
WINDOWS = (*((first, first + n) for n in (5, 10, 20, 30) for first in (50, 60, 70)), (61, 80))
SETTINGS = {
    "reference": _reference(),
    "reference, no growth": _reference(gamma=1.0),
    "VAE": _vae(),
    "VAE, growth": _vae(gamma=1.1),
    "VAE, truncation": _vae(rho=0.9),
    "VAE, both": _vae(gamma=1.1, rho=0.9),
}


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
        return f"{Path(self.file).stem}, {self.setting}, seed {self.seed}{share}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What was seen in a training, a number for each step, the warm-up first.

    Attributes
    ----------
    auc : list of float
        Of the losses after the step.
    inlier_loss, outlier_loss : list of float
        Mean losses after the step, held and brought to [0, 1].
    kept_outliers : list of float
        Share of outliers among the rows of the step's last batch whose losses counted.
    windows : dict of str to float
        AUC of averages over snapshots, by ``"T1-T2"``.
    """

    file: str
    setting: str
    seed: int
    rows: int
    share: float | None = None
    n_rows: int = 0
    n_outliers: int = 0
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


def read_traces(path: Path) -> list[Trace]:
    """Read all lines; one not written to its end is left out, and its job is still to do."""
    return parsed(path, _trace)


def _trace(line: bytes) -> Trace:
    trace = Trace(**json.loads(line))
    if trace.setting not in SETTINGS:
        raise ValueError(f"no setting is called {trace.setting!r}")
    if trace.error is not None:
        return trace
    steps = SETTINGS[trace.setting].schedule.steps
    for name in SERIES:
        values = getattr(trace, name)
        if len(values) != steps or not all(type(v) is float and 0 <= v <= 1 for v in values):
            raise ValueError(f"{name} must be {steps} numbers in [0, 1]")
    return trace


def run_traces(
    path: Path,
    jobs: Sequence[TraceJob],
    limits: Limits,
    watch: Callable[[Iterator[Trace], int], Iterator[Trace]],
    *,
    retry: bool = False,
) -> list[Trace]:
    """Do what the lines file still lacks, a line for each; give the traces that were done."""
    with mended(path, _trace):
        there = {t.job for t in read_traces(path) if t.error is None or not retry}
        left = [job for job in dict.fromkeys(jobs) if job not in there]
        done = []
        for trace in watch(_traces(left, limits), len(left)):
            append(path, trace)
            done.append(trace)
        return done


def _traces(jobs: Sequence[TraceJob], limits: Limits) -> Iterator[Trace]:
    work = partial(traced, threads=limits.threads)
    for place, answer in answers(work, jobs, processes=limits.processes, seconds=limits.seconds):
        yield _failed(jobs[place], answer.reason) if isinstance(answer, Lost) else answer


def traced(job: TraceJob, threads: int = 1) -> Trace:
    """Do a job; what goes wrong is told in the trace."""
    try:
        return _traced(job, threads)
    except Exception as cause:  # noqa: BLE001 - one broken training must not end the others
        return _failed(job, f"{type(cause).__name__}: {cause}")


def _failed(job: TraceJob, reason: str) -> Trace:
    return Trace(**asdict(job), versions=versions("altbi"), error=reason)


def _traced(job: TraceJob, threads: int) -> Trace:
    setting = SETTINGS[job.setting]
    X, y = sampled(*load(find_part(job.file)[1]), job.rows)
    if job.share is not None:
        X, y = with_share(X, y, job.share, job.seed)
    table = as_table(X)
    rows = TableEncoder().fit_transform(table)
    torch.set_num_threads(threads)
    kept, losses = zip(*watch(rows, y, setting, job.seed), strict=True)
    inliers, outliers = mean_losses(np.array(losses), y)
    return Trace(
        **asdict(job),
        n_rows=len(y),
        n_outliers=int(y.sum()),
        auc=_rounded(auc_of(y, each) for each in losses),
        inlier_loss=_rounded(inliers),
        outlier_loss=_rounded(outliers),
        kept_outliers=_rounded(kept),
        windows=_windows(setting, np.array(losses), y),
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


def watch(rows: Losses, y: Labels, setting: Setting, seed: int) -> Iterator[tuple[float, Losses]]:
    """Train as the detector does; after each step, give the kept outliers and all rows' losses.

    Steps without a snapshot are judged with draws of their own, so that watching changes nothing.
    """
    generator = torch.Generator().manual_seed(seed)
    aside = torch.Generator().manual_seed(seed)
    all_rows = torch.from_numpy(rows)
    labelled = torch.column_stack([all_rows, torch.from_numpy(y.astype(np.float32))])
    with plain_torch(), one_thread():
        with torch.device("meta"):  # elsewhere the first weights would be drawn from global state
            model = sized_iwae(rows.shape[1], "auto", "auto", setting.draws, bounded=True).float()
        model.to_empty(device="cpu")
        model.start(generator)
        watched = Watched(model)
        for progress in train(
            watched,
            labelled,
            setting.schedule,
            learning_rate=LEARNING_RATE,
            weight_decay=WEIGHT_DECAY,
            generator=generator,
        ):
            if setting.schedule.is_snapshot(progress.step):
                model.redraw()
            else:
                model.scoring_draws.normal_(generator=aside)
            model.eval()
            with torch.inference_mode():
                losses = model(all_rows).numpy()
            yield watched.kept_outliers(progress.kept), losses


@final
class Watched(nn.Module):
    """A model whose rows bring their labels along as a last column, which it does not see."""

    def __init__(self, model: IWAE) -> None:
        super().__init__()
        self.model = model
        self.last: tuple[Tensor, Tensor] | None = None

    def forward(self, labelled: Tensor) -> Tensor:
        """Give the model's losses, and remember them and the labels."""
        losses: Tensor = self.model(labelled[:, :-1].contiguous())
        self.last = losses.detach(), labelled[:, -1]
        return losses

    def kept_outliers(self, share: float) -> float:
        """Give the share of outliers among the rows of the last batch whose losses counted."""
        if self.last is None:
            raise RuntimeError("No batch was seen yet.")
        losses, labels = self.last
        return float(labels[keep_smallest(losses, share)].mean())


def mean_losses(
    losses: NDArray[np.float32], y: Labels
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give the mean losses of inliers and of outliers in each step, held and brought to [0, 1]."""
    low, high = np.quantile(losses, HELD)
    held = (np.clip(losses.astype(np.float64), low, high) - low) / max(high - low, 1e-30)
    return held[:, y == 0].mean(axis=1), held[:, y == 1].mean(axis=1)


def auc_of(y: Labels, scores: NDArray[Any]) -> float:
    """Area under the ROC curve."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(y, scores))


def _windows(setting: Setting, losses: Losses, y: Labels) -> dict[str, float]:
    """Judge averages over snapshots, each brought to its own range, as the authors' code does."""
    low, width = loss_ranges(losses)
    scaled = (losses.astype(np.float64) - low[:, None]) / width[:, None]
    warm_up = setting.schedule.T0
    return {
        f"{first}-{last}": round(auc_of(y, scaled[warm_up + first : warm_up + last].mean(0)), 6)
        for first, last in setting.windows
    }


def _rounded(values: Any) -> list[float]:  # noqa: ANN401 - numbers of any kind
    return [round(float(value), DIGITS) for value in values]
