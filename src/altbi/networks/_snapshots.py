"""Snapshots of any model as one scorer: the general way, for models without one of their own."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from altbi.networks._interfaces import LossContributions

__all__ = ["N_LANDMARKS", "WORST_LOSS", "Landmarks", "Snapshots", "select_landmarks"]

# Gauss-Legendre nodes on the path from the neutral row, at 0, to the row itself, at 1.
_NODES = np.polynomial.legendre.leggauss(8)
_PLACES = torch.tensor((_NODES[0] + 1) / 2, dtype=torch.float32)
_WEIGHTS = torch.tensor(_NODES[1] / 2, dtype=torch.float32)
# What counts as the loss where there is no finite one.
WORST_LOSS = 1e30
# Odd: the one in the middle is a median.
N_LANDMARKS = 9
# Snapshots that are asked what they expect, and rows that they are asked about at a time.
_LOOKS = 2
_MOST_COLUMNS = 32
_ROWS_AT_ONCE = 2048


@dataclass(frozen=True, slots=True)
class Landmarks:
    """Values that stand for what is found in each column of the training rows.

    Attributes
    ----------
    values : Tensor of shape (n_landmarks, n_features)
        Of each table column some of its values, from low to high. They are no rows of a table:
        each column was ordered on its own.
    columns : Tensor of shape (n_features,)
        The table column that each feature belongs to; a category has several features.
    """

    values: Tensor
    columns: Tensor

    @property
    def neutral(self) -> Tensor:
        """The value in the middle of each column."""
        return self.values[len(self.values) // 2]


def select_landmarks(rows: NDArray[np.float32], columns: NDArray[np.int64]) -> NDArray[np.float32]:
    """Pick the values of landmarks from training rows: evenly spaced in each column's order."""
    places = np.linspace(0, len(rows) - 1, N_LANDMARKS).round().astype(int)
    values = np.empty((N_LANDMARKS, rows.shape[1]), dtype=np.float32)
    for column in np.unique(columns):
        features = columns == column
        order = np.lexsort(rows[:, features].T[::-1])
        values[:, features] = rows[order[places]][:, features]
    return values


@final
class Snapshots:
    """The snapshots of one model, evaluated one after the other.

    Parameters
    ----------
    model : nn.Module
        Maps rows to losses; its own weights are not used.
    states : mapping of str to Tensor
        The snapshots' state dicts, stacked: each tensor has the snapshots as its first axis.
    landmarks : Landmarks
        What explanations compare a row with.
    """

    def __init__(
        self, model: nn.Module, states: Mapping[str, Tensor], landmarks: Landmarks
    ) -> None:
        self.landmarks = landmarks
        self.n_snapshots = len(next(iter(states.values())))
        self.models = [
            _loaded(model, {name: state[index] for name, state in states.items()})
            for index in range(self.n_snapshots)
        ]
        self.block_rows = 512
        self.close_rows = 16
        self.typical_rows = 64

    def losses(self, columns: Tensor) -> Tensor:
        """Losses ``(n_snapshots, n_rows)`` of rows given as ``(n_features, n_rows)``."""
        with _evaluating():
            rows = columns.T.clone(memory_format=torch.contiguous_format)
            return _finite(torch.stack([model(rows) for model in self.models]))

    def contributions(self, columns: Tensor) -> LossContributions:
        """Take the losses apart by integrated gradients on the way from the neutral row.

        The contributions of a row's cells add up to its loss less that of the neutral row, but for what
        eight points of the way miss; both are in the rest, with all that has no finite slope.
        """
        rows, losses = columns.T.contiguous(), self.losses(columns)
        cells = torch.stack(
            [_integrated_gradients(model, rows, self.landmarks.neutral) for model in self.models]
        ).transpose(1, 2)
        cells = cells.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        return LossContributions(losses=losses, cells=cells, rest=losses - cells.sum(1))

    def expect(self, known: Tensor, cells: Tensor) -> tuple[Tensor, Tensor]:
        """Say which landmark fits best into a column of known rows, and how much better it fits.

        A few snapshots are asked, about the columns that add most to a row's loss; of the others
        nothing else than what stands there is expected.
        """
        some = self.models[:: -(-self.n_snapshots // _LOOKS)]
        with _evaluating():
            expected, distance = _fitting(some, known.T, cells.T, self.landmarks)
        return expected.T[None], distance.T[None]


@contextmanager
def _evaluating() -> Iterator[None]:
    """Keep no graph, but let a model take one that needs slopes for its losses."""
    with torch.inference_mode(mode=False), torch.no_grad():
        yield


def _finite(losses: Tensor) -> Tensor:
    """Of a row that is far away from all others a model may not be able to compute the loss."""
    return losses.nan_to_num(nan=WORST_LOSS).clamp(-WORST_LOSS, WORST_LOSS)


def _loaded(model: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    copy = deepcopy(model)
    copy.load_state_dict(state, assign=True)
    return copy.requires_grad_(requires_grad=False).eval()


def _integrated_gradients(model: nn.Module, rows: Tensor, neutral: Tensor) -> Tensor:
    """Give each cell the mean slope of the loss on the way to it, times the way's length."""
    way = rows - neutral
    points = neutral + _PLACES[:, None, None] * way
    slopes = _gradient(model, points.flatten(0, 1)).view(points.shape)
    return (_WEIGHTS[:, None, None] * slopes).sum(0) * way


def _gradient(model: nn.Module, rows: Tensor) -> Tensor:
    with torch.inference_mode(mode=False), torch.enable_grad():
        rows = rows.clone().requires_grad_()
        loss = model(rows).sum()
        # Some have no slopes: a histogram, for one.
        return torch.autograd.grad(loss, rows)[0] if loss.requires_grad else torch.zeros_like(rows)


def _fitting(
    models: Sequence[nn.Module], known: Tensor, cells: Tensor, landmarks: Landmarks
) -> tuple[Tensor, Tensor]:
    """Try all landmarks in columns of the known rows, and the rows' own cells.

    Off its beaten track a model gains from changes in any column. So what a landmark gains has to
    hold beside neutral cells, too; and beside the row's own, if the cell itself is not odd.
    """
    expected, distance = cells.clone(), torch.zeros_like(known)
    tried = torch.cat([landmarks.values[:, None].expand(-1, *known.shape), cells[None]])
    beside = torch.stack([known, landmarks.neutral.expand_as(known), cells])
    at_once = max(_ROWS_AT_ONCE // (len(beside) * tried[..., 0].numel()), 1)
    for picked in torch.split(_suspects(models[-1], cells, landmarks), at_once):
        changed = landmarks.columns == picked[..., None]
        variants = torch.where(changed[:, None], tried, beside[:, None, None])
        losses = torch.stack([_finite(model(variants.flatten(0, 3))) for model in models])
        losses = losses.mean(0).view(variants.shape[:4])
        gains = (losses[:, :, -1] - losses[:, :, :-1].amin(2)).clamp(min=0)
        is_odd = (changed & (known != cells)).any(-1)
        gain = torch.where(is_odd, gains[:2].amin(0), gains.amin(0))
        found = tried[losses[0, :, :-1].argmin(1), torch.arange(len(known))]
        for change, value, gained in zip(changed, found, gain, strict=True):
            expected = torch.where(change, value, expected)
            distance += (change & (change.cumsum(1) == 1)) * gained[:, None]
    return expected, distance


def _suspects(model: nn.Module, rows: Tensor, landmarks: Landmarks) -> Tensor:
    """Numbers of the columns to look at closely, ``(n_columns, n_rows)``: each row has its own."""
    n_columns = int(landmarks.columns.max()) + 1
    if n_columns <= _MOST_COLUMNS:
        return torch.arange(n_columns)[:, None].expand(-1, len(rows))
    cells = _integrated_gradients(model, rows, landmarks.neutral)
    contributions = rows.new_zeros(len(rows), n_columns)
    contributions.index_add_(
        1, landmarks.columns, cells.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    )
    return contributions.topk(_MOST_COLUMNS).indices.T
