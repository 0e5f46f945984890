"""The steps of GLOW, on places with channels: ``(n_rows, n_places, n_channels)``.

Convolutions are matrix products over gathered neighbours: squares are small, and the normalizations
beside them fold into their weights.
"""

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["ActNorm", "Coupling", "Mix", "Step", "TopPrior", "ZeroConvolution"]

_WEIGHT_DEVIATION = 0.05
_LOG_SCALE_FACTOR = 3
_LEAST_DEVIATION = 1e-6


class Step(nn.Module):
    """Normalization, a mix of the channels and a coupling."""

    def __init__(self, channels: int, side: int, hidden: tuple[int, int]) -> None:
        super().__init__()
        self.norm = ActNorm(channels)
        self.mix = Mix(channels)
        self.coupling = Coupling(channels, side, hidden)

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Go one step towards noise; also gives the log-determinant."""
        mix = self.mix.weight()
        z = functional.linear(z, mix * self.norm.log_scale.exp(), mix @ self.norm.bias_after())
        log_det = z.shape[1] * (self.norm.log_scale.sum() + self.mix.log_diagonal.sum())
        fixed, moved = z.chunk(2, dim=-1)
        shift, scale = self.coupling(fixed)
        moved = (moved + shift) * scale.sigmoid()
        return torch.cat([fixed, moved], -1), log_det + functional.logsigmoid(scale).sum((1, 2))

    def inverse(self, z: Tensor) -> Tensor:
        """Go one step back."""
        fixed, moved = z.chunk(2, dim=-1)
        shift, scale = self.coupling(fixed)
        z = torch.cat([fixed, moved / scale.sigmoid() - shift], -1)
        z = functional.linear(z, torch.linalg.inv(self.mix.weight()))
        return (z - self.norm.bias_after()) * (-self.norm.log_scale).exp()

    def settle(self, z: Tensor) -> None:
        """Set all normalizations by what comes in first."""
        self.norm.settle(z)
        mix = self.mix.weight()
        z = functional.linear(z, mix * self.norm.log_scale.exp(), mix @ self.norm.bias_after())
        self.coupling.settle(z.chunk(2, dim=-1)[0])


class ActNorm(nn.Module):
    """``(x + bias) * exp(log_scale)`` for each channel, folded into the linear map beside it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))
        self.log_scale = nn.Parameter(torch.zeros(channels))

    def bias_after(self) -> Tensor:
        """Give what is added after the scaling."""
        return self.bias * self.log_scale.exp()

    def settle(self, values: Tensor) -> None:
        """Make these values, channels last, have mean 0 and deviation 1."""
        values = values.flatten(0, -2)
        self.bias.copy_(-values.mean(0))
        self.log_scale.copy_(-(values.std(0, correction=0) + _LEAST_DEVIATION).log())


class Mix(nn.Module):
    """An invertible matrix over the channels, as a permutation and two triangles."""

    permutation: Tensor
    sign: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.lower = nn.Parameter(torch.zeros(channels, channels))
        self.upper = nn.Parameter(torch.zeros(channels, channels))
        self.log_diagonal = nn.Parameter(torch.zeros(channels))
        self.register_buffer("permutation", torch.eye(channels))
        self.register_buffer("sign", torch.ones(channels))

    @torch.no_grad()
    def start(self, generator: torch.Generator) -> None:
        """Begin with a random rotation."""
        noise = torch.empty_like(self.lower).normal_(generator=generator)
        rotation, _ = torch.linalg.qr(noise)
        permutation, lower, upper = torch.linalg.lu(rotation)
        self.permutation.copy_(permutation)
        self.lower.copy_(lower.tril(-1))
        self.upper.copy_(upper.triu(1))
        self.sign.copy_(upper.diagonal().sign())
        self.log_diagonal.copy_(upper.diagonal().abs().log())

    def weight(self) -> Tensor:
        """Put the matrix together."""
        lower = self.lower.tril(-1) + torch.eye(
            len(self.sign), dtype=self.sign.dtype, device=self.sign.device
        )
        upper = self.upper.triu(1) + torch.diag(self.sign * self.log_diagonal.exp())
        return self.permutation @ lower @ upper


class Coupling(nn.Module):
    """The network that reads one half of the channels and says how to move the other."""

    def __init__(self, channels: int, side: int, hidden: tuple[int, int]) -> None:
        super().__init__()
        self.side = side
        self.first = nn.Parameter(torch.zeros(hidden[0], 9 * channels // 2))
        self.first_norm = ActNorm(hidden[0])
        self.second = nn.Parameter(torch.zeros(hidden[1], hidden[0]))
        self.second_norm = ActNorm(hidden[1])
        self.last = ZeroConvolution(hidden[1], channels, side, gathered=False)

    def start(self, generator: torch.Generator) -> None:
        """Draw the hidden weights."""
        nn.init.normal_(self.first, std=_WEIGHT_DEVIATION, generator=generator)
        nn.init.normal_(self.second, std=_WEIGHT_DEVIATION, generator=generator)

    def forward(self, fixed: Tensor) -> tuple[Tensor, Tensor]:
        """Shift of the other half, and the logit of its scale."""
        # Two axes only: of three, the gradient of an in-place function makes copies.
        patches = _patches(fixed, self.side).flatten(0, 1)
        hidden = _normed_relu(patches, self.first, self.first_norm)
        hidden = _normed_relu(hidden, self.second, self.second_norm)
        moves = self.last(hidden.view(*fixed.shape[:2], -1))
        return moves[..., 0::2], moves[..., 1::2] + 2

    def settle(self, fixed: Tensor) -> None:
        """Set both normalizations by what comes in first."""
        patches = _patches(fixed, self.side).flatten(0, 1)
        self.first_norm.settle(functional.linear(patches, self.first))
        hidden = _normed_relu(patches, self.first, self.first_norm)
        self.second_norm.settle(functional.linear(hidden, self.second))


class ZeroConvolution(nn.Module):
    """A three by three convolution that begins as zero, with a learned scale of its channels.

    Few inputs are gathered from the neighbours first; of many, each place computes what it gives to
    its neighbours, and they gather that.
    """

    def __init__(self, n_in: int, n_out: int, side: int, *, gathered: bool) -> None:
        super().__init__()
        self.side = side
        self.gathered = gathered
        shape = (n_out, 9 * n_in) if gathered else (9 * n_out, n_in)
        self.weight = nn.Parameter(torch.zeros(shape))
        self.bias = nn.Parameter(torch.zeros(n_out))
        self.log_scale = nn.Parameter(torch.zeros(n_out))

    def forward(self, values: Tensor) -> Tensor:
        """Convolve."""
        if self.gathered:
            sums = functional.linear(_patches(values, self.side), self.weight)
        else:
            rows, places, _ = values.shape
            given = functional.linear(values, self.weight).view(rows, 9 * places, -1)
            sums = _nine(given, _taken(self.side)).sum(2)
        return (sums + self.bias) * (_LOG_SCALE_FACTOR * self.log_scale).exp()


class TopPrior(nn.Module):
    """Mean and log-deviation of the last channels, the same at all places."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(2 * channels))
        self.log_scale = nn.Parameter(torch.zeros(2 * channels))

    def forward(self, values: Tensor) -> Tensor:
        """Give both, whatever is left to look at."""
        return self.bias * (_LOG_SCALE_FACTOR * self.log_scale).exp()


def _normed_relu(values: Tensor, weight: Tensor, norm: ActNorm) -> Tensor:
    scaled = weight * norm.log_scale.exp()[:, None]
    return functional.linear(values, scaled, norm.bias_after()).relu_()


def _patches(z: Tensor, side: int) -> Tensor:
    """Put the nine neighbours' channels side by side."""
    return _nine(z, _neighbours(side)).flatten(2)


def _nine(z: Tensor, index: Tensor) -> Tensor:
    """Gather nine entries for each place; the number after the last stands for zeros."""
    entries = functional.pad(z, (0, 0, 0, 1)).index_select(1, index)
    return entries.view(len(z), len(index) // 9, 9, -1)


@cache
def _neighbours(side: int) -> Tensor:
    """Numbers of the nine places around each place, or that of the zeros beyond the edge."""
    row, column = np.divmod(np.arange(side * side), side)
    down, right = np.divmod(np.arange(9), 3) - np.ones((2, 1), dtype=int)
    rows, columns = row[:, None] + down, column[:, None] + right
    inside = (rows >= 0) & (rows < side) & (columns >= 0) & (columns < side)
    return _index(np.where(inside, rows * side + columns, side * side))


@cache
def _taken(side: int) -> Tensor:
    """Where place and direction stand in what neighbours give, nine values for each place."""
    neighbours = _neighbours(side).view(-1, 9).numpy()
    return _index(np.where(neighbours < side**2, 9 * neighbours + np.arange(9), 9 * side**2))


def _index(numbers: NDArray[np.int64]) -> Tensor:
    # Made outside of the caller's inference mode: the gradient remembers it.
    with torch.inference_mode(mode=False):
        return torch.from_numpy(numbers.reshape(-1))
