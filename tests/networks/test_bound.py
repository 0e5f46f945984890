import copy

import pytest
import torch

from altbi.networks import IWAENetwork


def build_network(n_features=3, hidden=(6, 5), n_samples=2, *, bounded=True, batch_norm=True):
    torch.manual_seed(4)
    return IWAENetwork(
        n_features, hidden, 3, n_samples, bounded=bounded, batch_norm=batch_norm
    ).double()


def compute_gradients(model, rows):
    """Return losses and gradients of one batch, with the same noise each time."""
    model.generator = torch.Generator().manual_seed(5)
    model.zero_grad()
    losses = model.train()(rows)
    (losses * torch.linspace(1, 2, len(rows))).sum().backward()
    return losses.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}


def is_hand_written(losses):
    return "_Bounds" in type(losses.grad_fn).__name__


@pytest.mark.parametrize("n_samples", [1, 2, 6])
@pytest.mark.parametrize("hidden", [(7,), (6, 5), (8, 7, 6)])
def test_gradient_equals_autograd(hidden, n_samples):
    model = build_network(5, hidden, n_samples)
    with torch.no_grad():
        # Some log-variances are clamped, others are not, and samples differ in weight.
        for head in (model.latent_log_variance, model.log_variance):
            head.weight.mul_(8)
        model.mean.weight.mul_(4)
    plain, rows = copy.deepcopy(model), 2 * torch.rand(30, 5, dtype=torch.float64) - 0.5

    losses, gradients = compute_gradients(model, rows)
    # The network uses autograd if gradients of the rows are needed.
    plain_losses, plain_gradients = compute_gradients(plain, rows.clone().requires_grad_())

    _, log_variance = plain.encode(rows)
    assert 0 < (log_variance.abs() < 2).sum() < log_variance.numel()
    assert is_hand_written(model(rows))
    assert torch.allclose(losses, plain_losses, rtol=1e-10)
    for name, gradient in plain_gradients.items():
        largest = gradient.abs().max()
        assert largest > 0
        assert (gradients[name] - gradient).abs().max() < 1e-9 * largest, name


def test_running_statistics_equal_batch_norm():
    model = build_network()
    plain, rows = copy.deepcopy(model), torch.rand(12, 3, dtype=torch.float64)
    for _ in range(3):
        compute_gradients(model, rows)
        compute_gradients(plain, rows.clone().requires_grad_())

    for (name, ours), theirs in zip(model.named_buffers(), plain.buffers(), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-10), name
    assert model.encoder[1].num_batches_tracked == 3
    assert (model.decoder[1].running_var - 1).abs().max() > 0.01


@pytest.mark.parametrize(
    "case", ["evaluation", "no norms", "paper", "selective", "row gradients", "frozen encoder"]
)
def test_other_cases_use_autograd(case):
    n_features = 80 if case == "selective" else 3
    model = build_network(
        n_features,
        n_samples=20 if case == "selective" else 2,
        bounded=case != "paper",
        batch_norm=case != "no norms",
    )
    rows = torch.rand(12, n_features, dtype=torch.float64)
    if case == "evaluation":
        model.eval()
    elif case == "row gradients":
        rows.requires_grad_()
    elif case == "frozen encoder":
        model.encoder.eval()

    assert not is_hand_written(model(rows))
