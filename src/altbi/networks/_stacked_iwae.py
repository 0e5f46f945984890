"""Evaluate all snapshots of an `IWAENetwork` together, as batched matrix products.

BatchNorm is folded into the weights, and rows are the last axis.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from altbi.networks._interfaces import LossContributions
from altbi.networks._iwae import (
    NEGATIVE_SLOPE,
    IWAENetwork,
    combine_samples,
    compute_gaussian_terms,
)

# Number of activations that fit into the processor's cache.
_BLOCK_ACTIVATIONS = 1 << 20
_ALL = slice(None)
_Layer = tuple[Tensor, Tensor]  # weights and biases, snapshots first


@final
class StackedIWAE:
    """The snapshots of one `IWAENetwork`, evaluated together.

    Shapes are given by S snapshots, d encoded features, K Monte Carlo samples and n rows.

    Parameters
    ----------
    model : IWAENetwork
        Defines the architecture; its own weights are not used.
    states : mapping of str to Tensor
        The snapshots' state dicts, stacked: each tensor has the snapshots as its first axis.
    """

    def __init__(self, model: IWAENetwork, states: Mapping[str, Tensor]) -> None:
        self.n_snapshots = len(states["scoring_noise"])
        self.noise = states["scoring_noise"].transpose(1, 2)[..., None].contiguous()
        self.negative_slope = NEGATIVE_SLOPE if model.bounded else 0.0
        self.bounded = model.bounded
        self.log_weight = model.log_weight
        self.log_variance_range = model.log_variance_range
        self.encoder = _fold_layers(model.encoder, states, "encoder")
        self.decoder = _fold_layers(model.decoder, states, "decoder")
        self.latent = _join_heads(states, "latent_mean", "latent_log_variance")
        self.output = _join_heads(states, "mean", "log_variance")
        self.block_rows = self.explain_block_rows = _choose_block_rows(self)
        self.groups = _group_snapshots(self)
        self.n_typical_rows = 10_000

    def losses(self, columns: Tensor) -> Tensor:
        """Return losses ``(S, n)`` of rows given as ``(d, n)``."""
        return torch.cat([self._compute_losses(columns, group) for group in self.groups])

    def _compute_losses(self, columns: Tensor, group: slice) -> Tensor:
        """Compute the losses ``(n_group, n)`` of a group of snapshots, in place to save memory."""
        mean, log_variance, divergence = self._decode(columns, group)
        logs = self.log_weight * log_variance
        squares = torch.sub(columns[:, None], mean, out=mean).square_()
        terms = squares.mul_(log_variance.neg_().exp_()).div_(2).add_(logs)
        return combine_samples(terms.sum(1).add_(divergence), dim=1)

    def contributions(self, columns: Tensor) -> LossContributions:
        """Return the losses of rows, split by encoded feature.

        With the importance weights ``w_k`` of the Monte Carlo samples, a loss is
        ``sum_k w_k (terms_k + divergence_k + log w_k) + log K``. The first term is a sum over
        features; the others are the remainder.
        """
        decoded = self._decode(columns)
        terms = self._compute_terms(columns, decoded)
        losses = terms.sum(1) + decoded.divergence
        log_weights = torch.log_softmax(-losses, dim=1)
        weights = log_weights.exp()
        remainder = (weights * (decoded.divergence + log_weights)).sum(1)
        return LossContributions(
            losses=combine_samples(losses, dim=1),
            by_feature=(weights[:, None] * terms).sum(2),
            remainder=remainder + math.log(losses.shape[1]),
        )

    def expect(self, context: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Return the values expected in `context`, and the distances of `columns` from them.

        Both have the shape ``(S, d, n)`` and are means over the Monte Carlo samples with their
        importance weights in `context`. A distance is half a squared z-score.
        """
        decoded = self._decode(context)
        losses = self._compute_terms(context, decoded).sum(1) + decoded.divergence
        weights = torch.softmax(-losses, dim=1)[:, None]
        distance = compute_gaussian_terms(
            columns[:, None], decoded.mean, decoded.log_variance, log_weight=0
        )
        return (weights * decoded.mean).sum(2), (weights * distance).sum(2)

    def _compute_terms(self, columns: Tensor, decoded: "_Decoded") -> Tensor:
        """Compute the terms ``(S, d, K, n)`` of the features in the loss of each sample."""
        return compute_gaussian_terms(
            columns[:, None], decoded.mean, decoded.log_variance, self.log_weight
        )

    def _decode(self, columns: Tensor, group: slice = _ALL) -> "_Decoded":
        """Encode and decode rows ``(d, n)`` by a group of snapshots with their stored noise."""
        hidden = self._apply_layers(self.encoder, columns, group)
        z_mean, z_log_variance = self._apply_heads(self.latent, hidden, group)
        z_scale, noise = (z_log_variance / 2).exp(), self.noise[group]
        z = z_mean[:, :, None] + z_scale[:, :, None] * noise

        hidden = self._apply_layers(self.decoder, z.flatten(2), group)
        mean, log_variance = (
            output.view(*output.shape[:2], *z.shape[2:])
            for output in self._apply_heads(self.output, hidden, group)
        )
        if self.bounded:
            mean.sigmoid_()
        divergence = (z.square() - noise.square() - z_log_variance[:, :, None]).sum(1) / 2
        return _Decoded(mean, log_variance, divergence)

    def _apply_layers(self, layers: list[_Layer], columns: Tensor, group: slice) -> Tensor:
        """Apply hidden layers, each followed by LeakyReLU, and return the last activations."""
        for layer in layers:
            columns = nn.functional.leaky_relu_(
                _apply_linear(columns, layer, group), self.negative_slope
            )
        return columns

    def _apply_heads(self, heads: _Layer, hidden: Tensor, group: slice) -> tuple[Tensor, Tensor]:
        """Return the mean, and the log-variance clamped to its range."""
        mean, log_variance = _apply_linear(hidden, heads, group).chunk(2, dim=1)
        return mean, log_variance.clamp_(*self.log_variance_range)


class _Decoded(NamedTuple):
    """Output of the decoder for the Monte Carlo samples.

    Mean and log-variance have the shape ``(S, d, K, n)``. The divergence, ``log q(z | x)`` minus
    ``log p(z)``, has the shape ``(S, K, n)``.
    """

    mean: Tensor
    log_variance: Tensor
    divergence: Tensor


def _apply_linear(columns: Tensor, layer: _Layer, group: slice) -> Tensor:
    """Apply the linear layers of a group of snapshots; return ``(n_group, n_out, n)``.

    `columns` are ``(n_in, n)`` if all snapshots share them, which needs only one matrix product.
    Otherwise they are ``(n_group, n_in, n)``.
    """
    weight, bias = (array[group] for array in layer)
    if columns.ndim == 2:
        return (weight.flatten(0, 1) @ columns).view(*weight.shape[:2], -1).add_(bias)
    return torch.bmm(weight, columns).add_(bias)


def _fold_layers(layers: nn.Sequential, states: Mapping[str, Tensor], prefix: str) -> list[_Layer]:
    """Return weights and biases of the hidden layers, with BatchNorm folded into them.

    `prefix` is the name of the layers in the state dicts. Missing biases count as 0.
    """
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


def _join_heads(states: Mapping[str, Tensor], *names: str) -> _Layer:
    """Return the linear heads of these names as one layer; missing biases count as 0."""
    weights = [states[f"{name}.weight"] for name in names]
    biases = [
        states.get(f"{name}.bias", weight.new_zeros(weight.shape[:2]))
        for name, weight in zip(names, weights, strict=True)
    ]
    return torch.cat(weights, 1).contiguous(), torch.cat(biases, 1)[..., None].contiguous()


def _count_activations(stacked: StackedIWAE) -> int:
    """Return the number of activations of one row in the largest layer of one snapshot."""
    largest = max(
        *(weight.shape[1] for weight, _ in stacked.encoder + stacked.decoder),
        stacked.output[0].shape[1] // 2,
    )
    return stacked.noise.shape[2] * largest


def _choose_block_rows(stacked: StackedIWAE) -> int:
    """Return the number of rows of a block whose activations stay in cache.

    It is a multiple of 64 from 64 to 384, even if the activations of 64 rows do not fit.
    """
    per_row = stacked.n_snapshots * _count_activations(stacked)
    return min(max(_BLOCK_ACTIVATIONS // per_row // 64 * 64, 64), 384)


def _group_snapshots(stacked: StackedIWAE) -> list[slice]:
    """Return slices of snapshots whose activations for one block stay in cache.

    Each slice has at least one snapshot.
    """
    per_snapshot = stacked.block_rows * _count_activations(stacked)
    size = max(_BLOCK_ACTIVATIONS // per_snapshot, 1)
    return [slice(start, start + size) for start in range(0, stacked.n_snapshots, size)]
