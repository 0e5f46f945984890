"""Base classes of the deep baselines: scaling, training by epochs, scoring by blocks of rows."""

import abc
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self, final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from altbi._parameters import check_parameters, is_count, is_number
from altbi._threads import map_blocks
from altbi.encoding import TableEncoder
from altbi.errors import TrainingError
from altbi.model._fit import resolve_seed, sample_training_rows
from altbi.model._labels import Labels, parse_labels
from altbi.model._settings import RandomState, is_random_state
from altbi.model._threshold import Contamination, compute_threshold, is_contamination
from altbi.table import Table, as_table
from altbi.torch._modes import PrivateRandomState, allow_workers, default_modes, single_thread
from altbi.torch._training import Adam

__all__ = ["Baseline", "Linear", "Network", "Rules", "Trainer", "is_flag"]

Rules = dict[str, tuple[bool, str]]
Scores = NDArray[np.float64]

_MAX_LEARNING_RATE = 1000
_DIVERGED = "Training diverged: the scores of training rows are not finite. Lower learning_rate."


class Network(nn.Module, abc.ABC):
    """The network of a baseline: maps rows ``(n_rows, n_features_encoded)`` to outlier scores.

    In evaluation the score of a row must not depend on the other rows, nor change between calls.
    Everything that scoring needs is in parameters and buffers.
    """

    # Rows scored at a time; fewer if a row needs much memory.
    block_rows: int = 512

    @abc.abstractmethod
    def forward(self, rows: Tensor) -> Tensor:
        """Return ``(n_rows,)`` scores; high means outlier."""


@final
class Linear(nn.Linear):
    """A linear layer whose output for a row does not depend on the row's position.

    On some processors, torch's matrix product of few outputs rounds a row differently at another
    position. The product of the transposed matrices does not, as far as tested.
    """

    def forward(self, rows: Tensor) -> Tensor:
        """Return the outputs; in training those of torch's own layer."""
        if self.training or rows.dim() != 2:
            return super().forward(rows)
        columns = self.weight @ rows.T.contiguous()
        return columns.T if self.bias is None else (columns + self.bias[:, None]).T


@final
class Trainer:
    """Adam on shuffled batches; one call of `epoch` is one pass over the rows.

    The order of the rows comes from torch's global random state, which a fit sets temporarily.

    Parameters
    ----------
    parameters : iterable of Parameter
        Parameters to train.
    learning_rate, weight_decay, betas
        Parameters of Adam. The learning rate may be changed between epochs.
    batch_size : int
        Rows in a batch. A last batch of a single row is left out.
    drop_last : bool
        Whether a smaller last batch is left out, unless it is the only one.
    max_norm : float or None
        Largest norm of a gradient; longer gradients are clipped to it.
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

    def epoch(self, rows: Tensor, compute_loss: Callable[[Tensor], Tensor]) -> float:
        """Update the parameters once for each batch, and return the mean of the losses."""
        losses = [self._step(compute_loss(rows[batch])) for batch in self._batches(len(rows))]
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
        remainder = n_rows % size
        n_used = n_rows - remainder if self.drop_last or remainder == 1 else n_rows
        return iter(torch.split(torch.randperm(n_rows)[:n_used], size))

    def _step(self, loss: Tensor) -> float:
        for parameter in self.adam.parameters:
            parameter.grad = None
        torch.autograd.backward(loss)
        if self.max_norm is not None:
            nn.utils.clip_grad_norm_(self.adam.parameters, self.max_norm)
        self.adam.step()
        return float(loss.detach())


class Baseline(OutlierMixin, BaseEstimator, abc.ABC):
    """A detector that trains a network on standardised rows; its output is the outlier score.

    Columns are encoded as by the detectors of `altbi`, then standardised on the rows of the fit. A
    subclass adds parameters with their rules, a network and its training.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    contamination: Contamination
    max_rows: int
    random_state: RandomState

    encoder_: TableEncoder
    mean_: NDArray[np.float32]
    scale_: NDArray[np.float32]
    network_: Network
    history_: list[float]
    offset_: float

    @abc.abstractmethod
    def _build_network(self, n_features_encoded: int) -> Network:
        """Return the network, with weights sampled from torch's global random state."""

    @abc.abstractmethod
    def _train_network(self, network: Any, rows: Tensor) -> Iterator[float]:  # noqa: ANN401
        """Train the network in place, and yield the loss of each epoch."""

    def _train_with_labels(
        self,
        network: Any,  # noqa: ANN401 - the subclass's own
        rows: Tensor,
        labels: Labels | None,
    ) -> Iterator[float]:
        """Train with labels of some rows; most baselines do not use them."""
        return self._train_network(network, rows)

    def _own_rules(self) -> Rules:
        """Return the rules of the parameters that only this baseline has."""
        return {}

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Fit the detector on an array of numbers, NaN for missing values; `y` is not used."""
        self._fit(X)
        return self

    @final
    def _fit(
        self,
        X: ArrayLike,
        known_inlier: ArrayLike | None = None,
        known_outlier: ArrayLike | None = None,
    ) -> None:
        rules = {**_shared_rules(self), **self._own_rules()}
        check_parameters(type(self).__name__, self.get_params(deep=False), rules)
        if hasattr(self, "offset_"):
            del self.offset_  # an interrupted fit leaves no fitted detector
        table = as_table(self._validate(X, reset=True))
        labels = parse_labels(known_inlier, known_outlier, X, len(table))
        seed = resolve_seed(self.random_state)
        sample, labels = sample_training_rows(table, labels, self.max_rows, seed)
        rows = self._fit_scaling(sample)
        self.network_ = self._fit_network(rows, labels, seed)
        scores = self._score(rows)
        if not np.isfinite(scores).all():
            raise TrainingError(_DIVERGED)
        self.offset_ = -compute_threshold(scores, self.contamination)

    def _fit_scaling(self, sample: Table) -> NDArray[np.float32]:
        """Fit encoder, means and scales; return the standardised rows."""
        self.encoder_ = TableEncoder().fit(sample)
        encoded = self.encoder_.transform(sample)
        self.mean_ = encoded.mean(axis=0, dtype=np.float64).astype(np.float32)
        std = encoded.std(axis=0, dtype=np.float64).astype(np.float32)
        self.scale_ = np.where(std > 0, std, np.float32(1))
        return (encoded - self.mean_) / self.scale_

    def _fit_network(self, array: NDArray[np.float32], labels: Labels | None, seed: int) -> Network:
        """Build and train the network."""
        rows = torch.from_numpy(array)
        # The random state comes first: its lock protects the other global settings.
        with (
            single_thread(),
            default_modes(),
            PrivateRandomState(seed).active(),
            single_precision(),
        ):
            network = self._build_network(rows.shape[1]).train()
            try:
                self.history_ = list(self._train_with_labels(network, rows, labels))
            except torch.linalg.LinAlgError as cause:  # type: ignore[attr-defined]  # no stub
                raise TrainingError(_DIVERGED) from cause
        for parameter in network.parameters():
            # Adam leaves views of one vector, and a pickle would store it with each of them.
            parameter.data = parameter.data.clone()
        return network.eval().requires_grad_(requires_grad=False)

    def outlier_score(self, X: ArrayLike) -> Scores:
        """Return the outlier scores of rows; high means outlier."""
        check_is_fitted(self, "offset_")
        return self._score(self._standardize(X))

    def score_samples(self, X: ArrayLike) -> Scores:
        """Return the scores of rows in scikit-learn's sign; low means outlier."""
        return -self.outlier_score(X)

    def decision_function(self, X: ArrayLike) -> Scores:
        """Return the scores of rows relative to the threshold; below 0 means outlier."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return -1 for outliers and 1 for inliers."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def _standardize(self, X: ArrayLike) -> NDArray[np.float32]:
        """Return the rows of an array as the network needs them."""
        table = as_table(self._validate(X, reset=False), self.encoder_.names)
        return (self.encoder_.transform(table) - self.mean_) / self.scale_

    def _score(self, rows: NDArray[np.float32]) -> Scores:
        """Return the scores of standardised rows."""

        def score_block(columns: NDArray[np.float32]) -> NDArray[np.float32]:
            with single_thread(), default_modes(), torch.inference_mode():
                block = torch.from_numpy(np.ascontiguousarray(columns.T))
                return self.network_(block)[None].numpy()

        with allow_workers():
            scores = map_blocks(score_block, rows, self.network_.block_rows)
        return scores[0].astype(np.float64)

    def _validate(self, X: ArrayLike, *, reset: bool) -> NDArray[np.floating]:
        """Return an array of numbers, checked by scikit-learn's rules."""
        return validate_data(
            self,
            X,
            reset=reset,
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,  # NaN is missing; the encoder reports infinite values
            ensure_min_samples=2 if reset else 1,
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


@contextmanager
def single_precision() -> Iterator[None]:
    """Set float32 as the default data type within a block, and restore the caller's at its end."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def is_flag(value: object) -> bool:
    """Return whether a value is True or False, Python's or NumPy's."""
    return isinstance(value, bool | np.bool_)


def _shared_rules(baseline: Baseline) -> Rules:
    """Return the rules of the parameters that all baselines have."""
    rate = baseline.learning_rate
    return {
        "epochs": (is_count(baseline.epochs), "a whole number of at least 1"),
        "batch_size": (is_count(baseline.batch_size, 2), "a whole number of at least 2"),
        "learning_rate": (
            is_number(rate, 0, _MAX_LEARNING_RATE) and rate > 0,
            f"a number above 0, at most {_MAX_LEARNING_RATE:,}",
        ),
        "contamination": (
            is_contamination(baseline.contamination),
            "'auto' or a share in (0, 0.5]",
        ),
        "max_rows": (is_count(baseline.max_rows, 2), "a whole number of at least 2"),
        "random_state": (
            is_random_state(baseline.random_state),
            "a whole number from 0 to 2**63 - 1, a RandomState or None",
        ),
    }
