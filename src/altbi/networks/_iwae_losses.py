"""Losses of the IWAE: a training batch with its gradient, and all snapshots together.

A training run has some hundred updates of a small network on small batches. There, autograd's
bookkeeping takes as long as the arithmetic, so the gradient is hand-written. For scoring, all
snapshots are evaluated by batched matrix products, with BatchNorm folded into the weights. In both,
rows are the last axis.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, cast, final

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction, once_differentiable
from torch.linalg import vecdot

from altbi.networks._generative_model import LossContributions

if TYPE_CHECKING:
    from altbi.networks._iwae import IWAENetwork

NEGATIVE_SLOPE = 0.01  # of LeakyReLU below 0
# Number of activations that fit into the processor's cache.
_BLOCK_ACTIVATIONS = 1 << 20
_ALL = slice(None)
_Linear = tuple[Tensor, Tensor]  # weights and biases, snapshots first

_sigmoid_backward = torch.ops.aten.sigmoid_backward.default
_leaky_relu_backward = torch.ops.aten.leaky_relu_backward.default
_clamp_backward = torch.ops.aten.hardtanh_backward.default
_layer_norm_backward = torch.ops.aten.native_layer_norm_backward.default


def compute_gaussian_terms(
    x: Tensor, mean: Tensor, log_variance: Tensor, log_weight: float
) -> Tensor:
    """Compute ``log_weight * log_variance + (x - mean)**2 / (2 * variance)`` for each value.

    With ``log_weight=1/2`` this is the negative log-density of a Gaussian without the constant
    ``log(2 * pi) / 2``. The authors' code has ``log_weight=1``.
    """
    return log_weight * log_variance + (x - mean).square() * (-log_variance).exp() / 2


def combine_samples(losses: Tensor, dim: int) -> Tensor:
    """Compute the importance weighted bound from the losses of K Monte Carlo samples.

    It is ``log(K) - logsumexp(-losses)`` over the axis `dim` of the samples.
    """
    return math.log(losses.shape[dim]) - torch.logsumexp(-losses, dim=dim)


@final
@dataclass(frozen=True, slots=True)
class Network:
    """Weights and settings of an autoencoder with BatchNorm and LeakyReLU after each hidden layer.

    Heads are three tensors: the weights of the mean, then weights and bias of the log-variance.
    """

    encoder: list[Tensor]  # weights of the hidden layers, which have no biases
    latent: list[Tensor]  # heads for the latent values z
    decoder: list[Tensor]  # as many hidden layers as in the encoder
    cells: list[Tensor]  # heads for the encoded features
    norms: list[nn.BatchNorm1d]  # of the encoder, then of the decoder
    log_variance_range: tuple[float, float]  # limits to which log-variances are clamped
    log_weight: float  # weight of the log-variance in the decoder's density


def bounds(rows: Tensor, noise: Tensor, network: Network) -> Tensor:
    """Return the training loss ``(n_rows,)`` of each row: the importance weighted bound.

    `noise` has the shape ``(n_rows, K, latent)``. BatchNorm normalizes by the batch, and its
    running statistics are updated. Only the weights get gradients, not `rows` or `noise`.
    """
    weights = (*network.encoder, *network.latent, *network.decoder, *network.cells)
    losses: Tensor = _Bounds.apply(rows, noise, network, *weights)  # type: ignore[no-untyped-call]
    return losses


class _Bounds(torch.autograd.Function):
    """Losses of rows as an autograd function with a hand-written gradient of the weights."""

    @staticmethod
    def forward(
        ctx: BackwardCFunction, rows: Tensor, noise: Tensor, network: Network, *_: Tensor
    ) -> Tensor:
        """Return the losses ``(n_rows,)``; save intermediate values for `backward`.

        The weights are passed once more as the last arguments, so that autograd asks for their
        gradients. The running statistics of BatchNorm are updated.
        """
        columns, noise = rows.T.contiguous(), noise.permute(2, 1, 0).contiguous()
        norms, depth = network.norms, len(network.encoder)

        encoded = _apply_layers(columns, network.encoder, norms[:depth])
        z_mean, z_log_variance = _apply_heads(encoded[-1].outputs, network.latent, network)
        z_std = (z_log_variance / 2).exp_()
        z = torch.addcmul(z_mean[:, None], z_std[:, None], noise)
        decoded = _apply_layers(z.flatten(1), network.decoder, norms[depth:])
        mean, log_variance = _apply_heads(decoded[-1].outputs, network.cells, network)
        _update_running_stats(encoded, decoded, norms)

        error = mean.sigmoid_().view(-1, *z.shape[1:]) - columns[:, None]
        scaled = log_variance.neg().exp_().view_as(error).mul_(error)
        log_ratios = (
            vecdot(noise, noise, dim=0).sub_(vecdot(z, z, dim=0)).add_(z_log_variance.sum(0))
        )
        log_ratios.sub_(vecdot(error, scaled, dim=0)).div_(2)
        log_ratios.sub_(log_variance.sum(0).view_as(log_ratios), alpha=network.log_weight)
        heads = (z_log_variance, mean, log_variance)
        ctx.network = network  # type: ignore[attr-defined]
        weights = torch.softmax(log_ratios, 0)  # importance weights of the Monte Carlo samples
        ctx.save_for_backward(
            noise, z_std, z, error, scaled, weights, *heads, *chain(*encoded, *decoded)
        )
        # With log-ratios r and their softmax w, log(sum(exp(r))) = max(r) - log(max(w)).
        return weights.amax(0).mul_(len(weights)).log_().sub_(log_ratios.amax(0))

    @staticmethod
    @once_differentiable
    def backward(ctx: BackwardCFunction, gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the arguments of `forward`, given those of the losses.

        They are None for rows, noise and network. The gradients of the weights follow.
        """
        network: Network = ctx.network  # type: ignore[attr-defined]
        saved: tuple[Tensor, ...] = ctx.saved_tensors
        noise, z_std, z, error, scaled, weights, z_log_variance, mean, log_variance = saved[:9]
        layers = [_Layer(*values) for values in zip(*[iter(saved[9:])] * 6, strict=True)]
        encoded, decoded = layers[: len(layers) // 2], layers[len(layers) // 2 :]
        weights = weights * gradients

        grad_mean = _sigmoid_backward((scaled * weights).view_as(mean), mean)
        grad_log_variance = (error * scaled).div_(-2).add_(network.log_weight).mul_(weights)
        grad_cells, grad_hidden = _backpropagate_heads(
            grad_mean, grad_log_variance, log_variance, decoded[-1].outputs, network.cells, network
        )
        grad_decoder, grad_features = _backpropagate_layers(grad_hidden, decoded)

        grad_z = torch.mm(network.decoder[0].T, grad_features).view_as(z).addcmul_(z, weights)
        grad_log_std = vecdot(grad_z, noise, dim=1).mul_(z_std)
        grad_z_log_variance = grad_log_std.sub_(weights.sum(0)).div_(2)
        grad_latent, grad_hidden = _backpropagate_heads(
            grad_z.sum(1),
            grad_z_log_variance,
            z_log_variance,
            encoded[-1].outputs,
            network.latent,
            network,
        )
        grad_encoder, _ = _backpropagate_layers(grad_hidden, encoded)
        return None, None, None, *grad_encoder, *grad_latent, *grad_decoder, *grad_cells


class _Layer(NamedTuple):
    """Values of one hidden layer that its gradient needs.

    `features` are the products of `weight` and `inputs`. `mean` and `inverse_std` are their
    BatchNorm statistics, and `outputs` are the values after BatchNorm and LeakyReLU.
    """

    inputs: Tensor
    weight: Tensor
    features: Tensor
    mean: Tensor
    inverse_std: Tensor
    outputs: Tensor


def _apply_layers(
    inputs: Tensor, weights: list[Tensor], norms: list[nn.BatchNorm1d]
) -> list[_Layer]:
    """Apply hidden layers one after the other, and return the values of each.

    BatchNorm normalizes by the batch; the running statistics are not updated here.
    """
    layers = []
    for weight, norm in zip(weights, norms, strict=True):
        features = torch.mm(weight, inputs)
        # Rows are the last axis, so LayerNorm over it computes BatchNorm.
        normed, mean, inverse_std = torch.native_layer_norm(
            features, features.shape[1:], None, None, norm.eps
        )
        outputs = nn.functional.leaky_relu_(normed, NEGATIVE_SLOPE)
        layers.append(_Layer(inputs, weight, features, mean, inverse_std, outputs))
        inputs = outputs
    return layers


def _update_running_stats(
    encoded: list[_Layer], decoded: list[_Layer], norms: list[nn.BatchNorm1d]
) -> None:
    """Update the running means and variances of all BatchNorms, as torch does in training.

    The variances are those of the batch with Bessel's correction. The eps and the momentum of the
    first BatchNorm are used for all.
    """
    layers = encoded + decoded
    sizes = [len(layer.mean) for layer in layers]
    statistics = torch.cat(
        [layer.mean for layer in layers] + [layer.inverse_std for layer in layers]
    )[:, 0]
    statistics[sum(sizes) :].pow_(-2).sub_(norms[0].eps)
    means_and_variances = torch.split(statistics, sizes * 2)
    for index, layer in enumerate(layers, len(layers)):
        means_and_variances[index].mul_(layer.outputs.shape[1] / (layer.outputs.shape[1] - 1))
    running: Any = [norm.running_mean for norm in norms] + [norm.running_var for norm in norms]
    counts: Any = [norm.num_batches_tracked for norm in norms]
    torch._foreach_lerp_(running, means_and_variances, cast("float", norms[0].momentum))
    torch._foreach_add_(counts, 1)


def _backpropagate_layers(gradients: Tensor, layers: list[_Layer]) -> tuple[list[Tensor], Tensor]:
    """Return the gradients of the layers' weights, and of the first layer's features.

    `gradients` are those of the last layer's outputs. The features of a layer are its values before
    BatchNorm.
    """
    grad_weights: list[Tensor] = []
    for index, layer in reversed(list(enumerate(layers))):
        gradients = _leaky_relu_backward(gradients, layer.outputs, NEGATIVE_SLOPE, True)
        gradients, *_ = _layer_norm_backward(
            gradients,
            layer.features,
            layer.features.shape[1:],
            layer.mean,
            layer.inverse_std,
            None,
            None,
            [True, False, False],
        )
        grad_weights.append(torch.mm(gradients, layer.inputs.T))
        if index:
            gradients = torch.mm(layer.weight.T, gradients)
    return grad_weights[::-1], gradients


def _apply_heads(hidden: Tensor, heads: list[Tensor], network: Network) -> tuple[Tensor, Tensor]:
    """Return the mean, and the log-variance clamped to its range."""
    mean_weight, log_variance_weight, bias = heads
    log_variance = torch.addmm(bias[:, None], log_variance_weight, hidden)
    return torch.mm(mean_weight, hidden), log_variance.clamp_(*network.log_variance_range)


def _backpropagate_heads(
    grad_mean: Tensor,
    grad_log_variance: Tensor,
    log_variance: Tensor,
    hidden: Tensor,
    heads: list[Tensor],
    network: Network,
) -> tuple[list[Tensor], Tensor]:
    """Return the gradients of the heads' three weights, and of the hidden layer before them.

    `grad_mean` and `grad_log_variance` are the gradients of the two outputs of `_apply_heads`.
    """
    # The gradient is 0 where the log-variance was clamped.
    grad_log_variance = _clamp_backward(
        grad_log_variance.view_as(log_variance), log_variance, *network.log_variance_range
    )
    grad_hidden = torch.addmm(torch.mm(heads[0].T, grad_mean), heads[1].T, grad_log_variance)
    grad_weights = [torch.mm(grad_mean, hidden.T), torch.mm(grad_log_variance, hidden.T)]
    return [*grad_weights, grad_log_variance.sum(1)], grad_hidden


@final
class StackedIWAE:
    """The snapshots of one `IWAENetwork`, evaluated together.

    Shapes are given by S snapshots, d encoded features, K Monte Carlo samples and n rows. The model
    defines the architecture; its own weights are not used. `states` are stacked state dicts: each
    tensor has the snapshots as its first axis.
    """

    def __init__(self, model: "IWAENetwork", states: Mapping[str, Tensor]) -> None:
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

    def _apply_layers(self, layers: list[_Linear], columns: Tensor, group: slice) -> Tensor:
        """Apply hidden layers, each followed by LeakyReLU, and return the last activations."""
        for layer in layers:
            columns = nn.functional.leaky_relu_(
                _apply_linear(columns, layer, group), self.negative_slope
            )
        return columns

    def _apply_heads(self, heads: _Linear, hidden: Tensor, group: slice) -> tuple[Tensor, Tensor]:
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


def _apply_linear(columns: Tensor, layer: _Linear, group: slice) -> Tensor:
    """Apply the linear layers of a group of snapshots; return ``(n_group, n_out, n)``.

    `columns` are ``(n_in, n)`` if all snapshots share them, which needs only one matrix product.
    Otherwise they are ``(n_group, n_in, n)``.
    """
    weight, bias = (array[group] for array in layer)
    if columns.ndim == 2:
        return (weight.flatten(0, 1) @ columns).view(*weight.shape[:2], -1).add_(bias)
    return torch.bmm(weight, columns).add_(bias)


def _fold_layers(layers: nn.Sequential, states: Mapping[str, Tensor], prefix: str) -> list[_Linear]:
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


def _join_heads(states: Mapping[str, Tensor], *names: str) -> _Linear:
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
