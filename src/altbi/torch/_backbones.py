"""The backbones GLOW and custom networks."""

import torch

from altbi._parameters import ParameterObject, check_parameters, is_count, is_number
from altbi.networks import GenerativeModel
from altbi.networks._generative_model import MAX_LAYERS, are_layer_sizes, is_positive
from altbi.torch._custom import CustomModel, ModuleFactory
from altbi.torch._glow import GlowNetwork


class _TorchBackbone(ParameterObject):
    """Base class of backbones with the same three parameters of training."""

    learning_rate: float
    weight_decay: float
    device: str

    def _build_training_rules(self) -> dict[str, tuple[bool, str]]:
        """Return the validation rules of the three parameters: validity and expected value."""
        return {
            "learning_rate": (is_positive(self.learning_rate), "a number above 0"),
            "weight_decay": (is_number(self.weight_decay, 0), "a number of at least 0"),
            "device": (
                isinstance(self.device, str),
                "'auto' or the name of a torch device",
            ),
        }

    def resolve_learning_rate(self, *, private: bool = False) -> float:
        """Return the learning rate.

        Parameters
        ----------
        private : bool, default=False
            Not used: the learning rate is given.

        Returns
        -------
        float
            The learning rate of Adam.
        """
        return self.learning_rate


class Glow(_TorchBackbone):
    """The normalizing flow GLOW, the paper's second backbone.

    The default is a small flow that trains on a few cores. The authors' code has
    ``Glow(flow_steps=16, hidden=(256, 256))``.

    Parameters
    ----------
    flow_steps : int, default=4
        Steps of flow at each level.
    hidden : tuple of two int, default=(64, 64)
        Sizes of the coupling networks' hidden layers.
    learning_rate : float, default=0.001
        Learning rate of Adam.
    weight_decay : float, default=5e-07
        Weight decay of Adam.
    device : str, default='auto'
        Device for the training: "cpu", "cuda" or another device of torch. "auto" is "cuda" if it is
        available, else "cpu". Rows are scored on the CPU.

    References
    ----------
    Kingma, Dhariwal: Glow: Generative flow with invertible 1x1 convolutions. NeurIPS 2018.

    Examples
    --------
    >>> from altbi import ALTBI
    >>> from altbi.torch import Glow
    >>> ALTBI(backbone=Glow(flow_steps=2)).backbone
    Glow(flow_steps=2)
    """

    is_custom = False

    def __init__(
        self,
        *,
        flow_steps: int = 4,
        hidden: tuple[int, int] = (64, 64),
        learning_rate: float = 1e-3,
        weight_decay: float = 5e-7,
        device: str = "auto",
    ) -> None:
        self.flow_steps = flow_steps
        self.hidden = hidden
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.device = device

    def validate(self) -> None:
        """Raise a `ParameterError` if a parameter has an invalid value."""
        rules = {
            "flow_steps": (
                is_count(self.flow_steps) and self.flow_steps <= MAX_LAYERS,
                f"a whole number from 1 to {MAX_LAYERS}",
            ),
            "hidden": (
                are_layer_sizes(self.hidden) and len(self.hidden) == 2,
                "a tuple of two layer sizes",
            ),
            **self._build_training_rules(),
        }
        check_parameters("Glow", self.get_params(), rules)

    def build(
        self, n_features: int, *, sized_for: int | None = None, batch_norm: bool = True
    ) -> GenerativeModel:
        """Return an untrained flow on torch's meta device, which allocates no memory.

        Call `GenerativeModel.initialize` before the flow is used.

        Parameters
        ----------
        n_features : int
            Encoded features of a row.
        sized_for : int, optional
            Not used: the sizes are given.
        batch_norm : bool, default=True
            Not used: there is no BatchNorm.

        Returns
        -------
        GenerativeModel
            The network.
        """
        first, second = self.hidden
        with torch.device("meta"):
            return GlowNetwork(n_features, self.flow_steps, (first, second)).float()


class CustomBackbone(_TorchBackbone):
    """A custom network, with the parameters of its training.

    ``ALTBI(backbone=MyNetwork)`` is short for ``ALTBI(backbone=CustomBackbone(MyNetwork))``.

    Parameters
    ----------
    module : class, function or nn.Module
        A class or function that takes the number of encoded features and returns an ``nn.Module``.
        The module maps rows ``(n_rows, n_features)`` to losses ``(n_rows,)``. An ``nn.Module``
        itself is copied with its weights.
    learning_rate : float, default=0.001
        Learning rate of Adam.
    weight_decay : float, default=5e-07
        Weight decay of Adam.
    device : str, default='auto'
        Device for the training, as for `Glow`.

    Examples
    --------
    >>> import torch
    >>> from altbi import ALTBI
    >>> from altbi.torch import CustomBackbone
    >>> class Centre(torch.nn.Module):
    ...     def __init__(self, n_features):
    ...         super().__init__()
    ...         self.centre = torch.nn.Parameter(torch.zeros(n_features))
    ...
    ...     def forward(self, rows):
    ...         return (rows - self.centre).square().sum(1)
    >>> detector = ALTBI(backbone=CustomBackbone(Centre, learning_rate=0.01))
    """

    is_custom = True

    def __init__(
        self,
        module: ModuleFactory,
        *,
        learning_rate: float = 1e-3,
        weight_decay: float = 5e-7,
        device: str = "auto",
    ) -> None:
        self.module = module
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.device = device

    def validate(self) -> None:
        """Raise a `ParameterError` if a parameter has an invalid value."""
        rules = {
            "module": (
                callable(self.module),
                "a class, function or nn.Module that maps rows to losses",
            ),
            **self._build_training_rules(),
        }
        check_parameters("CustomBackbone", self.get_params(), rules)

    def build(
        self, n_features: int, *, sized_for: int | None = None, batch_norm: bool = True
    ) -> GenerativeModel:
        """Return the custom network for rows of `n_features` encoded features.

        Calls the class or function, or copies the module with its weights. Raises a
        `ParameterError` if the result is not a module with parameters to train.

        Parameters
        ----------
        n_features : int
            Encoded features of a row.
        sized_for : int, optional
            Not used: the network chooses its own sizes.
        batch_norm : bool, default=True
            Not used: the network decides.

        Returns
        -------
        GenerativeModel
            The network.
        """
        return CustomModel(self.module, n_features)
