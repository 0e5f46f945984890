"""The evaluation of snapshots of networks written in PyTorch."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from altbi.networks import WORST_LOSS, LossContributions
from altbi.torch._modes import allow_workers, default_modes, single_thread

# Gauss-Legendre quadrature of integrated gradients: 0 is the baseline row, 1 the explained row.
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(8)
_POSITIONS = torch.tensor((_NODES + 1) / 2, dtype=torch.float32)
_WEIGHTS = torch.tensor(_NODE_WEIGHTS / 2, dtype=torch.float32)
# Expected values are computed by about this many snapshots, for at most this many columns of a row.
_N_EXPECTING = 2
_MAX_COLUMNS = 32
# Largest number of changed rows that are evaluated at a time to find expected values.
_MAX_VARIANTS = 2048

Columns = NDArray[np.float32]


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

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Allow worker threads to evaluate rows in the ``with`` block.

        At its end, torch's number of threads is restored.
        """
        with allow_workers():
            yield

    def losses(self, columns: Columns) -> NDArray[np.float32]:
        """Return losses ``(n_snapshots, n_rows)`` of rows given as ``(n_features, n_rows)``.

        Losses that are NaN or exceed `WORST_LOSS` become `WORST_LOSS`.
        """
        with _scoring_modes():
            return self._compute_losses(_to_rows(columns)).numpy()

    def _compute_losses(self, rows: Tensor) -> Tensor:
        """Return the finite losses ``(n_snapshots, n_rows)`` of rows ``(n_rows, n_features)``."""
        with torch.no_grad():
            # Each call gets a copy, because a custom network may change its input.
            return _make_finite(torch.stack([model(rows.clone()) for model in self.models]))

    def contributions(self, columns: Columns) -> LossContributions:
        """Return the losses of rows ``(n_features, n_rows)``, split by encoded feature.

        The contributions are integrated gradients along the path from the medians. The remainder is
        the loss of the medians, the error of the quadrature, and all gradients that are not finite.
        """
        with _scoring_modes():
            rows = _to_rows(columns)
            losses = self._compute_losses(rows)
            by_feature = torch.stack(
                [_integrate_gradients(model, rows, self.landmarks.medians) for model in self.models]
            ).transpose(1, 2)
            by_feature = by_feature.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
            remainder = losses - by_feature.sum(1)
        return LossContributions(losses.numpy(), by_feature.numpy(), remainder.numpy())

    def expect(self, context: Columns, columns: Columns) -> tuple[Columns, Columns]:
        """Return the best landmark for each column of a context, and the loss it saves.

        Only the columns that add most to a row's loss are examined, at most 32. In the other
        columns the expected value is the row's own, and the loss saved is 0. About two of the
        snapshots are used. Both results have the shape ``(1, n_features, n_rows)``.
        """
        models = self.models[:: -(-self.n_snapshots // _N_EXPECTING)]
        with _scoring_modes(), torch.no_grad():
            expected, distance = _find_best_landmarks(
                models, _to_rows(context), _to_rows(columns), self.landmarks
            )
        return expected.T[None].numpy(), distance.T[None].numpy()


@contextmanager
def _scoring_modes() -> Iterator[None]:
    """Set torch's default modes and one thread within a block, so that results are reproducible."""
    with single_thread(), default_modes():
        yield


def _to_rows(columns: Columns) -> Tensor:
    """Return columns ``(n_features, n_rows)`` as a contiguous tensor of rows."""
    return torch.from_numpy(np.ascontiguousarray(columns.T))


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
