"""All snapshots of an IWAE, evaluated together for scoring and explanations.

BatchNorm is folded into the weights. Each layer has one more input, which is always 1 and carries
the biases, and each hidden layer has one more output that is always 1. The rows of a block are the
last axis. The formulas of the loss are those of `altbi.networks._iwae_network`.

The result of a row has the same bits at each position of a block. OpenBLAS adds in another order
in the first and last 8 columns of a matrix product, and after 320 columns. The rows are therefore
processed as chunks of at most 304 rows, with 8 unused columns on each side.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from altbi._buffers import ThreadBuffers
from altbi.networks._iwae_network import SIGMOID_LIMIT, IWAENetwork
from altbi.networks._layers import NORM_EPS
from altbi.networks._snapshots import (
    Floats,
    LossContributions,
    SnapshotArrays,
    compute_gaussian_terms,
    compute_importance_weights,
)

_EDGE = 8  # unused columns on each side of a chunk
_CHUNK_ROWS, _ROW_UNIT = 304, 16  # largest number of rows of a chunk, and what divides it
_SMALL_CHUNK_ROWS, _MAX_CHUNKS = 48, 3
# Number of activations of the largest layer for a block of rows, so that they stay in cache.
_BLOCK_ACTIVATIONS = 1 << 17


# Reused so that they stay in cache.
_SCRATCH = ThreadBuffers()


class _Encoded(NamedTuple):
    """Rows in chunks, with the Monte Carlo samples of their latent values."""

    inputs: Floats  # (C, d, w): the rows
    z: Floats  # (S, K, C, latent + 1, w), with 1 as the last feature
    log_ratios: Floats  # log(p(z) / q(z | x)): (S, K, C, w)


@final
class StackedIWAE:
    """The snapshots of one `IWAENetwork`, evaluated together.

    Shapes are given by S snapshots, d encoded features, K Monte Carlo samples and n rows, which
    are C chunks of w columns inside.

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
        self.noise = arrays["scoring_noise"].astype(np.float32)[:, :, None, :, None]
        self.encoder = list(_fold_layers(arrays, "encoder", len(network.hidden)))
        self.decoder = list(_fold_layers(arrays, "decoder", len(network.hidden)))
        self.latent = _join_heads(arrays, "latent_", 1)
        # The decoder's outputs are -s and, as arguments of the sigmoid, -mu.
        self.output = _join_heads(arrays, "", -1 if self.bounded else 1, -1)
        self.coefficients = np.repeat([0.5, -self.log_weight], self.n_features).astype(np.float32)
        n_fitting = self._count_fitting_rows()
        self.block_rows = _CHUNK_ROWS * min(max(n_fitting // _CHUNK_ROWS, 1), _MAX_CHUNKS)
        # Explanations keep all snapshots' values of a block.
        is_small = n_fitting < _CHUNK_ROWS
        self.explain_block_rows = _SMALL_CHUNK_ROWS if is_small else _CHUNK_ROWS
        self.n_typical_rows = 10_000

    def evaluating(self) -> AbstractContextManager[object]:
        """Return a context that does nothing: all methods may be called from several threads."""
        return nullcontext()

    def losses(self, columns: Floats) -> Floats:
        """Return losses ``(n_snapshots, n)`` of n encoded rows, given as ``(n_features, n)``."""
        with np.errstate(over="ignore", invalid="ignore"):
            encoded = self._encode(columns)
            losses = -encoded.log_ratios
            for index in range(self.n_snapshots):
                losses[index] += self._reconstruct(index, encoded)
            bounds, _ = compute_importance_weights(losses, axis=1)
            return _join_chunks(bounds, columns.shape[1])

    def contributions(self, columns: Floats) -> LossContributions:
        """Return the losses of rows ``(d, n)`` for each snapshot, split by encoded feature.

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
                terms = self._compute_terms(encoded, *self._decode(index, encoded))
                losses = terms.sum(axis=2) - log_ratios
                bounds, log_weights = compute_importance_weights(losses, axis=0)
                weights = np.exp(log_weights)
                remainder = (weights * (log_weights - log_ratios)).sum(axis=0)
                remainder += math.log(self.n_samples)
                split.losses[index] = _join_chunks(bounds, n_rows)
                split.by_feature[index] = _average_samples(weights, terms, n_rows)
                split.remainder[index] = _join_chunks(remainder, n_rows)
        return split

    def expect(self, context: Floats, columns: Floats) -> tuple[Floats, Floats]:
        """Return the values expected in `context`, and the distances of `columns` from them.

        Both inputs have the shape ``(d, n)``; `context` is `columns` with unusual values replaced.
        Both results have the shape ``(S, d, n)`` and are means over the Monte Carlo samples with
        their importance weights in `context`. A distance is half a squared z-score.
        """
        n_rows = columns.shape[1]
        expected = np.empty((self.n_snapshots, *columns.shape), np.float32)
        distance = np.empty_like(expected)
        rows = _split_into_chunks(columns, np.empty)
        with np.errstate(over="ignore", invalid="ignore"):
            encoded = self._encode(context)
            for index, log_ratios in enumerate(encoded.log_ratios):
                mean, log_variance = self._decode(index, encoded)
                losses = self._compute_terms(encoded, mean, log_variance).sum(axis=2) - log_ratios
                weights = np.exp(compute_importance_weights(losses, axis=0)[1])
                distances = compute_gaussian_terms(rows[:, :-1], mean, log_variance, 0)
                expected[index] = _average_samples(weights, mean, n_rows)
                distance[index] = _average_samples(weights, distances, n_rows)
        return expected, distance

    def _count_fitting_rows(self) -> int:
        """Return for how many rows the activations of one snapshot fit the cache."""
        largest = max(self.output.shape[1], *(weight.shape[1] for weight in self.decoder))
        return _BLOCK_ACTIVATIONS // (largest * self.n_samples)

    def _encode(self, columns: Floats) -> _Encoded:
        """Sample z of rows ``(n_features, n)`` by all snapshots with their stored noise.

        The result is in buffers of this thread, which the next call overwrites.
        """
        buffers = _SCRATCH.single
        inputs = _split_into_chunks(columns, lambda shape, _: buffers.get("inputs", *shape))
        n_chunks, n_inputs, n_columns = inputs.shape
        # The snapshots share the rows, so that their first layers are one matrix product.
        weight = self.encoder[0].reshape(-1, n_inputs)
        outputs = buffers.get("encoder.0", n_chunks, len(weight), n_columns)
        hidden = np.matmul(weight, inputs, out=outputs)
        hidden = self._activate(hidden.reshape(n_chunks, self.n_snapshots, -1, n_columns))
        for index, weight in enumerate(self.encoder[1:], 1):
            outputs = buffers.get(f"encoder.{index}", n_chunks, *weight.shape[:2], n_columns)
            hidden = self._activate(np.matmul(weight, hidden, out=outputs))
        heads = np.matmul(self.latent, hidden).swapaxes(0, 1)
        return _Encoded(inputs[:, :-1], *self._sample(heads))

    def _sample(self, heads: Floats) -> tuple[Floats, Floats]:
        """Return z and its log-ratios, given its mean and log-variance ``(S, C, 2 * latent, w)``.

        There are S snapshots, K Monte Carlo samples, and C chunks of w columns. z has the shape
        ``(S, K, C, latent + 1, w)``, is in a buffer, and its last feature is 1. The log-ratios
        ``log(p(z) / q(z | x))`` have the shape ``(S, K, C, w)``.
        """
        size, (n_snapshots, n_chunks, _, n_columns) = self.latent_size, heads.shape
        mean, log_variance = heads[:, :, :size], heads[:, :, size:].clip(*self.log_variance_range)
        std = np.exp(log_variance / 2)
        shape = (n_snapshots, self.n_samples, n_chunks, size + 1, n_columns)
        z_and_one = _SCRATCH.single.get("z", *shape)
        z_and_one[..., size, :] = 1
        z = np.multiply(std[:, None], self.noise, out=z_and_one[..., :size, :])
        z += mean[:, None]
        log_ratios = np.square(self.noise).sum(axis=3) - np.square(z).sum(axis=3)
        log_ratios += log_variance.sum(axis=2)[:, None]
        log_ratios *= 0.5
        return z_and_one, log_ratios

    def _apply_decoder(self, index: int, encoded: _Encoded) -> Floats:
        """Return the outputs ``(K, C, 2 * d, w)`` of the decoder of the snapshot at `index`.

        There are K samples, and C chunks of w columns with d features. The first d outputs are the
        mean or, if bounded, minus the argument of its sigmoid, the others the negative
        log-variance. The next call overwrites the buffer.
        """
        buffers, hidden = _SCRATCH.single, encoded.z[index]
        n_samples, n_chunks, _, n_columns = hidden.shape
        for depth, weights in enumerate(self.decoder):
            shape = (n_samples, n_chunks, weights.shape[1], n_columns)
            outputs = buffers.get(f"decoder.{depth}", *shape)
            hidden = self._activate(np.matmul(weights[index], hidden, out=outputs))
        outputs = buffers.get("outputs", n_samples, n_chunks, 2 * self.n_features, n_columns)
        np.matmul(self.output[index], hidden, out=outputs)
        mean, negative_log_variance = np.split(outputs, 2, axis=2)
        lowest, highest = self.log_variance_range
        negative_log_variance.clip(-highest, -lowest, out=negative_log_variance)
        if self.bounded:
            mean.clip(-SIGMOID_LIMIT, SIGMOID_LIMIT, out=mean)
        return outputs

    def _reconstruct(self, index: int, encoded: _Encoded) -> Floats:
        """Return the reconstruction losses ``(n_samples, n_chunks, n)`` of a snapshot.

        `index` is that of the snapshot, and n the number of columns in a chunk.
        """
        d, outputs = self.n_features, self._apply_decoder(index, encoded)
        terms = outputs[:, :, :d]
        activations = _SCRATCH.single.get("activations", *outputs.shape)
        if self.bounded:
            np.exp(outputs, out=activations)
            mean = activations[:, :, :d]
            mean += 1
            np.reciprocal(mean, out=mean)
        else:
            np.exp(outputs[:, :, d:], out=activations[:, :, d:])
            mean = terms
        np.subtract(mean, encoded.inputs, out=terms)
        np.square(terms, out=terms)
        terms *= activations[:, :, d:]
        return np.matmul(self.coefficients, outputs)

    def _decode(self, index: int, encoded: _Encoded) -> tuple[Floats, Floats]:
        """Return mean and log-variance of x for the Monte Carlo samples of a snapshot.

        Both have the shape ``(n_samples, n_chunks, n_features, n)``. They may be views of a buffer
        that the next call overwrites.
        """
        mean, negative_log_variance = np.split(self._apply_decoder(index, encoded), 2, axis=2)
        if self.bounded:
            mean = np.reciprocal(1 + np.exp(mean))
        return mean, -negative_log_variance

    def _compute_terms(self, encoded: _Encoded, mean: Floats, log_variance: Floats) -> Floats:
        """Compute each feature's term in the reconstruction losses; the shape is that of `mean`."""
        return compute_gaussian_terms(encoded.inputs, mean, log_variance, self.log_weight)

    def _activate(self, features: Floats) -> Floats:
        """Apply LeakyReLU, or ReLU if the scale is 0, in place, and return the array."""
        if not self.negative_scale:
            return features.clip(0, None, out=features)
        scaled = _SCRATCH.single.get("scaled", *features.shape)
        np.multiply(features, self.negative_scale, out=scaled)
        return np.maximum(features, scaled, out=features)


def _split_into_chunks(columns: Floats, allocate: Callable[..., Floats]) -> Floats:
    """Return n rows ``(d, n)`` as C chunks of w columns ``(C, d + 1, w)``.

    The last feature is 1. The others are 0 in 8 columns at each end, and after the last row.
    `allocate` returns an array for a shape and a type.
    """
    d, n_rows = columns.shape
    size = min(-(-n_rows // _ROW_UNIT) * _ROW_UNIT, _CHUNK_ROWS)
    starts = range(0, n_rows, _CHUNK_ROWS)
    chunks = allocate((len(starts), d + 1, size + 2 * _EDGE), np.float32)
    chunks[:, :d] = 0
    chunks[:, d] = 1
    for chunk, start in zip(chunks, starts, strict=True):
        rows = columns[:, start : start + size]
        chunk[:d, _EDGE : _EDGE + rows.shape[1]] = rows
    return chunks


def _join_chunks(values: Floats, n_rows: int) -> Floats:
    """Return values ``(..., C, w)`` of C chunks as ``(..., n_rows)``, without unused columns."""
    used = values[..., _EDGE:-_EDGE]
    return used.reshape(*values.shape[:-2], -1)[..., :n_rows]


def _average_samples(weights: Floats, values: Floats, n_rows: int) -> Floats:
    """Return the weighted mean ``(n_features, n_rows)`` of values over Monte Carlo samples.

    Values have the shape ``(n_samples, n_chunks, n_features, n)``, and weights that without
    features.
    """
    mean = (weights[:, :, None] * values).sum(axis=0)
    return _join_chunks(mean.swapaxes(0, 1), n_rows)


def _fold_layers(arrays: SnapshotArrays, prefix: str, depth: int) -> Iterator[Floats]:
    """Yield the weights ``(n_snapshots, n_out + 1, n_in + 1)`` of each hidden layer.

    They include biases and BatchNorm; the last output is always 1. `prefix` is the name of the
    layers in the states, and `depth` is their number.
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
    """Return the layers for mean and log-variance as one layer for all snapshots.

    It has the shape ``(n_snapshots, 2 * n_out, n_in + 1)``; the last input takes the biases.
    Weights and biases are multiplied by the signs. `prefix` is the start of the layers' names.
    """
    heads = []
    for name, sign in (("mean", mean_sign), ("log_variance", log_variance_sign)):
        weight, bias = _get_linear(arrays, prefix + name)
        heads.append(sign * np.concatenate([weight, bias[..., None]], axis=2))
    return np.ascontiguousarray(np.concatenate(heads, axis=1), dtype=np.float32)


def _get_linear(arrays: SnapshotArrays, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return weights ``(S, n_out, n_in)`` and biases ``(S, n_out)`` of S snapshots in float64.

    Missing biases are 0.
    """
    weight = arrays[f"{name}.weight"].astype(np.float64)
    bias = arrays.get(f"{name}.bias")
    return weight, np.zeros(weight.shape[:2]) if bias is None else bias.astype(np.float64)
