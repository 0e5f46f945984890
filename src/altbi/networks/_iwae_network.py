r"""The importance weighted autoencoder in NumPy: its loss and the gradient of its weights.

The encoder computes mean ``m`` and log-variance ``v`` of ``q(z | x)``. With noise ``e_k`` from a
standard normal distribution, the K Monte Carlo samples are ``z_k = m + exp(v / 2) * e_k``. The
decoder computes mean ``mu_k`` and log-variance ``s_k`` of ``p(x | z_k)``. Up to constants, the
logarithm of ``p(x | z_k) p(z_k) / q(z_k | x)`` is

.. math:: r_k = \frac{1}{2} \sum_j (e_{kj}^2 - z_{kj}^2 + v_j)
    - \sum_i \Big(c \, s_{ki} + \frac{1}{2} (\mu_{ki} - x_i)^2 e^{-s_{ki}}\Big)

Here ``c`` is `IWAENetwork.log_weight`. The loss of a row is the importance weighted bound

.. math:: \ell = \log K - \log \sum_k e^{r_k}

With the importance weights ``w = softmax(r)``, its gradient is ``-sum_k w_k grad r_k``, where

.. math::
    -\frac{\partial r_k}{\partial \mu_{ki}} = (\mu_{ki} - x_i) e^{-s_{ki}}, \qquad
    -\frac{\partial r_k}{\partial s_{ki}} = c - \frac{1}{2} (\mu_{ki} - x_i)^2 e^{-s_{ki}}, \qquad
    -\frac{\partial r_k}{\partial z_{kj}} = z_{kj}, \qquad
    -\frac{\partial r_k}{\partial v_j} = -\frac{1}{2}

and backpropagation does the rest; the gradients of the layers are in `altbi.networks._layers`.

Rows are the last axis of all arrays inside. NumPy does not flush denormal numbers to zero, and
arithmetic with them is slow. Importance weights below `_MIN_WEIGHT` are therefore set to 0, and the
argument of the sigmoid is clipped to ``[-16, 16]``, where the sigmoid is 0 or 1 up to rounding.
"""

import math
from itertools import pairwise
from typing import NamedTuple, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from altbi._buffers import Buffers
from altbi.networks._layers import (
    Array,
    HiddenLayer,
    apply_layers,
    backpropagate_layers,
    build_linears,
    fill_normal,
)

NEGATIVE_SCALE = 0.01  # factor of LeakyReLU below 0
SIGMOID_LIMIT = 16.0
# With at least this many samples and features, the gradient is computed only for samples with an
# importance weight above _MIN_WEIGHT. Smaller weights are lost in the rounding of a sum.
_MANY_SAMPLES, _MANY_FEATURES = 8, 64
_MIN_WEIGHT = 1e-8
# Rows that are evaluated together, so that their activations stay in cache.
_BLOCK_ROWS = 256


@final
class IWAENetwork:
    """An autoencoder whose loss is an upper bound of a row's negative log-likelihood.

    K = 1 is the variational autoencoder. In training each row has new samples. In evaluation all
    rows share the stored `scoring_noise`, so that the loss of a row is always the same. The noise
    is 0, which samples the mean of ``q(z | x)``, until `resample_noise` is called.

    Parameters
    ----------
    n_features : int
        Encoded features of a row.
    hidden : tuple of int
        Sizes of the encoder's hidden layers; the decoder mirrors them.
    latent : int
        Size of the latent space.
    n_samples : int
        Number K of Monte Carlo samples.
    bounded : bool
        True builds the network of the authors' code: BatchNorm without scale and shift before each
        LeakyReLU, a sigmoid on the mean, log-variances clamped to [-6, 2] and weighted by 1 instead
        of 1/2. False builds a network with ReLU, a Gaussian decoder, and log-variances clamped to
        [-20, 20] for numerical reasons only.
    batch_norm : bool, default=True
        Whether the bounded network has BatchNorm. Without it, linear layers have biases.
    dtype : dtype, default=float32
        Type of all arrays; float64 is for tests.

    Attributes
    ----------
    parameters : ndarray of shape (n_parameters,)
        All trainable weights, to be modified in place: the layers use views of this vector.
    scoring_noise : ndarray of shape (n_samples, latent)
        Noise of the Monte Carlo samples in evaluation.
    """

    def __init__(
        self,
        n_features: int,
        hidden: tuple[int, ...],
        latent: int,
        n_samples: int,
        *,
        bounded: bool,
        batch_norm: bool = True,
        dtype: DTypeLike = np.float32,
    ) -> None:
        self.n_features, self.hidden, self.latent = n_features, tuple(hidden), latent
        self.n_samples = n_samples
        self.bounded = bounded
        self.batch_norm = batch_norm and bounded
        self.dtype = np.dtype(dtype)
        self.scoring_noise: Array = np.zeros((n_samples, latent), self.dtype)
        self._generator = np.random.default_rng(0)
        self._buffers = Buffers(self.dtype)
        self._batch: _Batch | None = None
        self._build_layers()

    @property
    def log_variance_range(self) -> tuple[float, float]:
        """Limits to which the log-variances of encoder and decoder are clamped."""
        return (-6.0, 2.0) if self.bounded else (-20.0, 20.0)

    @property
    def log_weight(self) -> float:
        """Weight of the log-variance in the reconstruction loss: 1 if bounded, else 1/2."""
        return 1.0 if self.bounded else 0.5

    @property
    def negative_scale(self) -> float:
        """Factor of the activation function for inputs below 0: 0.01 if bounded, else 0."""
        return NEGATIVE_SCALE if self.bounded else 0.0

    @property
    def is_selective(self) -> bool:
        """Whether gradients are computed only for samples with a relevant importance weight.

        True for at least 8 samples and 64 features in networks with BatchNorm.
        """
        has_many = self.n_samples >= _MANY_SAMPLES and self.n_features >= _MANY_FEATURES
        return self.batch_norm and has_many

    def initialize(self, generator: np.random.Generator) -> None:
        """Initialize the weights from torch's default distribution, in place.

        Weights and biases are uniform on ``[-1 / sqrt(n_in), 1 / sqrt(n_in)]``. The statistics of
        BatchNorm are reset, and the noise for scoring is set to 0. All later noise comes from the
        same generator.
        """
        self._generator = generator
        self.scoring_noise.fill(0)
        for linear in self._linears:
            bound = 1 / math.sqrt(linear.weight.shape[1])
            for array in (linear.weight, linear.bias):
                generator.random(dtype=self.dtype, out=array)  # type: ignore[arg-type]
                array *= 2 * bound
                array -= bound
        for layer in self._encoder + self._decoder:
            layer.running_mean.fill(0)
            layer.running_var.fill(1)

    def compute_losses(self, rows: Array) -> Array:
        """Return the training losses ``(n_rows,)`` of a batch of rows ``(n_rows, n_features)``.

        Each row has new noise. BatchNorm normalizes by the batch, and its running statistics are
        updated. Raise a `ValueError` if BatchNorm gets a single row.
        """
        if self.batch_norm and len(rows) < 2:
            raise ValueError("BatchNorm needs at least two rows in training.")
        columns = self._transpose(rows)
        noise = self._sample_noise(len(rows))
        latent = self._encode(columns, noise, is_training=True)
        hidden = apply_layers(self._decoder, latent.flat_z, is_training=True)
        if self.is_selective:
            reconstruction = self._reconstruct_blocks(hidden, columns)
        else:
            reconstruction = self._reconstruct(hidden, columns)
        losses, weights = self._combine_samples(latent, reconstruction)
        self._batch = _Batch(columns, latent, hidden, weights)
        return losses

    def compute_gradient(self, grad_losses: Array) -> Array:
        """Return the gradient of ``sum(grad_losses * losses)`` of the last `compute_losses`.

        It has the shape of `parameters`. Use it before the next call, which overwrites it. Raise a
        `ValueError` if no losses were computed since the last gradient or evaluation.
        """
        if self._batch is None:
            raise ValueError("Call compute_losses before compute_gradient.")
        columns, latent, hidden, weights = self._batch
        self._batch = None
        weights *= grad_losses
        if self.is_selective:
            self._backpropagate_selected(columns, hidden, weights)
        else:
            self._backpropagate_output(hidden, weights.reshape(-1))
        grad_z = self._buffers.get("grad_z", *latent.z.shape)
        backpropagate_layers(self._decoder, hidden, grad_z.reshape(self.latent, -1))
        self._backpropagate_latent(latent, grad_z, weights)
        backpropagate_layers(self._encoder, self._encoder[-1].outputs, None)
        return self._gradient

    def evaluate_losses(self, rows: Array) -> Array:
        """Return the losses ``(n_rows,)`` of rows ``(n_rows, n_features)`` for scoring.

        They use the stored noise and BatchNorm's running statistics. The batch that
        `compute_gradient` needs is discarded.
        """
        self._batch = None
        losses = np.empty(len(rows), self.dtype)
        for start in range(0, len(rows), _BLOCK_ROWS):
            columns = self._transpose(rows[start : start + _BLOCK_ROWS])
            latent = self._encode(columns, self.scoring_noise.T[:, :, None], is_training=False)
            hidden = apply_layers(self._decoder, latent.flat_z, is_training=False)
            reconstruction = self._reconstruct_blocks(hidden, columns)
            losses[start : start + _BLOCK_ROWS], _ = self._combine_samples(latent, reconstruction)
        return losses

    def resample_noise(self) -> None:
        """Replace the stored noise for scoring by new noise, in place."""
        fill_normal(self._generator, self.scoring_noise)

    def sample_rows(self, n_rows: int, generator: np.random.Generator) -> Array:
        """Sample rows ``(n_rows, n_features)`` from the decoder, with z from the prior.

        The noise comes from `generator`. The batch that `compute_gradient` needs is discarded.
        """
        self._batch = None
        z = fill_normal(generator, np.empty((self.latent, n_rows), self.dtype))
        hidden = apply_layers(self._decoder, z, is_training=False)
        outputs = self._buffers.get("outputs", 2 * self.n_features, n_rows)
        self._output.apply(hidden, outputs)
        mean, log_variance = np.split(outputs, 2)
        if self.bounded:
            compute_sigmoid(mean)
        log_variance.clip(*self.log_variance_range, out=log_variance)
        noise = fill_normal(generator, np.empty_like(mean))
        return np.ascontiguousarray((mean + np.exp(log_variance / 2) * noise).T)

    def copy_state(self) -> dict[str, Array]:
        """Return copies of all weights, BatchNorm statistics and the noise for scoring by name."""
        return {name: array.copy() for name, array in self._name_arrays().items()}

    def load_state(self, state: dict[str, Array]) -> None:
        """Copy the arrays that `copy_state` has returned into the network; ignore other names.

        Raise a `ValueError` if an array is missing or has another shape.
        """
        for name, array in self._name_arrays().items():
            if name not in state or state[name].shape != array.shape:
                raise ValueError(f"The state has no array {name!r} of the shape {array.shape}.")
            np.copyto(array, state[name])

    def _build_layers(self) -> None:
        """Allocate parameters and gradient as zeros, and build the layers as views of them."""
        has_bias = not self.batch_norm
        sizes = (self.n_features, *self.hidden)
        encoder = [(n_out, n_in, n_out * has_bias) for n_in, n_out in pairwise(sizes)]
        sizes = (self.latent, *reversed(self.hidden))
        decoder = [(n_out, n_in, n_out * has_bias) for n_in, n_out in pairwise(sizes)]
        # Mean and log-variance are one layer; with BatchNorm, only the log-variance has biases.
        heads = [
            (2 * size, n_in, size * (1 + has_bias))
            for size, n_in in ((self.latent, self.hidden[-1]), (self.n_features, self.hidden[0]))
        ]
        shapes = [*encoder, heads[0], *decoder, heads[1]]
        n_parameters = sum(n_out * n_in + n_bias for n_out, n_in, n_bias in shapes)
        self.parameters: Array = np.zeros(n_parameters, self.dtype)
        self._gradient: Array = np.zeros(n_parameters, self.dtype)
        self._linears = build_linears(shapes, self.parameters, self._gradient)
        depth = len(encoder)
        hidden = [*self._linears[:depth], *self._linears[depth + 1 : -1]]
        layers = [
            HiddenLayer(linear, self.negative_scale, self.dtype, has_norm=self.batch_norm)
            for linear in hidden
        ]
        self._encoder, self._decoder = layers[:depth], layers[depth:]
        self._latent, self._output = self._linears[depth], self._linears[-1]
        # Coefficients of the outputs in the reconstruction loss of a sample.
        self._coefficients = np.repeat([0.5, self.log_weight], self.n_features).astype(self.dtype)

    def _name_arrays(self) -> dict[str, Array]:
        """Return all arrays of the state, not copied, by the names that torch gives them."""
        arrays = {}
        for prefix, layers in (("encoder", self._encoder), ("decoder", self._decoder)):
            for index, layer in enumerate(layers):
                position = index * (3 if self.batch_norm else 2)
                arrays[f"{prefix}.{position}.weight"] = layer.linear.weight
                if self.batch_norm:
                    arrays[f"{prefix}.{position + 1}.running_mean"] = layer.running_mean
                    arrays[f"{prefix}.{position + 1}.running_var"] = layer.running_var
                else:
                    arrays[f"{prefix}.{position}.bias"] = layer.linear.bias
        for prefix, linear in (("latent_", self._latent), ("", self._output)):
            size = len(linear.weight) // 2
            arrays[f"{prefix}mean.weight"] = linear.weight[:size]
            arrays[f"{prefix}log_variance.weight"] = linear.weight[size:]
            if not self.batch_norm:
                arrays[f"{prefix}mean.bias"] = linear.bias[:size]
            arrays[f"{prefix}log_variance.bias"] = linear.bias[-size:]
        return arrays | {"scoring_noise": self.scoring_noise}

    def _transpose(self, rows: Array) -> Array:
        """Return rows ``(n_rows, n_features)`` as contiguous columns ``(n_features, n_rows)``.

        The buffer is overwritten by the next call.
        """
        columns = self._buffers.get("columns", self.n_features, len(rows))
        np.copyto(columns, rows.T)
        return columns

    def _sample_noise(self, n_rows: int) -> Array:
        """Return new noise ``(latent, n_samples, n_rows)``; the next call overwrites it."""
        return fill_normal(
            self._generator, self._buffers.get("noise", self.latent, self.n_samples, n_rows)
        )

    def _encode(self, columns: Array, noise: Array, *, is_training: bool) -> "_Latent":
        """Sample z of columns ``(n_features, n_rows)`` from q(z | x), using the given noise.

        `noise` has the shape ``(latent, n_samples, n_rows)``, or 1 row for all. The result also has
        ``sum_j (e**2 - z**2 + v) / 2``, and is in buffers that the next call overwrites.
        """
        buffers, n_rows = self._buffers, columns.shape[1]
        hidden = apply_layers(self._encoder, columns, is_training=is_training)
        heads = buffers.get("latent", 2 * self.latent, n_rows)
        self._latent.apply(hidden, heads)
        mean, log_variance = heads[: self.latent], heads[self.latent :]
        log_variance.clip(*self.log_variance_range, out=log_variance)
        std = np.multiply(log_variance, 0.5, out=buffers.get("std", self.latent, n_rows))
        np.exp(std, out=std)
        shape = (self.latent, self.n_samples, n_rows)
        z = np.multiply(std[:, None], noise, out=buffers.get("z", *shape))
        z += mean[:, None]

        squares = np.multiply(noise, noise, out=buffers.get("squares", *shape))
        log_ratios = np.add.reduce(squares, axis=0)
        log_ratios -= np.add.reduce(np.multiply(z, z, out=squares), axis=0)
        log_ratios += np.add.reduce(log_variance, axis=0)
        log_ratios *= 0.5
        return _Latent(log_variance, std, noise, z, z.reshape(self.latent, -1), log_ratios)

    def _reconstruct(self, hidden: Array, columns: Array) -> Array:
        """Return the reconstruction losses ``(k * n_rows,)`` of Monte Carlo samples.

        `hidden` is the decoder's last hidden layer ``(hidden[0], k * n_rows)``, with any number k
        of samples, and `columns` the rows ``(n_features, n_rows)``. The buffers "outputs" and
        "activations" keep values for the gradient: first ``(mu - x)**2 * exp(-s)`` above ``s``,
        then ``mu`` above ``(mu - x) * exp(-s)``.
        """
        d, shape = self.n_features, (2 * self.n_features, hidden.shape[1])
        outputs = self._output.apply(hidden, self._buffers.get("outputs", *shape))
        activations = self._buffers.get("activations", *shape)
        errors, log_variance = outputs[:d], outputs[d:]
        mean, scaled = activations[:d], activations[d:]
        log_variance.clip(*self.log_variance_range, out=log_variance)
        np.exp(np.negative(log_variance, out=scaled), out=scaled)
        np.copyto(mean, errors)
        if self.bounded:
            compute_sigmoid(mean)
        n_rows = columns.shape[1]
        grid = (d, hidden.shape[1] // max(n_rows, 1), n_rows)
        np.subtract(mean.reshape(grid), columns[:, None], out=errors.reshape(grid))
        scaled *= errors
        errors *= scaled
        return np.dot(self._coefficients, outputs)

    def _reconstruct_blocks(self, hidden: Array, columns: Array) -> Array:
        """Return the losses ``(n_samples * n_rows,)`` of `_reconstruct`, computed in blocks.

        Nothing is kept for the gradient.
        """
        n_rows = columns.shape[1]
        losses = np.empty(hidden.shape[1], self.dtype)
        for first in range(0, hidden.shape[1], n_rows):
            for start in range(0, n_rows, _BLOCK_ROWS):
                rows = slice(start, min(start + _BLOCK_ROWS, n_rows))
                block = slice(first + rows.start, first + rows.stop)
                losses[block] = self._reconstruct(hidden[:, block], columns[:, rows])
        return losses

    def _combine_samples(self, latent: "_Latent", reconstruction: Array) -> tuple[Array, Array]:
        """Return losses ``(n_rows,)`` and importance weights ``(n_samples, n_rows)``.

        `reconstruction` has the losses of the samples. The weights overwrite `latent.log_ratios`;
        those below 1e-8 are 0.
        """
        weights = latent.log_ratios
        weights -= reconstruction.reshape(weights.shape)
        largest = np.maximum.reduce(weights, axis=0)
        weights -= largest
        # exp(-40) is less than _MIN_WEIGHT, and its sums and products are no denormal numbers.
        np.exp(np.maximum(weights, -40, out=weights), out=weights)
        total = np.add.reduce(weights, axis=0)
        weights /= total
        weights[weights < _MIN_WEIGHT] = 0
        return math.log(self.n_samples) - largest - np.log(total), weights

    def _backpropagate_selected(self, columns: Array, hidden: Array, weights: Array) -> None:
        """Overwrite the decoder's last hidden layer by its gradient, for relevant samples only.

        Relevant samples have weights other than 0. The output layer, the largest one, is computed
        again and differentiated for these few only. Its gradient is stored, too.
        """
        weights = weights.reshape(-1)
        selected = np.flatnonzero(weights)  # includes samples with a NaN: the gradient shows them
        chosen = np.take(hidden, selected, axis=1)
        self._reconstruct(chosen, np.take(columns, selected % columns.shape[1], axis=1))
        self._backpropagate_output(chosen, weights[selected])
        hidden.fill(0)
        hidden[:, selected] = chosen

    def _backpropagate_output(self, hidden: Array, weights: Array) -> None:
        """Overwrite the decoder's last hidden layer by its gradient.

        The gradient of the output layer's weights is stored, too. It uses the buffers that
        `_reconstruct` has filled. `weights` are the importance weights of the samples, times the
        gradients of the rows' losses.
        """
        d, shape = self.n_features, (2 * self.n_features, hidden.shape[1])
        outputs = self._buffers.get("outputs", *shape)
        activations = self._buffers.get("activations", *shape)
        errors, log_variance = outputs[:d], outputs[d:]
        mean, scaled = activations[:d], activations[d:]
        is_free = self._find_unclamped(log_variance)
        grad_log_variance = np.multiply(errors, -0.5, out=log_variance)
        grad_log_variance += self.log_weight
        grad_log_variance *= is_free
        if self.bounded:
            grad_mean = np.subtract(1, mean, out=errors)
            grad_mean *= mean
            grad_mean *= scaled
        else:
            np.copyto(errors, scaled)
        outputs *= weights
        self._output.backpropagate(outputs, hidden, hidden)

    def _backpropagate_latent(self, latent: "_Latent", grad_z: Array, weights: Array) -> None:
        """Overwrite the encoder's last hidden layer by its gradient.

        The gradient of the latent layer's weights is stored, too. `grad_z`, the gradient that comes
        from the decoder, and `latent.z` are overwritten. `weights` are as for
        `_backpropagate_output`.
        """
        scratch = np.multiply(latent.z, weights, out=latent.z)
        grad_z += scratch
        shape = (2 * self.latent, weights.shape[1])
        gradient = self._buffers.get("grad_latent", *shape)
        np.add.reduce(grad_z, axis=1, out=gradient[: self.latent])
        np.multiply(grad_z, latent.noise, out=scratch)
        grad_log_variance = np.add.reduce(scratch, axis=1, out=gradient[self.latent :])
        grad_log_variance *= latent.std
        grad_log_variance -= np.add.reduce(weights, axis=0)
        grad_log_variance *= 0.5
        grad_log_variance *= self._find_unclamped(latent.log_variance)
        hidden = self._encoder[-1].outputs
        self._latent.backpropagate(gradient, hidden, hidden)

    def _find_unclamped(self, log_variance: Array) -> NDArray[np.bool_]:
        """Return a mask of log-variances within their limits; outside, the gradient is 0."""
        lowest, highest = self.log_variance_range
        is_free = log_variance > lowest
        is_free &= log_variance < highest
        return is_free


class _Latent(NamedTuple):
    """Monte Carlo samples of the latent values."""

    log_variance: Array  # (latent, n_rows)
    std: Array  # (latent, n_rows)
    noise: Array  # (latent, n_samples, n_rows)
    z: Array  # (latent, n_samples, n_rows)
    flat_z: Array  # the same as (latent, n_samples * n_rows)
    log_ratios: Array  # log(p(z) / q(z | x)): (n_samples, n_rows)


class _Batch(NamedTuple):
    """Values of a training batch that its gradient needs, besides the buffers."""

    columns: Array  # (n_features, n_rows)
    latent: _Latent
    hidden: Array  # last hidden layer of the decoder
    weights: Array  # importance weights (n_samples, n_rows)


def compute_sigmoid(values: Array) -> None:
    """Compute the sigmoid in place, with the argument clipped to ``[-16, 16]``."""
    values.clip(-SIGMOID_LIMIT, SIGMOID_LIMIT, out=values)
    np.negative(values, out=values)
    np.exp(values, out=values)
    values += 1
    np.reciprocal(values, out=values)
