"""The normalizing flow GLOW on rows arranged as small squares."""

import math
from typing import cast, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from altbi.torch._flow_steps import (
    ActNorm,
    Coupling,
    FlowStep,
    InvertibleMix,
    TopPrior,
    ZeroConvolution,
)
from altbi.torch._networks import GenerativeModel

# Dequantization noise is uniform in [0, 1 / 256).
_N_BINS = 256


def square_side(n_features: int) -> int:
    """Return the side of the square for a row: the smallest one that is even and at least 4."""
    side = max(math.isqrt(n_features - 1) + 1, 4)
    return side + side % 2


def count_levels(side: int) -> int:
    """Return the number of levels: two if the side is divisible by 8, else one."""
    return 2 if side % 8 == 0 else 1


@final
class GlowNetwork(GenerativeModel):
    """A flow from rows to Gaussian noise; its loss is the exact negative log-likelihood.

    A row is padded with zeros to a square and dequantized by uniform noise below 1/256. The noise
    is new in training. In evaluation mode it is the stored `scoring_noise`, so that the loss of a
    row is always the same. The square is squeezed: each 2 x 2 block becomes one pixel with four
    channels. Then follow steps of activation normalization, an invertible mix of the channels and
    an affine coupling. With two levels, half of the channels leave after the first one. They have a
    Gaussian prior that depends on the other half. The last channels have a Gaussian prior of their
    own. The loss includes the padding and is given in nats.

    The first batch in training initializes the normalizations: their outputs get mean 0 and
    variance 1. `initialize_weights` must be called before.
    """

    scoring_noise: Tensor
    is_initialized: Tensor

    def __init__(self, n_features: int, steps: int, hidden: tuple[int, int]) -> None:
        super().__init__()
        self.side = square_side(n_features)
        self.generator: torch.Generator | None = None
        self.levels = nn.ModuleList()
        channels = 4
        for n_after in reversed(range(count_levels(self.side))):
            self.levels.append(_Level(channels, steps, hidden, is_last=n_after == 0))
            channels *= 2
        self.register_buffer("scoring_noise", torch.zeros(self.side**2))
        self.register_buffer("is_initialized", torch.zeros(()))

    def initialize_weights(self, generator: torch.Generator) -> None:
        """Initialize the weights in place; all later noise comes from the same generator.

        The noise for scoring becomes 0. The next batch in training mode initializes the
        normalizations.
        """
        self.generator = generator
        self.scoring_noise.zero_()
        self.is_initialized.zero_()
        for module in self.modules():
            if isinstance(module, InvertibleMix | Coupling):
                module.initialize_weights(generator)
            elif isinstance(module, ActNorm | ZeroConvolution | TopPrior):
                for parameter in module.parameters(recurse=False):
                    nn.init.zeros_(parameter)

    def resample_noise(self) -> None:
        """Replace the stored noise for scoring by new uniform noise, in place."""
        self.scoring_noise.uniform_(generator=self.generator)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the negative log-likelihoods ``(n_rows,)`` of rows ``(n_rows, n_features)``.

        They are in nats. The first batch in training mode initializes the normalizations.
        """
        squares = self.dequantize(rows)
        if self.training and not self.is_initialized:
            self._initialize_norms(squares)
        return -self.log_density(squares)

    def dequantize(self, rows: Tensor) -> Tensor:
        """Return rows with padding and noise: ``(n_rows, side * side)``.

        In training mode the noise is new; in evaluation mode it is the stored `scoring_noise`.
        """
        padded = functional.pad(rows, (0, self.side**2 - rows.shape[1]))
        if self.training:
            noise = torch.empty_like(padded).uniform_(generator=self.generator)
            return padded + noise / _N_BINS
        return padded + self.scoring_noise / _N_BINS

    def log_density(self, squares: Tensor) -> Tensor:
        """Return the log-density ``(n_rows,)`` of dequantized rows ``(n_rows, side * side)``."""
        z, total = self._to_image(squares), squares.new_zeros(len(squares))
        for level in self._levels():
            z, log_density = level(_squeeze(z))
            total = total + log_density
        return total

    def _to_image(self, squares: Tensor) -> Tensor:
        """Return dequantized rows as images ``(1, side, side, n_rows)``."""
        return squares.T.contiguous().view(1, self.side, self.side, -1)

    def _levels(self) -> list["_Level"]:
        """Return the levels as a list, typed for mypy."""
        return cast("list[_Level]", list(self.levels))

    @torch.no_grad()
    def _initialize_norms(self, squares: Tensor) -> None:
        """Initialize all normalizations by dequantized rows, and mark them as initialized."""
        z = self._to_image(squares)
        for level in self._levels():
            z = level.initialize_norms(_squeeze(z))
        self.is_initialized.fill_(1)


class _Level(nn.Module):
    """Steps of flow on ``(n_channels, side, side, n_rows)``, and a Gaussian prior.

    The last level applies its prior to all channels. An earlier level applies it to half of them,
    and passes the other half on.
    """

    def __init__(
        self, channels: int, steps: int, hidden: tuple[int, int], *, is_last: bool
    ) -> None:
        super().__init__()
        self.is_last = is_last
        self.steps = nn.ModuleList(FlowStep(channels, hidden) for _ in range(steps))
        self.prior: TopPrior | ZeroConvolution = (
            TopPrior(channels)
            if is_last
            else ZeroConvolution(channels // 2, channels, gathers=True)
        )

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the values for the next level, and the log-density ``(n_rows,)`` of this level.

        After the last level, no values remain.
        """
        z, log_det = self.apply_steps(z)
        z, latent = self.split(z)
        mean, log_std = self.prior(z).chunk(2)
        squares = ((latent - mean) * (-log_std).exp()).square()
        terms = -(math.log(2 * math.pi) + squares) / 2 - log_std
        return z, log_det + terms.sum((0, 1, 2))

    def apply_steps(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return `z` after all steps, in its shape, and summed log-determinants ``(n_rows,)``."""
        log_det = z.new_zeros(z.shape[-1])
        for step in self._steps():
            z, step_log_det = step(z)
            log_det = log_det + step_log_det
        return z, log_det

    def _steps(self) -> list[FlowStep]:
        """Return the steps as a list, typed for mypy."""
        return cast("list[FlowStep]", list(self.steps))

    def split(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Split the channels into those for the next level and the latent values.

        In the last level, all channels are latent, and none are left for a next level.
        """
        if self.is_last:
            return z[:0], z
        remaining, latent = z.chunk(2)
        return remaining, latent

    def initialize_norms(self, z: Tensor) -> Tensor:
        """Initialize all normalizations by a batch; return the values for the next level."""
        for step in self._steps():
            step.initialize_norms(z)
            z, _ = step(z)
        return self.split(z)[0]


def _squeeze(z: Tensor) -> Tensor:
    """Convert each 2 x 2 block of pixels into one pixel with four times the channels.

    The result has the shape ``(4 * n_channels, side / 2, side / 2, n_rows)``.
    """
    channels, side, _, rows = z.shape
    half = side // 2
    z = z.view(channels, half, 2, half, 2, rows).permute(0, 2, 4, 1, 3, 5)
    return z.reshape(4 * channels, half, half, rows)
