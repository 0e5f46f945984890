"""The IWAE in PyTorch with autograd, as a reference for the NumPy network."""

import math
from itertools import pairwise

import torch
from torch import nn


class TorchNetwork(nn.Module):
    """The networks of the authors' code and of the paper, in double precision."""

    def __init__(self, n_features, hidden, latent, n_samples, *, bounded, batch_norm=True):
        super().__init__()
        self.bounded, self.batch_norm = bounded, batch_norm and bounded
        self.encoder = self.build_layers(n_features, *hidden)
        self.latent_mean = nn.Linear(hidden[-1], latent, bias=not self.batch_norm)
        self.latent_log_variance = nn.Linear(hidden[-1], latent)
        self.decoder = self.build_layers(latent, *reversed(hidden))
        self.mean = nn.Linear(hidden[0], n_features, bias=not self.batch_norm)
        self.log_variance = nn.Linear(hidden[0], n_features)
        self.register_buffer("scoring_noise", torch.zeros(n_samples, latent))
        self.double()

    def build_layers(self, *sizes):
        layers = []
        for n_in, n_out in pairwise(sizes):
            layers.append(nn.Linear(n_in, n_out, bias=not self.batch_norm))
            if self.batch_norm:
                layers.append(nn.BatchNorm1d(n_out, eps=1e-4, affine=False))
            layers.append(nn.LeakyReLU(0.01) if self.bounded else nn.ReLU())
        return nn.Sequential(*layers)

    def forward(self, rows, noise):
        """Return the losses of rows, given noise (n_rows or 1, n_samples, latent)."""
        losses, _, _ = self.decode(rows, noise)
        return math.log(losses.shape[1]) - torch.logsumexp(-losses, dim=1)

    def decode(self, rows, noise):
        """Return losses of samples, and mean and log-variance of p(x | z)."""
        limits = (-6, 2) if self.bounded else (-20, 20)
        hidden = self.encoder(rows)
        variance = self.latent_log_variance(hidden).clamp(*limits)
        z = self.latent_mean(hidden)[:, None] + (variance / 2).exp()[:, None] * noise
        divergence = (z**2 - noise**2 - variance[:, None]).sum(-1) / 2
        decoded = self.decoder(z.flatten(0, 1)).unflatten(0, z.shape[:2])
        mean, log_variance = self.mean(decoded), self.log_variance(decoded).clamp(*limits)
        mean = mean.sigmoid() if self.bounded else mean
        squares = (rows[:, None] - mean) ** 2 / log_variance.exp() / 2
        weight = 1 if self.bounded else 0.5
        return (weight * log_variance + squares).sum(-1) + divergence, mean, log_variance
