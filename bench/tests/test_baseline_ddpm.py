"""Tests of DDPM: denoising steps, noise prediction and early stopping."""

import numpy as np
import pytest
import torch

from altbi_bench.baselines.base import Trainer
from altbi_bench.baselines.ddpm import DDPM, START, TIMES, Denoiser, encode_times, has_stalled

pytestmark = pytest.mark.slow

BETAS = np.linspace(1e-4, 1e-2, 1000)
KEPT = np.cumprod(1 - BETAS)


def sample_rows_near_a_line(n_rows=512):
    rng = np.random.default_rng(0)
    along = rng.normal(size=(n_rows, 1))
    return along @ np.ones((1, 4)) + 0.1 * rng.normal(size=(n_rows, 4))


@pytest.fixture(scope="module")
def trained():
    return DDPM(epochs=45, learning_rate=1e-3).fit(sample_rows_near_a_line())


class TestTraining:
    def test_outlier_changes_more_than_inlier(self, trained):
        on, off = trained.outlier_score([[1.5, 1.5, 1.5, 1.5], [1.5, -1.5, 1.5, -1.5]])

        # Without training both change by the same amount.
        assert off > 4 * on

    def test_predicted_noise_is_near_the_optimum(self, trained):
        X = sample_rows_near_a_line()
        rows = torch.from_numpy(((X - X.mean(0)) / X.std(0)).astype(np.float32))
        covariance = np.cov(rows.T.numpy(), bias=True)
        network = trained.network_
        for time in (100, 300, 600, 900):
            noise = torch.from_numpy(np.random.default_rng(time).normal(size=rows.shape)).float()
            noisy = network.add_noise(rows, noise, torch.full((len(rows),), time))
            predicted = network.predict_noise(
                noisy, network.embed_time(network.time_encodings[time])
            ).numpy()
            # The optimal predictor for Gaussian rows is linear.
            noisy_covariance = KEPT[time] * covariance + (1 - KEPT[time]) * np.eye(4)
            best = np.sqrt(1 - KEPT[time]) * noisy.numpy() @ np.linalg.inv(noisy_covariance)

            assert np.corrcoef(predicted.ravel(), best.ravel())[0, 1] > 0.9
            assert ((predicted - best) ** 2).mean() < 0.2 * (best**2).mean()

    def test_training_lowers_the_loss(self, trained):
        assert trained.history_[-1] < 0.7 * trained.history_[0]


class TestMathematics:
    def test_noisy_rows_have_the_variance_of_the_schedule(self):
        rng = np.random.default_rng(1)
        rows, noise = (torch.from_numpy(rng.normal(size=(40_000, 1))).float() for _ in range(2))
        network = Denoiser(1)
        for time in (0, 249, 999):
            times = torch.full((len(rows),), time)
            spread = network.add_noise(3 * rows, noise, times).var()

            assert float(spread) == pytest.approx(9 * KEPT[time] + 1 - KEPT[time], rel=0.03)

    def test_steps_with_true_noise_are_conditional_means(self, monkeypatch):
        mean, variance = 0.7, 2.0
        network = Denoiser(1).double()
        times = iter(reversed(range(START)))

        def return_true_noise(rows, _):
            kept = KEPT[next(times)]
            noisy_variance = kept * variance + 1 - kept
            return np.sqrt(1 - kept) * (rows - np.sqrt(kept) * mean) / noisy_variance

        monkeypatch.setattr(network, "predict_noise", return_true_noise)
        rows = np.array([[-4.0], [0.0], [0.7], [5.0]])
        found = network.denoise(torch.from_numpy(rows)).detach().numpy()

        expected = rows
        for time in reversed(range(START)):
            before = KEPT[time - 1] if time else 1.0
            spread = before * variance + 1 - before
            factor = np.sqrt(1 - BETAS[time]) * spread / (KEPT[time] * variance + 1 - KEPT[time])
            offset = expected - np.sqrt(KEPT[time]) * mean
            expected = np.sqrt(before) * mean + factor * offset
        assert np.allclose(found, expected)

    def test_score_is_the_mean_squared_change(self, trained):
        rows = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
        change = rows - trained.network_.denoise(rows)

        assert torch.allclose(trained.network_(rows), (change**2).mean(1))

    def test_time_embedding_has_cosines_then_sines(self):
        found = encode_times(TIMES, 256).numpy()
        speeds = 10_000.0 ** (-np.arange(128) / 128)

        assert found.shape == (1000, 256)
        assert np.allclose(found[777], np.r_[np.cos(777 * speeds), np.sin(777 * speeds)], atol=1e-6)


class TestStopping:
    @pytest.mark.parametrize(
        ("losses", "stalled"),
        [
            ([1.0] * 51 + [1.1], True),
            ([1.0] * 51 + [1.0], False),
            ([1.0] * 50 + [1.1], False),
            ([1.0] * 12 + [2.0] + [1.0] * 38 + [1.5], False),
            ([2.0] * 12 + [1.0] + [2.0] * 38 + [1.5], True),
            ([], False),
        ],
    )
    def test_stall_compares_with_39_epochs_earlier(self, losses, stalled):
        assert has_stalled(losses) is stalled

    def test_training_stops_when_the_loss_stalls(self, monkeypatch):
        monkeypatch.setattr("altbi_bench.baselines.ddpm.START", 1)
        losses = iter(range(1000))
        monkeypatch.setattr(Trainer, "epoch", lambda *_: float(next(losses)))

        assert len(DDPM(epochs=100).fit(sample_rows_near_a_line(10)).history_) == 52

    @pytest.mark.parametrize(("n_rows", "sizes"), [(100, [64]), (40, [40]), (130, [64, 64])])
    def test_incomplete_batch_is_dropped_unless_alone(self, monkeypatch, n_rows, sizes):
        monkeypatch.setattr("altbi_bench.baselines.ddpm.START", 1)
        seen = []
        loss = Denoiser.loss

        def record_size(network, rows):
            seen.append(len(rows))
            return loss(network, rows)

        monkeypatch.setattr(Denoiser, "loss", record_size)
        DDPM(epochs=1).fit(sample_rows_near_a_line(n_rows))

        assert seen == sizes
