"""The importance weighted autoencoder, ALTBI's default backbone: parameters and network."""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Literal, final

import torch
from torch import Tensor, nn

from altbi._parameters import ParameterObject, check_parameters, is_count, is_number
from altbi.networks._generative_model import (
    GenerativeModel,
    Landmarks,
    StackedSnapshots,
    are_layer_sizes,
    is_positive,
)
from altbi.networks._iwae_losses import (
    NEGATIVE_SLOPE,
    Network,
    StackedIWAE,
    bounds,
    combine_samples,
    compute_gaussian_terms,
)

LEARNING_RATE, PRIVATE_LEARNING_RATE = 1e-3, 1e-2
# With at least this many samples and features, the gradient is computed only for samples with an
# importance weight above _MIN_WEIGHT. Smaller weights are lost in the rounding of a sum.
_MANY_SAMPLES, _MANY_FEATURES = 8, 64
_MIN_WEIGHT = 1e-8
# Rows whose samples are evaluated together, so that they stay in cache.
_BLOCK_ROWS = 16
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


def default_sizes(n_features: int) -> tuple[tuple[int, int], int]:
    """Return the hidden sizes and the latent size for a number of encoded features.

    The authors' code has a table by data set; this rule by size fits it best. It differs for
    Ionosphere and yeast (latent 6 there, 8 here) and for speech (256-128 with latent 64 there,
    128-64 with latent 32 here).
    """
    for limit, hidden, latent in _DEFAULT_SIZES:
        if n_features <= limit:
            return hidden, latent
    return (512, 256), 128


@final
class IWAENetwork(GenerativeModel):
    """An autoencoder whose loss is an upper bound of a row's negative log-likelihood.

    With K Monte Carlo samples ``z_k`` from the encoder's ``q(z | x)`` the loss of a row is
    ``-log(1/K sum_k p(x | z_k) p(z_k) / q(z_k | x))``. K = 1 is the variational autoencoder. In
    training each row has new samples. In evaluation mode all rows share the stored
    `scoring_noise`, so that the loss of a row is always the same. The noise is 0, which samples the
    mean of ``q(z | x)``, until `resample_noise` is called.

    Weights and noise come from torch's global random state until `initialize_weights` is called.

    `hidden` are the sizes of the encoder's hidden layers; the decoder mirrors them.
    ``bounded=True`` builds the network of the authors' code: BatchNorm without scale and shift
    before each LeakyReLU, a sigmoid on the mean, log-variances clamped to [-6, 2] and weighted by 1
    instead of 1/2. False builds a network with ReLU, a Gaussian decoder, and log-variances clamped
    to [-20, 20] for numerical reasons only. Without BatchNorm, linear layers have biases.
    """

    scoring_noise: Tensor

    def __init__(
        self,
        n_features: int,
        hidden: tuple[int, ...],
        latent: int,
        n_samples: int,
        *,
        bounded: bool,
        batch_norm: bool = True,
    ) -> None:
        super().__init__()
        self.bounded = bounded
        self.batch_norm = batch_norm and bounded
        self.generator: torch.Generator | None = None
        self.encoder = self._build_layers(n_features, *hidden)
        self.latent_mean = nn.Linear(hidden[-1], latent, bias=not self.batch_norm)
        self.latent_log_variance = nn.Linear(hidden[-1], latent)
        self.decoder = self._build_layers(latent, *reversed(hidden))
        self.mean = nn.Linear(hidden[0], n_features, bias=not self.batch_norm)
        self.log_variance = nn.Linear(hidden[0], n_features)
        self.register_buffer("scoring_noise", torch.zeros(n_samples, latent))

    def _build_layers(self, *sizes: int) -> nn.Sequential:
        """Return hidden layers of these sizes, the first of which is the input size.

        With BatchNorm, linear layers have no bias.
        """
        layers: list[nn.Module] = []
        for n_in, n_out in pairwise(sizes):
            layers.append(nn.Linear(n_in, n_out, bias=not self.batch_norm))
            if self.batch_norm:
                layers.append(nn.BatchNorm1d(n_out, eps=1e-4, affine=False))
            layers.append(nn.LeakyReLU(NEGATIVE_SLOPE) if self.bounded else nn.ReLU())
        return nn.Sequential(*layers)

    @property
    def log_variance_range(self) -> tuple[float, float]:
        """Limits to which all log-variances are clamped."""
        return (-6.0, 2.0) if self.bounded else (-20.0, 20.0)

    @property
    def log_weight(self) -> float:
        """Weight of the log-variance in the decoder's density."""
        return 1.0 if self.bounded else 0.5

    @property
    def is_selective(self) -> bool:
        """Whether gradients are computed only for samples with a relevant importance weight.

        True for at least 8 samples and 64 features. Networks without BatchNorm return False,
        because private training needs the gradient of each row.
        """
        n_samples, n_features = len(self.scoring_noise), self.log_variance.out_features
        return self.batch_norm and n_samples >= _MANY_SAMPLES and n_features >= _MANY_FEATURES

    def initialize_weights(self, generator: torch.Generator) -> None:
        """Initialize the weights as torch does, in place; reset the statistics of BatchNorm.

        All later noise comes from the same generator. The stored noise for scoring does not change.
        """
        self.generator = generator
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
                if layer.bias is not None:
                    bound = 1 / math.sqrt(layer.in_features)
                    nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
            elif isinstance(layer, nn.BatchNorm1d):
                layer.reset_running_stats()

    def resample_noise(self) -> None:
        """Sample the stored noise for scoring again, in place."""
        self.scoring_noise.normal_(generator=self.generator)

    def stack(self, states: Mapping[str, Tensor], landmarks: Landmarks | None) -> StackedSnapshots:
        """Return snapshots of this network as one object; landmarks are not used."""
        return StackedIWAE(self, states)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the importance weighted bound ``(n_rows,)`` of each row.

        In training mode, each row has new noise, and BatchNorm uses the batch. Ordinary training
        updates use the faster hand-written gradient of `bounds`.
        """
        noise = self._sample_noise(rows)
        if self._needs_weight_gradients(rows):
            return bounds(rows, noise, self._collect_weights())
        z_mean, z_log_variance = self.encode(rows)
        z = z_mean[:, None] + (z_log_variance / 2).exp()[:, None] * noise
        prior = z.square() / 2
        posterior = noise.square() / 2 + z_log_variance[:, None] / 2
        divergence = (prior - posterior).sum(-1)

        if self.is_selective:
            return combine_samples(self._compute_selected_losses(rows, z, divergence), dim=-1)
        mean, log_variance = self.decode(z)
        terms = compute_gaussian_terms(rows[:, None], mean, log_variance, self.log_weight)
        return combine_samples(terms.sum(-1) + divergence, dim=-1)

    def encode(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance ``(n_rows, latent)`` of q(z | x)."""
        hidden = self.encoder(rows)
        return self.latent_mean(hidden), self._clamp_log_variance(self.latent_log_variance(hidden))

    def decode(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of p(x | z) for samples ``(n_rows, K, latent)``."""
        # BatchNorm needs samples as rows. Without it they keep their axis, so that Opacus can
        # compute the gradient of each row.
        hidden = self.decoder(z.flatten(0, 1) if self.batch_norm else z)
        mean, log_variance = self._apply_output(hidden)
        shape = (*z.shape[:2], -1)
        return mean.view(shape), log_variance.view(shape)

    @torch.no_grad()
    def sample_rows(self, n_rows: int, generator: torch.Generator) -> Tensor:
        """Sample rows ``(n_rows, n_features)`` from the decoder, with z from the prior."""
        z = torch.randn(n_rows, 1, self.scoring_noise.shape[1], generator=generator)
        mean, log_variance = self.decode(z)
        noise = torch.randn(mean.shape, generator=generator)
        return (mean + (log_variance / 2).exp() * noise)[:, 0]

    def _needs_weight_gradients(self, rows: Tensor) -> bool:
        """Return whether a call can use the hand-written gradient, as a training update does.

        It needs BatchNorm, training mode, at least two rows, and rows without gradients. Networks
        that are selective do not use it.
        """
        is_batch = self.batch_norm and len(rows) > 1 and not rows.requires_grad
        modules = (self, self.encoder, self.decoder)
        return is_batch and all(each.training for each in modules) and not self.is_selective

    def _collect_weights(self) -> Network:
        """Return weights, BatchNorms and settings in the form that `bounds` needs."""
        layers = [*self.encoder, *self.decoder]
        hidden = [layer.weight for layer in layers if isinstance(layer, nn.Linear)]
        depth = len(hidden) // 2
        return Network(
            encoder=hidden[:depth],
            latent=[self.latent_mean.weight, *self.latent_log_variance.parameters()],
            decoder=hidden[depth:],
            cells=[self.mean.weight, *self.log_variance.parameters()],
            norms=[layer for layer in layers if isinstance(layer, nn.BatchNorm1d)],
            log_variance_range=self.log_variance_range,
            log_weight=self.log_weight,
        )

    def _apply_output(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of p(x | z) from the decoder's last hidden layer."""
        mean = self.mean(hidden)
        if self.bounded:
            mean = mean.sigmoid()
        return mean, self._clamp_log_variance(self.log_variance(hidden))

    def _compute_selected_losses(self, rows: Tensor, z: Tensor, divergence: Tensor) -> Tensor:
        """Compute the losses ``(n_rows, K)`` of samples; infinite if the weight is negligible.

        The gradient of the bound is the mean of the samples' gradients, weighted by ``p(x, z_k) /
        q(z_k | x)``. With many features, one or two samples have nearly all the weight. All samples
        are therefore compared without a gradient first. The output layer, the largest one, is
        differentiated for these few only. If gradients are disabled, all losses are returned. An
        ODIM fit on 1,000 rows with 200 columns is 1.4 times as fast (benchmarks/odim_gradient.py).
        """
        hidden = self.decoder(z.flatten(0, 1))
        losses = self._compute_reconstruction(rows, hidden.detach()) + divergence.detach()
        if not torch.is_grad_enabled():
            return losses
        # Written so that samples with a NaN are selected: the loss must show them.
        is_selected = ~(torch.softmax(-losses, dim=-1) <= _MIN_WEIGHT)
        row, sample = is_selected.nonzero(as_tuple=True)
        mean, log_variance = self._apply_output(hidden.index_select(0, row * z.shape[1] + sample))
        terms = compute_gaussian_terms(rows[row], mean, log_variance, self.log_weight)
        selected = terms.sum(-1) + divergence[row, sample]
        return torch.full_like(losses, math.inf).index_put((row, sample), selected)

    @torch.no_grad()
    def _compute_reconstruction(self, rows: Tensor, hidden: Tensor) -> Tensor:
        """Compute the reconstruction losses ``(n_rows, K)`` of samples, without gradients.

        Blocks of rows are computed one after the other, so that they stay in cache.
        """
        hidden = hidden.view(len(rows), -1, hidden.shape[-1])
        losses = rows.new_empty(hidden.shape[:2])
        for start in range(0, len(rows), _BLOCK_ROWS):
            block = slice(start, start + _BLOCK_ROWS)
            mean, log_variance = self._apply_output(hidden[block])
            logs = log_variance.sum(-1)
            terms = mean.sub_(rows[block, None]).square_().mul_(log_variance.neg_().exp_())
            torch.add(terms.sum(-1) / 2, logs, alpha=self.log_weight, out=losses[block])
        return losses

    def _sample_noise(self, rows: Tensor) -> Tensor:
        """Return new noise ``(n_rows, K, latent)`` in training mode.

        In evaluation mode, return the stored noise ``(1, K, latent)``.
        """
        if self.training:
            shape = (len(rows), *self.scoring_noise.shape)
            return torch.randn(
                shape, generator=self.generator, dtype=rows.dtype, device=rows.device
            )
        return self.scoring_noise[None]

    def _clamp_log_variance(self, log_variance: Tensor) -> Tensor:
        """Return log-variances clamped to `log_variance_range`."""
        return log_variance.clamp(*self.log_variance_range)
