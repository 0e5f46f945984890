"""Convolutions of GLOW on ``(n_channels, side, side, n_rows)``: matrix products over neighbours."""

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction, once_differentiable
from torch.nn import functional

__all__ = ["network", "patches"]

# Hidden values of so many places at a time stay in the processor's cache.
_PLACES_AT_ONCE = 9216


def patches(z: Tensor) -> Tensor:
    """Put the nine neighbours' channels side by side: ``(9 * n_channels, side * side * n_rows)``.

    Beyond the edge there are zeros.
    """
    channels, side, _, _ = z.shape
    padded = functional.pad(z, (0, 0, 1, 1, 1, 1))
    windows = padded.unfold(1, side, 1).unfold(2, side, 1)
    return windows.permute(1, 2, 0, 4, 5, 3).reshape(9 * channels, -1)


def network(
    z: Tensor, first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor], last: Tensor
) -> Tensor:
    """Convolve, go through a layer and convolve again, with ReLU between them.

    `first` weighs patches; it and `second` have a bias each, as a column. Hidden values are many:
    of them each place computes what it gives to its nine neighbours, which are the rows of `last`.
    """
    # To take from a neighbour is to give in the opposite direction.
    given = last.view(9, -1, last.shape[1]).flip(0).view_as(last)
    return _Network.apply(z, *first, *second, given)  # type: ignore[no-untyped-call]


class _Network(torch.autograd.Function):
    """The network for some rows at a time, with its gradient written out.

    Hidden values are many times wider than what comes in. All of them at once would go to the main
    memory and back, and the system would be asked for that memory again in every update.
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
        found, hidden = [], []
        for part in _parts(z):
            one = torch.addmm(first_bias, first, patches(part)).relu_()
            two = torch.addmm(second_bias, second, one).relu_()
            found.append(_added(last @ two, part))
            hidden += [one, two]
        ctx.save_for_backward(z, first, second, last, *hidden)
        return torch.cat(found, -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: BackwardCFunction, slopes: Tensor) -> tuple[Tensor, ...]:
        saved: tuple[Tensor, ...] = ctx.saved_tensors
        z, first, second, last, *hidden = saved
        of_z, of_first, of_second, of_last = [], *map(torch.zeros_like, (first, second, last))
        of_first_bias, of_second_bias = (w.new_zeros(len(w), 1) for w in (first, second))
        parts = zip(_parts(z), _parts(slopes), hidden[0::2], hidden[1::2], strict=True)
        for part, of_part, one, two in parts:
            of_given = patches(of_part)
            of_last.addmm_(of_given, two.T)
            of_two = _through_relu(last.T @ of_given, two)
            of_second.addmm_(of_two, one.T)
            of_second_bias += of_two.sum(1, keepdim=True)
            of_one = _through_relu(second.T @ of_two, one)
            of_first.addmm_(of_one, patches(part).T)
            of_first_bias += of_one.sum(1, keepdim=True)
            of_z.append(_added(first.T @ of_one, part))
        return torch.cat(of_z, -1), of_first, of_first_bias, of_second, of_second_bias, of_last


def _parts(z: Tensor) -> tuple[Tensor, ...]:
    """Split the rows; by a power of two, so that blocks in scoring fall into equal parts."""
    most = max(_PLACES_AT_ONCE // z.shape[1] ** 2, 1)
    return torch.split(z, 1 << (most.bit_length() - 1), -1)


def _through_relu(slopes: Tensor, hidden: Tensor) -> Tensor:
    """Change the slopes in place: new memory would cost more than what is computed."""
    return torch.ops.aten.threshold_backward.grad_input(slopes, hidden, 0, grad_input=slopes)


def _added(nine: Tensor, like: Tensor) -> Tensor:
    """Add up, in place, what places give to their neighbours: the transpose of `patches`."""
    z = nine.view(-1, *like.shape[1:])
    for axis in (1, 2):
        others = z.shape[axis] - 1
        to_before, z, to_after = z.chunk(3)
        z.narrow(axis, 0, others).add_(to_before.narrow(axis, 1, others))
        z.narrow(axis, 1, others).add_(to_after.narrow(axis, 0, others))
    return z
