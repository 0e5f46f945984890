"""GLOW, ALTBI's second backbone: a normalizing flow on rows laid out as small squares."""

import math
from typing import cast, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from altbi.networks._interfaces import GenerativeModel
from altbi.torch._flow_steps import ActNorm, Coupling, Mix, Step, TopPrior, ZeroConvolution

__all__ = ["GlowNetwork", "level_count", "square_side"]

_GRAINS = 256


def square_side(n_features: int) -> int:
    """Side of the square that a row fills, padded with zeros; even and at least 4."""
    side = max(math.isqrt(n_features - 1) + 1, 4)
    return side + side % 2


def level_count(side: int) -> int:
    """Levels for a square: two where it can be halved three times, else one.

    Examples
    --------
    >>> [level_count(side) for side in (4, 6, 8, 12, 14, 24)]
    [1, 1, 2, 1, 1, 2]
    """
    return 2 if side % 8 == 0 else 1


@final
class GlowNetwork(GenerativeModel):
    """A flow that turns rows into Gaussian noise; its loss is the exact negative log-likelihood.

    A row is padded with zeros to a square, blurred by noise below 1/256 (in training fresh noise,
    in evaluation the stored `scoring_noise`, so that a row's loss is its own), and squeezed: each
    two by two cells become one place with four channels. Steps of activation normalization, an
    invertible mix of the channels and an affine coupling follow. Where there are two levels, half
    of the channels leave after the first, with a Gaussian that depends on the other half; the last
    channels have a Gaussian of their own. The loss is that of the blurred square, padding
    included, in nats.

    The first batch in training sets the normalizations, so that what they give has mean 0 and
    deviation 1.

    Parameters
    ----------
    n_features : int
        Columns of the rows.
    steps : int
        Steps of flow at each level.
    hidden : tuple of two int
        Widths of the coupling networks' hidden layers.

    Without a call of `start` the model is not initialised.

    References
    ----------
    Kingma, Dhariwal: GlowNetwork: Generative flow with invertible 1x1 convolutions. NeurIPS 2018.

    Examples
    --------
    >>> model = GlowNetwork(n_features=10, steps=2, hidden=(8, 8))
    >>> model.start(torch.Generator().manual_seed(0))
    >>> model(torch.rand(5, 10)).shape
    torch.Size([5])
    """

    scoring_noise: Tensor
    settled: Tensor

    def __init__(self, n_features: int, steps: int, hidden: tuple[int, int]) -> None:
        super().__init__()
        self.side = square_side(n_features)
        self.generator: torch.Generator | None = None
        self.levels = nn.ModuleList()
        channels = 4
        for left in reversed(range(level_count(self.side))):
            self.levels.append(_Level(channels, steps, hidden, is_last=left == 0))
            channels *= 2
        self.register_buffer("scoring_noise", torch.zeros(self.side**2))
        self.register_buffer("settled", torch.zeros(()))

    def start(self, generator: torch.Generator) -> None:
        """Initialise the weights and draw all noise from this generator."""
        self.generator = generator
        self.scoring_noise.zero_()
        self.settled.zero_()
        for part in self.modules():
            if isinstance(part, Mix | Coupling):
                part.start(generator)
            elif isinstance(part, ActNorm | ZeroConvolution | TopPrior):
                for parameter in part.parameters(recurse=False):
                    nn.init.zeros_(parameter)

    def redraw(self) -> None:
        """Replace the noise used for scoring."""
        self.scoring_noise.uniform_(generator=self.generator)

    def forward(self, rows: Tensor) -> Tensor:
        """Give each row its negative log-likelihood."""
        squares = self.squares(rows)
        if self.training and not self.settled:
            self._settle(squares)
        return -self.log_density(squares)

    def squares(self, rows: Tensor) -> Tensor:
        """Pad and blur rows: ``(n_rows, side * side)``."""
        padded = functional.pad(rows, (0, self.side**2 - rows.shape[1]))
        if self.training:
            noise = torch.empty_like(padded).uniform_(generator=self.generator)
            return padded + noise / _GRAINS
        return padded + self.scoring_noise / _GRAINS

    def log_density(self, squares: Tensor) -> Tensor:
        """Log-density of flat squares."""
        z, total = self._laid_out(squares), squares.new_zeros(len(squares))
        for level in self._levels():
            z, gain = level(_squeeze(z))
            total = total + gain
        return total

    def encode(self, squares: Tensor) -> tuple[list[Tensor], Tensor]:
        """Latent values, one tensor for each level, and the log-determinant of the way there."""
        z, log_det, latents = self._laid_out(squares), squares.new_zeros(len(squares)), []
        for level in self._levels():
            z, gain = level.flow(_squeeze(z))
            log_det = log_det + gain
            z, leaving = level.split(z)
            latents.append(leaving)
        return latents, log_det

    def decode(self, latents: list[Tensor]) -> Tensor:
        """Go back from latent values to flat squares."""
        going = latents[-1][:0]
        for level, leaving in zip(self._levels()[::-1], latents[::-1], strict=True):
            going = _unsqueeze(level.unflow(torch.cat([going, leaving])))
        return going.flatten(0, 2).T

    def _laid_out(self, squares: Tensor) -> Tensor:
        return squares.T.contiguous().view(1, self.side, self.side, -1)

    def _levels(self) -> list["_Level"]:
        return cast("list[_Level]", list(self.levels))

    @torch.no_grad()
    def _settle(self, squares: Tensor) -> None:
        z = self._laid_out(squares)
        for level in self._levels():
            z = level.settle(_squeeze(z))
        self.settled.fill_(1)


class _Level(nn.Module):
    """Steps of flow on ``(n_channels, side, side, n_rows)``, then a Gaussian."""

    def __init__(
        self, channels: int, steps: int, hidden: tuple[int, int], *, is_last: bool
    ) -> None:
        super().__init__()
        self.is_last = is_last
        self.steps = nn.ModuleList(Step(channels, hidden) for _ in range(steps))
        self.prior: TopPrior | ZeroConvolution = (
            TopPrior(channels)
            if is_last
            else ZeroConvolution(channels // 2, channels, gathered=True)
        )

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Give what goes on to the next level, and the log-density of what does not."""
        z, log_det = self.flow(z)
        z, leaving = self.split(z)
        mean, log_deviation = self.prior(z).chunk(2)
        squares = ((leaving - mean) * (-log_deviation).exp()).square()
        terms = -(math.log(2 * math.pi) + squares) / 2 - log_deviation
        return z, log_det + terms.sum((0, 1, 2))

    def flow(self, z: Tensor) -> tuple[Tensor, Tensor]:
        log_det = z.new_zeros(z.shape[-1])
        for step in self._steps():
            z, gain = step(z)
            log_det = log_det + gain
        return z, log_det

    def unflow(self, z: Tensor) -> Tensor:
        for step in self._steps()[::-1]:
            z = step.inverse(z)
        return z

    def _steps(self) -> list[Step]:
        return cast("list[Step]", list(self.steps))

    def split(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Part the channels: those that go on, and those that leave; at the last level all."""
        if self.is_last:
            return z[:0], z
        going, leaving = z.chunk(2)
        return going, leaving

    def settle(self, z: Tensor) -> Tensor:
        for step in self._steps():
            step.settle(z)
            z, _ = step(z)
        return self.split(z)[0]


def _squeeze(z: Tensor) -> Tensor:
    """Make each two by two places one, with four times the channels."""
    channels, side, _, rows = z.shape
    half = side // 2
    z = z.view(channels, half, 2, half, 2, rows).permute(0, 2, 4, 1, 3, 5)
    return z.reshape(4 * channels, half, half, rows)


def _unsqueeze(z: Tensor) -> Tensor:
    channels, half, _, rows = z.shape
    z = z.view(channels // 4, 2, 2, half, half, rows).permute(0, 3, 1, 4, 2, 5)
    return z.reshape(channels // 4, 2 * half, 2 * half, rows)
