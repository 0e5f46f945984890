"""DeepSVDD and DeepSAD: rows are drawn to a centre, known outliers pushed from it."""

import numpy as np
import pytest
import torch

from altbi.errors import ParameterError
from altbi_bench.baselines import DeepSAD, DeepSVDD
from altbi_bench.baselines.deep_svdd import move_from_zero


def rows(n_rows=400, n_columns=4, seed=0):
    return np.random.default_rng(seed).normal(size=(n_rows, n_columns))


def numpy_svdd(detector, X):
    """Map rows by hand, with the weights that were learned."""
    state = {name: value.numpy() for name, value in detector.network_.state_dict().items()}
    units = detector._standardize(X)
    first = np.maximum(units @ state["first.weight"].T, 0)
    last = np.maximum(first @ state["last.weight"].T, 0)
    return ((last - state["centre"]) ** 2).sum(axis=1)


class TestDeepSVDD:
    def test_training_draws_the_rows_to_the_centre(self):
        X = rows()
        brief, long = (DeepSVDD(epochs=epochs).fit(X) for epochs in (1, 60))

        # Adam's first pass has 12 short steps: nearly the untrained map.
        assert long.outlier_score(X).mean() < 0.4 * brief.outlier_score(X).mean()
        assert long.history_[-1] < 0.5 * long.history_[0]

    def test_the_score_is_the_squared_distance_to_the_centre(self):
        X = rows()
        detector = DeepSVDD(epochs=3).fit(X)

        assert np.allclose(detector.outlier_score(X), numpy_svdd(detector, X), rtol=1e-4)

    def test_the_centre_is_the_mean_of_the_first_outputs_of_the_same_network(self):
        X = rows()
        own, foreign = (
            DeepSVDD(epochs=1, learning_rate=1e-12, held_out=0, foreign_centre=which).fit(X)
            for which in (False, True)
        )
        units = own._standardize(X)
        outputs = own.network_.layers(torch.from_numpy(units))[1].mean(0)

        assert torch.allclose(own.network_.centre, move_from_zero(outputs), atol=1e-5)
        assert not torch.allclose(foreign.network_.centre, move_from_zero(outputs), atol=1e-2)

    def test_no_coordinate_of_a_centre_is_near_zero(self):
        centre = move_from_zero(torch.tensor([-0.05, 0.0, 0.05, 0.5, -2.0]))

        assert torch.equal(centre, torch.tensor([-0.1, 0.1, 0.1, 0.5, -2.0]))

    def test_rows_held_out_do_not_teach_and_are_drawn(self):
        X = rows()

        seen = []
        for held_out in (0.0, 0.5):
            detector = DeepSVDD(held_out=held_out)
            network = detector._build_network(4)
            table = torch.from_numpy(X.astype(np.float32))
            with_numbers = torch.hstack([table[:, :3], torch.arange(400.0)[:, None]])
            taught = set()
            layers = network.layers
            network.layers = lambda batch, kept=taught, call=layers: (
                kept.update(batch[:, 3].tolist()) if len(batch) < 400 else None,
                call(batch),
            )[1]
            next(detector._train_network(network, with_numbers))
            seen.append(taught)

        assert len(seen[0]) == 400
        assert len(seen[1]) == 200
        # Outliers may stand at the end of a table: what is held out must not be its end.
        assert 60 < sum(number >= 200 for number in seen[1]) < 140

    def test_the_loss_is_distance_and_activity(self):
        detector = DeepSVDD(epochs=1, held_out=0, batch_size=400, learning_rate=1e-9)
        fitted = detector.fit(rows())
        units = fitted._standardize(rows())
        first, last = (each.numpy() for each in fitted.network_.layers(torch.from_numpy(units)))

        distance = ((last - fitted.network_.centre.numpy()) ** 2).sum(1).mean()
        activity = (first**2).sum(1).mean() + (last**2).sum(1).mean()

        assert fitted.history_ == [pytest.approx(distance + 0.1 * activity, rel=1e-4)]

    @pytest.mark.parametrize("wrong", [{"held_out": 1.0}, {"foreign_centre": "yes"}])
    def test_wrong_parameters_are_refused(self, wrong):
        with pytest.raises(ParameterError, match=f"DeepSVDD: {next(iter(wrong))}="):
            DeepSVDD(**wrong).fit(rows())


class TestDeepSAD:
    X = np.vstack([rows(380), rows(20, seed=1) * 0.3 + 3])
    ODD = np.arange(400) >= 380

    def test_known_outliers_and_their_like_are_pushed_away(self):
        fresh = rows(200, seed=2) * 0.3 + 3
        told = DeepSAD(epochs=40, first_epochs=10).fit(self.X, known_outlier=self.ODD)
        untold = DeepSAD(epochs=40, first_epochs=10).fit(self.X)

        shares = [
            (detector.outlier_score(fresh)[:, None] > detector.outlier_score(self.X)[:380]).mean()
            for detector in (untold, told)
        ]
        assert shares[1] > 0.97
        assert shares[1] > shares[0] + 0.02

    def test_training_draws_the_other_rows_to_the_centre(self):
        brief, long = (DeepSAD(epochs=epochs, first_epochs=5).fit(self.X) for epochs in (1, 40))

        assert long.outlier_score(self.X).mean() < 0.3 * brief.outlier_score(self.X).mean()

    def test_the_autoencoder_learns_before(self):
        history = DeepSAD(epochs=1, first_epochs=30).fit(self.X).history_

        assert len(history) == 31
        assert history[29] < 0.5 * history[0]

    def test_without_weight_known_outliers_count_for_nothing(self):
        with_none = self.X.copy()
        with_none[self.ODD] = with_none[self.ODD][::-1]

        scores = [
            DeepSAD(epochs=3, first_epochs=2, eta=0.0)
            .fit(table, known_outlier=self.ODD)
            .outlier_score(self.X)
            for table in (self.X, with_none)
        ]

        assert np.allclose(*scores, rtol=1e-3)

    @pytest.mark.parametrize("wrong", [{"first_epochs": -1}, {"eta": -1}, {"weight_decay": "x"}])
    def test_wrong_parameters_are_refused(self, wrong):
        with pytest.raises(ParameterError, match=f"DeepSAD: {next(iter(wrong))}="):
            DeepSAD(**wrong).fit(self.X)

    def test_known_inliers_weigh_by_eta(self):
        known = np.arange(400) < 50

        losses = [
            DeepSAD(epochs=1, first_epochs=0, eta=eta, batch_size=400, learning_rate=1e-9)
            .fit(self.X, known_inlier=known)
            .history_[0]
            for eta in (0.0, 1.0, 2.0)
        ]

        assert losses[0] < losses[1] < losses[2]
        assert losses[2] - losses[1] == pytest.approx(losses[1] - losses[0], rel=1e-3)

    def test_labels_of_another_length_are_refused(self):
        with pytest.raises(ParameterError, match="one boolean for each of the 400 rows"):
            DeepSAD().fit(self.X, known_outlier=self.ODD[:5])
