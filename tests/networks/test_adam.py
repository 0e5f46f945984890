import numpy as np
import pytest

from altbi.networks._adam import Adam


def test_first_step_has_length_of_learning_rate():
    weights = np.array([1.0, 1.0, 1.0])

    Adam(weights, learning_rate=0.25, weight_decay=0.0).step(np.array([1e-3, -50.0, 0.0]))

    assert weights == pytest.approx([0.75, 1.25, 1.0], abs=1e-4)


def test_weight_decay_shrinks_weights():
    weights = np.array([1.0])

    Adam(weights, learning_rate=0.01, weight_decay=0.1).step(np.zeros(1))

    assert weights == pytest.approx(0.99)


def test_gradient_is_not_modified():
    gradient = np.array([1.0, 2.0])

    Adam(np.ones(2), 0.1, 0.1).step(gradient)

    assert gradient.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_steps_equal_torch_adam(weight_decay):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    weights = rng.normal(size=7)
    tensor = torch.tensor(weights, requires_grad=True)
    ours = Adam(weights, 0.01, weight_decay)
    theirs = torch.optim.Adam([tensor], lr=0.01, weight_decay=weight_decay)

    for _ in range(50):
        gradient = rng.normal(size=7)
        ours.step(gradient)
        tensor.grad = torch.tensor(gradient)
        theirs.step()

    assert weights == pytest.approx(tensor.detach().numpy(), rel=1e-9)
