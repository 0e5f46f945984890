import numpy as np
import torch
from torch import nn

from altbi.networks import N_LANDMARKS, select_landmarks
from altbi.torch._snapshots import Landmarks, SequentialSnapshots


def test_landmarks_are_quantiles_of_columns():
    rows = np.random.default_rng(0).permuted(
        np.repeat(np.arange(9, dtype=np.float32)[:, None], 2, axis=1), axis=0
    )

    landmarks = select_landmarks(rows, np.array([0, 1]))

    assert landmarks.shape == (N_LANDMARKS, 2)
    assert np.array_equal(landmarks, np.sort(rows, axis=0))


def test_landmarks_of_few_rows_are_the_nearest_quantiles():
    rows = np.arange(6, dtype=np.float32)[::-1, None]

    assert select_landmarks(rows, np.array([0]))[:, 0].tolist() == [0, 1, 1, 2, 2, 3, 4, 4, 5]


def test_network_may_change_its_input():
    class Changing(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, rows):
            return rows.mul_(2).sum(dim=1) + self.weight

    states = {"weight": torch.tensor([[0.0], [10.0]])}
    landmarks = Landmarks(torch.zeros(N_LANDMARKS, 2), torch.arange(2))
    columns = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32)

    losses = SequentialSnapshots(Changing(), states, landmarks).losses(columns)

    assert losses.tolist() == [[8, 12], [18, 22]]


def build_snapshots(loss, n_features):
    class GivenLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, rows):
            return loss(*rows.T)

    landmarks = torch.linspace(-1, 1, N_LANDMARKS)[:, None].expand(-1, n_features)
    states = {"weight": torch.zeros(1, 1)}
    return SequentialSnapshots(GivenLoss(), states, Landmarks(landmarks, torch.arange(n_features)))


def expect(snapshots, context, row):
    expected, distance = snapshots.expect(
        *(np.array([values], dtype=np.float32).T for values in (context, row))
    )
    return expected[0, :, 0].tolist(), distance[0, :, 0].tolist()


def test_unusual_value_does_not_affect_median_value():
    # A larger third value lowers the loss only if the first two differ.
    snapshots = build_snapshots(lambda a, b, c: (a - b) ** 2 * (2 - c), n_features=3)

    _, distance = expect(snapshots, context=[0.0, 1.0, 0.0], row=[-1.0, 1.0, 0.0])

    assert distance == [2.0, 2.0, 0.0]


def test_value_that_fits_its_row_is_expected():
    # The second value depends on the first, which is unusual and therefore replaced.
    snapshots = build_snapshots(lambda a, b: a**2 + 4 * (b - a) ** 2, n_features=2)

    expected, distance = expect(snapshots, context=[0.0, 1.0], row=[1.0, 1.0])

    assert expected == [0.75, 0.0]
    assert distance == [0.1875, 0.0]


def test_extreme_value_does_not_hide_another_one():
    snapshots = build_snapshots(lambda a, b: a**2 + b**2, n_features=2)

    _, distance = expect(snapshots, context=[0.0, 0.0], row=[2.0**20, 1.0])

    assert distance == [2.0**40, 1.0]
