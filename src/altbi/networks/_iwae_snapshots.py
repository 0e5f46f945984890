"""All snapshots of an IWAE, evaluated together for scoring and explanations.

BatchNorm is folded into the weights. Each layer has one more input, which is always 1 and carries
the biases, and each hidden layer has one more output that is always 1. The rows of a block are the
last axis. The formulas of the loss are those of `altbi.networks._iwae_network`.

The result of a row has the same bits at each position of a block of `StackedIWAE.block_rows` rows:
the block size is a multiple of `_ROW_UNIT`, so that no row is computed by the edge code of BLAS.
"""

import math
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from altbi.networks._iwae_network import SIGMOID_LIMIT, IWAENetwork
from altbi.networks._layers import NORM_EPS, Buffers
from altbi.networks._snapshots import (
    Floats,
    LossContributions,
    SnapshotArrays,
    compute_gaussian_terms,
    compute_importance_weights,
)

_ROW_UNIT, _MIN_BLOCK_ROWS, _MAX_BLOCK_ROWS = 48, 192, 768
# Number of activations of the largest layer for a block of rows, so that they stay in cache.
_BLOCK_ACTIVATIONS = 1 << 17


class _Scratch(threading.local):
    """Buffers of each thread, which are reused so that they stay in cache."""

    def __init__(self) -> None:
        self.buffers = Buffers(np.dtype(np.float32))


_SCRATCH = _Scratch()


class _Encoded(NamedTuple):
    """Monte Carlo samples of the latent values."""

    z: Floats  # (S, latent + 1, K * n), with 1 as the last feature
    log_ratios: Floats  # log(p(z) / q(z | x)): (S, K, n)


@final
class StackedIWAE:
    """The snapshots of one `IWAENetwork`, evaluated together.

    Shapes are given by S snapshots, d encoded features, K Monte Carlo samples and n rows.

    Parameters
    ----------
    network : IWAENetwork
        Defines the architecture; its own weights are not used.
    arrays : dict of str to ndarray
        The states of the snapshots: each array has the snapshots as its first axis. Other names
        are ignored.
    """

    def __init__(self, network: IWAENetwork, arrays: SnapshotArrays) -> None:
        self.n_snapshots = len(arrays["scoring_noise"])
        self.n_features, self.n_samples = network.n_features, network.n_samples
        self.latent_size = network.latent
        self.bounded = network.bounded
        self.negative_scale = network.negative_scale
        self.log_weight = network.log_weight
        self.log_variance_range = network.log_variance_range
        noise = arrays["scoring_noise"].astype(np.float32).transpose(0, 2, 1)
        self.noise = np.ascontiguousarray(noise)[..., None]
        self.encoder = list(_fold_layers(arrays, "encoder", len(network.hidden)))
        self.decoder = list(_fold_layers(arrays, "decoder", len(network.hidden)))
        self.latent = _join_heads(arrays, "latent_", 1)
        # The decoder's outputs are -s and, as arguments of the sigmoid, -mu.
        self.output = _join_heads(arrays, "", -1 if self.bounded else 1, -1)
        self.coefficients = np.repeat([0.5, -self.log_weight], self.n_features).astype(np.float32)
        self.block_rows = self._choose_block_rows(_MIN_BLOCK_ROWS)
        # Explanations keep all snapshots' values of a block.
        self.explain_block_rows = self._choose_block_rows(_ROW_UNIT)
        self.n_typical_rows = 10_000

    def evaluating(self) -> AbstractContextManager[object]:
        """Return a context that does nothing: all methods may be called from several threads."""
        return nullcontext()

    def losses(self, columns: Floats) -> Floats:
        """Return losses ``(S, n)`` of rows given as ``(d, n)``."""
        with np.errstate(over="ignore", invalid="ignore"):
            encoded = self._encode(columns)
            losses = -encoded.log_ratios
            for index in range(self.n_snapshots):
                losses[index] += self._reconstruct(index, encoded, columns)
            return compute_importance_weights(losses)[0]

    def contributions(self, columns: Floats) -> LossContributions:
        """Return the losses of rows, split by encoded feature.

        With the importance weights ``w_k`` of the Monte Carlo samples, a loss is
        ``sum_k w_k (terms_k - log_ratio_k + log w_k) + log K``. The first term is a sum over
        features; the others are the remainder.
        """
        n_rows = columns.shape[1]
        split = LossContributions(
            np.empty((self.n_snapshots, n_rows), np.float32),
            np.empty((self.n_snapshots, *columns.shape), np.float32),
            np.empty((self.n_snapshots, n_rows), np.float32),
        )
        with np.errstate(over="ignore", invalid="ignore"):
            encoded = self._encode(columns)
            for index, log_ratios in enumerate(encoded.log_ratios):
                terms = self._compute_terms(columns, *self._decode(index, encoded))
                bound, log_weights = compute_importance_weights(terms.sum(0) - log_ratios)
                weights = np.exp(log_weights)
                split.losses[index] = bound
                split.by_feature[index] = (weights * terms).sum(1)
                remainder = (weights * (log_weights - log_ratios)).sum(0)
                split.remainder[index] = remainder + math.log(self.n_samples)
        return split

    def expect(self, context: Floats, columns: Floats) -> tuple[Floats, Floats]:
        """Return the values expected in `context`, and the distances of `columns` from them.

        Both have the shape ``(S, d, n)`` and are means over the Monte Carlo samples with their
        importance weights in `context`. A distance is half a squared z-score.
        """
        expected = np.empty((self.n_snapshots, *columns.shape), np.float32)
        distance = np.empty_like(expected)
        with np.errstate(over="ignore", invalid="ignore"):
            encoded = self._encode(context)
            for index, log_ratios in enumerate(encoded.log_ratios):
                mean, log_variance = self._decode(index, encoded)
                losses = self._compute_terms(context, mean, log_variance).sum(0) - log_ratios
                weights = np.exp(compute_importance_weights(losses)[1])
                distances = compute_gaussian_terms(columns[:, None], mean, log_variance, 0)
                expected[index] = (weights * mean).sum(1)
                distance[index] = (weights * distances).sum(1)
        return expected, distance

    def _choose_block_rows(self, smallest: int) -> int:
        """Return the number of rows of a block whose activations stay in cache.

        It is a multiple of `_ROW_UNIT` of at least `smallest`, even if that many do not fit.
        """
        largest = max(self.output.shape[1], *(len(weight[0]) for weight in self.decoder))
        n_rows = _BLOCK_ACTIVATIONS // (largest * self.n_samples) // _ROW_UNIT * _ROW_UNIT
        return min(max(n_rows, smallest), _MAX_BLOCK_ROWS)

    def _encode(self, columns: Floats) -> _Encoded:
        """Sample z of rows ``(d, n)`` by all snapshots with their stored noise."""
        buffers, (d, n_rows) = _SCRATCH.buffers, columns.shape
        inputs = buffers.get("columns", d + 1, n_rows)
        inputs[:d], inputs[d] = columns, 1
        # The snapshots share the rows, so that their first layers are one matrix product.
        shape = (self.n_snapshots, self.encoder[0].shape[1], n_rows)
        hidden = buffers.get("encoder.0", *shape)
        weight = self.encoder[0].reshape(-1, d + 1)
        np.dot(weight, inputs, out=hidden.reshape(-1, n_rows))
        self._activate(hidden)
        for index, weight in enumerate(self.encoder[1:], 1):
            outputs = buffers.get(f"encoder.{index}", *weight.shape[:2], n_rows)
            hidden = self._activate(np.matmul(weight, hidden, out=outputs))
        return self._sample(np.matmul(self.latent, hidden))

    def _sample(self, heads: Floats) -> _Encoded:
        """Sample z, given its mean and log-variance ``(S, 2 * latent, n)`` in one array."""
        size, n_rows = self.latent_size, heads.shape[2]
        shape = (self.n_snapshots, size + 1, self.n_samples, n_rows)
        mean, log_variance = heads[:, :size], heads[:, size:].clip(*self.log_variance_range)
        std = np.exp(log_variance / 2)
        z = _SCRATCH.buffers.get("z", *shape)
        np.multiply(std[:, :, None], self.noise, out=z[:, :size])
        z[:, :size] += mean[:, :, None]
        z[:, size] = 1
        log_ratios = np.square(self.noise).sum(1) - np.square(z[:, :size]).sum(1)
        log_ratios += log_variance.sum(1)[:, None]
        log_ratios *= 0.5
        return _Encoded(z.reshape(*shape[:2], -1), log_ratios)

    def _apply_decoder(self, index: int, encoded: _Encoded) -> Floats:
        """Return the outputs ``(2 * d, K * n)`` of a snapshot's decoder in a buffer."""
        buffers, hidden = _SCRATCH.buffers, encoded.z[index]
        for depth, weights in enumerate(self.decoder):
            outputs = buffers.get(f"decoder.{depth}", weights.shape[1], hidden.shape[1])
            hidden = self._activate(np.dot(weights[index], hidden, out=outputs))
        outputs = buffers.get("outputs", 2 * self.n_features, hidden.shape[1])
        np.dot(self.output[index], hidden, out=outputs)
        mean, negative_log_variance = outputs[: self.n_features], outputs[self.n_features :]
        lowest, highest = self.log_variance_range
        negative_log_variance.clip(-highest, -lowest, out=negative_log_variance)
        if self.bounded:
            mean.clip(-SIGMOID_LIMIT, SIGMOID_LIMIT, out=mean)
        return outputs

    def _reconstruct(self, index: int, encoded: _Encoded, columns: Floats) -> Floats:
        """Return the reconstruction losses ``(K, n)`` of a snapshot's samples."""
        d, n_rows = columns.shape
        outputs = self._apply_decoder(index, encoded)
        activations = _SCRATCH.buffers.get("activations", *outputs.shape)
        if self.bounded:
            np.exp(outputs, out=activations)
            mean = activations[:d]
            mean += 1
            np.reciprocal(mean, out=mean)
        else:
            np.exp(outputs[d:], out=activations[d:])
            mean = outputs[:d]
        grid = (d, self.n_samples, n_rows)
        terms = outputs[:d]
        np.subtract(mean.reshape(grid), columns[:, None], out=terms.reshape(grid))
        np.square(terms, out=terms)
        terms *= activations[d:]
        return np.dot(self.coefficients, outputs).reshape(self.n_samples, n_rows)

    def _decode(self, index: int, encoded: _Encoded) -> tuple[Floats, Floats]:
        """Return mean and log-variance ``(d, K, n)`` of a snapshot's samples."""
        outputs = self._apply_decoder(index, encoded).reshape(
            2, self.n_features, self.n_samples, -1
        )
        mean = 1 / (1 + np.exp(outputs[0])) if self.bounded else outputs[0]
        return mean, -outputs[1]

    def _compute_terms(self, columns: Floats, mean: Floats, log_variance: Floats) -> Floats:
        """Compute the terms ``(d, K, n)`` of the features in the loss of each sample."""
        return compute_gaussian_terms(columns[:, None], mean, log_variance, self.log_weight)

    def _activate(self, features: Floats) -> Floats:
        """Apply LeakyReLU or ReLU in place."""
        if not self.negative_scale:
            return features.clip(0, None, out=features)
        scaled = _SCRATCH.buffers.get("scaled", *features.shape)
        np.multiply(features, self.negative_scale, out=scaled)
        return np.maximum(features, scaled, out=features)


def _fold_layers(arrays: SnapshotArrays, prefix: str, depth: int) -> Iterator[Floats]:
    """Yield the weights ``(S, n_out + 1, n_in + 1)`` of hidden layers, with BatchNorm in them.

    `prefix` is the name of the layers in the states, and `depth` is their number. The last output
    is always 1.
    """
    has_norm = f"{prefix}.1.running_var" in arrays
    for index in range(depth):
        position = index * (3 if has_norm else 2)
        name, norm = f"{prefix}.{position}", f"{prefix}.{position + 1}"
        weight, bias = _get_linear(arrays, name)
        if has_norm:
            scale = 1 / np.sqrt(arrays[f"{norm}.running_var"].astype(np.float64) + NORM_EPS)
            weight = weight * scale[..., None]
            bias = (bias - arrays[f"{norm}.running_mean"]) * scale
        n_snapshots, n_out, n_in = weight.shape
        folded = np.zeros((n_snapshots, n_out + 1, n_in + 1), np.float32)
        folded[:, :-1, :-1], folded[:, :-1, -1] = weight, bias
        folded[:, -1, -1] = 1
        yield folded


def _join_heads(
    arrays: SnapshotArrays, prefix: str, mean_sign: int, log_variance_sign: int = 1
) -> Floats:
    """Return the heads for mean and log-variance as one layer ``(S, 2 * n_out, n_in + 1)``."""
    heads = []
    for name, sign in (("mean", mean_sign), ("log_variance", log_variance_sign)):
        weight, bias = _get_linear(arrays, prefix + name)
        heads.append(sign * np.concatenate([weight, bias[..., None]], axis=2))
    return np.ascontiguousarray(np.concatenate(heads, axis=1), dtype=np.float32)


def _get_linear(arrays: SnapshotArrays, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return weights and biases of a linear layer in float64; missing biases count as 0."""
    weight = arrays[f"{name}.weight"].astype(np.float64)
    bias = arrays.get(f"{name}.bias")
    return weight, np.zeros(weight.shape[:2]) if bias is None else bias.astype(np.float64)
