"""Convolutions of GLOW on ``(n_channels, side, side, n_rows)``, computed as matrix products."""

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction, once_differentiable
from torch.nn import functional

# Number of pixels in a block, whose hidden activations stay in the processor's cache.
_BLOCK_PIXELS = 9216


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
        """Return the output of the network; save the hidden activations for `backward`."""
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
        return torch.cat(grad_z, -1), grad_first, grad_bias1, grad_second, grad_bias2, grad_last


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
