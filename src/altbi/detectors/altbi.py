"""ALTBI: a generative model learns the common rows first; what it has not learned is odd."""

from collections.abc import Iterator
from dataclasses import fields
from os import PathLike
from typing import Any, Literal, Self, final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from altbi.borrow import chosen_device
from altbi.detectors import model_files
from altbi.detectors.base import Scores, drawn_seed
from altbi.detectors.generative import GenerativeDetector, Ranges, stacked_states
from altbi.detectors.private import learn_privately
from altbi.detectors.roles import INLIER, OUTLIER, UNKNOWN, Roles
from altbi.detectors.rules import altbi_rules
from altbi.encode import Bounds
from altbi.ensemble import loss_ranges
from altbi.errors import ParameterError
from altbi.memory import remember
from altbi.models import Backbone, GenerativeModel, Glow, OwnModel, sized_iwae
from altbi.parameters import check_parameters
from altbi.privacy.truncation import TruncationName
from altbi.schedule import Schedule
from altbi.table import Table, sample_rows
from altbi.threshold import Contamination
from altbi.train import Known, Progress, train

__all__ = ["ALTBI"]

# GLOW as in the authors' code, and a lighter one for two cores.
REFERENCE_STEPS, REFERENCE_WIDTHS = 16, (256, 256)
LIGHT_STEPS, LIGHT_WIDTHS = 4, (64, 64)
# Updates in a step where the loss is the score, and where it only chooses what to remember.
# Under a privacy budget each update costs: fewer, larger steps, which go about as far together.
SCORING_UPDATES, CHOOSING_UPDATES, PRIVATE_UPDATES = 5, 2, 1
LEARNING_RATE, PRIVATE_LEARNING_RATE = 1e-3, 1e-2
# Rows of the sample among which those to remember are sought, and those that set the threshold.
POOL_ROWS = 10_000
JUDGED_ROWS = 20_000
# Units of a table whose distances are measured after whitening, if nobody says whether; and units
# from which on a network that only chooses what to remember grows no more.
WHITENED_UNITS = range(100, 4097)
CHOOSING_UNITS = 512


@final
class ALTBI(GenerativeDetector):
    """Outlier detection by briefly training a generative model with the worst losses left out.

    A generative model learns the common rows of a table before the odd ones. ALTBI, Adaptive Loss
    Truncation with Batch Increment, makes this effect stronger: after a short warm-up the batch
    grows from step to step and the largest losses of each batch are left out. What is common then
    has a small loss, averaged over snapshots of the model from the last steps.

    Rows with small losses are remembered, and a row's score is its mean squared distance to the
    nearest of those, in deviations of the columns: an odd row is far from all that is common. With
    ``score_by="loss"`` the score is the loss itself, as in the paper, and no rows are stored.

    The model is an importance weighted autoencoder (`altbi.models.IWAE`), a normalizing flow
    (`altbi.models.Glow`) or one of your own. `ALTBI.reference` is what the authors' code does,
    `ALTBI.paper` the algorithm as printed, `ALTBI.novelty` for tables of normal rows only; these
    score by loss. Tables may hold numbers, booleans, text categories, dates and missing cells.

    Parameters
    ----------
    backbone : {"iwae", "glow"}, callable or nn.Module, default='iwae'
        The model. One of your own is a class or a function that is called with the number of
        features and gives an ``nn.Module`` which maps rows to losses; or such a module itself,
        which is copied, and trained from the weights it has.
    n0 : int, default=128
        Rows in a batch of the warm-up.
    gamma : float, default=1.03
        Growth of the batch from one step to the next.
    rho : float, default=0.92
        Share of a batch whose losses count.
    T0 : int, default=10
        Warm-up steps.
    T1 : int, default=61
        Last step, counted after the warm-up, without a snapshot.
    T2 : int, default=80
        Last step, counted after the warm-up.
    updates : int or "auto", default='auto'
        Updates of the model in each step; "auto" is 5 where the loss is the score, and 2 where it
        only says which rows may be remembered: more do not choose better. Under a privacy budget
        it is 1: each update costs.
    first_truncated : int, default=2
        Step, counted after the warm-up, from which losses are left out.
    max_batch : int or None, default=None
        Rows beyond which the batch does not grow: the memory of the training grows with the batch,
        which counts for wide tables and flows.
    draws : int, default=2
        K, the draws of the importance weighted bound; 1 makes the model a plain VAE. For "iwae".
    hidden : tuple of int or "auto", default='auto'
        For "iwae" the widths of the encoder's hidden layers; "auto" chooses by the number of
        features. For "glow" the two widths of the coupling networks; "auto" is (64, 64).
    latent : int or "auto", default='auto'
        Size of the latent space; "auto" chooses by the number of features. For "iwae".
    flow_steps : int or "auto", default='auto'
        Steps of flow at each level; "auto" is 4. For "glow".
    network : {"reference", "paper"}, default='reference'
        For "iwae". "reference": BatchNorm without scale and shift, LeakyReLU, sigmoid mean,
        log-variances in [-6, 2], and a log-variance term without the factor 1/2 of a Gaussian.
        "paper": ReLU, no BatchNorm, a true Gaussian decoder with learned log-variance.
    average : {"scaled", "plain"}, default='scaled'
        "scaled": each snapshot's losses are shifted and divided by their range on the training
        sample before they are averaged. "plain": the mean of the losses.
    learning_rate : float or "auto", default='auto'
        Learning rate of Adam; "auto" is 0.001, and 0.01 under a privacy budget.
    weight_decay : float, default=5e-07
        Weight decay of Adam.
    score_by : {"distance", "loss"}, default='distance'
        "distance": to the nearest remembered rows, which the detector and its file then hold.
        "loss": the model's own; no rows are held.
    keep : float in (0, 1], default=0.8
        Share of the rows, those with the smallest losses, from which the remembered ones are drawn;
        then again by their distances to the rows drawn first. For "distance".
    n_remembered : int, default=1000
        Rows to remember. For "distance".
    n_lots : int, default=5
        Lots that the remembered rows are dealt into; the nearest row of each counts. For
        "distance".
    whiten : bool or "auto", default='auto'
        Whether distances are measured in directions that are independent among the normal rows,
        each in its own deviations, instead of column by column. "auto": from 100 columns on, as in
        embeddings, where columns say much the same many times; up to 4,096. A category counts as
        many columns as it has levels. For "distance".
    push : float, default=1.0
        Weight with which the losses of labelled outliers are pushed up, if `fit` is given any; 0
        only leaves these rows out of the training.
    trust : float in (0, 1], default=0.75
        Share of these labels that is believed: once losses are left out, those of the labelled
        outliers that look most normal are left out too.
    contamination : float in (0, 0.5] or "auto", default='auto'
        Share of outliers that sets the threshold; "auto" estimates it from the scores, and is a
        tenth under a privacy budget.
    threshold : float or None, default=None
        Anomaly score above which a row is an outlier, if you know it; `contamination` is then not
        used.
    epsilon : float or None, default=None
        Privacy budget. With one, the fit is private: gradients are clipped row by row
        and get noise, rows are scored by loss and none is stored, and all that the model file holds
        is within the budget; `ledger_` says how. Needs the extra "privacy". The noise cannot be
        drawn again, so that two fits differ. None: no privacy.
    delta : float in (0, 1), default=1e-06
        Probability with which the promise of epsilon may fail; below one in the number of rows.
    bounds : pair, dict, "estimate" or None, default=None
        Under a privacy budget: the range of all columns, ``(low, high)``; or by column its range or
        the levels of a category; or "estimate", which takes a tenth of the budget.
    clip : float, default=1.0
        Under a privacy budget: the norm that each row's gradient is held to.
    noise : float or "auto", default='auto'
        Under a privacy budget: deviation of the noise as a multiple of what one row can change;
        "auto" finds the least with which the whole training keeps to the budget. With a number the
        training stops before the budget is exceeded.
    truncation : {"tracked", "trimmed", "previous"}, default='tracked'
        Under a privacy budget: the losses that are left out. "tracked": those above a threshold
        that follows noisy counts. "trimmed": the largest of the batch, with twice the noise.
        "previous": those above the previous batch's quantile, as in the paper; epsilon is then no
        guarantee, and the model file says so.
    max_rows : int, default=200000
        Rows in the training sample, drawn uniformly from larger tables; a fit under a privacy
        budget takes all rows, and refuses more.
    device : str, default='auto'
        Where the model is trained: "cpu", "cuda" or another name that torch has; "auto" is "cuda"
        where there is one, else "cpu". Rows are scored on the CPU. Scores differ a little between
        devices. No GPU was at hand: that part is untested.
    random_state : int, RandomState or None, default=0
        Seed of sample, weights and batches. None takes a new one for each fit. The global random
        state is neither used nor changed.

    Attributes
    ----------
    offset_ : float
        Threshold: rows with ``score_samples`` below it are outliers.
    n_features_in_ : int
        Columns of the training table.
    feature_names_in_ : ndarray of str
        Names of these columns, if the table had names.
    fitted_on_frame_ : bool
        Whether the training table had columns with names and types.
    n_rows_in_ : int
        Rows of the training table.
    n_sample_ : int
        Rows of the training sample.
    encoder_ : TableEncoder
        How columns became numbers; ``encoder_.notes()`` says what is worth knowing about them.
    memory_ : Memory or None
        The remembered rows, in deviations; None where rows are scored by loss.
    snapshots_ : dict of str to ndarray
        The snapshots' weights, each with the snapshots as its first axis. For "loss".
    ensemble_ : Ensemble
        The snapshots as one scorer. For "loss".
    ledger_ : Ledger or None
        What a fit under a privacy budget has released, and what it costs.
    typical_ : Typical
        What is usual in the training sample; explanations are measured against it. For "loss".
    history_ : list of Progress
        Batch size, kept share and loss of each step.

    References
    ----------
    Cho, Hwang, Bae, Kim: ALTBI: Constructing Improved Outlier Detection Models via Optimization
    of Inlier-Memorization Effect.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> X[17] = 9.0
    >>> detector = ALTBI().fit(X)
    >>> int(detector.anomaly_score(X).argmax())
    17
    >>> detector.predict(X)[17]
    np.int64(-1)
    """

    def __init__(  # noqa: PLR0915 - a statement for each parameter
        self,
        *,
        backbone: Literal["iwae", "glow"] | Backbone = "iwae",
        n0: int = 128,
        gamma: float = 1.03,
        rho: float = 0.92,
        T0: int = 10,
        T1: int = 61,
        T2: int = 80,
        updates: int | Literal["auto"] = "auto",
        first_truncated: int = 2,
        max_batch: int | None = None,
        draws: int = 2,
        hidden: tuple[int, ...] | Literal["auto"] = "auto",
        latent: int | Literal["auto"] = "auto",
        flow_steps: int | Literal["auto"] = "auto",
        network: Literal["reference", "paper"] = "reference",
        average: Literal["scaled", "plain"] = "scaled",
        learning_rate: float | Literal["auto"] = "auto",
        weight_decay: float = 5e-7,
        score_by: Literal["distance", "loss"] = "distance",
        keep: float = 0.8,
        n_remembered: int = 1000,
        n_lots: int = 5,
        whiten: bool | Literal["auto"] = "auto",
        push: float = 1.0,
        trust: float = 0.75,
        contamination: Contamination = "auto",
        threshold: float | None = None,
        epsilon: float | None = None,
        delta: float = 1e-6,
        bounds: Bounds | Literal["estimate"] | None = None,
        clip: float = 1.0,
        noise: float | Literal["auto"] = "auto",
        truncation: TruncationName = "tracked",
        max_rows: int = 200_000,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.backbone = backbone
        self.n0 = n0
        self.gamma = gamma
        self.rho = rho
        self.T0 = T0
        self.T1 = T1
        self.T2 = T2
        self.updates = updates
        self.first_truncated = first_truncated
        self.max_batch = max_batch
        self.draws = draws
        self.hidden = hidden
        self.latent = latent
        self.flow_steps = flow_steps
        self.network = network
        self.average = average
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.score_by = score_by
        self.keep = keep
        self.n_remembered = n_remembered
        self.n_lots = n_lots
        self.whiten = whiten
        self.push = push
        self.trust = trust
        self.contamination = contamination
        self.threshold = threshold
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.clip = clip
        self.noise = noise
        self.truncation = truncation
        self.max_rows = max_rows
        self.device = device
        self.random_state = random_state

    @classmethod
    def paper(cls, **changes: Any) -> Self:  # noqa: ANN401 - the constructor's arguments
        """Follow Algorithm 1 as the paper prints it.

        (n0, gamma, rho, T0, T1, T2) = (128, 1.03, 0.92, 10, 60, 80); updates = 1;
        first_truncated = 1; draws = 2; hidden = (100, 50); latent = 10; network = "paper" (no
        BatchNorm, true Gaussian decoder with learned log-variance); average = "plain" (the mean of
        the 20 snapshots' losses); learning_rate = 1e-3; weight_decay = 0. Columns are min-max
        scaled, as always. The paper gives the widths as "50 to 100" and no latent size: 100-50 and
        10 are this preset's reading. Its words on GLOW ("the architecture of Nalisnick et al.")
        leave more open than could be read into them: there is no such preset.
        """
        if changes.get("backbone") == "glow":
            raise ParameterError(
                "ALTBI.paper: backbone='glow', but the paper does not say enough about its flow. "
                "Use ALTBI.reference(backbone='glow'), which follows the authors' code."
            )
        preset: dict[str, Any] = {
            "T1": 60,
            "updates": 1,
            "first_truncated": 1,
            "hidden": (100, 50),
            "latent": 10,
            "network": "paper",
            "average": "plain",
            "weight_decay": 0.0,
            "score_by": "loss",
        }
        return cls(**preset | changes)

    @classmethod
    def reference(cls, **changes: Any) -> Self:  # noqa: ANN401
        """Do what produced the paper's numbers: the authors' code, with two draws.

        (n0, gamma, rho, T0, T1, T2) = (128, 1.03, 0.92, 10, 61, 80), which gives 19 snapshots;
        updates = 5; first_truncated = 2 (truncation starts one step late); draws = 2; hidden and
        latent by the number of features (`altbi.models.reference_sizes`); network = "reference"
        (BatchNorm without scale and shift, LeakyReLU, sigmoid mean, log-variances in [-6, 2], the
        missing 1/2); average = "scaled" (ranges frozen from the training sample); learning_rate =
        1e-3; weight_decay = 5e-7. With ``backbone="glow"``: flow_steps = 16, hidden = (256, 256).
        The code's settings for single data sets are left out (batches of at most 500 or 1,000 rows
        and another flow for InternetAds, PageBlocks and shuttle).
        """
        preset: dict[str, Any] = {"updates": SCORING_UPDATES, "score_by": "loss"}
        if changes.get("backbone") == "glow":
            preset |= {"flow_steps": REFERENCE_STEPS, "hidden": REFERENCE_WIDTHS}
        return cls(**preset | changes)

    @classmethod
    def novelty(cls, **changes: Any) -> Self:  # noqa: ANN401
        """Learn from normal rows only, to score new ones: the paper's semi-supervised setting.

        As `reference`, with ten more steps: T2 = 90, which gives 29 snapshots. The largest losses
        are left out here as well, as published; ``novelty(rho=1)`` counts them all. The plain
        ``ALTBI(keep=1)``, by distance to the normal rows, is more accurate on ADBench.
        """
        preset: dict[str, Any] = {"T2": 90, "score_by": "loss"}
        return cls(**preset | changes)

    def fit(
        self,
        X: Any,  # noqa: ANN401 - any table
        y: object = None,
        *,
        known_inlier: ArrayLike | None = None,
        known_outlier: ArrayLike | None = None,
    ) -> Self:
        """Learn from a table in which nobody, or nearly nobody, has labelled the bad rows.

        Parameters
        ----------
        X : array or data frame
            The table.
        y : object
            Not used.
        known_inlier : array of bool, optional
            Marks rows that are known to be normal; their losses are never left out.
        known_outlier : array of bool, optional
            Marks rows that are believed to be odd; some may be marked by mistake. Training makes
            their losses large (see `push` and `trust`).
        """
        for _ in self.fitting(X, known_inlier=known_inlier, known_outlier=known_outlier):
            pass
        return self

    def fitting(
        self,
        X: Any,  # noqa: ANN401
        *,
        known_inlier: ArrayLike | None = None,
        known_outlier: ArrayLike | None = None,
    ) -> Iterator[Progress]:
        """Fit step by step: yields after each step; fitted when there are no more.

        Examples
        --------
        >>> import numpy as np
        >>> detector = ALTBI()
        >>> steps = detector.fitting(np.random.default_rng(0).normal(size=(200, 3)))
        >>> next(steps).batch_size
        128
        >>> sum(1 for _ in steps)
        89
        """
        if self.epsilon is None:
            yield from self._learning(X, known_inlier, known_outlier)
            return
        if known_inlier is not None or known_outlier is not None:
            raise ParameterError(
                "known_inlier and known_outlier are not covered by a privacy budget. "
                "Leave them out, or fit without epsilon."
            )
        table = self._begun(X)
        yield from learn_privately(self, self.epsilon, table, drawn_seed(self.random_state))

    @classmethod
    def load(cls, path: str | PathLike[str], *, backbone: Backbone | None = None) -> Self:
        """Read a detector from a file; a broken or foreign file is refused.

        Parameters
        ----------
        path : path
            The file.
        backbone : callable or nn.Module, optional
            Your own model, if the detector was fitted with one; the name that the file has for it
            is only a label, and nothing is imported by it.
        """
        return model_files.load(cls, path, backbone)

    def _train(
        self, rows: NDArray[np.float32], roles: Roles | None, seed: int
    ) -> Iterator[Progress]:
        """Run Algorithm 1 and keep the snapshots."""
        self.history_, snapshots = [], []
        schedule = self._schedule()
        device = chosen_device(self.device)
        generator = torch.Generator(device).manual_seed(seed)
        model = self._fresh_model(rows.shape[1], generator)
        learned, known = self._parted(rows, roles, device)
        for progress in train(
            model,
            learned,
            schedule,
            learning_rate=self._learning_rate(),
            weight_decay=self.weight_decay,
            known=known,
            generator=generator,
        ):
            self.history_.append(progress)
            if schedule.is_snapshot(progress.step):
                model.redraw()
                snapshots.append({k: v.clone() for k, v in model.state_dict().items()})
            yield progress
        if isinstance(model, OwnModel):
            model.cpu().check(torch.from_numpy(rows), self._blank_model(rows.shape[1]))
        self._keep_snapshots(snapshots)

    def _keep_snapshots(self, snapshots: list[dict[str, torch.Tensor]]) -> None:
        self.snapshots_ = stacked_states(snapshots)

    def _parted(
        self, rows: NDArray[np.float32], roles: Roles | None, device: torch.device
    ) -> tuple[torch.Tensor, Known | None]:
        """Part the rows to learn from and what is known; all of it goes to the device at once."""
        if roles is None:
            return torch.from_numpy(rows).to(device), None
        is_outlier = roles == OUTLIER
        learned, is_inlier, outliers = (
            torch.from_numpy(part).to(device)
            for part in (rows[~is_outlier], roles[~is_outlier] == INLIER, rows[is_outlier])
        )
        return learned, Known(is_inlier, outliers, self.push, self.trust)

    def _calibrate(
        self, sample: Table, rows: NDArray[np.float32], roles: Roles | None, seed: int
    ) -> Scores:
        if self._memory_sizes() is None:
            return super()._calibrate(sample, rows, roles, seed)
        roles = np.full(len(rows), UNKNOWN, dtype=np.int8) if roles is None else roles
        eligible = np.flatnonzero(roles != OUTLIER)
        if len(eligible) > POOL_ROWS:
            drawn = eligible[sample_rows(len(eligible), POOL_ROWS, seed)]
            # Someone looked at these rows: they are worth more than others.
            eligible = np.union1d(drawn, np.flatnonzero(roles == INLIER)[:POOL_ROWS])
        self.memory_ = remember(
            self.encoder_.standardize(sample.take(eligible)),
            self._judge(rows[eligible]),
            keep=self.keep,
            n_remembered=self.n_remembered,
            n_lots=self.n_lots,
            whiten=self._whitens(),
            seed=seed,
            certain=roles[eligible] == INLIER,
        )
        # What was learned of losses has served its purpose.
        for learned in ("snapshots_", "landmarks_", "ensemble_"):
            if hasattr(self, learned):
                delattr(self, learned)
        judged = sample_rows(len(rows), JUDGED_ROWS, seed)
        return self.memory_.score(self.encoder_.standardize(sample.take(judged)))

    def _memory_sizes(self) -> tuple[int, int] | None:
        by_distance = self.score_by == "distance" and self.epsilon is None
        return (self.n_remembered, self.n_lots) if by_distance else None

    def _whitens(self) -> bool:
        if self._memory_sizes() is None:
            return False
        return self.encoder_.width in WHITENED_UNITS if self.whiten == "auto" else self.whiten

    def _chosen_threshold(self, scores: Scores) -> float:
        if self.threshold is not None:
            return float(self.threshold)
        return super()._chosen_threshold(scores)

    def _learning_rate(self) -> float:
        if self.learning_rate != "auto":
            return self.learning_rate
        return LEARNING_RATE if self.epsilon is None else PRIVATE_LEARNING_RATE

    def _snapshot_count(self) -> int:
        schedule = self._schedule()
        if self.epsilon is None:
            return schedule.T2 - schedule.T1
        return max(sum(schedule.is_snapshot(step.step) for step in self.history_), 1)

    @property
    def planned_steps(self) -> int:
        """Steps that `fitting` yields."""
        return self._schedule().steps

    def _is_whole(self, history: list[Progress]) -> bool:
        if self.epsilon is None:
            return len(history) == self.planned_steps
        return 0 < len(history) <= self.planned_steps  # a budget may end a training

    def _ranges(self, losses: NDArray[np.float32]) -> Ranges:
        if self.average == "scaled" and self.epsilon is None:
            return loss_ranges(losses)
        return np.zeros(len(losses)), np.ones(len(losses))

    def _blank_model(self, n_units: int) -> GenerativeModel:
        if not isinstance(self.backbone, str):
            return OwnModel(self.backbone, n_units)
        with torch.device("meta"):
            if self.backbone == "glow":
                return self._glow(n_units).float()
            return sized_iwae(
                n_units,
                self.hidden,
                self.latent,
                self.draws,
                bounded=self.network == "reference",
                normed=self.epsilon is None,  # BatchNorm would tell one row of the others
                sized_for=None if self._memory_sizes() is None else min(n_units, CHOOSING_UNITS),
            ).float()

    def _glow(self, n_units: int) -> Glow:
        steps = LIGHT_STEPS if self.flow_steps == "auto" else self.flow_steps
        first, second = LIGHT_WIDTHS if self.hidden == "auto" else self.hidden
        return Glow(n_units, steps, (first, second))

    def _schedule(self) -> Schedule:
        plan = {field.name: getattr(self, field.name) for field in fields(Schedule)}
        if self.updates == "auto":
            plan["updates"] = self._auto_updates()
        return Schedule(**plan)

    def _auto_updates(self) -> int:
        if self.epsilon is not None:
            return PRIVATE_UPDATES
        return SCORING_UPDATES if self._memory_sizes() is None else CHOOSING_UPDATES

    def _check_parameters(self) -> None:
        self._schedule()
        check_parameters(self, altbi_rules(self))
