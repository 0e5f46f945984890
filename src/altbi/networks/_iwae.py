"""The importance weighted autoencoder, ALTBI's first backbone."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, final

import torch
from torch import Tensor, nn

from altbi.networks._bound import Network, bounds
from altbi.networks._interfaces import GenerativeModel

__all__ = ["IWAENetwork", "build_iwae", "default_sizes", "gaussian_terms", "importance_weighted"]

_NEGATIVE_SLOPE = 0.01
# Of many n_samples of a wide row hardly any weighs in: looking for those first is quicker from here on.
_MANY_DRAWS, _MANY_FEATURES = 8, 64
# What a draw weighs at least to be learned from: less is lost in the rounding of a sum.
_LEAST_WEIGHT = 1e-8
# Rows whose n_samples are looked at together, so that they stay near the cache.
_ROWS_AT_ONCE = 16


def gaussian_terms(x: Tensor, mean: Tensor, log_variance: Tensor, log_weight: float) -> Tensor:
    """Negative log-density of each cell under a Gaussian, without the constant log(2 pi) / 2.

    A true Gaussian has ``log_weight`` 1/2; the authors' code has 1.
    """
    return log_weight * log_variance + (x - mean).square() * (-log_variance).exp() / 2


def importance_weighted(losses: Tensor, dim: int) -> Tensor:
    """Tighten the losses of K n_samples, which lie along `dim`, into one bound per row."""
    return math.log(losses.shape[dim]) - torch.logsumexp(-losses, dim=dim)


@final
class IWAENetwork(GenerativeModel):
    """An autoencoder whose loss is an upper bound of a row's negative log-likelihood.

    With K n_samples ``z_k`` from the encoder's ``q(z | x)`` the loss of a row is
    ``-log(1/K sum_k p(x | z_k) p(z_k) / q(z_k | x))``; K = 1 is the plain variational autoencoder.
    In training the n_samples are fresh for every row. In evaluation all rows share the stored
    `scoring_noise`, so that a row's loss is its own and does not change from call to call; these
    are 0, the mean of ``q(z | x)``, until `redraw` is called.

    Parameters
    ----------
    n_features : int
        Columns of the rows.
    hidden : tuple of int
        Widths of the encoder's hidden layers; the decoder mirrors them.
    latent : int
        Size of the latent space.
    n_samples : int
        K.
    bounded : bool
        Build the network of the authors' code: BatchNorm without scale and shift before each
        LeakyReLU, a sigmoid on the mean, log-variances held in [-6, 2] and weighted by 1 instead
        of 1/2 in the decoder's density. Otherwise: ReLU, a true Gaussian and no bound but the
        numerical guard [-20, 20].
    normed : bool, default=True
        Whether a bounded network has BatchNorm, which mixes the rows of a batch; without it,
        linear layers have biases.

    Without a call of `start` weights and noise come from torch's global random state.

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
        normed: bool = True,
    ) -> None:
        super().__init__()
        self.bounded = bounded
        self.normed = normed and bounded
        self.generator: torch.Generator | None = None
        self.encoder = _layers(n_features, *hidden, bounded=bounded, normed=self.normed)
        self.latent_mean = nn.Linear(hidden[-1], latent, bias=not self.normed)
        self.latent_log_variance = nn.Linear(hidden[-1], latent)
        self.decoder = _layers(latent, *reversed(hidden), bounded=bounded, normed=self.normed)
        self.mean = nn.Linear(hidden[0], n_features, bias=not self.normed)
        self.log_variance = nn.Linear(hidden[0], n_features)
        self.register_buffer("scoring_noise", torch.zeros(n_samples, latent))

    @property
    def log_variance_range(self) -> tuple[float, float]:
        """Bounds of every log-variance."""
        return (-6.0, 2.0) if self.bounded else (-20.0, 20.0)

    @property
    def log_weight(self) -> float:
        """Weight of the log-variance in the decoder's density."""
        return 1.0 if self.bounded else 0.5

    @property
    def is_selective(self) -> bool:
        """Whether only n_samples that weigh in are learned from; without BatchNorm rows stay apart."""
        n_draws, n_features = len(self.scoring_noise), self.log_variance.out_features
        return self.normed and n_draws >= _MANY_DRAWS and n_features >= _MANY_FEATURES

    def start(self, generator: torch.Generator) -> None:
        """Initialise the weights as torch does, and draw all noise from this generator."""
        self.generator = generator
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
                if layer.bias is not None:
                    bound = 1 / math.sqrt(layer.in_features)
                    nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
            elif isinstance(layer, nn.BatchNorm1d):
                layer.reset_running_stats()

    def redraw(self) -> None:
        """Replace the n_samples used for scoring."""
        self.scoring_noise.normal_(generator=self.generator)

    def forward(self, rows: Tensor) -> Tensor:
        """Give each row its importance weighted bound."""
        noise = self._noise(rows)
        if self._is_learning_from(rows):
            return bounds(rows, noise, self._network())
        z_mean, z_log_variance = self.encode(rows)
        z = z_mean[:, None] + (z_log_variance / 2).exp()[:, None] * noise
        prior = z.square() / 2
        posterior = noise.square() / 2 + z_log_variance[:, None] / 2
        divergence = (prior - posterior).sum(-1)

        if self.is_selective:
            return importance_weighted(self._selected(rows, z, divergence), dim=-1)
        mean, log_variance = self.decode(z)
        cells = gaussian_terms(rows[:, None], mean, log_variance, self.log_weight)
        return importance_weighted(cells.sum(-1) + divergence, dim=-1)

    def encode(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of q(z | x)."""
        hidden = self.encoder(rows)
        return self.latent_mean(hidden), self._guard(self.latent_log_variance(hidden))

    def decode(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of p(x | z) for ``(n_rows, K, latent)`` n_samples."""
        # BatchNorm takes n_samples as rows; without it they stay inside the row they belong to.
        mean, log_variance = self._cells_of(self.decoder(z.flatten(0, 1) if self.normed else z))
        shape = (*z.shape[:2], -1)
        return mean.view(shape), log_variance.view(shape)

    @torch.no_grad()
    def sample_rows_from_model(self, n_rows: int, generator: torch.Generator) -> Tensor:
        """Draw rows from the model itself."""
        z = torch.randn(n_rows, 1, self.scoring_noise.shape[1], generator=generator)
        mean, log_variance = self.decode(z)
        noise = torch.randn(mean.shape, generator=generator)
        return (mean + (log_variance / 2).exp() * noise)[:, 0]

    def _is_learning_from(self, rows: Tensor) -> bool:
        """Tell whether the gradients wanted are those of the weights of a whole batch."""
        is_batch = self.normed and len(rows) > 1 and not rows.requires_grad
        parts = (self, self.encoder, self.decoder)
        return is_batch and all(part.training for part in parts) and not self.is_selective

    def _network(self) -> Network:
        layers = [*self.encoder, *self.decoder]
        hidden = [layer.weight for layer in layers if isinstance(layer, nn.Linear)]
        depth = len(hidden) // 2
        return Network(
            encoder=hidden[:depth],
            latent=[self.latent_mean.weight, *self.latent_log_variance.parameters()],
            decoder=hidden[depth:],
            cells=[self.mean.weight, *self.log_variance.parameters()],
            norms=[layer for layer in layers if isinstance(layer, nn.BatchNorm1d)],
            negative_slope=_NEGATIVE_SLOPE,
            log_variance_range=self.log_variance_range,
            log_weight=self.log_weight,
        )

    def _cells_of(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        mean = self.mean(hidden)
        if self.bounded:
            mean = mean.sigmoid()
        return mean, self._guard(self.log_variance(hidden))

    def _selected(self, rows: Tensor, z: Tensor, divergence: Tensor) -> Tensor:
        """Losses ``(n_rows, K)`` of the n_samples that weigh in, infinite for the others.

        The gradient of the bound is the n_samples' own, weighted by ``p(x, z_k) / q(z_k | x)``. In wide
        rows one draw or two have all the weight, so that all n_samples are compared without a gradient,
        and the last layers, the widest, learn from these few.
        """
        hidden = self.decoder(z.flatten(0, 1))
        losses = self._draw_losses(rows, hidden.detach()) + divergence.detach()
        if not torch.is_grad_enabled():
            return losses
        # What is not a number is learned from, too, so that the weights tell of it.
        slight = torch.softmax(-losses, dim=-1) <= _LEAST_WEIGHT
        row, draw = (~slight).nonzero(as_tuple=True)
        mean, log_variance = self._cells_of(hidden.index_select(0, row * z.shape[1] + draw))
        cells = gaussian_terms(rows[row], mean, log_variance, self.log_weight)
        weighing = cells.sum(-1) + divergence[row, draw]
        return torch.full_like(losses, math.inf).index_put((row, draw), weighing)

    @torch.no_grad()
    def _draw_losses(self, rows: Tensor, hidden: Tensor) -> Tensor:
        """Sum up what the cells add to the loss of each draw, ``(n_rows, K)``, in little memory."""
        n_samples = hidden.view(len(rows), -1, hidden.shape[-1])
        losses = rows.new_empty(n_samples.shape[:2])
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            some = slice(start, start + _ROWS_AT_ONCE)
            mean, log_variance = self._cells_of(n_samples[some])
            logs = log_variance.sum(-1)
            terms = mean.sub_(rows[some, None]).square_().mul_(log_variance.neg_().exp_())
            torch.add(terms.sum(-1) / 2, logs, alpha=self.log_weight, out=losses[some])
        return losses

    def _noise(self, rows: Tensor) -> Tensor:
        if self.training:
            shape = (len(rows), *self.scoring_noise.shape)
            return torch.randn(
                shape, generator=self.generator, dtype=rows.dtype, device=rows.device
            )
        return self.scoring_noise[None]

    def _guard(self, log_variance: Tensor) -> Tensor:
        return log_variance.clamp(*self.log_variance_range)


def _layers(*widths: int, bounded: bool, normed: bool) -> nn.Sequential:
    """Stack hidden layers; BatchNorm makes a bias of the linear layer idle."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        layers.append(nn.Linear(n_in, n_out, bias=not normed))
        if normed:
            layers.append(nn.BatchNorm1d(n_out, eps=1e-4, affine=False))
        layers.append(nn.LeakyReLU(_NEGATIVE_SLOPE) if bounded else nn.ReLU())
    return nn.Sequential(*layers)


def default_sizes(n_features: int) -> tuple[tuple[int, int], int]:
    """Hidden widths and latent size that the authors' code uses for so many features.

    Its table is by data set; this is the rule by size that fits it best. It differs for
    Ionosphere and yeast (latent 6 there, 8 here, as for other tables of their size) and for speech
    (256-128 with latent 64 there, 128-64 with 32 here).
    """
    for limit, hidden, latent in _REFERENCE_SIZES:
        if n_features <= limit:
            return hidden, latent
    return (512, 256), 128


def build_iwae(
    n_features: int,
    hidden: Sequence[int] | Literal["auto"],
    latent: int | Literal["auto"],
    n_samples: int,
    *,
    bounded: bool,
    normed: bool = True,
    sized_for: int | None = None,
) -> IWAENetwork:
    """Build a model; "auto" takes the sizes of the authors' code, for other features if wanted."""
    auto_hidden, auto_latent = default_sizes(sized_for or n_features)
    with torch.device("meta"):
        return IWAENetwork(
            n_features,
            auto_hidden if hidden == "auto" else tuple(hidden),
            auto_latent if latent == "auto" else latent,
            n_samples,
            bounded=bounded,
            normed=normed,
        ).float()


_REFERENCE_SIZES = (
    (4, (32, 16), 2),
    (6, (32, 16), 4),
    (7, (32, 16), 6),
    (64, (32, 16), 8),
    (512, (128, 64), 32),
)
