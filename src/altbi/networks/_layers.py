"""Layers of a network in NumPy, with the gradients of their weights and inputs.

Rows are the last axis. BatchNorm computes ``y = (f - mean) / sqrt(variance + eps)`` over a batch.
With the gradient ``g`` of ``y``, the gradient of ``f`` is
``(g - mean(g) - y * mean(g * y)) / sqrt(variance + eps)``.

Most arrays are reused by the next call (`altbi._buffers`).
"""

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from altbi._buffers import Buffers

NORM_EPS, _MOMENTUM = 1e-4, 0.1  # of BatchNorm

Array = NDArray[Any]  # of the network's dtype


@final
class Linear:
    """A linear layer, as views of the vectors of parameters and gradients.

    If there are fewer biases than outputs, they belong to the last outputs.
    """

    def __init__(self, weight: Array, bias: Array, grad_weight: Array, grad_bias: Array) -> None:
        self.weight, self.bias = weight, bias
        self.grad_weight, self.grad_bias = grad_weight, grad_bias

    def apply(self, inputs: Array, outputs: Array) -> Array:
        """Compute ``weight @ inputs + bias`` in `outputs`, and return it.

        `inputs` has the shape ``(n_inputs, n_columns)``, and `outputs` ``(n_outputs, n_columns)``.
        """
        np.dot(self.weight, inputs, out=outputs)
        if len(self.bias):
            outputs[-len(self.bias) :] += self.bias[:, None]
        return outputs

    def backpropagate(self, gradient: Array, inputs: Array, grad_inputs: Array | None) -> None:
        """Compute the gradients of weights, biases and inputs from that of the outputs.

        They are written to `grad_weight`, `grad_bias` and, unless it is None, `grad_inputs`. The
        latter is overwritten last and may be the memory of the inputs.
        """
        np.dot(gradient, inputs.T, out=self.grad_weight)
        if len(self.bias):
            np.add.reduce(gradient[-len(self.bias) :], axis=1, out=self.grad_bias)
        if grad_inputs is not None:
            np.dot(self.weight.T, gradient, out=grad_inputs)


@final
class HiddenLayer:
    """A linear layer, BatchNorm without scale and shift if `has_norm`, and LeakyReLU.

    `negative_scale` is the factor of LeakyReLU below 0.
    """

    def __init__(
        self, linear: Linear, negative_scale: float, dtype: np.dtype[Any], *, has_norm: bool
    ) -> None:
        self.linear = linear
        self.negative_scale = negative_scale
        self.has_norm = has_norm
        self.buffers = Buffers(dtype)
        self.running_mean: Array = np.zeros(len(linear.weight), dtype)
        self.running_var: Array = np.ones(len(linear.weight), dtype)
        self.inputs: Array = np.empty(0, dtype)
        self.outputs: Array = np.empty(0, dtype)
        self.inverse_std: Array = np.empty(0, dtype)

    def apply(self, inputs: Array, *, is_training: bool) -> Array:
        """Return the outputs ``(n_outputs, n_columns)`` of inputs ``(n_inputs, n_columns)``.

        Values that the gradient needs are kept. The next call overwrites the outputs. In training,
        BatchNorm normalizes by the batch and updates its running statistics.
        """
        shape = (len(self.linear.weight), inputs.shape[1])
        features = self.linear.apply(inputs, self.buffers.get("features", *shape))
        if self.has_norm:
            self._normalize(features, is_training=is_training)
        factors = self.buffers.get("factors", *shape)
        np.greater(features, 0, out=factors, casting="unsafe")
        if self.negative_scale:
            factors *= 1 - self.negative_scale
            factors += self.negative_scale
        self.inputs = inputs
        self.outputs = np.multiply(features, factors, out=self.buffers.get("outputs", *shape))
        return self.outputs

    def _normalize(self, features: Array, *, is_training: bool) -> None:
        """Apply BatchNorm in place to features ``(n_outputs, n_columns)``.

        In training, normalize by the batch and update the running statistics as torch does.
        """
        if not is_training:
            features -= self.running_mean[:, None]
            features *= (1 / np.sqrt(self.running_var + NORM_EPS))[:, None]
            return
        n_columns = features.shape[1]
        mean = np.add.reduce(features, axis=1) / n_columns
        features -= mean[:, None]
        variance = np.vecdot(features, features)
        self.running_mean += _MOMENTUM * (mean - self.running_mean)
        self.running_var += _MOMENTUM * (variance / (n_columns - 1) - self.running_var)
        self.inverse_std = 1 / np.sqrt(variance / n_columns + NORM_EPS)
        features *= self.inverse_std[:, None]

    def backpropagate(self, gradient: Array, grad_inputs: Array | None) -> None:
        """Compute the gradients of the weights and inputs from that of the outputs.

        They refer to the last call of `apply`. The gradient of the inputs is written to
        `grad_inputs`, unless it is None. `gradient` is overwritten.
        """
        scratch = self.buffers.get("factors", *gradient.shape)
        gradient *= scratch
        if self.has_norm:
            n_columns = gradient.shape[1]
            normed = self.buffers.get("features", *gradient.shape)
            mean = np.add.reduce(gradient, axis=1) / n_columns
            product = np.vecdot(gradient, normed) / n_columns
            np.multiply(normed, product[:, None], out=scratch)
            scratch += mean[:, None]
            gradient -= scratch
            gradient *= self.inverse_std[:, None]
        self.linear.backpropagate(gradient, self.inputs, grad_inputs)


def build_linears(
    shapes: list[tuple[int, int, int]], parameters: Array, gradient: Array
) -> list[Linear]:
    """Return linear layers as consecutive views of the vectors of parameters and gradients.

    A shape is the number of outputs, of inputs and of biases.
    """
    linears, start = [], 0
    for n_out, n_in, n_bias in shapes:
        middle = start + n_out * n_in
        stop = middle + n_bias
        weights = (vector[start:middle].reshape(n_out, n_in) for vector in (parameters, gradient))
        biases = (vector[middle:stop] for vector in (parameters, gradient))
        (weight, grad_weight), (bias, grad_bias) = weights, biases
        linears.append(Linear(weight, bias, grad_weight, grad_bias))
        start = stop
    return linears


def apply_layers(layers: list[HiddenLayer], inputs: Array, *, is_training: bool) -> Array:
    """Apply hidden layers one after the other, and return the outputs of the last one.

    Inputs and outputs have the rows as last axis. The next call overwrites the outputs.
    """
    for layer in layers:
        inputs = layer.apply(inputs, is_training=is_training)
    return inputs


def backpropagate_layers(
    layers: list[HiddenLayer], gradient: Array, grad_inputs: Array | None
) -> None:
    """Compute the gradients of hidden layers, given that of the last one's outputs.

    Gradients of weights are stored in the layers. The gradient of the first layer's inputs is
    written to `grad_inputs`, unless it is None. The outputs of the layers, and `gradient`, are
    overwritten by gradients.
    """
    for index, layer in reversed(list(enumerate(layers))):
        inner = layers[index - 1].outputs if index else grad_inputs
        layer.backpropagate(gradient, inner)
        if inner is not None:
            gradient = inner


def fill_normal(generator: np.random.Generator, array: Array) -> Array:
    """Fill an array by standard normal noise in place, and return it."""
    generator.standard_normal(dtype=array.dtype, out=array)
    return array
