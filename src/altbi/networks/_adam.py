"""The optimizer Adam for weights in one vector."""

from typing import final

import numpy as np
from numpy.typing import NDArray


@final
class Adam:
    r"""Adam (Kingma, Ba: ICLR 2015) as in ``torch.optim.Adam``, for one vector of weights.

    With the gradient :math:`g`, to which the weight decay adds :math:`\lambda w`, and the moments
    :math:`m \leftarrow \beta_1 m + (1 - \beta_1) g` and
    :math:`v \leftarrow \beta_2 v + (1 - \beta_2) g^2`, the step ``t`` changes the weights by
    :math:`-\eta \, \hat m / (\sqrt{\hat v} + \epsilon)`, where
    :math:`\hat m = m / (1 - \beta_1^t)` and :math:`\hat v = v / (1 - \beta_2^t)`.
    """

    def __init__(
        self, weights: NDArray[np.floating], learning_rate: float, weight_decay: float
    ) -> None:
        self.weights = weights
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.n_steps = 0
        self.first_moment = np.zeros_like(weights)
        self.second_moment = np.zeros_like(weights)
        # Scratch buffers: allocating them costs more than the arithmetic of a step.
        self._gradient, self._change = np.empty_like(weights), np.empty_like(weights)

    def step(self, gradient: NDArray[np.floating]) -> None:
        """Change the weights in place by one step against the gradient, which is not modified."""
        self.n_steps += 1
        beta1, beta2, epsilon = 0.9, 0.999, 1e-8
        np.multiply(self.weights, self.weight_decay, out=self._gradient)
        self._gradient += gradient
        self.first_moment *= beta1
        self.first_moment += np.multiply(self._gradient, 1 - beta1, out=self._change)
        np.square(self._gradient, out=self._gradient)
        self.second_moment *= beta2
        self.second_moment += np.multiply(self._gradient, 1 - beta2, out=self._change)
        # Here `_gradient` becomes the denominator of the change.
        np.sqrt(self.second_moment, out=self._gradient)
        self._gradient /= np.sqrt(1 - beta2**self.n_steps)
        self._gradient += epsilon
        np.divide(self.first_moment, self._gradient, out=self._change)
        self._change *= self.learning_rate / (1 - beta1**self.n_steps)
        self.weights -= self._change
