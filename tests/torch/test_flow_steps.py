import pytest
import torch
from torch.nn import functional

from altbi.torch._flow_steps import ZeroConvolution, apply_network, extract_patches


@pytest.mark.slow
def test_gradients_equal_finite_differences(monkeypatch):
    monkeypatch.setattr("altbi.torch._flow_steps._BLOCK_PIXELS", 20)  # several blocks
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, 3, 3, 5), (6, 18), (6, 1), (5, 6), (5, 1), (36, 5)]
    z, first, first_bias, second, second_bias, last = (
        torch.randn(shape, generator=generator, dtype=torch.double).requires_grad_()
        for shape in shapes
    )

    def apply(z, first, first_bias, second, second_bias, last):
        return apply_network(z, (first, first_bias), (second, second_bias), last)

    assert torch.autograd.gradcheck(apply, (z, first, first_bias, second, second_bias, last))
    assert torch.autograd.gradcheck(extract_patches, z)


def test_zero_convolution_equals_conv2d():
    convolution = ZeroConvolution(2, 3, gathers=True).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in convolution.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    images = torch.rand(5, 2, 4, 4, dtype=torch.double)

    weight = convolution.weight.unflatten(1, (9, -1)).transpose(1, 2).unflatten(2, (3, 3))
    expected = functional.conv2d(images, weight, convolution.bias, padding=1)
    expected = expected * (3 * convolution.log_scale).exp()[:, None, None]

    found = convolution(images.permute(1, 2, 3, 0).contiguous())
    assert torch.allclose(found, expected.permute(1, 2, 3, 0))
