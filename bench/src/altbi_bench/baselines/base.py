"""What the paper's deep baselines share: standardised rows, epochs, blocks of rows to score."""

import abc
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self, final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from altbi.networks._torch_modes import PrivateRandomState, single_thread, default_modes, single_precision
from altbi.detectors._base import Detector, Scores, resolve_seed
from altbi.model._chunks import score_chunks
from altbi.model._labels import Labels, parse_labels, training_sample
from altbi.detectors._rules import seed_rule
from altbi.encoding import TableEncoder
from altbi.scorers._loss import map_blocks
from altbi.errors import TableWarning, TrainingError
from altbi._parameters import check_parameters, is_count, is_number
from altbi.table import Table
from altbi.model._threshold import Contamination, is_contamination, compute_threshold
from altbi.networks._training import Adam

__all__ = ["Baseline", "Linear", "Network", "Rules", "Trainer", "is_flag"]

Rules = dict[str, tuple[bool, str]]

_MOST_RATE = 1000
_DIVERGED = (
    "Training diverged: the network gives training rows scores that are not finite. "
    "Lower learning_rate."
)


class Network(nn.Module, abc.ABC):
    """What a baseline learns: called on rows ``(n_rows, n_features_encoded)``, it gives outlier scores.

    In evaluation a row's score must be its own: the same in any company, and in every call. All
    that scoring needs is in parameters and buffers.
    """

    # Rows scored at a time; fewer where a row needs much memory.
    block_rows: int = 512

    @abc.abstractmethod
    def forward(self, rows: Tensor) -> Tensor:
        """Give ``(n_rows,)`` scores; high means outlier."""


@final
class Linear(nn.Linear):
    """A linear layer that scores a row the same in every place.

    Where rows stand below each other, some processors' products of few outputs round a row
    otherwise in another place; where they stand side by side, none was seen to.
    """

    def forward(self, rows: Tensor) -> Tensor:
        """Apply the layer; in training as torch does."""
        if self.training or rows.dim() != 2:
            return super().forward(rows)
        columns = self.weight @ rows.T.contiguous()
        return columns.T if self.bias is None else (columns + self.bias[:, None]).T


@final
class Trainer:
    """Adam over shuffled passes through the rows; one call is one epoch.

    PrivateRandomState come from torch's global random state, which a fit has borrowed.

    Parameters
    ----------
    parameters : iterable of Parameter
        What to learn.
    learning_rate, weight_decay, betas
        Adam's; the rate may be changed between epochs.
    batch_size : int
        Rows in a batch. A single row that is left over is left out: it has no spread.
    drop_last : bool
        Whether a smaller batch at the end is left out, unless it is the only one.
    max_norm : float or None
        Longest gradient; a longer one is shorten.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        learning_rate: float,
        batch_size: int,
        weight_decay: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        drop_last: bool = False,
        max_norm: float | None = None,
    ) -> None:
        self.adam = Adam(parameters, learning_rate, weight_decay, betas)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.max_norm = max_norm
        self.epochs = 0

    def epoch(self, rows: Tensor, loss_of: Callable[[Tensor], Tensor]) -> float:
        """Lower the loss of each batch by one step; gives the mean of the losses."""
        losses = [self._step(loss_of(rows[batch])) for batch in self._batches(len(rows))]
        self.epochs += 1
        mean = math.fsum(losses) / len(losses)
        if not math.isfinite(mean):
            raise TrainingError(
                f"Training diverged: the mean loss is {mean} in epoch {self.epochs}. "
                f"Lower learning_rate, which is {self.adam.learning_rate}."
            )
        return mean

    def _batches(self, n_rows: int) -> Iterator[Tensor]:
        size = int(min(self.batch_size, n_rows))
        left_over = n_rows % size
        n_used = n_rows - left_over if self.drop_last or left_over == 1 else n_rows
        return iter(torch.split(torch.randperm(n_rows)[:n_used], size))

    def _step(self, loss: Tensor) -> float:
        for parameter in self.adam.parameters:
            parameter.grad = None
        torch.autograd.backward(loss)
        if self.max_norm is not None:
            nn.utils.clip_grad_norm_(self.adam.parameters, self.max_norm)
        self.adam.step()
        return float(loss.detach())


class Baseline(Detector):
    """A detector that trains a network on standardised rows, whose output is the score.

    Columns are encoded as for `altbi.ALTBI`, then brought to mean 0 and deviation 1 on the rows of
    the fit. What a baseline adds are its parameters with their rules, its network and its training.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    contamination: Contamination
    max_rows: int
    random_state: int | np.random.RandomState | None

    encoder_: TableEncoder
    mean_: NDArray[np.float32]
    scale_: NDArray[np.float32]
    network_: Network
    history_: list[float]

    @abc.abstractmethod
    def _network(self, n_features_encoded: int) -> Network:
        """Build the network, its first weights drawn from torch's global random state."""

    @abc.abstractmethod
    def _training(self, network: Any, rows: Tensor) -> Iterator[float]:  # noqa: ANN401 - its own
        """Train the network in place; yields the loss of each epoch."""

    def _informed_training(
        self,
        network: Any,  # noqa: ANN401 - its own
        rows: Tensor,
        labels: Labels | None,
    ) -> Iterator[float]:
        """Train with what is known of some rows; most baselines have no use for it."""
        return self._training(network, rows)

    def _own_rules(self) -> Rules:
        """Say what is expected of the parameters that other baselines do not have."""
        return {}

    def fit(self, X: Any, y: object = None) -> Self:  # noqa: ANN401 - any table
        """Learn from a table in which nobody has labelled the bad rows; `y` is not used."""
        self._learn(X)
        return self

    @final
    def _learn(
        self,
        X: Any,  # noqa: ANN401
        known_inlier: ArrayLike | None = None,
        known_outlier: ArrayLike | None = None,
    ) -> None:
        check_parameters(self, {**_shared_rules(self), **self._own_rules()})
        if hasattr(self, "offset_"):
            del self.offset_  # not fitted again before the last step
        table = self._checked_for_fit(X)
        labels = parse_labels(known_inlier, known_outlier, X, len(table))
        seed = resolve_seed(self.random_state)
        table, labels = sample_training_rows(table, labels, self.max_rows, seed)
        self._train(table, labels, seed)
        scores, _ = score_chunks(self._score, table, self.encoder_)
        if not np.isfinite(scores).all():
            raise TrainingError(_DIVERGED)
        self.offset_ = -compute_threshold(scores, self.contamination)

    def _train(self, table: Table, labels: Labels | None, seed: int) -> None:
        """Learn the scales, then the network."""
        self.encoder_ = TableEncoder().fit(table)
        units = self.encoder_.transform(table)
        self.mean_ = units.mean(axis=0, dtype=np.float64).astype(np.float32)
        deviation = units.std(axis=0, dtype=np.float64).astype(np.float32)
        self.scale_ = np.where(deviation > 0, deviation, np.float32(1))

        rows = torch.from_numpy((units - self.mean_) / self.scale_)
        # Draws first: while they are lent, no other fit changes what is the process's.
        with single_thread(), default_modes(), PrivateRandomState(seed).active(), single_precision():
            network = self._network(rows.shape[1]).train()
            try:
                self.history_ = list(self._informed_training(network, rows, labels))
            except torch.linalg.LinAlgError as cause:  # type: ignore[attr-defined]
                raise TrainingError(_DIVERGED) from cause
        self.network_ = network.eval().requires_grad_(requires_grad=False)
        for parameter in network.parameters():
            # Adam left a view of one vector, which a copy or a pickle would hold each time.
            parameter.data = parameter.data.clone()

    def _outlier_score(self, table: Table) -> Scores:
        check_is_fitted(self, "offset_")
        scores, drift = score_chunks(self._score, table, self.encoder_)
        for sentence in drift.describe():
            warnings.warn(sentence, TableWarning, stacklevel=3)
        return scores

    def _score(self, table: Table) -> Scores:
        rows = (self.encoder_.transform(table) - self.mean_) / self.scale_

        def block(columns: Tensor) -> Tensor:
            return self.network_(columns.T.contiguous())[None]

        return map_blocks(block, rows, self.network_.block_rows)[0].astype(np.float64)

    def _names(self) -> tuple[str, ...]:
        return self.encoder_.names


def is_flag(value: object) -> bool:
    """Tell whether a value is true or false, Python's or NumPy's."""
    return isinstance(value, bool | np.bool_)


def _shared_rules(baseline: Baseline) -> Rules:
    """Rules for the parameters that all baselines have."""
    rate = baseline.learning_rate
    return {
        "epochs": (is_count(baseline.epochs), "a whole number of at least 1"),
        "batch_size": (is_count(baseline.batch_size, 2), "a whole number of at least 2"),
        "learning_rate": (
            is_number(rate, 0, _MOST_RATE) and rate > 0,
            f"a number above 0, at most {_MOST_RATE:,}",
        ),
        "contamination": (
            is_contamination(baseline.contamination),
            "'auto' or a share in (0, 0.5]",
        ),
        "max_rows": (is_count(baseline.max_rows, 2), "a whole number of at least 2"),
        "random_state": seed_rule(baseline.random_state),
    }
