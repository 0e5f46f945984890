"""The IWAE as a module of PyTorch, for fits under a privacy budget.

Opacus computes the gradient of each row's own loss from hooks of torch's modules, so a private fit
cannot use the NumPy network. Both have the same formulas, names of weights and losses.
"""

import math
from itertools import pairwise
from typing import final

import torch
from torch import Tensor, nn

from altbi.networks._iwae import NetworkSizes
from altbi.networks._iwae_network import NEGATIVE_SCALE
from altbi.torch._networks import GenerativeModel


def build_iwae(sizes: NetworkSizes) -> "IWAEModule":
    """Return a network on torch's meta device, to be initialized by `GenerativeModel.initialize`.

    Building it there leaves torch's global random state unchanged.
    """
    with torch.device("meta"):
        return IWAEModule(sizes)


@final
class IWAEModule(GenerativeModel):
    """An IWAE without BatchNorm, which would mix the rows of a batch.

    In training mode each row has new noise. In evaluation mode all rows share the stored
    `scoring_noise`. See `altbi.networks._iwae_network` for the formulas.
    """

    scoring_noise: Tensor

    def __init__(self, sizes: NetworkSizes) -> None:
        super().__init__()
        if sizes.batch_norm:
            raise ValueError("a private fit needs a network without BatchNorm")
        self.bounded = sizes.bounded
        self.log_weight = 1.0 if sizes.bounded else 0.5
        self.log_variance_range = (-6.0, 2.0) if sizes.bounded else (-20.0, 20.0)
        self.generator: torch.Generator | None = None
        first, last = sizes.hidden[0], sizes.hidden[-1]
        self.encoder = self._build_layers(sizes.n_features, *sizes.hidden)
        self.latent_mean = nn.Linear(last, sizes.latent)
        self.latent_log_variance = nn.Linear(last, sizes.latent)
        self.decoder = self._build_layers(sizes.latent, *reversed(sizes.hidden))
        self.mean = nn.Linear(first, sizes.n_features)
        self.log_variance = nn.Linear(first, sizes.n_features)
        self.register_buffer("scoring_noise", torch.zeros(sizes.n_samples, sizes.latent))
        self.float()

    def _build_layers(self, *sizes: int) -> nn.Sequential:
        """Return hidden layers of these sizes, the first of which is the input size."""
        layers: list[nn.Module] = []
        for n_in, n_out in pairwise(sizes):
            layers.append(nn.Linear(n_in, n_out))
            layers.append(nn.LeakyReLU(NEGATIVE_SCALE) if self.bounded else nn.ReLU())
        return nn.Sequential(*layers)

    def initialize_weights(self, generator: torch.Generator) -> None:
        """Initialize the weights as torch does, in place; all later noise has the same generator.

        The stored noise for scoring does not change.
        """
        self.generator = generator
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                bound = 1 / math.sqrt(layer.in_features)
                nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
                nn.init.uniform_(layer.bias, -bound, bound, generator=generator)

    def resample_noise(self) -> None:
        """Replace the stored noise for scoring by new noise, in place."""
        self.scoring_noise.normal_(generator=self.generator)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the losses ``(n_rows,)`` of rows: bounds of the negative log-likelihood.

        Each row has new noise in training mode, and the stored noise in evaluation mode.
        """
        noise = self._sample_noise(rows)
        hidden = self.encoder(rows)
        z_log_variance = self.latent_log_variance(hidden).clamp(*self.log_variance_range)
        z_std = (z_log_variance / 2).exp()
        z = self.latent_mean(hidden)[:, None] + z_std[:, None] * noise
        divergence = (z.square() - noise.square() - z_log_variance[:, None]).sum(-1) / 2

        mean, log_variance = self.decode(z)
        squares = (rows[:, None] - mean).square() * (-log_variance).exp()
        losses = (self.log_weight * log_variance + squares / 2).sum(-1) + divergence
        return math.log(losses.shape[1]) - torch.logsumexp(-losses, dim=1)

    def decode(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of p(x | z), both ``(n_rows, K, n_features)``.

        `z` are K Monte Carlo samples ``(n_rows, K, latent)`` of each row.
        """
        hidden = self.decoder(z)
        mean = self.mean(hidden)
        log_variance = self.log_variance(hidden).clamp(*self.log_variance_range)
        return mean.sigmoid() if self.bounded else mean, log_variance

    @torch.no_grad()
    def sample_rows(self, n_rows: int, generator: torch.Generator) -> Tensor:
        """Sample rows ``(n_rows, n_features)`` from p(x | z), with z from the prior.

        Values have the decoder's variance, so they may lie outside of 0 to 1. All noise comes from
        `generator`.
        """
        z = torch.randn(n_rows, 1, self.scoring_noise.shape[1], generator=generator)
        mean, log_variance = self.decode(z)
        noise = torch.randn(mean.shape, generator=generator)
        return (mean + (log_variance / 2).exp() * noise)[:, 0]

    def _sample_noise(self, rows: Tensor) -> Tensor:
        """Return new noise ``(n_rows, K, latent)`` in training mode, else the stored noise."""
        if not self.training:
            return self.scoring_noise[None]
        shape = (len(rows), *self.scoring_noise.shape)
        return torch.randn(shape, generator=self.generator, dtype=rows.dtype, device=rows.device)
