"""Layers of GLOW on squares of pixels with channels: ``(n_channels, side, side, n_rows)``.

Rows are the last axis, so that neighbours are slices and halves of the channels are contiguous.
Convolutions are matrix products over patches, because the squares are small and the normalizations
fold into the weights.
"""

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction, once_differentiable
from torch.nn import functional

# Number of pixels in a block, whose hidden activations stay in the processor's cache.
_BLOCK_PIXELS = 9216
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
        """Return the transformed values, of the shape of `z`, and log-determinants ``(n_rows,)``.

        `z` has the shape ``(n_channels, side, side, n_rows)``.
        """
        fixed, moved = self._normalize_and_mix(z).chunk(2)
        shift, scale = self.coupling(fixed)
        moved = (moved + shift) * scale.sigmoid()
        per_pixel = self.norm.log_scale.sum() + self.mix.log_diagonal.sum()
        log_det = z[0, ..., 0].numel() * per_pixel + functional.logsigmoid(scale).sum((0, 1, 2))
        return torch.cat([fixed, moved]), log_det

    def initialize_norms(self, z: Tensor) -> None:
        """Set all normalizations so that their outputs for this batch get mean 0 and variance 1.

        `z` is the input of the step. Biases and scales change in place, so call it without
        gradients (``torch.no_grad``).
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
        """Return ``bias * exp(log_scale)`` of the channels: ``(channels,)``."""
        return self.bias * self.log_scale.exp()

    def initialize(self, values: Tensor) -> None:
        """Set bias and scale in place, so that these values get mean 0 and variance 1.

        The first axis of the values has the channels.
        """
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
        """Return the matrix ``(channels, channels)`` that multiplies the channels of a pixel."""
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
        """Return the shift of the other half of the channels, and the logit of its scale.

        All have the shape of `fixed`, the half that the step does not change:
        ``(n_channels / 2, side, side, n_rows)``.
        """
        first = self.first_norm.fold_into(self.first)
        second = self.second_norm.fold_into(self.second)
        outputs = self.last.scale(apply_network(fixed, first, second, self.last.weight))
        return outputs[0::2], outputs[1::2] + 2

    def initialize_norms(self, fixed: Tensor) -> None:
        """Set both normalizations in place, so that their outputs have mean 0 and variance 1.

        `fixed` is the input of the coupling for a batch. Call it without gradients.
        """
        values = extract_patches(fixed)
        for weight, norm in (
            (self.first, self.first_norm),
            (self.second, self.second_norm),
        ):
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
        """Return the convolution of values ``(n_in, side, side, n_rows)`` with `n_out` channels.

        Only for ``gathers=True``.
        """
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


def extract_patches(z: Tensor) -> Tensor:
    """Return the 3 x 3 neighbourhoods of all pixels: ``(9 * n_channels, side * side * n_rows)``.

    Pixels outside the square are zero.
    """
    channels, side, _, _ = z.shape
    padded = functional.pad(z, (0, 0, 1, 1, 1, 1))
    windows = padded.unfold(1, side, 1).unfold(2, side, 1)
    return windows.permute(1, 2, 0, 4, 5, 3).reshape(9 * channels, -1)


def apply_network(
    z: Tensor, first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor], last: Tensor
) -> Tensor:
    """Apply a 3 x 3 convolution, a 1 x 1 and a 3 x 3 convolution, with ReLU between them.

    `z` and the result have the shape ``(n_channels, side, side, n_rows)``. `first` and `second` are
    pairs of weight and bias; the bias is a column. `last` has the shape ``(9 * n_out, n_hidden)``
    and no bias. Each pixel computes its contributions to the nine neighbours, because patches of
    hidden activations would be large.
    """
    # A weight that reads from the left neighbour is one that writes to the right neighbour.
    scattered = last.view(9, -1, last.shape[1]).flip(0).view_as(last)
    return _Network.apply(z, *first, *second, scattered)  # type: ignore[no-untyped-call]


class _Network(torch.autograd.Function):
    """The three convolutions for blocks of rows, with a hand-written gradient.

    Hidden activations are many times larger than the input. In blocks, they stay in cache. A whole
    fit is 1.4 to 1.5 times as fast as with autograd (benchmarks/glow_convolution.py).
    """

    @staticmethod
    def forward(
        ctx: BackwardCFunction,
        z: Tensor,
        first: Tensor,
        first_bias: Tensor,
        second: Tensor,
        second_bias: Tensor,
        last: Tensor,
    ) -> Tensor:
        """Return the output of the network; save the hidden activations for `backward`.

        The network is a 3x3, a 1x1 and a 3x3 convolution, with ReLU between them. `z` has the shape
        ``(channels, side, side, n_rows)``. `last` must already be flipped, as `apply_network` does.
        """
        outputs, hidden = [], []
        for block in _split_rows(z):
            hidden1 = torch.addmm(first_bias, first, extract_patches(block)).relu_()
            hidden2 = torch.addmm(second_bias, second, hidden1).relu_()
            outputs.append(_add_patches(last @ hidden2, block))
            hidden += [hidden1, hidden2]
        ctx.save_for_backward(z, first, second, last, *hidden)
        return torch.cat(outputs, -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: BackwardCFunction, grad: Tensor) -> tuple[Tensor, ...]:
        """Return the gradients of `z` and of all weights and biases, in the order of `forward`."""
        saved: tuple[Tensor, ...] = ctx.saved_tensors
        z, first, second, last, *hidden = saved
        grad_z, grad_first, grad_second, grad_last = (
            [],
            *map(torch.zeros_like, (first, second, last)),
        )
        grad_bias1, grad_bias2 = (weight.new_zeros(len(weight), 1) for weight in (first, second))
        blocks = zip(_split_rows(z), _split_rows(grad), hidden[0::2], hidden[1::2], strict=True)
        for block, grad_block, hidden1, hidden2 in blocks:
            grad_patches = extract_patches(grad_block)
            grad_last.addmm_(grad_patches, hidden2.T)
            grad_hidden2 = _relu_backward(last.T @ grad_patches, hidden2)
            grad_second.addmm_(grad_hidden2, hidden1.T)
            grad_bias2 += grad_hidden2.sum(1, keepdim=True)
            grad_hidden1 = _relu_backward(second.T @ grad_hidden2, hidden1)
            grad_first.addmm_(grad_hidden1, extract_patches(block).T)
            grad_bias1 += grad_hidden1.sum(1, keepdim=True)
            grad_z.append(_add_patches(first.T @ grad_hidden1, block))
        return (
            torch.cat(grad_z, -1),
            grad_first,
            grad_bias1,
            grad_second,
            grad_bias2,
            grad_last,
        )


def _split_rows(z: Tensor) -> tuple[Tensor, ...]:
    """Split the last axis into blocks of at most `_BLOCK_PIXELS` pixels.

    The number of rows in a block is a power of two and at least 1. It divides the block size used
    for scoring.
    """
    max_rows = max(_BLOCK_PIXELS // z.shape[1] ** 2, 1)
    return torch.split(z, 1 << (max_rows.bit_length() - 1), -1)


def _relu_backward(grad: Tensor, hidden: Tensor) -> Tensor:
    """Set `grad` to 0 where the output `hidden` of a ReLU is 0, and return it.

    It changes `grad` in place, because an allocation costs more than the arithmetic.
    """
    return torch.ops.aten.threshold_backward.grad_input(grad, hidden, 0, grad_input=grad)


def _add_patches(patches: Tensor, like: Tensor) -> Tensor:
    """Add the contributions of each pixel to its nine neighbours; return the shape of `like`.

    `patches` is ``(9 * n_channels, side * side * n_rows)`` and is overwritten. This is the
    transpose of `extract_patches`. Contributions to pixels outside the square are dropped.
    """
    z = patches.view(-1, *like.shape[1:])
    for axis in (1, 2):
        length = z.shape[axis] - 1
        to_previous, z, to_next = z.chunk(3)
        z.narrow(axis, 0, length).add_(to_previous.narrow(axis, 1, length))
        z.narrow(axis, 1, length).add_(to_next.narrow(axis, 0, length))
    return z
