"""The steps of GLOW, on squares of places with channels: ``(n_channels, side, side, n_rows)``.

With the rows last, neighbours are slices, and halves of the channels lie in one piece. Convolutions
are matrix products over neighbours side by side: squares are small, and the normalizations beside
them fold into their weights.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from altbi.torch._convolutions import network, patches

__all__ = ["ActNorm", "Coupling", "Mix", "Step", "TopPrior", "ZeroConvolution"]

_WEIGHT_DEVIATION = 0.05
_LOG_SCALE_FACTOR = 3
_LEAST_DEVIATION = 1e-6


class Step(nn.Module):
    """Normalization, a mix of the channels and a coupling."""

    def __init__(self, channels: int, hidden: tuple[int, int]) -> None:
        super().__init__()
        self.norm = ActNorm(channels)
        self.mix = Mix(channels)
        self.coupling = Coupling(channels, hidden)

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Go one step towards noise; also gives the log-determinant."""
        fixed, moved = self._mixed(z).chunk(2)
        shift, scale = self.coupling(fixed)
        moved = (moved + shift) * scale.sigmoid()
        of_place = self.norm.log_scale.sum() + self.mix.log_diagonal.sum()
        log_det = z[0, ..., 0].numel() * of_place + functional.logsigmoid(scale).sum((0, 1, 2))
        return torch.cat([fixed, moved]), log_det

    def inverse(self, z: Tensor) -> Tensor:
        """Go one step back."""
        fixed, moved = z.chunk(2)
        shift, scale = self.coupling(fixed)
        z = torch.cat([fixed, moved / scale.sigmoid() - shift])
        normed = torch.linalg.inv(self.mix.weight()) @ z.flatten(1)
        backward = (-self.norm.log_scale).exp()[:, None]
        return ((normed - self.norm.bias_after()[:, None]) * backward).view_as(z)

    def settle(self, z: Tensor) -> None:
        """Set all normalizations by what comes in first."""
        self.norm.settle(z)
        self.coupling.settle(self._mixed(z).chunk(2)[0])

    def _mixed(self, z: Tensor) -> Tensor:
        mix = self.mix.weight()
        weight, bias = mix * self.norm.log_scale.exp(), mix @ self.norm.bias_after()
        return torch.addmm(bias[:, None], weight, z.flatten(1)).view_as(z)


class ActNorm(nn.Module):
    """``(x + bias) * exp(log_scale)`` for each channel, folded into the linear map beside it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))
        self.log_scale = nn.Parameter(torch.zeros(channels))

    def folded_into(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Weight and bias, a column, of the linear map that this normalization comes after."""
        return weight * self.log_scale.exp()[:, None], self.bias_after()[:, None]

    def bias_after(self) -> Tensor:
        """Give what is added after the scaling."""
        return self.bias * self.log_scale.exp()

    def settle(self, values: Tensor) -> None:
        """Make these values, channels first, have mean 0 and deviation 1."""
        values = values.flatten(1)
        self.bias.copy_(-values.mean(1))
        self.log_scale.copy_(-(values.std(1, correction=0) + _LEAST_DEVIATION).log())


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

    def __init__(self, channels: int, hidden: tuple[int, int]) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(hidden[0], 9 * channels // 2))
        self.first_norm = ActNorm(hidden[0])
        self.second = nn.Parameter(torch.zeros(hidden[1], hidden[0]))
        self.second_norm = ActNorm(hidden[1])
        self.last = ZeroConvolution(hidden[1], channels, gathered=False)

    def start(self, generator: torch.Generator) -> None:
        """Draw the hidden weights."""
        nn.init.normal_(self.first, std=_WEIGHT_DEVIATION, generator=generator)
        nn.init.normal_(self.second, std=_WEIGHT_DEVIATION, generator=generator)

    def forward(self, fixed: Tensor) -> tuple[Tensor, Tensor]:
        """Shift of the other half, and the logit of its scale."""
        first = self.first_norm.folded_into(self.first)
        second = self.second_norm.folded_into(self.second)
        moves = self.last.scaled(network(fixed, first, second, self.last.weight))
        return moves[0::2], moves[1::2] + 2

    def settle(self, fixed: Tensor) -> None:
        """Set both normalizations by what comes in first."""
        values = patches(fixed)
        for weight, norm in ((self.first, self.first_norm), (self.second, self.second_norm)):
            norm.settle(weight @ values)
            folded, bias = norm.folded_into(weight)
            values = torch.addmm(bias, folded, values).relu_()


class ZeroConvolution(nn.Module):
    """A three by three convolution that begins as zero, with a learned scale of its channels.

    Few inputs are gathered from the neighbours first; of many, each place computes what it gives to
    its neighbours, and they gather that.
    """

    def __init__(self, n_in: int, n_out: int, *, gathered: bool) -> None:
        super().__init__()
        shape = (n_out, 9 * n_in) if gathered else (9 * n_out, n_in)
        self.weight = nn.Parameter(torch.zeros(shape))
        self.bias = nn.Parameter(torch.zeros(n_out))
        self.log_scale = nn.Parameter(torch.zeros(n_out))

    def forward(self, values: Tensor) -> Tensor:
        """Convolve few inputs."""
        sums = self.weight @ patches(values)
        return self.scaled(sums.view(-1, *values.shape[1:]))

    def scaled(self, sums: Tensor) -> Tensor:
        """Add the bias to what the weights gave, and scale the channels."""
        scale = (_LOG_SCALE_FACTOR * self.log_scale).exp()
        return torch.addcmul((self.bias * scale).view(-1, 1, 1, 1), sums, scale.view(-1, 1, 1, 1))


class TopPrior(nn.Module):
    """Mean and log-deviation of the last channels, the same at all places."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(2 * channels))
        self.log_scale = nn.Parameter(torch.zeros(2 * channels))

    def forward(self, values: Tensor) -> Tensor:
        """Give both, whatever is left to look at."""
        return (self.bias * (_LOG_SCALE_FACTOR * self.log_scale).exp()).view(-1, 1, 1, 1)
