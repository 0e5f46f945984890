"""The backbones GLOW and custom networks."""

import abc

import numpy as np
import torch
from numpy.typing import NDArray

from altbi._parameters import ParameterObject, check_parameters, is_count, is_number
from altbi.networks import (
    MAX_LAYERS,
    SnapshotArrays,
    StackedSnapshots,
    StateShapes,
    TrainedNetwork,
    are_layer_sizes,
    is_positive,
)
from altbi.torch._custom import CustomModel, ModuleFactory
from altbi.torch._glow import GlowNetwork
from altbi.torch._modes import PrivateRandomState, resolve_device
from altbi.torch._networks import GenerativeModel
from altbi.torch._snapshots import Landmarks, SequentialSnapshots
from altbi.torch._training import Adam, TorchTraining, isolate

# Seed of the random state with which networks are built that are not trained. It differs from the
# seeds of fits, so that `check_trained` finds values that are not in the state.
_UNTRAINED_SEED = 2**63 - 1


class _TorchBackbone(ParameterObject, abc.ABC):
    """Base class of backbones whose networks are written in PyTorch."""

    needs_landmarks = True
    is_custom = False

    learning_rate: float
    weight_decay: float
    device: str

    @abc.abstractmethod
    def build(self, n_features: int) -> GenerativeModel:
        """Return a network for rows of `n_features` encoded features.

        Networks of this package are on torch's meta device, which allocates no memory, until
        `GenerativeModel.initialize` is called.

        Parameters
        ----------
        n_features : int
            Encoded features of a row.

        Returns
        -------
        GenerativeModel
            The network.
        """

    def start_training(
        self, n_features: int, generator: np.random.Generator, *, sized_for: int | None = None
    ) -> TrainedNetwork:
        """Return an initialized network in training, on the device of the backbone.

        Parameters
        ----------
        n_features : int
            Encoded features of a row.
        generator : numpy.random.Generator
            Source of the seed for weights and noise.
        sized_for : int, optional
            Not used: the sizes are given.

        Returns
        -------
        TrainedNetwork
            The network.
        """
        seed = int(generator.integers(2**63 - 1))
        device = resolve_device(self.device)
        random_state = PrivateRandomState(seed) if self.is_custom else None
        untrained = self._build_untrained(n_features)
        with isolate(random_state):
            model = self.build(n_features)
            model.initialize(torch.Generator(device).manual_seed(seed))
            optimizer = Adam(model.parameters(), self.learning_rate, self.weight_decay)
        return TorchTraining(model, untrained, optimizer, device, random_state)

    def stack(
        self,
        arrays: SnapshotArrays,
        n_features: int,
        *,
        sized_for: int | None = None,
        batch_norm: bool = True,
        landmarks: NDArray[np.float32] | None = None,
        feature_columns: NDArray[np.intp] | None = None,
    ) -> StackedSnapshots:
        """Return snapshots as one object that evaluates them one after the other.

        Parameters
        ----------
        arrays : dict of str to ndarray
            State of the network by name, with the snapshots as first axis.
        n_features : int
            Encoded features of a row.
        sized_for : int, optional
            Not used: the sizes are given.
        batch_norm : bool, default=True
            Not used: it is for private fits.
        landmarks : ndarray of shape (n_landmarks, n_features)
            Quantiles of each table column, for explanations.
        feature_columns : ndarray of shape (n_features,)
            The table column of each encoded feature.

        Returns
        -------
        StackedSnapshots
            The snapshots.
        """
        if landmarks is None or feature_columns is None:
            raise ValueError("landmarks are missing")
        # Tensors that are created in the caller's inference mode could not be loaded.
        with isolate(None):
            states = {name: torch.from_numpy(array) for name, array in arrays.items()}
            columns = torch.from_numpy(feature_columns)
            quantiles = Landmarks(torch.from_numpy(landmarks), columns)
            return SequentialSnapshots(self._build_untrained(n_features), states, quantiles)

    def describe_state(
        self, n_features: int, *, sized_for: int | None = None, batch_norm: bool = True
    ) -> StateShapes:
        """Return shape and type of each weight and buffer of the network, by name.

        Parameters
        ----------
        n_features : int
            Encoded features of a row.
        sized_for : int, optional
            Not used: the sizes are given.
        batch_norm : bool, default=True
            Not used: it is for private fits.

        Returns
        -------
        dict of str to (shape, dtype)
            Shape and type by name.
        """
        state = self._build_untrained(n_features).state_dict()
        return {
            name: (tuple(tensor.shape), np.dtype(str(tensor.dtype).removeprefix("torch.")))
            for name, tensor in state.items()
        }

    def _build_untrained(self, n_features: int) -> GenerativeModel:
        """Return a network that is not trained, independent of the caller's torch modes.

        While the constructor of a custom network runs, a private random state replaces torch's
        global one.
        """
        with isolate(PrivateRandomState(_UNTRAINED_SEED) if self.is_custom else None):
            return self.build(n_features)

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

    def build(self, n_features: int) -> GenerativeModel:
        """Return an untrained flow on torch's meta device, which allocates no memory.

        Parameters
        ----------
        n_features : int
            Encoded features of a row.

        Returns
        -------
        GenerativeModel
            The flow, to be initialized by `GenerativeModel.initialize`.
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

    def build(self, n_features: int) -> GenerativeModel:
        """Return the custom network for rows of `n_features` encoded features.

        Calls the class or function, or copies the module with its weights. Raises a
        `ParameterError` if the result is not a module with parameters to train.

        Parameters
        ----------
        n_features : int
            Encoded features of a row.

        Returns
        -------
        GenerativeModel
            The network.
        """
        return CustomModel(self.module, n_features)
