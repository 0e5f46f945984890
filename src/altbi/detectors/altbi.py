"""ALTBI: a generative model learns the common rows first; what it has not learned is odd."""

import secrets
import warnings
from collections.abc import Iterator
from dataclasses import fields
from os import PathLike
from typing import Any, Literal, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from altbi.borrow import one_thread, plain_torch
from altbi.detectors import model_files
from altbi.detectors.base import Detector, Scores
from altbi.detectors.rules import check_rules
from altbi.encode import Surprises, TableEncoder
from altbi.ensemble import Ensemble, loss_ranges, over_blocks
from altbi.errors import TableWarning
from altbi.explain import Explanation, explain_rows, typical_of
from altbi.models import IWAE, StackedIWAE, reference_sizes
from altbi.schedule import Schedule
from altbi.table import Table, sample_rows
from altbi.threshold import Contamination, outlier_threshold
from altbi.train import Progress, train

__all__ = ["ALTBI"]

# Cells and rows encoded and scored at a time: memory does not grow with the table.
_CHUNK_CELLS = 1 << 22
_CHUNK_ROWS = 1 << 16


@final
class ALTBI(Detector):
    """Outlier detection by briefly training a generative model with the worst losses left out.

    A generative model learns the common rows of a table before the odd ones. ALTBI, Adaptive Loss
    Truncation with Batch Increment, makes this effect stronger: after a short warm-up the batch
    grows from step to step and the largest losses of each batch are left out. A row's score is its
    loss, averaged over snapshots of the model from the last steps.

    The model is an importance weighted autoencoder (`altbi.models.IWAE`). The plain constructor
    equals `ALTBI.reference`, what the authors' code does; `ALTBI.paper` is the algorithm as
    printed. Tables may hold numbers, booleans, text categories, dates and missing cells.

    Parameters
    ----------
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
    updates : int, default=5
        Updates of the model in each step.
    first_truncated : int, default=2
        Step, counted after the warm-up, from which losses are left out.
    draws : int, default=2
        K, the draws of the importance weighted bound; 1 makes the model a plain VAE.
    hidden : tuple of int or "auto", default='auto'
        Widths of the encoder's hidden layers; "auto" chooses by the number of features.
    latent : int or "auto", default='auto'
        Size of the latent space; "auto" chooses by the number of features.
    network : {"reference", "paper"}, default='reference'
        "reference": BatchNorm without scale and shift, LeakyReLU, sigmoid mean, log-variances in
        [-6, 2], and a log-variance term without the factor 1/2 of a Gaussian. "paper": ReLU, no
        BatchNorm, a true Gaussian decoder with learned log-variance.
    average : {"scaled", "plain"}, default='scaled'
        "scaled": each snapshot's losses are shifted and divided by their range on the training
        sample before they are averaged. "plain": the mean of the losses.
    learning_rate : float, default=0.001
        Learning rate of Adam.
    weight_decay : float, default=5e-07
        Weight decay of Adam.
    contamination : float in (0, 0.5] or "auto", default='auto'
        Share of outliers that sets the threshold; "auto" estimates it from the scores.
    max_rows : int, default=200000
        Rows in the training sample, drawn uniformly from larger tables.
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
    snapshots_ : dict of str to ndarray
        The snapshots' weights, each with the snapshots as its first axis.
    ensemble_ : Ensemble
        The snapshots as one scorer.
    typical_ : Typical
        What is usual in the training sample; explanations are measured against it.
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

    def __init__(
        self,
        *,
        n0: int = 128,
        gamma: float = 1.03,
        rho: float = 0.92,
        T0: int = 10,
        T1: int = 61,
        T2: int = 80,
        updates: int = 5,
        first_truncated: int = 2,
        draws: int = 2,
        hidden: tuple[int, ...] | Literal["auto"] = "auto",
        latent: int | Literal["auto"] = "auto",
        network: Literal["reference", "paper"] = "reference",
        average: Literal["scaled", "plain"] = "scaled",
        learning_rate: float = 1e-3,
        weight_decay: float = 5e-7,
        contamination: Contamination = "auto",
        max_rows: int = 200_000,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n0 = n0
        self.gamma = gamma
        self.rho = rho
        self.T0 = T0
        self.T1 = T1
        self.T2 = T2
        self.updates = updates
        self.first_truncated = first_truncated
        self.draws = draws
        self.hidden = hidden
        self.latent = latent
        self.network = network
        self.average = average
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.contamination = contamination
        self.max_rows = max_rows
        self.random_state = random_state

    @classmethod
    def paper(cls, **changes: Any) -> Self:  # noqa: ANN401 - the constructor's arguments
        """Follow Algorithm 1 as the paper prints it.

        (n0, gamma, rho, T0, T1, T2) = (128, 1.03, 0.92, 10, 60, 80); updates = 1;
        first_truncated = 1; draws = 2; hidden = (100, 50); latent = 10; network = "paper" (no
        BatchNorm, true Gaussian decoder with learned log-variance); average = "plain" (the mean of
        the 20 snapshots' losses); learning_rate = 1e-3; weight_decay = 0. Columns are min-max
        scaled, as always. The paper gives the widths as "50 to 100" and no latent size: 100-50 and
        10 are this preset's reading.
        """
        preset: dict[str, Any] = {
            "T1": 60,
            "updates": 1,
            "first_truncated": 1,
            "hidden": (100, 50),
            "latent": 10,
            "network": "paper",
            "average": "plain",
            "weight_decay": 0.0,
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
        1e-3; weight_decay = 5e-7. The code's batch limits for single data sets (1,000 rows for
        InternetAds) are left out.
        """
        return cls(**changes)

    def fit(self, X: Any, y: object = None) -> Self:  # noqa: ANN401
        """Learn from a table in which nobody has labelled the bad rows; `y` is not used."""
        for _ in self.fitting(X):
            pass
        return self

    def fitting(self, X: Any) -> Iterator[Progress]:  # noqa: ANN401
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
        self._check_parameters()
        if hasattr(self, "offset_"):
            del self.offset_  # not fitted again before the last step
        table = self._checked_for_fit(X)
        seed = self._draw_seed()

        sample = table
        if len(table) > self.max_rows:
            sample = table.take(sample_rows(len(table), self.max_rows, seed))
        self.n_rows_in_, self.n_sample_ = table.drawn_from or len(table), len(sample)
        self.encoder_ = TableEncoder().fit(sample)
        rows = self.encoder_.transform(sample)
        for doubt in self.encoder_.doubts(rows):
            warnings.warn(doubt, TableWarning, stacklevel=3)

        yield from _alone(self._train(rows, seed))
        scores = self._calibrate(rows)
        self.offset_ = -outlier_threshold(scores, self.contamination)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted detector to a file that holds no code."""
        check_is_fitted(self, "offset_")
        model_files.save(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a detector from a file; a broken or foreign file is refused."""
        return model_files.load(cls, path)

    def explain(self, X: Any) -> Explanation:  # noqa: ANN401
        """Say what each column adds to the rows' scores, and what was expected there."""
        check_is_fitted(self, "offset_")
        table = self._checked(X)
        return explain_rows(table, self.ensemble_, self.encoder_, self.typical_)

    def _names(self) -> tuple[str, ...]:
        return self.encoder_.names

    def examine(self, table: Table) -> tuple[Scores, Surprises]:
        """Score the rows of a table with the columns of the fit; high means outlier.

        Also gives what the table holds that the training sample did not, for those who score a
        table in parts and want to say it once; `anomaly_score` says it in a warning.
        """
        check_is_fitted(self, "offset_")
        scores, surprises = np.empty(len(table)), Surprises()
        for first, chunk in _chunks(table, self.encoder_.width):
            surprises += self.encoder_.surprises(chunk)
            units = self.encoder_.transform(chunk)
            scores[first : first + len(chunk)] = self.ensemble_.score(units)
        return scores, surprises

    def _outlier_score(self, table: Table) -> Scores:
        scores, surprises = self.examine(table)
        for sentence in surprises.sentences():
            warnings.warn(sentence, TableWarning, stacklevel=3)
        return scores

    def _train(self, rows: NDArray[np.float32], seed: int) -> Iterator[Progress]:
        """Run Algorithm 1 and keep the snapshots."""
        self.history_, snapshots = [], []
        schedule = self._schedule()
        generator = torch.Generator().manual_seed(seed)
        model = self._blank_model(rows.shape[1]).to_empty(device="cpu")
        model.start(generator)
        for progress in train(
            model,
            torch.from_numpy(rows),
            schedule,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            generator=generator,
        ):
            self.history_.append(progress)
            if schedule.is_snapshot(progress.step):
                model.redraw()
                snapshots.append({k: v.clone() for k, v in model.state_dict().items()})
            yield progress
        self.snapshots_ = {k: torch.stack([s[k] for s in snapshots]).numpy() for k in snapshots[0]}

    def _calibrate(self, rows: NDArray[np.float32]) -> Scores:
        """Learn from the sample what is usual, and give its scores."""
        stacked = self._stacked(rows.shape[1])
        losses = over_blocks(stacked.losses, rows, stacked.block_rows)
        low, width = np.zeros(len(losses)), np.ones(len(losses))
        if self.average == "scaled":
            low, width = loss_ranges(losses)
        self.ensemble_ = Ensemble(stacked, low, width)
        self.typical_ = typical_of(self.ensemble_, self.encoder_, rows)
        return self.ensemble_.combine(losses)

    def _stacked(self, n_units: int) -> StackedIWAE:
        states = {name: torch.from_numpy(state) for name, state in self.snapshots_.items()}
        return StackedIWAE(self._blank_model(n_units), states)

    def _blank_model(self, n_units: int) -> IWAE:
        """Give the model with shapes but without memory, and without a draw for its weights."""
        hidden, latent = reference_sizes(n_units)
        with torch.device("meta"):
            return IWAE(
                n_units,
                hidden if self.hidden == "auto" else tuple(self.hidden),
                latent if self.latent == "auto" else self.latent,
                self.draws,
                bounded=self.network == "reference",
            ).float()

    def _schedule(self) -> Schedule:
        return Schedule(**{field.name: getattr(self, field.name) for field in fields(Schedule)})

    def _draw_seed(self) -> int:
        """Give the seed of this fit, without a look at the global random state."""
        if self.random_state is None:
            return secrets.randbits(31)
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(self.random_state.randint(2**31 - 1))

    def _check_parameters(self) -> None:
        self._schedule()
        check_rules(self)


def _alone(steps: Iterator[Progress]) -> Iterator[Progress]:
    """Take each step on one thread, in torch's plain modes; in between both are the caller's."""
    while True:
        with one_thread(), plain_torch():
            progress = next(steps, None)
        if progress is None:
            return
        yield progress


def _chunks(table: Table, n_units: int) -> Iterator[tuple[int, Table]]:
    """Give parts of bounded size, each with the number of its first row."""
    size = min(max(_CHUNK_CELLS // n_units, 1), _CHUNK_ROWS)
    for first in range(0, len(table), size):
        yield first, table.slice(first, min(first + size, len(table)))
