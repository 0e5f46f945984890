import numpy as np
import pytest
import torch
from torch import nn

from altbi.networks._peak_search import compute_bimodality, search_peak
from altbi.networks._training import iter_batches


def sample_two_groups(distance):
    rng = np.random.default_rng(0)
    return torch.tensor(np.r_[rng.normal(0, 0.1, 500), rng.normal(distance, 0.1, 500)])


def test_bimodality_is_distance_of_two_gaussians():
    rng = np.random.default_rng(0)
    groups = rng.normal(0, 0.02, 4000), rng.normal(5, 0.4, 4000)
    low, high = np.r_[groups].min(), np.r_[groups].max()
    scaled = [(group - low) / (high - low) for group in groups]
    means = [group.mean() for group in scaled]
    stds = [group.std() for group in scaled]

    def expected(power):
        return (means[0] - means[1]) ** 2 + (stds[0] ** power - stds[1] ** power) ** 2

    losses = torch.tensor(np.r_[groups])
    assert compute_bimodality(losses, "deviation") == pytest.approx(expected(1), rel=0.01)
    assert compute_bimodality(losses, "variance") == pytest.approx(expected(2), rel=0.01)
    assert expected(1) > 1.005 * expected(2)


def test_bimodality_grows_and_ignores_scale():
    found = [compute_bimodality(sample_two_groups(d), "deviation") for d in (0.2, 0.5, 2)]

    assert found == sorted(found)
    rescaled = compute_bimodality(sample_two_groups(0.5) * 40 - 7, "deviation")
    assert rescaled == pytest.approx(found[1], rel=1e-6)


@pytest.mark.parametrize("losses", [[3.0, 3.0, 3.0], [1.0]])
def test_equal_losses_have_no_bimodality(losses):
    assert compute_bimodality(torch.tensor(losses), "deviation") == 0


class Scripted(nn.Module):
    """A model whose two groups of losses have a scripted distance after each update."""

    def __init__(self, distances):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.distances = distances
        self.n_updates = 0
        self.n_resampled = 0

    def resample_noise(self):
        self.n_resampled += 1

    def forward(self, rows):
        if self.training:
            self.n_updates += 1
            return rows.sum(1) * self.weight
        distance = self.distances[min(self.n_updates, len(self.distances)) - 1]
        indices = torch.arange(len(rows))
        return torch.where(indices < 8, distance, 0.0) + 0.3 * torch.sin(indices * 2.4)


def search(distances, n_rows=640, **changes):
    options = {
        "batch_size": 64,
        "check_every": 2,
        "patience": 6,
        "max_updates": 1000,
        "spread": "deviation",
        "learning_rate": 1e-3,
        "weight_decay": 0.0,
        "generator": torch.Generator().manual_seed(0),
    }
    model = Scripted(distances)
    return model, list(search_peak(model, torch.rand(n_rows, 3), **options | changes))


def test_patience_ends_the_search():
    model, checks = search([1, 2, 3, 5, 8, 13, 8, 5, 4, 3, 2, 1, 1, 1, 1, 1, 1, 1])

    assert [check.update for check in checks] == [2, 4, 6, 8, 10, 12]
    assert [check.update for check in checks if check.is_best] == [2, 4, 6]
    assert model.n_updates == 12
    assert model.n_resampled == len(checks)


def test_max_updates_ends_the_search():
    model, checks = search(list(range(1, 100)), max_updates=7)

    assert model.n_updates == 8  # the first check at or after the limit
    assert checks[-1].update == 8


@pytest.mark.parametrize(
    ("n_rows", "patience", "updates", "batch_size"),
    [(150, 6, [2, 5, 8, 11], 64), (5, 3, [1, 2, 3, 4], 5), (80, 4, [1, 3, 5, 7, 9], 64)],
)
def test_small_tables_are_checked_every_epoch(n_rows, patience, updates, batch_size):
    _, checks = search([1] * 60, n_rows=n_rows, check_every=10, patience=patience)

    assert [check.update for check in checks] == updates
    assert {check.batch_size for check in checks} == {batch_size}  # never a smaller last batch


def test_epoch_has_a_smaller_last_batch():
    batches = list(iter_batches(130, 64, 3, torch.Generator().manual_seed(0)))

    assert [len(batch) for batch in batches] == [64, 64, 2]
    assert len(torch.cat(batches).unique()) == 130
