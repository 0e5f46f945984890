"""Interfaces of backbones and their networks, and the evaluation of a network's snapshots."""

import abc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from altbi._parameters import is_count, is_number
from altbi.networks._torch_modes import PrivateRandomState, default_modes

# Gauss-Legendre quadrature of integrated gradients: 0 is the baseline row, 1 the explained row.
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(8)
_POSITIONS = torch.tensor((_NODES + 1) / 2, dtype=torch.float32)
_WEIGHTS = torch.tensor(_NODE_WEIGHTS / 2, dtype=torch.float32)
# Replaces losses that are not finite.
WORST_LOSS = 1e30
# Number of quantiles of each column. It is odd, so that the one in the middle is the median.
N_LANDMARKS = 9
# Expected values are computed by about this many snapshots, for at most this many columns of a row.
_N_EXPECTING = 2
_MAX_COLUMNS = 32
# Largest number of changed rows that are evaluated at a time to find expected values.
_MAX_VARIANTS = 2048

# Differs from the seeds of fits, so that `check_trained` finds values that are not in the state.
_UNTRAINED_SEED = 2**63 - 1

# The weights of several snapshots by name; each array has the snapshots as its first axis.
SnapshotArrays = dict[str, NDArray[Any]]
# Far more layers than useful; limits the memory that a hostile model file can request.
MAX_LAYERS = 100


class Backbone(Protocol):
    """Interface of a backbone: parameters from which a network is built and trained."""

    weight_decay: float  # of Adam
    device: str  # on which the network is trained
    # Whether the network is the user's own: its code may use torch's global random state, and a
    # model file holds only its name.
    is_custom: bool

    def validate(self) -> None:
        """Raise a `ParameterError` if a parameter has an invalid value."""
        ...

    def resolve_learning_rate(self, *, private: bool = False) -> float:
        """Return the learning rate of Adam; `private` tells whether there is a privacy budget."""
        ...

    def build(
        self, n_features: int, *, sized_for: int | None = None, batch_norm: bool = True
    ) -> "GenerativeModel":
        """Return an untrained network for rows of `n_features` encoded features.

        Automatic sizes are chosen for `sized_for` features, by default `n_features`.
        ``batch_norm=False`` builds the network without BatchNorm, if it has any.
        """
        ...


def is_positive(value: object) -> bool:
    """Return whether a value is a finite number above 0; other types return False."""
    return is_number(value, 0) and value != 0


def are_layer_sizes(value: object) -> bool:
    """Return whether a value is a tuple or list of 1 to 100 positive integers."""
    if not isinstance(value, tuple | list):
        return False
    return 0 < len(value) <= MAX_LAYERS and all(map(is_count, value))


class GenerativeModel(nn.Module, abc.ABC):
    """A network that maps rows ``(n_rows, n_features)`` to losses ``(n_rows,)``.

    In evaluation mode the loss of a row depends on that row only and is the same in every call.
    """

    @abc.abstractmethod
    def forward(self, rows: Tensor) -> Tensor:
        """Return the loss ``(n_rows,)`` of rows: the negative log-likelihood, or a bound of it."""

    @abc.abstractmethod
    def initialize_weights(self, generator: torch.Generator) -> None:
        """Initialize the allocated weights by a generator, in place.

        The network keeps the generator and takes all later noise from it.
        """

    @abc.abstractmethod
    def resample_noise(self) -> None:
        """Sample the stored noise for scoring again; do nothing if the network has none."""

    def initialize(self, generator: torch.Generator) -> None:
        """Allocate the weights on the generator's device, and initialize them in place."""
        allocate(self, generator.device)
        self.initialize_weights(generator)

    def check_trained(self, rows: Tensor, untrained: "GenerativeModel") -> None:
        """Raise an error if the trained network cannot be scored or saved.

        `untrained` is a second network of the same kind. By default, nothing is checked.
        """

    def stack(
        self, states: Mapping[str, Tensor], landmarks: "Landmarks | None"
    ) -> "StackedSnapshots":
        """Return snapshots of this network as one object; its own weights are not used.

        `states` are stacked state dicts. Raise a `ValueError` if there are no landmarks.
        """
        if landmarks is None:
            raise ValueError("landmarks are missing")
        return SequentialSnapshots(self, states, landmarks)


def allocate(model: nn.Module, device: torch.device) -> None:
    """Replace all weights and buffers of a network by uninitialized ones on a device.

    ``Module.to_empty`` would do the same, but imports sympy first.
    """
    state = {
        name: torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
        for name, tensor in model.state_dict().items()
    }
    model.load_state_dict(state, assign=True)


@dataclass(frozen=True, slots=True)
class LossContributions:
    """Losses of several snapshots, split by encoded feature.

    ``by_feature.sum(1) + remainder == losses`` up to rounding.
    """

    losses: Tensor  # (n_snapshots, n_rows)
    by_feature: Tensor  # contribution of each feature: (n_snapshots, n_features, n_rows)
    remainder: Tensor  # terms that belong to no single feature: (n_snapshots, n_rows)


class StackedSnapshots(Protocol):
    """Several snapshots of one network that are evaluated together; rows are the last axis."""

    n_snapshots: int
    block_rows: int  # rows to evaluate at a time
    explain_block_rows: int  # rows to explain at a time
    n_typical_rows: int  # training rows from which statistics for explanations are computed

    def losses(self, columns: Tensor) -> Tensor:
        """Return losses ``(n_snapshots, n_rows)`` of rows given as ``(n_features, n_rows)``."""
        ...

    def contributions(self, columns: Tensor) -> LossContributions:
        """Return the losses of rows ``(n_features, n_rows)``, split by encoded feature."""
        ...

    def expect(self, context: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Return the values expected in `context`, and the distances of `columns` from them.

        `context` holds the same rows as `columns`, with unusual values replaced by typical ones.
        Both results have the shape ``(n_estimates, n_features, n_rows)``; average them over the
        first axis. The distance is half a squared z-score. The distance of a table column is the
        sum over its encoded features.
        """
        ...


def copy_state(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of a network's weights and buffers, on the same device."""
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def stack_states(states: list[dict[str, Tensor]]) -> SnapshotArrays:
    """Return the state dicts of several snapshots as one NumPy array for each name, on the CPU."""
    return {
        name: torch.stack([state[name] for state in states]).cpu().numpy() for name in states[0]
    }


def build_untrained(
    backbone: Backbone,
    n_features: int,
    *,
    sized_for: int | None = None,
    batch_norm: bool = True,
) -> GenerativeModel:
    """Return an untrained network, independent of the torch modes that the caller has set.

    Networks of this package are on the meta device and need no memory. While the constructor of a
    custom network runs, a private random state replaces torch's global one.
    """
    with default_modes(), PrivateRandomState(_UNTRAINED_SEED).active_if(backbone.is_custom):
        return backbone.build(n_features, sized_for=sized_for, batch_norm=batch_norm)


def stack_snapshots(
    model: GenerativeModel,
    arrays: SnapshotArrays,
    landmarks: NDArray[np.float32] | None,
    feature_columns: NDArray[np.intp],
) -> StackedSnapshots:
    """Return the snapshots of a network as one object that evaluates them together.

    `landmarks` are quantiles ``(n_landmarks, n_features)`` of each table column. Explanations of
    networks other than the IWAE compare a row with them; there, None raises a `ValueError`.
    `feature_columns` is the table column of each encoded feature.
    """
    with default_modes():
        states = {name: torch.from_numpy(array) for name, array in arrays.items()}
        if landmarks is None:
            return model.stack(states, None)
        columns = torch.from_numpy(feature_columns)
        return model.stack(states, Landmarks(torch.from_numpy(landmarks), columns))


@dataclass(frozen=True, slots=True)
class Landmarks:
    """Typical values of each column of the training rows."""

    # Quantiles of each table column in ascending order: (n_landmarks, n_features). Columns are
    # sorted separately, so that a row of `values` is not a row of the table.
    values: Tensor
    # Table column of each encoded feature: (n_features,). A categorical column has several.
    columns: Tensor

    @property
    def medians(self) -> Tensor:
        """Median ``(n_features,)`` of each column."""
        return self.values[len(self.values) // 2]


def select_landmarks(rows: NDArray[np.float32], columns: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return `N_LANDMARKS` equally spaced quantiles of each table column of training rows.

    `columns` is the table column of each encoded feature. The features of one table column are
    sorted lexicographically and stay together. The first landmark is the minimum, and the last one
    is the maximum.
    """
    ranks = np.linspace(0, len(rows) - 1, N_LANDMARKS).round().astype(int)
    values = np.empty((N_LANDMARKS, rows.shape[1]), dtype=np.float32)
    for column in np.unique(columns):
        features = columns == column
        order = np.lexsort(rows[:, features].T[::-1])
        values[:, features] = rows[order[ranks]][:, features]
    return values


@final
class SequentialSnapshots:
    """The snapshots of any network, evaluated one after the other.

    `states` are stacked state dicts: each tensor has the snapshots as its first axis.
    """

    def __init__(
        self, model: nn.Module, states: Mapping[str, Tensor], landmarks: Landmarks
    ) -> None:
        self.landmarks = landmarks
        self.n_snapshots = len(next(iter(states.values())))
        self.models = [
            _load_copy(model, {name: state[index] for name, state in states.items()})
            for index in range(self.n_snapshots)
        ]
        self.block_rows = 512
        self.explain_block_rows = 16
        self.n_typical_rows = 64

    def losses(self, columns: Tensor) -> Tensor:
        """Return losses ``(n_snapshots, n_rows)`` of rows given as ``(n_features, n_rows)``.

        Losses that are NaN or exceed `WORST_LOSS` become `WORST_LOSS`.
        """
        with _no_grad():
            rows = columns.T.clone(memory_format=torch.contiguous_format)
            return _make_finite(torch.stack([model(rows) for model in self.models]))

    def contributions(self, columns: Tensor) -> LossContributions:
        """Return the losses split by integrated gradients along the path from the medians.

        The remainder is the loss of the medians, the error of the quadrature, and all gradients
        that are not finite.
        """
        rows, losses = columns.T.contiguous(), self.losses(columns)
        by_feature = torch.stack(
            [_integrate_gradients(model, rows, self.landmarks.medians) for model in self.models]
        ).transpose(1, 2)
        by_feature = by_feature.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        return LossContributions(losses, by_feature, losses - by_feature.sum(1))

    def expect(self, context: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best landmark for each column of a context, and the loss it saves.

        Only the columns that add most to a row's loss are examined, at most 32. In the other
        columns the expected value is the row's own, and the loss saved is 0. About two of the
        snapshots are used. Both results have the shape ``(1, n_features, n_rows)``.
        """
        models = self.models[:: -(-self.n_snapshots // _N_EXPECTING)]
        with _no_grad():
            expected, distance = _find_best_landmarks(models, context.T, columns.T, self.landmarks)
        return expected.T[None], distance.T[None]


@contextmanager
def _no_grad() -> Iterator[None]:
    """Disable gradients within a block; unlike in inference mode, the network may enable them."""
    with torch.inference_mode(mode=False), torch.no_grad():
        yield


def _make_finite(losses: Tensor) -> Tensor:
    """Replace NaN by `WORST_LOSS`, and clamp losses to ``[-WORST_LOSS, WORST_LOSS]``.

    The loss of an extreme row may overflow.
    """
    return losses.nan_to_num(nan=WORST_LOSS).clamp(-WORST_LOSS, WORST_LOSS)


def _load_copy(model: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    """Return a copy of a network with the given state, in evaluation mode and without gradients."""
    copy = deepcopy(model)
    copy.load_state_dict(state, assign=True)
    return copy.requires_grad_(requires_grad=False).eval()


def _integrate_gradients(model: nn.Module, rows: Tensor, baseline: Tensor) -> Tensor:
    """Compute integrated gradients ``(n_rows, n_features)`` of the loss from a baseline row.

    The method is that of Sundararajan et al. (2017), with quadrature at 8 points.
    """
    difference = rows - baseline
    points = baseline + _POSITIONS[:, None, None] * difference
    gradients = _compute_gradient(model, points.flatten(0, 1)).view(points.shape)
    return (_WEIGHTS[:, None, None] * gradients).sum(0) * difference


def _compute_gradient(model: nn.Module, rows: Tensor) -> Tensor:
    """Compute the gradient of the losses with respect to the rows, of the same shape.

    It is 0 for networks that are not differentiable.
    """
    with torch.inference_mode(mode=False), torch.enable_grad():
        rows = rows.clone().requires_grad_()
        loss = model(rows).sum()
        return torch.autograd.grad(loss, rows)[0] if loss.requires_grad else torch.zeros_like(rows)


def _find_best_landmarks(
    models: Sequence[nn.Module], context: Tensor, rows: Tensor, landmarks: Landmarks
) -> tuple[Tensor, Tensor]:
    """Return the landmark with the smallest loss in each column, and by how much it is smaller.

    Losses are averaged over the models. The decrease is never negative and is stored in the first
    encoded feature of a column. Outside the training data, changes of any column may lower the
    loss. The decrease must therefore also hold if all other columns have their median. If the row's
    value is not replaced in the context, it must hold in the row itself as well. The smallest of
    these decreases is returned.
    """
    expected, distance = rows.clone(), torch.zeros_like(context)
    tried = torch.cat([landmarks.values[:, None].expand(-1, *context.shape), rows[None]])
    contexts = torch.stack([context, landmarks.medians.expand_as(context), rows])
    at_once = max(_MAX_VARIANTS // (len(contexts) * tried[..., 0].numel()), 1)
    for columns in torch.split(_select_columns(models[-1], rows, landmarks), at_once):
        is_changed = landmarks.columns == columns[..., None]
        variants = torch.where(is_changed[:, None], tried, contexts[:, None, None])
        losses = torch.stack([_make_finite(model(variants.flatten(0, 3))) for model in models])
        losses = losses.mean(0).view(variants.shape[:4])
        decreases = (losses[:, :, -1] - losses[:, :, :-1].amin(2)).clamp(min=0)
        is_replaced = (is_changed & (context != rows)).any(-1)
        decrease = torch.where(is_replaced, decreases[:2].amin(0), decreases.amin(0))
        best = tried[losses[0, :, :-1].argmin(1), torch.arange(len(context))]
        for mask, value, saved in zip(is_changed, best, decrease, strict=True):
            expected = torch.where(mask, value, expected)
            # The distance of a table column is stored in its first encoded feature.
            distance += (mask & (mask.cumsum(1) == 1)) * saved[:, None]
    return expected, distance


def _select_columns(model: nn.Module, rows: Tensor, landmarks: Landmarks) -> Tensor:
    """Return the columns ``(n_columns, n_rows)`` that contribute most to each row's loss.

    At most 32 columns of each row are returned. If the table has no more, all of them are returned
    in their order.
    """
    n_columns = int(landmarks.columns.max()) + 1
    if n_columns <= _MAX_COLUMNS:
        return torch.arange(n_columns)[:, None].expand(-1, len(rows))
    by_feature = _integrate_gradients(model, rows, landmarks.medians)
    by_column = rows.new_zeros(len(rows), n_columns)
    by_column.index_add_(
        1, landmarks.columns, by_feature.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    )
    return by_column.topk(_MAX_COLUMNS).indices.T
