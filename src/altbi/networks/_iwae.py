"""The importance weighted autoencoder, ALTBI's default network."""

import math
from itertools import pairwise
from typing import final

import torch
from torch import Tensor, nn

from altbi.networks._bound import Network, bounds
from altbi.networks._interfaces import GenerativeModel

NEGATIVE_SLOPE = 0.01
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


def compute_gaussian_terms(
    x: Tensor, mean: Tensor, log_variance: Tensor, log_weight: float
) -> Tensor:
    """Compute ``log_weight * log_variance + (x - mean)**2 / (2 * variance)`` for each value.

    With ``log_weight=1/2`` this is the negative log-density of a Gaussian without the constant
    ``log(2 * pi) / 2``. The authors' code has ``log_weight=1``.
    """
    return log_weight * log_variance + (x - mean).square() * (-log_variance).exp() / 2


def combine_samples(losses: Tensor, dim: int) -> Tensor:
    """Compute the importance weighted bound from the losses of K Monte Carlo samples.

    It is ``log(K) - logsumexp(-losses)`` over the axis `dim` of the samples.
    """
    return math.log(losses.shape[dim]) - torch.logsumexp(-losses, dim=dim)


@final
class IWAENetwork(GenerativeModel):
    """An autoencoder whose loss is an upper bound of a row's negative log-likelihood.

    With K Monte Carlo samples ``z_k`` from the encoder's ``q(z | x)`` the loss of a row is
    ``-log(1/K sum_k p(x | z_k) p(z_k) / q(z_k | x))``. K = 1 is the variational autoencoder. In
    training each row has new samples. In evaluation mode all rows share the stored
    `scoring_noise`, so that the loss of a row is always the same. The noise is 0, which samples the
    mean of ``q(z | x)``, until `resample_noise` is called.

    Weights and noise come from torch's global random state until `initialize_weights` is called.

    Parameters
    ----------
    n_features : int
        Encoded features of a row.
    hidden : tuple of int
        Sizes of the encoder's hidden layers; the decoder mirrors them.
    latent : int
        Size of the latent space.
    n_samples : int
        K.
    bounded : bool
        True builds the network of the authors' code: BatchNorm without scale and shift before each
        LeakyReLU, a sigmoid on the mean, log-variances clamped to [-6, 2] and weighted by 1 instead
        of 1/2. False builds a network with ReLU, a Gaussian decoder, and log-variances clamped to
        [-20, 20] for numerical reasons only.
    batch_norm : bool, default=True
        Whether a bounded network has BatchNorm. Without it, linear layers have biases.

    References
    ----------
    Burda, Grosse, Salakhutdinov: Importance weighted autoencoders. ICLR 2016.

    Examples
    --------
    >>> model = IWAENetwork(n_features=3, hidden=(8, 4), latent=2, n_samples=2, bounded=True)
    >>> model(torch.rand(5, 3)).shape
    torch.Size([5])
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
            negative_slope=NEGATIVE_SLOPE,
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
