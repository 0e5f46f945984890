"""Layers of GLOW on squares of pixels with channels: ``(n_channels, side, side, n_rows)``.

Rows are the last axis, so that neighbours are slices and halves of the channels are contiguous.
Convolutions are matrix products over patches, because the squares are small and the normalizations
fold into the weights.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from altbi.torch._convolutions import apply_network, extract_patches

# Standard deviation of the initial weights of hidden layers.
_INITIAL_STD = 0.05
# Factor of learned log-scales, as in the authors' code of GLOW.
_LOG_SCALE_FACTOR = 3
# Added to standard deviations, which may be 0.
_MIN_STD = 1e-6


class FlowStep(nn.Module):
    """One step of flow: activation normalization, a mix of the channels, and a coupling."""

    def __init__(self, channels: int, hidden: tuple[int, int]) -> None:
        super().__init__()
        self.norm = ActNorm(channels)
        self.mix = InvertibleMix(channels)
        self.coupling = Coupling(channels, hidden)

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the transformed values, and the log-determinant ``(n_rows,)`` of the step."""
        fixed, moved = self._normalize_and_mix(z).chunk(2)
        shift, scale = self.coupling(fixed)
        moved = (moved + shift) * scale.sigmoid()
        per_pixel = self.norm.log_scale.sum() + self.mix.log_diagonal.sum()
        log_det = z[0, ..., 0].numel() * per_pixel + functional.logsigmoid(scale).sum((0, 1, 2))
        return torch.cat([fixed, moved]), log_det

    def initialize_norms(self, z: Tensor) -> None:
        """Set all normalizations so that their outputs for this batch get mean 0 and variance 1.

        `z` is the input of the step. The weights change in place.
        """
        self.norm.initialize(z)
        self.coupling.initialize_norms(self._normalize_and_mix(z).chunk(2)[0])

    def _normalize_and_mix(self, z: Tensor) -> Tensor:
        """Return `z` after the normalization and the mix of channels, as one matrix product."""
        mix = self.mix.weight()
        weight, bias = mix * self.norm.log_scale.exp(), mix @ self.norm.scaled_bias()
        return torch.addmm(bias[:, None], weight, z.flatten(1)).view_as(z)


class ActNorm(nn.Module):
    """Activation normalization ``(x + bias) * exp(log_scale)`` of each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))
        self.log_scale = nn.Parameter(torch.zeros(channels))

    def fold_into(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return weight and bias of a linear map followed by this normalization.

        `weight` is the matrix of the linear map, which has no bias. The returned bias is a column.
        """
        return weight * self.log_scale.exp()[:, None], self.scaled_bias()[:, None]

    def scaled_bias(self) -> Tensor:
        """Return ``bias * exp(log_scale)``."""
        return self.bias * self.log_scale.exp()

    def initialize(self, values: Tensor) -> None:
        """Set bias and scale so that these values, channels first, get mean 0 and variance 1."""
        values = values.flatten(1)
        self.bias.copy_(-values.mean(1))
        self.log_scale.copy_(-(values.std(1, correction=0) + _MIN_STD).log())


class InvertibleMix(nn.Module):
    """An invertible matrix ``permutation @ lower @ upper`` over the channels.

    The permutation and the signs of the diagonal are constant, and the rest is trained. The sum of
    `log_diagonal` is the log-determinant.
    """

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
    def initialize_weights(self, generator: torch.Generator) -> None:
        """Initialize the matrix as a random rotation, in place."""
        noise = torch.empty_like(self.lower).normal_(generator=generator)
        rotation, _ = torch.linalg.qr(noise)
        permutation, lower, upper = torch.linalg.lu(rotation)
        self.permutation.copy_(permutation)
        self.lower.copy_(lower.tril(-1))
        self.upper.copy_(upper.triu(1))
        self.sign.copy_(upper.diagonal().sign())
        self.log_diagonal.copy_(upper.diagonal().abs().log())

    def weight(self) -> Tensor:
        """Return the matrix ``(channels, channels)``."""
        lower = self.lower.tril(-1) + torch.eye(
            len(self.sign), dtype=self.sign.dtype, device=self.sign.device
        )
        upper = self.upper.triu(1) + torch.diag(self.sign * self.log_diagonal.exp())
        return self.permutation @ lower @ upper


class Coupling(nn.Module):
    """The network that computes shift and scale of one half of the channels from the other.

    `hidden` are the sizes of its two hidden layers. Before training, the shift is 0 and the scale
    is sigmoid(2).
    """

    def __init__(self, channels: int, hidden: tuple[int, int]) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(hidden[0], 9 * channels // 2))
        self.first_norm = ActNorm(hidden[0])
        self.second = nn.Parameter(torch.zeros(hidden[1], hidden[0]))
        self.second_norm = ActNorm(hidden[1])
        self.last = ZeroConvolution(hidden[1], channels, gathers=False)

    def initialize_weights(self, generator: torch.Generator) -> None:
        """Sample the weights of the two hidden layers, in place."""
        nn.init.normal_(self.first, std=_INITIAL_STD, generator=generator)
        nn.init.normal_(self.second, std=_INITIAL_STD, generator=generator)

    def forward(self, fixed: Tensor) -> tuple[Tensor, Tensor]:
        """Return the shift of the other half, and the logit of its scale.

        `fixed` is the half of the channels that the step does not change.
        """
        first = self.first_norm.fold_into(self.first)
        second = self.second_norm.fold_into(self.second)
        outputs = self.last.scale(apply_network(fixed, first, second, self.last.weight))
        return outputs[0::2], outputs[1::2] + 2

    def initialize_norms(self, fixed: Tensor) -> None:
        """Set both normalizations so that their outputs for this batch get mean 0, variance 1."""
        values = extract_patches(fixed)
        for weight, norm in ((self.first, self.first_norm), (self.second, self.second_norm)):
            norm.initialize(weight @ values)
            folded, bias = norm.fold_into(weight)
            values = torch.addmm(bias, folded, values).relu_()


class ZeroConvolution(nn.Module):
    """A 3 x 3 convolution that is zero before training, with a learned scale of each channel.

    With ``gathers=True`` it multiplies patches of its input. Otherwise its weights are for
    `apply_network`, which scatters contributions to the neighbours.
    """

    def __init__(self, n_in: int, n_out: int, *, gathers: bool) -> None:
        super().__init__()
        shape = (n_out, 9 * n_in) if gathers else (9 * n_out, n_in)
        self.weight = nn.Parameter(torch.zeros(shape))
        self.bias = nn.Parameter(torch.zeros(n_out))
        self.log_scale = nn.Parameter(torch.zeros(n_out))

    def forward(self, values: Tensor) -> Tensor:
        """Return the convolution of the input; only for ``gathers=True``."""
        sums = self.weight @ extract_patches(values)
        return self.scale(sums.view(-1, *values.shape[1:]))

    def scale(self, sums: Tensor) -> Tensor:
        """Return ``(sums + bias) * exp(3 * log_scale)`` of each channel."""
        scale = (_LOG_SCALE_FACTOR * self.log_scale).exp()
        return torch.addcmul((self.bias * scale).view(-1, 1, 1, 1), sums, scale.view(-1, 1, 1, 1))


class TopPrior(nn.Module):
    """Mean and log standard deviation of the last level's channels, the same for all pixels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(2 * channels))
        self.log_scale = nn.Parameter(torch.zeros(2 * channels))

    def forward(self, values: Tensor) -> Tensor:
        """Return means and log standard deviations, stacked: ``(2 * channels, 1, 1, 1)``.

        They do not depend on the input.
        """
        return (self.bias * (_LOG_SCALE_FACTOR * self.log_scale).exp()).view(-1, 1, 1, 1)
