"""The training of networks written in PyTorch, through the interface of all networks."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from altbi.networks import Objective, SnapshotArrays
from altbi.torch._modes import (
    PrivateRandomState,
    default_modes,
    flush_denormals,
    single_thread,
)
from altbi.torch._networks import GenerativeModel

Rows = NDArray[np.float32]


@final
class TorchTraining:
    """A network of PyTorch in training, with its optimizer; see `TrainedNetwork`.

    Calls run on one thread and in torch's default modes, which are restored at their end. A private
    random state replaces torch's global one while code of a custom network runs. `model` is
    initialized, and `untrained` is a second network of the same kind, for checks.
    """

    def __init__(
        self,
        model: GenerativeModel,
        untrained: GenerativeModel,
        optimizer: "Adam",
        device: torch.device,
        random_state: PrivateRandomState | None,
    ) -> None:
        self.model = model
        self.untrained = untrained
        self.optimizer = optimizer
        self.device = device
        self.random_state = random_state

    def update(self, rows: Rows, objective: Objective) -> float:
        """Update the weights in place, so that the objective of a batch falls; return its value.

        `objective` maps the losses of `rows` before the update to a value and its gradient.
        """
        with isolate(self.random_state):
            self.model.train()
            losses = self.model(torch.from_numpy(rows).to(self.device))
            value, gradient = objective(losses.detach().cpu().numpy())
            self.optimizer.minimize(losses, torch.from_numpy(gradient).to(losses))
        return value

    @torch.no_grad()
    def evaluate_losses(self, rows: Rows) -> NDArray[np.float32]:
        """Return the losses ``(n_rows,)`` of encoded rows in evaluation mode, as for scoring."""
        with isolate(self.random_state):
            losses: Tensor = self.model.eval()(torch.from_numpy(rows).to(self.device))
            return losses.cpu().numpy()

    def resample_noise(self) -> None:
        """Replace the stored noise for scoring by new noise; do nothing if there is none."""
        with isolate(self.random_state):
            self.model.resample_noise()

    def copy_state(self) -> SnapshotArrays:
        """Return a copy of the weights and buffers on the CPU, by name."""
        return copy_state(self.model)

    def check_trained(self, rows: Rows) -> None:
        """Raise a `ParameterError` if the trained network cannot be scored or saved."""
        with isolate(self.random_state):
            self.model.check_trained(torch.from_numpy(rows), self.untrained)


@contextmanager
def isolate(random_state: PrivateRandomState | None) -> Iterator[None]:
    """Set torch's default modes and one thread within a block, and restore the caller's.

    A private random state, if there is one, replaces torch's global one.
    """
    with single_thread(), default_modes():
        if random_state is None:
            yield
        else:
            with random_state.active():
                yield


def copy_state(model: nn.Module) -> SnapshotArrays:
    """Return a copy of a network's weights and buffers on the CPU, by name."""
    return {name: tensor.cpu().numpy().copy() for name, tensor in model.state_dict().items()}


@final
class Adam:
    """Adam as in ``torch.optim.Adam``, with all parameters in one vector.

    It replaces ``torch.optim.Adam`` because the first step of that class imports torch's compiler,
    which takes longer than a training run here. The parameters become views of one vector. Those
    without a gradient count as having the gradient 0.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        learning_rate: float,
        weight_decay: float,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.betas = betas
        self.n_steps = 0
        self.vector = parameters_to_vector(self.parameters).detach()
        vector_to_parameters(self.vector, self.parameters)
        self.first_moment = torch.zeros_like(self.vector)
        self.second_moment = torch.zeros_like(self.vector)
        # Reused in every step: allocating it costs more than the arithmetic of a step.
        self.denominator = torch.empty_like(self.vector)

    def minimize(self, losses: Tensor, gradient: Tensor | None = None) -> None:
        """Update the parameters by the gradient of ``(gradient * losses).sum()``.

        `gradient` may be left out if `losses` is a single number. Former gradients are discarded.
        Denormal numbers count as zero meanwhile.
        """
        for parameter in self.parameters:
            parameter.grad = None
        # Gradients of values that the network predicts well are often denormal numbers.
        with flush_denormals():
            torch.autograd.backward(losses, gradient)
            self.step()

    @torch.no_grad()
    def step(self, gradient: Tensor | None = None) -> None:
        """Update the parameters in place by their gradients, or by a given gradient vector.

        A given vector is modified: the weight decay is added to it.
        """
        self.n_steps += 1
        beta1, beta2 = self.betas
        if gradient is None:
            gradients = (torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters)
            gradient = torch.cat([each.flatten() for each in gradients])
        gradient.add_(self.vector, alpha=self.weight_decay)
        self.first_moment.lerp_(gradient, 1 - beta1)
        self.second_moment.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        torch.div(self.second_moment, 1 - beta2**self.n_steps, out=self.denominator)
        self.denominator.sqrt_().add_(1e-8)
        rate = self.learning_rate / (1 - beta1**self.n_steps)
        self.vector.addcdiv_(self.first_moment, self.denominator, value=-rate)
