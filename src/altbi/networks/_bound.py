"""The importance weighted bound of a network with BatchNorm, with its gradient written out.

A training here is some hundred updates of a small network on small batches: what autograd keeps
books of takes as long as what it computes. Rows are the last axis.
"""

from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, cast, final

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction, once_differentiable
from torch.linalg import vecdot

_sigmoid_backward = torch.ops.aten.sigmoid_backward.default
_leaky_relu_backward = torch.ops.aten.leaky_relu_backward.default
_clamp_backward = torch.ops.aten.hardtanh_backward.default
_layer_norm_backward = torch.ops.aten.native_layer_norm_backward.default


@final
@dataclass(frozen=True, slots=True)
class Network:
    """An autoencoder whose hidden layers have no biases, but a BatchNorm and a LeakyReLU each.

    Encoder and decoder have as many weights of hidden layers. `latent` and `cells` are heads:
    weights of the mean, weights and biases of the log-variance.
    """

    encoder: list[Tensor]
    latent: list[Tensor]
    decoder: list[Tensor]
    cells: list[Tensor]
    norms: list[nn.BatchNorm1d]
    negative_slope: float
    log_variance_range: tuple[float, float]
    log_weight: float


def bounds(rows: Tensor, noise: Tensor, network: Network) -> Tensor:
    """Return each row its bound in training; `noise` is ``(n_rows, K, latent)``.

    The BatchNorms normalize by the batch, and remember what they saw.
    """
    weights = (*network.encoder, *network.latent, *network.decoder, *network.cells)
    losses: Tensor = _Bounds.apply(rows, noise, network, *weights)  # type: ignore[no-untyped-call]
    return losses


class _Bounds(torch.autograd.Function):
    """Losses of rows; `backward` is given their gradients, and gives those of the weights."""

    @staticmethod
    def forward(
        ctx: BackwardCFunction, rows: Tensor, noise: Tensor, network: Network, *_: Tensor
    ) -> Tensor:
        columns, noise = rows.T.contiguous(), noise.permute(2, 1, 0).contiguous()
        norms, depth = network.norms, len(network.encoder)

        encoded = _layers(columns, network.encoder, norms[:depth], network.negative_slope)
        z_mean, z_log_variance = _heads(encoded[-1].outputs, network.latent, network)
        deviation = (z_log_variance / 2).exp_()
        z = torch.addcmul(z_mean[:, None], deviation[:, None], noise)
        decoded = _layers(z.flatten(1), network.decoder, norms[depth:], network.negative_slope)
        mean, log_variance = _heads(decoded[-1].outputs, network.cells, network)
        _remember(encoded, decoded, norms)

        error = mean.sigmoid_().view(-1, *z.shape[1:]) - columns[:, None]
        scaled = log_variance.neg().exp_().view_as(error).mul_(error)
        evidence = vecdot(noise, noise, dim=0).sub_(vecdot(z, z, dim=0)).add_(z_log_variance.sum(0))
        evidence.sub_(vecdot(error, scaled, dim=0)).div_(2)
        evidence.sub_(log_variance.sum(0).view_as(evidence), alpha=network.log_weight)
        heads = (z_log_variance, mean, log_variance)
        ctx.network = network  # type: ignore[attr-defined]
        weights = torch.softmax(evidence, 0)  # of the Monte Carlo samples
        ctx.save_for_backward(
            noise, deviation, z, error, scaled, weights, *heads, *chain(*encoded, *decoded)
        )
        # The largest summand, over its share in the sum, is the sum.
        return weights.amax(0).mul_(len(weights)).log_().sub_(evidence.amax(0))

    @staticmethod
    @once_differentiable
    def backward(ctx: BackwardCFunction, gradients: Tensor) -> tuple[Tensor | None, ...]:
        network: Network = ctx.network  # type: ignore[attr-defined]
        saved: tuple[Tensor, ...] = ctx.saved_tensors
        noise, deviation, z, error, scaled, weights, z_log_variance, mean, log_variance = saved[:9]
        layers = [_Layer(*values) for values in zip(*[iter(saved[9:])] * 6, strict=True)]
        encoded, decoded = layers[: len(layers) // 2], layers[len(layers) // 2 :]
        weights = weights * gradients

        of_mean = _sigmoid_backward((scaled * weights).view_as(mean), mean)
        of_log_variance = (error * scaled).div_(-2).add_(network.log_weight).mul_(weights)
        of_cells, of_hidden = _heads_back(
            of_mean, of_log_variance, log_variance, decoded[-1].outputs, network.cells, network
        )
        of_decoder, grad_features = _layers_back(of_hidden, decoded, network.negative_slope)

        of_z = torch.mm(network.decoder[0].T, grad_features).view_as(z).addcmul_(z, weights)
        of_deviation = vecdot(of_z, noise, dim=1).mul_(deviation)
        of_z_log_variance = of_deviation.sub_(weights.sum(0)).div_(2)
        of_latent, of_hidden = _heads_back(
            of_z.sum(1),
            of_z_log_variance,
            z_log_variance,
            encoded[-1].outputs,
            network.latent,
            network,
        )
        of_encoder, _ = _layers_back(of_hidden, encoded, network.negative_slope)
        return None, None, None, *of_encoder, *of_latent, *of_decoder, *of_cells


class _Layer(NamedTuple):
    """What went through a hidden layer: features as they came, normalized and through LeakyReLU."""

    inputs: Tensor
    weight: Tensor
    features: Tensor
    mean: Tensor
    rate: Tensor  # one over the deviation of each unit
    outputs: Tensor


def _layers(
    inputs: Tensor, weights: list[Tensor], norms: list[nn.BatchNorm1d], negative_slope: float
) -> list[_Layer]:
    layers = []
    for weight, norm in zip(weights, norms, strict=True):
        features = torch.mm(weight, inputs)
        # With the rows last, BatchNorm is LayerNorm.
        normed, mean, rate = torch.native_layer_norm(
            features, features.shape[1:], None, None, norm.eps
        )
        outputs = nn.functional.leaky_relu_(normed, negative_slope)
        layers.append(_Layer(inputs, weight, features, mean, rate, outputs))
        inputs = outputs
    return layers


def _remember(encoded: list[_Layer], decoded: list[_Layer], norms: list[nn.BatchNorm1d]) -> None:
    """Update the norms remember means and variances, as they do in training."""
    layers = encoded + decoded
    sizes = [len(layer.mean) for layer in layers]
    seen = torch.cat([layer.mean for layer in layers] + [layer.rate for layer in layers])[:, 0]
    seen[sum(sizes) :].pow_(-2).sub_(norms[0].eps)
    means_and_variances = torch.split(seen, sizes * 2)
    for index, layer in enumerate(layers, len(layers)):
        means_and_variances[index].mul_(layer.outputs.shape[1] / (layer.outputs.shape[1] - 1))
    known: Any = [norm.running_mean for norm in norms] + [norm.running_var for norm in norms]
    counts: Any = [norm.num_batches_tracked for norm in norms]
    torch._foreach_lerp_(known, means_and_variances, cast("float", norms[0].momentum))
    torch._foreach_add_(counts, 1)


def _layers_back(
    gradients: Tensor, layers: list[_Layer], negative_slope: float
) -> tuple[list[Tensor], Tensor]:
    """Return the gradients of the weights, and the gradients of the features of the first layer."""
    found: list[Tensor] = []
    for index, layer in reversed(list(enumerate(layers))):
        gradients = _leaky_relu_backward(gradients, layer.outputs, negative_slope, True)
        gradients, *_ = _layer_norm_backward(
            gradients,
            layer.features,
            layer.features.shape[1:],
            layer.mean,
            layer.rate,
            None,
            None,
            [True, False, False],
        )
        found.append(torch.mm(gradients, layer.inputs.T))
        if index:
            gradients = torch.mm(layer.weight.T, gradients)
    return found[::-1], gradients


def _heads(hidden: Tensor, heads: list[Tensor], network: Network) -> tuple[Tensor, Tensor]:
    """Return the mean, and the log-variance within its range."""
    of_mean, of_log_variance, bias = heads
    log_variance = torch.addmm(bias[:, None], of_log_variance, hidden)
    return torch.mm(of_mean, hidden), log_variance.clamp_(*network.log_variance_range)


def _heads_back(
    of_mean: Tensor,
    of_log_variance: Tensor,
    log_variance: Tensor,
    hidden: Tensor,
    heads: list[Tensor],
    network: Network,
) -> tuple[list[Tensor], Tensor]:
    """Return the gradients of the heads, and the gradients of what they read."""
    # At an end of the range nothing moves.
    of_log_variance = _clamp_backward(
        of_log_variance.view_as(log_variance), log_variance, *network.log_variance_range
    )
    of_hidden = torch.addmm(torch.mm(heads[0].T, of_mean), heads[1].T, of_log_variance)
    of_weights = [torch.mm(of_mean, hidden.T), torch.mm(of_log_variance, hidden.T)]
    return [*of_weights, of_log_variance.sum(1)], of_hidden
