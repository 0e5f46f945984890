"""Backbones: parameter objects that build the network to be trained."""

from typing import Literal, Protocol

import torch

from altbi._parameters import ParameterObject, check_parameters, is_count, is_number
from altbi.networks._interfaces import GenerativeModel
from altbi.networks._iwae import IWAENetwork, default_sizes

# Far more layers than useful; limits the memory that a hostile model file can request.
MAX_LAYERS = 100
LEARNING_RATE, PRIVATE_LEARNING_RATE = 1e-3, 1e-2


class Backbone(Protocol):
    """Interface of a backbone: parameters from which a network is built and trained.

    Attributes
    ----------
    weight_decay : float
        Weight decay of Adam.
    device : str
        Device on which the network is trained.
    is_custom : bool
        Whether the network is the user's own. Its code may use torch's global random state, and a
        model file holds only its name.
    """

    weight_decay: float
    device: str
    is_custom: bool

    def validate(self) -> None:
        """Raise a `ParameterError` if a parameter has an invalid value."""
        ...

    def resolve_learning_rate(self, *, private: bool = False) -> float:
        """Return the learning rate of Adam; `private` tells whether there is a privacy budget."""
        ...

    def build(
        self, n_features: int, *, sized_for: int | None = None, batch_norm: bool = True
    ) -> GenerativeModel:
        """Return an untrained network for rows of `n_features` encoded features.

        Automatic sizes are chosen for `sized_for` features, by default `n_features`.
        ``batch_norm=False`` builds the network without BatchNorm, if it has any.
        """
        ...


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

    device = "cpu"
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
            "hidden": (are_layer_sizes(self.hidden), "'auto' or a tuple of layer sizes"),
            "latent": (
                self.latent == "auto" or is_count(self.latent),
                "'auto' or a whole number of at least 1",
            ),
            "n_samples": (is_count(self.n_samples), "a whole number of at least 1"),
            "network": (self.network in ("reference", "paper"), "'reference' or 'paper'"),
            "learning_rate": (
                self.learning_rate == "auto" or is_learning_rate(self.learning_rate),
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

    def build(
        self, n_features: int, *, sized_for: int | None = None, batch_norm: bool = True
    ) -> GenerativeModel:
        """Return an untrained network on torch's meta device, which allocates no memory.

        Call `GenerativeModel.initialize` before the network is used.

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
        GenerativeModel
            The network.
        """
        hidden, latent = default_sizes(sized_for or n_features)
        with torch.device("meta"):
            return IWAENetwork(
                n_features,
                hidden if self.hidden == "auto" else tuple(self.hidden),
                latent if self.latent == "auto" else self.latent,
                self.n_samples,
                bounded=self.network == "reference",
                batch_norm=batch_norm,
            ).float()


def is_learning_rate(value: object) -> bool:
    """Return whether a value is a finite number above 0; other types return False."""
    return is_number(value, 0) and value != 0


def are_layer_sizes(value: object, exactly: int | None = None) -> bool:
    """Return whether a value is "auto", or a tuple or list of 1 to 100 positive integers.

    `exactly` is the required number of layers; "auto" is accepted with any `exactly`.
    """
    if isinstance(value, tuple | list):
        has_valid_length = 0 < len(value) <= MAX_LAYERS and (
            exactly is None or len(value) == exactly
        )
        return has_valid_length and all(map(is_count, value))
    return isinstance(value, str) and value == "auto"
