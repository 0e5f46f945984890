"""Several snapshots of an IWAENetwork in one pass: BatchNorm folded in, weights stacked, rows last."""

import math
from collections.abc import Mapping
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from altbi.networks._interfaces import LossContributions
from altbi.networks._iwae import IWAENetwork, gaussian_terms, importance_weighted

__all__ = ["StackedIWAE"]

_CELLS_PER_BLOCK = 1 << 20
_ALL = slice(None)
_Layer = tuple[Tensor, Tensor]  # weights and biases, snapshots first


@final
class StackedIWAE:
    """The snapshots of one IWAENetwork, evaluated together.

    Parameters
    ----------
    model : IWAENetwork
        Gives the architecture; its own weights are not used.
    states : mapping of str to Tensor
        The snapshots' state dicts, stacked: each tensor has the snapshots as its first axis.
    """

    def __init__(self, model: IWAENetwork, states: Mapping[str, Tensor]) -> None:
        self.n_snapshots = len(states["scoring_noise"])
        self.n_samples = states["scoring_noise"].transpose(1, 2)[..., None].contiguous()
        self.negative_slope = 0.01 if model.bounded else 0.0
        self.bounded = model.bounded
        self.log_weight = model.log_weight
        self.log_variance_range = model.log_variance_range
        self.encoder = _folded(model.encoder, states, "encoder")
        self.decoder = _folded(model.decoder, states, "decoder")
        self.latent = _heads(states, "latent_mean", "latent_log_variance")
        self.cells = _heads(states, "mean", "log_variance")
        self.block_rows = self.close_rows = _block_rows(self)
        self.groups = _groups(self)
        self.typical_rows = 10_000

    def losses(self, columns: Tensor) -> Tensor:
        """Losses ``(n_snapshots, n_rows)`` of rows given as ``(n_features, n_rows)``."""
        return torch.cat([self._some_losses(columns, some) for some in self.groups])

    def _some_losses(self, columns: Tensor, some: slice) -> Tensor:
        """Losses of some snapshots: as `gaussian_terms` has them, but in place."""
        mean, log_variance, divergence = self._decoded(columns, some)
        logs = self.log_weight * log_variance
        squares = torch.sub(columns[:, None], mean, out=mean).square_()
        cells = squares.mul_(log_variance.neg_().exp_()).div_(2).add_(logs)
        return importance_weighted(cells.sum(1).add_(divergence), dim=1)

    def contributions(self, columns: Tensor) -> LossContributions:
        """Take the losses apart.

        With the weights ``w_k`` of the n_samples in the bound, a loss is
        ``sum_k w_k (cells_k + divergence_k + log w_k) + log K``: the first term splits into cells,
        the others belong to no cell.
        """
        decoded = self._decoded(columns)
        cells = self._cells(columns, decoded)
        losses = cells.sum(1) + decoded.divergence
        log_weights = torch.log_softmax(-losses, dim=1)
        weights = log_weights.exp()
        rest = (weights * (decoded.divergence + log_weights)).sum(1) + math.log(losses.shape[1])
        return LossContributions(
            losses=importance_weighted(losses, dim=1),
            cells=(weights[:, None] * cells).sum(2),
            rest=rest,
        )

    def expect(self, known: Tensor, cells: Tensor) -> tuple[Tensor, Tensor]:
        """Say what belongs into the cells of known rows, and how far other cells are from it."""
        decoded = self._decoded(known)
        losses = self._cells(known, decoded).sum(1) + decoded.divergence
        weights = torch.softmax(-losses, dim=1)[:, None]
        distance = gaussian_terms(cells[:, None], decoded.mean, decoded.log_variance, log_weight=0)
        return (weights * decoded.mean).sum(2), (weights * distance).sum(2)

    def _cells(self, columns: Tensor, decoded: "_Decoded") -> Tensor:
        """Terms ``(S, d, K, n)`` of the cells in the loss of each draw."""
        return gaussian_terms(columns[:, None], decoded.mean, decoded.log_variance, self.log_weight)

    def _decoded(self, columns: Tensor, some: slice = _ALL) -> "_Decoded":
        hidden = self._hidden(self.encoder, columns, some)
        z_mean, z_log_variance = self._gaussian(self.latent, hidden, some)
        deviation, n_samples = (z_log_variance / 2).exp(), self.n_samples[some]
        z = z_mean[:, :, None] + deviation[:, :, None] * n_samples

        hidden = self._hidden(self.decoder, z.flatten(2), some)
        mean, log_variance = (
            half.view(*half.shape[:2], *z.shape[2:])
            for half in self._gaussian(self.cells, hidden, some)
        )
        if self.bounded:
            mean.sigmoid_()
        divergence = (z.square() - n_samples.square() - z_log_variance[:, :, None]).sum(1) / 2
        return _Decoded(mean, log_variance, divergence)

    def _hidden(self, layers: list[_Layer], columns: Tensor, some: slice) -> Tensor:
        for layer in layers:
            columns = nn.functional.leaky_relu_(_linear(columns, layer, some), self.negative_slope)
        return columns

    def _gaussian(self, heads: _Layer, hidden: Tensor, some: slice) -> tuple[Tensor, Tensor]:
        mean, log_variance = _linear(hidden, heads, some).chunk(2, dim=1)
        return mean, log_variance.clamp_(*self.log_variance_range)


class _Decoded(NamedTuple):
    """What n_samples of z say: mean and log-variance ``(S, d, K, n)``, divergence ``(S, K, n)``."""

    mean: Tensor
    log_variance: Tensor
    divergence: Tensor


def _linear(columns: Tensor, layer: _Layer, some: slice) -> Tensor:
    """Apply some snapshots' linear layers; rows shared by all snapshots need one plain product."""
    weight, bias = (array[some] for array in layer)
    if columns.ndim == 2:
        return (weight.flatten(0, 1) @ columns).view(*weight.shape[:2], -1).add_(bias)
    return torch.bmm(weight, columns).add_(bias)


def _folded(layers: nn.Sequential, states: Mapping[str, Tensor], prefix: str) -> list[_Layer]:
    """Weights and biases of the hidden layers, with the BatchNorm after them folded in."""
    folded = []
    for index, layer in enumerate(layers):
        name = f"{prefix}.{index}"
        if isinstance(layer, nn.Linear):
            weight = states[f"{name}.weight"]
            bias = states.get(f"{name}.bias", weight.new_zeros(weight.shape[:2]))
            folded.append((weight.contiguous(), bias[..., None].contiguous()))
        elif isinstance(layer, nn.BatchNorm1d):
            weight, bias = folded.pop()
            scale = (states[f"{name}.running_var"] + layer.eps).rsqrt()[..., None]
            shift = bias - states[f"{name}.running_mean"][..., None]
            folded.append((weight * scale, shift * scale))
    return folded


def _heads(states: Mapping[str, Tensor], *names: str) -> _Layer:
    """Two linear heads as one product."""
    weights = [states[f"{name}.weight"] for name in names]
    biases = [
        states.get(f"{name}.bias", weight.new_zeros(weight.shape[:2]))
        for name, weight in zip(names, weights, strict=True)
    ]
    return torch.cat(weights, 1).contiguous(), torch.cat(biases, 1)[..., None].contiguous()


def _cells_per_row(stacked: StackedIWAE) -> int:
    """Count the activations of the widest layer that a row has in one snapshot."""
    widest = max(
        *(weight.shape[1] for weight, _ in stacked.encoder + stacked.decoder),
        stacked.cells[0].shape[1] // 2,
    )
    return stacked.n_samples.shape[2] * widest


def _block_rows(stacked: StackedIWAE) -> int:
    """Rows of a block: few enough that a layer's activations stay near the cache."""
    per_row = stacked.n_snapshots * _cells_per_row(stacked)
    return min(max(_CELLS_PER_BLOCK // per_row // 64 * 64, 64), 384)


def _groups(stacked: StackedIWAE) -> list[slice]:
    """Snapshots to be evaluated together: again so few that they stay near the cache."""
    per_snapshot = stacked.block_rows * _cells_per_row(stacked)
    size = max(_CELLS_PER_BLOCK // per_snapshot, 1)
    return [slice(start, start + size) for start in range(0, stacked.n_snapshots, size)]
