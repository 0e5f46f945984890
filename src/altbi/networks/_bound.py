"""Compute the importance weighted bound of a network with BatchNorm, with a hand-written gradient.

A training run has some hundred updates of a small network on small batches. There, autograd's
bookkeeping takes as long as the arithmetic. Inside this module, rows are the last axis.
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
    """Weights and settings of an autoencoder with BatchNorm and LeakyReLU after each hidden layer.

    Attributes
    ----------
    encoder, decoder : list of Tensor
        Weights of the hidden layers, which have no biases. Both have the same number of layers.
    latent, cells : list of Tensor
        Heads for the latent values z and for the encoded features: the weights of the mean, then
        the weights and the bias of the log-variance.
    norms : list of BatchNorm1d
        BatchNorms of the encoder, then of the decoder.
    negative_slope : float
        Slope of LeakyReLU below 0.
    log_variance_range : tuple of float
        Limits to which log-variances are clamped.
    log_weight : float
        Weight of the log-variance in the decoder's density.
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

        encoded = _apply_layers(columns, network.encoder, norms[:depth], network.negative_slope)
        z_mean, z_log_variance = _apply_heads(encoded[-1].outputs, network.latent, network)
        z_std = (z_log_variance / 2).exp_()
        z = torch.addcmul(z_mean[:, None], z_std[:, None], noise)
        decoded = _apply_layers(
            z.flatten(1), network.decoder, norms[depth:], network.negative_slope
        )
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
        grad_decoder, grad_features = _backpropagate_layers(
            grad_hidden, decoded, network.negative_slope
        )

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
        grad_encoder, _ = _backpropagate_layers(grad_hidden, encoded, network.negative_slope)
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
    inputs: Tensor, weights: list[Tensor], norms: list[nn.BatchNorm1d], negative_slope: float
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
        outputs = nn.functional.leaky_relu_(normed, negative_slope)
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


def _backpropagate_layers(
    gradients: Tensor, layers: list[_Layer], negative_slope: float
) -> tuple[list[Tensor], Tensor]:
    """Return the gradients of the layers' weights, and of the first layer's features.

    `gradients` are those of the last layer's outputs. The features of a layer are its values before
    BatchNorm.
    """
    grad_weights: list[Tensor] = []
    for index, layer in reversed(list(enumerate(layers))):
        gradients = _leaky_relu_backward(gradients, layer.outputs, negative_slope, True)
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
