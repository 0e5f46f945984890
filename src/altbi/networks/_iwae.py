"""The importance weighted autoencoder, ALTBI's default backbone: its parameters and training."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from altbi._parameters import ParameterObject, check_parameters, is_count, is_number
from altbi.networks._adam import Adam
from altbi.networks._backbone import (
    Losses,
    Objective,
    Rows,
    StateShapes,
    TrainedNetwork,
    are_layer_sizes,
    is_positive,
)
from altbi.networks._iwae_network import IWAENetwork
from altbi.networks._iwae_snapshots import StackedIWAE
from altbi.networks._snapshots import SnapshotArrays, StackedSnapshots

LEARNING_RATE, PRIVATE_LEARNING_RATE = 1e-3, 1e-2
# Limits of the number of features, with the hidden sizes and the latent size up to each limit.
_DEFAULT_SIZES = (
    (4, (32, 16), 2),
    (6, (32, 16), 4),
    (7, (32, 16), 6),
    (64, (32, 16), 8),
    (512, (128, 64), 32),
)


class IWAE(ParameterObject):
    """The importance weighted autoencoder, ALTBI's default backbone.

    Parameters
    ----------
    hidden : tuple of int or "auto", default='auto'
        Sizes of the encoder's hidden layers; the decoder mirrors them. "auto" chooses them by the
        number of encoded features.
    latent : int or "auto", default='auto'
        Size of the latent space. "auto" chooses it by the number of encoded features.
    n_samples : int, default=2
        Number K of Monte Carlo samples of the importance weighted bound. 1 is a plain VAE.
    network : {"reference", "paper"}, default='reference'
        "reference" is the network of the authors' code: BatchNorm without scale and shift,
        LeakyReLU, sigmoid mean, log-variances in [-6, 2], and a log-variance term without the
        factor 1/2 of a Gaussian. "paper" has ReLU, no BatchNorm, and a Gaussian decoder with a
        learned log-variance.
    learning_rate : float or "auto", default='auto'
        Learning rate of Adam. "auto" is 0.001, and 0.01 under a privacy budget.
    weight_decay : float, default=5e-07
        Weight decay of Adam.

    References
    ----------
    Burda, Grosse, Salakhutdinov: Importance weighted autoencoders. ICLR 2016.

    Examples
    --------
    >>> from altbi import ALTBI, IWAE
    >>> ALTBI(backbone=IWAE(n_samples=5)).get_params()["backbone__n_samples"]
    5
    """

    needs_landmarks = False
    is_custom = False

    def __init__(
        self,
        *,
        hidden: tuple[int, ...] | Literal["auto"] = "auto",
        latent: int | Literal["auto"] = "auto",
        n_samples: int = 2,
        network: Literal["reference", "paper"] = "reference",
        learning_rate: float | Literal["auto"] = "auto",
        weight_decay: float = 5e-7,
    ) -> None:
        self.hidden = hidden
        self.latent = latent
        self.n_samples = n_samples
        self.network = network
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay

    def validate(self) -> None:
        """Raise a `ParameterError` if a parameter has an invalid value."""
        rules = {
            "hidden": (
                are_layer_sizes(self.hidden)
                or (isinstance(self.hidden, str) and self.hidden == "auto"),
                "'auto' or a tuple of layer sizes",
            ),
            "latent": (
                self.latent == "auto" or is_count(self.latent),
                "'auto' or a whole number of at least 1",
            ),
            "n_samples": (is_count(self.n_samples), "a whole number of at least 1"),
            "network": (self.network in ("reference", "paper"), "'reference' or 'paper'"),
            "learning_rate": (
                self.learning_rate == "auto" or is_positive(self.learning_rate),
                "'auto' or a number above 0",
            ),
            "weight_decay": (is_number(self.weight_decay, 0), "a number of at least 0"),
        }
        check_parameters("IWAE", self.get_params(), rules)

    def resolve_learning_rate(self, *, private: bool = False) -> float:
        """Return the learning rate; "auto" depends on whether there is a privacy budget.

        Parameters
        ----------
        private : bool, default=False
            Whether the fit has a privacy budget.

        Returns
        -------
        float
            The learning rate of Adam.
        """
        if self.learning_rate != "auto":
            return self.learning_rate
        return PRIVATE_LEARNING_RATE if private else LEARNING_RATE

    def start_training(
        self, n_features: int, generator: np.random.Generator, *, sized_for: int | None = None
    ) -> TrainedNetwork:
        """Return an initialized network in training.

        Parameters
        ----------
        n_features : int
            Encoded features of a row.
        generator : numpy.random.Generator
            Source of the weights and of all later noise.
        sized_for : int, optional
            Number of features for which "auto" sizes are chosen. The default is `n_features`.

        Returns
        -------
        TrainedNetwork
            The network.
        """
        network = self.choose_sizes(n_features, sized_for=sized_for).build()
        network.initialize(generator)
        return IWAETraining(network, self.resolve_learning_rate(), self.weight_decay)

    def stack(
        self,
        arrays: SnapshotArrays,
        n_features: int,
        *,
        sized_for: int | None = None,
        batch_norm: bool = True,
        landmarks: Rows | None = None,
        feature_columns: NDArray[np.intp] | None = None,
    ) -> StackedSnapshots:
        """Return snapshots as one object that evaluates them together.

        Parameters
        ----------
        arrays : dict of str to ndarray
            State of the network by name, with the snapshots as first axis.
        n_features : int
            Encoded features of a row.
        sized_for : int, optional
            Number of features for which "auto" sizes are chosen. The default is `n_features`.
        batch_norm : bool, default=True
            Whether the network "reference" has BatchNorm; False under a privacy budget.
        landmarks : ndarray, optional
            Not used.
        feature_columns : ndarray, optional
            Not used.

        Returns
        -------
        StackedSnapshots
            The snapshots.
        """
        sizes = self.choose_sizes(n_features, sized_for=sized_for, batch_norm=batch_norm)
        return StackedIWAE(sizes.build(), arrays)

    def describe_state(
        self, n_features: int, *, sized_for: int | None = None, batch_norm: bool = True
    ) -> StateShapes:
        """Return shape and type of each array of a network's state; no memory is allocated.

        Parameters
        ----------
        n_features : int
            Encoded features of a row.
        sized_for : int, optional
            Number of features for which "auto" sizes are chosen. The default is `n_features`.
        batch_norm : bool, default=True
            Whether the network "reference" has BatchNorm; False under a privacy budget.

        Returns
        -------
        dict of str to (shape, dtype)
            Shape and type by name.
        """
        sizes = self.choose_sizes(n_features, sized_for=sized_for, batch_norm=batch_norm)
        dtype = np.dtype(np.float32)
        return {name: (shape, dtype) for name, shape in sizes.describe_arrays().items()}

    def choose_sizes(
        self, n_features: int, *, sized_for: int | None = None, batch_norm: bool = True
    ) -> "NetworkSizes":
        """Return the sizes of a network, with "auto" replaced.

        Parameters
        ----------
        n_features : int
            Encoded features of a row.
        sized_for : int, optional
            Number of features for which "auto" sizes are chosen. The default is `n_features`.
        batch_norm : bool, default=True
            Whether the network "reference" has BatchNorm. The network "paper" never has it.

        Returns
        -------
        NetworkSizes
            The sizes.
        """
        hidden, latent = default_sizes(sized_for or n_features)
        bounded = self.network == "reference"
        return NetworkSizes(
            n_features,
            hidden if self.hidden == "auto" else tuple(self.hidden),
            latent if self.latent == "auto" else self.latent,
            self.n_samples,
            bounded=bounded,
            batch_norm=batch_norm and bounded,
        )


@dataclass(frozen=True, slots=True)
class NetworkSizes:
    """The sizes of an IWAE's network, and which of the two networks it is."""

    n_features: int
    hidden: tuple[int, ...]  # of the encoder; the decoder mirrors them
    latent: int
    n_samples: int
    bounded: bool  # whether it is the network of the authors' code
    batch_norm: bool

    def build(self) -> IWAENetwork:
        """Return a network of these sizes; its weights are zero until it is initialized."""
        return IWAENetwork(
            self.n_features,
            self.hidden,
            self.latent,
            self.n_samples,
            bounded=self.bounded,
            batch_norm=self.batch_norm,
        )

    def describe_arrays(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the arrays of the network's state, by name.

        The names are those of `IWAENetwork.copy_state`.
        """
        shapes: dict[str, tuple[int, ...]] = {"scoring_noise": (self.n_samples, self.latent)}
        stacks = {
            "encoder": (self.n_features, *self.hidden),
            "decoder": (self.latent, *reversed(self.hidden)),
        }
        for stack, sizes in stacks.items():
            for index, (n_in, n_out) in enumerate(pairwise(sizes)):
                # Each hidden layer has an activation, and BatchNorm before it.
                first = index * (3 if self.batch_norm else 2)
                shapes[f"{stack}.{first}.weight"] = (n_out, n_in)
                names = (
                    (f"{first + 1}.running_mean", f"{first + 1}.running_var")
                    if self.batch_norm
                    else (f"{first}.bias",)
                )
                shapes |= {f"{stack}.{name}": (n_out,) for name in names}
        for prefix, n_in, n_out in (
            ("latent_", self.hidden[-1], self.latent),
            ("", self.hidden[0], self.n_features),
        ):
            shapes[f"{prefix}mean.weight"] = shapes[f"{prefix}log_variance.weight"] = (n_out, n_in)
            shapes[f"{prefix}log_variance.bias"] = (n_out,)
            if not self.batch_norm:
                shapes[f"{prefix}mean.bias"] = (n_out,)
        return shapes


@final
class IWAETraining:
    """An IWAE in training, with its optimizer; see `TrainedNetwork`."""

    def __init__(self, network: IWAENetwork, learning_rate: float, weight_decay: float) -> None:
        self.network = network
        self.optimizer = Adam(network.parameters, learning_rate, weight_decay)

    def update(self, rows: Rows, objective: Objective) -> float:
        """Update the weights in place, so that the objective of a batch falls; return its value.

        `objective` maps the losses of `rows` before the update to a value and its gradient.
        """
        value, gradient = objective(self.network.compute_losses(rows))
        self.optimizer.step(self.network.compute_gradient(gradient))
        return value

    def evaluate_losses(self, rows: Rows) -> Losses:
        """Return the losses ``(n_rows,)`` of encoded rows as scoring computes them.

        They use the stored noise and BatchNorm's running statistics, so that they do not vary.
        """
        return self.network.evaluate_losses(rows)

    def resample_noise(self) -> None:
        """Replace the stored noise for scoring by new noise, in place."""
        self.network.resample_noise()

    def copy_state(self) -> SnapshotArrays:
        """Return a copy of weights, BatchNorm statistics and noise, by name."""
        return self.network.copy_state()

    def check_trained(self, rows: Rows) -> None:
        """Do nothing: every trained IWAE can be scored and saved."""


def default_sizes(n_features: int) -> tuple[tuple[int, int], int]:
    """Return the encoder's hidden sizes and the latent size for a number of encoded features.

    The authors' code has a table by data set; this rule by size fits it best. It differs for
    Ionosphere and yeast (latent 6 there, 8 here) and for speech (256-128 with latent 64 there,
    128-64 with latent 32 here).
    """
    for limit, hidden, latent in _DEFAULT_SIZES:
        if n_features <= limit:
            return hidden, latent
    return (512, 256), 128
