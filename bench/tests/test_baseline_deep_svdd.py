"""Tests of DeepSVDD and DeepSAD: distances to a centre, with and without labels."""

import numpy as np
import pytest
import torch

from altbi.errors import ParameterError
from altbi_bench.baselines import DeepSAD, DeepSVDD
from altbi_bench.baselines.deep_svdd import move_from_zero

pytestmark = pytest.mark.slow


def sample_rows(n_rows=400, n_columns=4, seed=0):
    return np.random.default_rng(seed).normal(size=(n_rows, n_columns))


def score_with_numpy(detector, X):
    """Compute the scores with NumPy from the trained weights."""
    state = {name: value.numpy() for name, value in detector.network_.state_dict().items()}
    encoded = detector._standardize(X)
    first = np.maximum(encoded @ state["first.weight"].T, 0)
    last = np.maximum(first @ state["last.weight"].T, 0)
    return ((last - state["centre"]) ** 2).sum(axis=1)


class TestDeepSVDD:
    def test_training_moves_rows_towards_the_centre(self):
        X = sample_rows()
        brief, long = (DeepSVDD(epochs=epochs).fit(X) for epochs in (1, 60))

        # One epoch of 12 small steps hardly changes the network.
        assert long.outlier_score(X).mean() < 0.4 * brief.outlier_score(X).mean()
        assert long.history_[-1] < 0.5 * long.history_[0]

    def test_score_is_squared_distance_to_the_centre(self):
        X = sample_rows()
        detector = DeepSVDD(epochs=3).fit(X)

        assert np.allclose(detector.outlier_score(X), score_with_numpy(detector, X), rtol=1e-4)

    def test_centre_is_mean_output_of_the_untrained_network(self):
        X = sample_rows()
        own, foreign = (
            DeepSVDD(epochs=1, learning_rate=1e-12, held_out=0, foreign_centre=which).fit(X)
            for which in (False, True)
        )
        encoded = own._standardize(X)
        outputs = own.network_.layers(torch.from_numpy(encoded))[1].mean(0)

        assert torch.allclose(own.network_.centre, move_from_zero(outputs), atol=1e-5)
        assert not torch.allclose(foreign.network_.centre, move_from_zero(outputs), atol=1e-2)

    def test_centre_coordinates_are_moved_from_zero(self):
        centre = move_from_zero(torch.tensor([-0.05, 0.0, 0.05, 0.5, -2.0]))

        assert torch.equal(centre, torch.tensor([-0.1, 0.1, 0.1, 0.5, -2.0]))

    def test_held_out_rows_are_random_and_unused(self):
        X = sample_rows()

        seen = []
        for held_out in (0.0, 0.5):
            detector = DeepSVDD(held_out=held_out)
            network = detector._build_network(4)
            table = torch.from_numpy(X.astype(np.float32))
            with_numbers = torch.hstack([table[:, :3], torch.arange(400.0)[:, None]])
            used = set()
            layers = network.layers
            network.layers = lambda batch, kept=used, call=layers: (
                kept.update(batch[:, 3].tolist()) if len(batch) < 400 else None,
                call(batch),
            )[1]
            next(detector._train_network(network, with_numbers))
            seen.append(used)

        assert len(seen[0]) == 400
        assert len(seen[1]) == 200
        # A table may have its outliers at the end, so the last rows must not be held out.
        assert 60 < sum(number >= 200 for number in seen[1]) < 140

    def test_loss_sums_distance_and_activity(self):
        detector = DeepSVDD(epochs=1, held_out=0, batch_size=400, learning_rate=1e-9)
        fitted = detector.fit(sample_rows())
        encoded = fitted._standardize(sample_rows())
        first, last = (each.numpy() for each in fitted.network_.layers(torch.from_numpy(encoded)))

        distance = ((last - fitted.network_.centre.numpy()) ** 2).sum(1).mean()
        activity = (first**2).sum(1).mean() + (last**2).sum(1).mean()

        assert fitted.history_ == [pytest.approx(distance + 0.1 * activity, rel=1e-4)]

    @pytest.mark.parametrize("wrong", [{"held_out": 1.0}, {"foreign_centre": "yes"}])
    def test_invalid_parameters_raise(self, wrong):
        with pytest.raises(ParameterError, match=f"DeepSVDD: {next(iter(wrong))}="):
            DeepSVDD(**wrong).fit(sample_rows())


class TestDeepSAD:
    X = np.vstack([sample_rows(380), sample_rows(20, seed=1) * 0.3 + 3])
    IS_OUTLIER = np.arange(400) >= 380

    def test_labelled_outliers_raise_scores_of_similar_rows(self):
        fresh = sample_rows(200, seed=2) * 0.3 + 3
        labelled = DeepSAD(epochs=40, first_epochs=10).fit(self.X, known_outlier=self.IS_OUTLIER)
        unlabelled = DeepSAD(epochs=40, first_epochs=10).fit(self.X)

        shares = [
            (detector.outlier_score(fresh)[:, None] > detector.outlier_score(self.X)[:380]).mean()
            for detector in (unlabelled, labelled)
        ]
        assert shares[1] > 0.97
        assert shares[1] > shares[0] + 0.02

    def test_training_moves_unlabelled_rows_towards_the_centre(self):
        brief, long = (DeepSAD(epochs=epochs, first_epochs=5).fit(self.X) for epochs in (1, 40))

        assert long.outlier_score(self.X).mean() < 0.3 * brief.outlier_score(self.X).mean()

    def test_autoencoder_is_trained_first(self):
        history = DeepSAD(epochs=1, first_epochs=30).fit(self.X).history_

        assert len(history) == 31
        assert history[29] < 0.5 * history[0]

    def test_eta_zero_ignores_known_outliers(self):
        reversed_outliers = self.X.copy()
        reversed_outliers[self.IS_OUTLIER] = reversed_outliers[self.IS_OUTLIER][::-1]

        scores = [
            DeepSAD(epochs=3, first_epochs=2, eta=0.0)
            .fit(table, known_outlier=self.IS_OUTLIER)
            .outlier_score(self.X)
            for table in (self.X, reversed_outliers)
        ]

        assert np.allclose(*scores, rtol=1e-6)

    @pytest.mark.parametrize("wrong", [{"first_epochs": -1}, {"eta": -1}, {"weight_decay": "x"}])
    def test_invalid_parameters_raise(self, wrong):
        with pytest.raises(ParameterError, match=f"DeepSAD: {next(iter(wrong))}="):
            DeepSAD(**wrong).fit(self.X)

    def test_loss_of_known_inliers_is_weighted_by_eta(self):
        known = np.arange(400) < 50

        losses = [
            DeepSAD(epochs=1, first_epochs=0, eta=eta, batch_size=400, learning_rate=1e-9)
            .fit(self.X, known_inlier=known)
            .history_[0]
            for eta in (0.0, 1.0, 2.0)
        ]

        assert losses[0] < losses[1] < losses[2]
        assert losses[2] - losses[1] == pytest.approx(losses[1] - losses[0], rel=1e-3)

    def test_labels_of_wrong_length_raise(self):
        with pytest.raises(ParameterError, match="one boolean for each of the 400 rows"):
            DeepSAD().fit(self.X, known_outlier=self.IS_OUTLIER[:5])
