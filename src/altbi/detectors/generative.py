"""What detectors share that train a generative model and score rows by its snapshots' losses."""

import abc
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from altbi.borrow import Draws, one_thread, plain_torch
from altbi.detectors import model_files
from altbi.detectors.base import Detector, Scores, drawn_seed
from altbi.detectors.chunks import over_chunks
from altbi.detectors.roles import Roles, roles_of, training_sample
from altbi.encode import Surprises, TableEncoder
from altbi.ensemble import Ensemble, over_blocks
from altbi.errors import TableWarning, TrainingError
from altbi.explain import Explanation, Typical, explain_by_memory, explain_rows, typical_of
from altbi.memory import Memory
from altbi.models import (
    IWAE,
    WORST_LOSS,
    Backbone,
    GenerativeModel,
    Landmarks,
    OwnModel,
    Snapshots,
    Stacked,
    StackedIWAE,
    allocate,
    landmarks_of,
)
from altbi.privacy.ledger import Ledger
from altbi.table import Table, Writing
from altbi.threshold import Contamination, outlier_threshold
from altbi.train import Progress

__all__ = ["GenerativeDetector", "stacked_states"]

Ranges = tuple[NDArray[np.float64], NDArray[np.float64]]


class GenerativeDetector(Detector):
    """A detector that trains a generative model and keeps snapshots, whose losses are the score.

    What a detector of its own adds are rules for its parameters, a model, a training that yields
    steps and leaves snapshots, and the ranges of losses.
    """

    backbone: Literal["iwae", "glow"] | Backbone = "iwae"
    contamination: Contamination
    max_rows: int
    random_state: int | np.random.RandomState | None

    n_rows_in_: int
    n_sample_: int
    writing_: Writing
    encoder_: TableEncoder
    snapshots_: dict[str, NDArray[Any]]
    landmarks_: NDArray[np.float32]
    ensemble_: Ensemble
    typical_: Typical
    memory_: Memory | None
    ledger_: Ledger | None
    history_: list[Progress]

    @abc.abstractmethod
    def _check_parameters(self) -> None:
        """Refuse parameters that make no sense."""

    @abc.abstractmethod
    def _blank_model(self, n_units: int) -> GenerativeModel:
        """Give the model before its first step; one of ours has shapes but no memory yet."""

    @abc.abstractmethod
    def _train(
        self, rows: NDArray[np.float32], roles: Roles | None, seed: int
    ) -> Iterator[Progress]:
        """Train the model and keep history and snapshots."""

    @abc.abstractmethod
    def _snapshot_count(self) -> int:
        """Count the snapshots that a whole training leaves."""

    @property
    @abc.abstractmethod
    def planned_steps(self) -> int | None:
        """Steps that `fitting` yields, if that is known beforehand."""

    @abc.abstractmethod
    def _is_whole(self, history: list[Progress]) -> bool:
        """Tell whether a history can be that of a whole training."""

    def _memory_sizes(self) -> tuple[int, int] | None:
        """Count the rows to remember and the neighbours; None where rows are scored by loss."""
        return None

    def _whitens(self) -> bool:
        """Tell whether a fitted detector measures distances after whitening."""
        return False

    @abc.abstractmethod
    def _ranges(self, losses: NDArray[np.float32]) -> Ranges:
        """Say what each snapshot's losses are shifted and divided by."""

    @abc.abstractmethod
    def fitting(self, X: Any) -> Iterator[Progress]:  # noqa: ANN401 - any table
        """Fit step by step: yields after each step; fitted when there are no more."""

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
        if self.memory_ is not None:
            return explain_by_memory(table, self.memory_, self.encoder_)
        return explain_rows(table, self.ensemble_, self.encoder_, self.typical_)

    def examine(self, table: Table) -> tuple[Scores, Surprises]:
        """Score the rows of a table with the columns of the fit; high means outlier.

        Also gives what the table holds that the training sample did not, for those who score a
        table in parts and want to say it once; `anomaly_score` says it in a warning.
        """
        check_is_fitted(self, "offset_")
        return self._scored(table)

    def _scored(self, table: Table) -> tuple[Scores, Surprises]:
        return over_chunks(self._score, table, self.encoder_)

    def _score(self, table: Table) -> Scores:
        if self.memory_ is not None:
            return self.memory_.score(self.encoder_.standardize(table))
        return self.ensemble_.score(self.encoder_.transform(table))

    def _outlier_score(self, table: Table) -> Scores:
        scores, surprises = self.examine(table)
        for sentence in surprises.sentences():
            warnings.warn(sentence, TableWarning, stacklevel=3)
        return scores

    def _names(self) -> tuple[str, ...]:
        return self.encoder_.names

    def _learning(
        self,
        X: Any,  # noqa: ANN401
        known_inlier: ArrayLike | None = None,
        known_outlier: ArrayLike | None = None,
    ) -> Iterator[Progress]:
        """Go the whole way of a fit, one step of the training at a time."""
        table = self._begun(X)
        roles = roles_of(known_inlier, known_outlier, X, len(table))
        seed = drawn_seed(self.random_state)

        sample, roles = training_sample(table, roles, self.max_rows, seed)
        self.n_rows_in_, self.n_sample_ = table.drawn_from or len(table), len(sample)
        self.encoder_ = TableEncoder().fit(sample)
        rows = self.encoder_.transform(sample)
        for doubt in self.encoder_.doubts(rows):
            warnings.warn(doubt, TableWarning, stacklevel=4)

        yield from self._alone(self._train(rows, roles, seed), seed)
        scores = self._calibrate(sample, rows, roles, seed)
        self.offset_ = -self._chosen_threshold(scores)

    def _chosen_threshold(self, scores: Scores) -> float:
        return outlier_threshold(scores, self.contamination)

    def _begun(self, X: Any) -> Table:  # noqa: ANN401
        """Check parameters and table, and forget what was learned before."""
        self._check_parameters()
        for learned in ("offset_", "snapshots_", "landmarks_", "ensemble_", "typical_", "memory_"):
            if hasattr(self, learned):
                delattr(self, learned)  # not fitted again before the last step
        self.ledger_ = None
        table = self._checked_for_fit(X)
        self.writing_ = table.writing
        return table

    def _calibrate(
        self, sample: Table, rows: NDArray[np.float32], roles: Roles | None, seed: int
    ) -> Scores:
        """Learn from the sample what is usual, and give its scores."""
        self.memory_ = None
        scores = self._judge(rows)
        self.typical_ = typical_of(self.ensemble_, self.encoder_, rows)
        return scores

    def _judge(self, rows: NDArray[np.float32]) -> Scores:
        """Make one scorer of the snapshots, and score the rows by their losses."""
        if self.backbone != "iwae":
            self.landmarks_ = landmarks_of(rows, self.encoder_.unit_columns)
        stacked = self._stacked(rows.shape[1])
        losses = over_blocks(stacked.losses, rows, stacked.block_rows)
        if not (np.abs(losses) < WORST_LOSS).all():
            raise TrainingError(
                "After training, the model gives training rows losses that are not finite. "
                "Lower learning_rate, or choose another backbone."
            )
        self.ensemble_ = Ensemble(stacked, *self._ranges(losses))
        return self.ensemble_.combine(losses)

    def _stacked(self, n_units: int) -> Stacked:
        """Make one scorer of the snapshots."""
        with plain_torch(), self._lent(Draws(seed=0)):
            model = self._blank_model(n_units)
            states = {name: torch.from_numpy(state) for name, state in self.snapshots_.items()}
            if isinstance(model, IWAE):
                return StackedIWAE(model, states)
            columns = torch.from_numpy(self.encoder_.unit_columns)
            return Snapshots(model, states, Landmarks(torch.from_numpy(self.landmarks_), columns))

    def _fresh_model(self, n_units: int, generator: torch.Generator) -> GenerativeModel:
        """Give a model that is ready to be trained."""
        model = self._blank_model(n_units)
        if isinstance(model, OwnModel):
            model.to(generator.device)
        else:
            allocate(model, generator.device)
        model.start(generator)
        return model

    def _blank_state(self, n_units: int) -> dict[str, torch.Tensor]:
        """Give names, shapes and types of what a snapshot holds."""
        with plain_torch(), self._lent(Draws(seed=0)):
            return self._blank_model(n_units).state_dict()

    def _lent(self, draws: Draws) -> AbstractContextManager[None]:
        """Keep torch's global random state from a model that draws from it: from the user's own."""
        return nullcontext() if isinstance(self.backbone, str) else draws.lent()

    def _alone(self, steps: Iterator[Progress], seed: int) -> Iterator[Progress]:
        """Take each step on one thread, in plain modes; in between both are the caller's."""
        draws = Draws(seed)
        while True:
            with one_thread(), plain_torch(), self._lent(draws):
                progress = next(steps, None)
            if progress is None:
                return
            yield progress


def stacked_states(states: list[dict[str, torch.Tensor]]) -> dict[str, NDArray[Any]]:
    """Put the snapshots' tensors of one name into one array, snapshots first."""
    return {
        name: torch.stack([state[name] for state in states]).cpu().numpy() for name in states[0]
    }
