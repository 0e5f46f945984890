"""The promises of all baselines: a row's score is its own, training trains."""

import copy
import inspect
import re

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

from altbi import baselines
from altbi.baselines import Baseline
from altbi.baselines.base import Trainer
from altbi.errors import ParameterError, TrainingError

# Epochs enough for a few updates; the answers of longer trainings are in files of their own.
BRIEF = {
    name: getattr(baselines, name)(epochs=2) for name in baselines.__all__ if name != "Baseline"
}
DEFAULT = re.compile(r"^(\w+) : .*default=(.+)$", re.MULTILINE)


def some_rows(n_rows=300, n_columns=5):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n_rows, 2)) @ rng.normal(size=(2, n_columns))
    return rows + 0.1 * rng.normal(size=rows.shape)


X = some_rows()


@pytest.fixture(scope="module", params=BRIEF)
def fitted(request):
    return clone(BRIEF[request.param]).fit(X)


class TestContract:
    def test_a_rows_score_is_its_own(self, fitted):
        scores = fitted.anomaly_score(X)
        order = np.random.default_rng(1).permutation(len(X))

        assert np.array_equal(fitted.anomaly_score(X[order]), scores[order])
        assert np.array_equal(fitted.anomaly_score(X[37:38]), scores[37:38])
        assert np.array_equal(fitted.anomaly_score(X[100:]), scores[100:])
        assert np.array_equal(fitted.anomaly_score(np.vstack([X, X])), np.tile(scores, 2))

    def test_chunks_and_threads_change_nothing(self, fitted, monkeypatch):
        before = fitted.anomaly_score(X)
        threads = torch.get_num_threads()

        monkeypatch.setattr("altbi.detectors.chunks._CHUNK_ROWS", 77)
        torch.set_num_threads(3)
        try:
            assert np.array_equal(fitted.anomaly_score(X), before)
        finally:
            torch.set_num_threads(threads)

    def test_a_fit_repeats_and_touches_no_random_state(self, fitted):
        torch_before = torch.get_rng_state()
        numpy_before = np.random.get_state()[1].copy()  # noqa: NPY002 - the caller's
        again = clone(fitted).fit(X)

        assert np.array_equal(again.anomaly_score(X), fitted.anomaly_score(X))
        assert torch.equal(torch.get_rng_state(), torch_before)
        assert np.array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002

    def test_the_seed_of_the_process_changes_nothing_and_that_of_the_detector_does(self, fitted):
        with torch.random.fork_rng():
            torch.manual_seed(99)
            again = clone(fitted).fit(X)
        other = clone(fitted).set_params(random_state=7).fit(X)

        assert np.array_equal(again.anomaly_score(X), fitted.anomaly_score(X))
        assert not np.array_equal(other.anomaly_score(X), fitted.anomaly_score(X))

    def test_scale_and_shift_of_columns_do_not_matter(self, fitted):
        moved = X * np.array([1, 10, 100, 0.5, 3]) + np.array([0, 5, -3, 2, 9])
        scores = clone(fitted).fit(moved).anomaly_score(moved)

        assert np.corrcoef(scores, fitted.anomaly_score(X))[0, 1] > 0.99

    def test_scores_survive_a_copy(self, fitted):
        assert np.array_equal(copy.deepcopy(fitted).anomaly_score(X), fitted.anomaly_score(X))

    @pytest.mark.parametrize("n_rows", [2, 3, 65, 257])
    def test_few_rows_and_left_over_rows_are_learned_from(self, fitted, n_rows):
        scores = clone(fitted).fit(X[:n_rows]).anomaly_score(X[:n_rows])

        assert np.isfinite(scores).all()

    def test_constant_columns_and_gaps_are_borne(self, fitted):
        odd = X.copy()
        odd[:, 1] = 3.0
        odd[5, 2] = np.nan

        assert np.isfinite(clone(fitted).fit(odd).anomaly_score(odd)).all()

    def test_rows_beyond_max_rows_are_sampled(self, fitted):
        few = clone(fitted).set_params(max_rows=50).fit(X)

        assert len(few.anomaly_score(X)) == len(X)
        assert not np.array_equal(few.anomaly_score(X), fitted.anomaly_score(X))

    def test_training_changes_what_scores(self, fitted):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            fresh = fitted._network(X.shape[1])
        before = nn.utils.parameters_to_vector(fresh.parameters())
        after = nn.utils.parameters_to_vector(fitted.network_.parameters())

        assert before.shape == after.shape
        # seed 0 draws the first weights first: whatever differs was learned
        assert not torch.equal(before, after)

    def test_labels_follow_from_the_threshold(self, fitted):
        labels = clone(fitted).set_params(contamination=0.1).fit(X).predict(X)

        assert 0.05 <= (labels == -1).mean() <= 0.15

    @pytest.mark.parametrize(
        "wrong",
        [
            {"epochs": 0},
            {"batch_size": 1},
            {"learning_rate": 0},
            {"contamination": 0.7},
            {"max_rows": 1},
            {"random_state": "x"},
        ],
    )
    def test_wrong_parameters_are_refused_by_name(self, fitted, wrong):
        (name,) = wrong
        with pytest.raises(ParameterError, match=f"{type(fitted).__name__}: {name}="):
            clone(fitted).set_params(**wrong).fit(X)

    def test_documented_defaults_are_the_real_ones(self, fitted):
        documented = dict(DEFAULT.findall(inspect.getdoc(type(fitted))))
        real = inspect.signature(type(fitted)).parameters.values()

        assert documented == {parameter.name: repr(parameter.default) for parameter in real}


def test_every_baseline_is_there_and_final():
    for detector in BRIEF.values():
        assert isinstance(detector, Baseline)
        assert type(detector).__final__


class TestTrainer:
    def test_it_finds_the_least_squares_line(self):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            rows = torch.randn(200, 1)
            line = nn.Linear(1, 1)
            trainer = Trainer(line.parameters(), learning_rate=0.05, batch_size=32)
            losses = [
                trainer.epoch(rows, lambda batch: (line(batch) - 3 * batch - 1).square().mean())
                for _ in range(60)
            ]

        assert float(line.weight.detach()) == pytest.approx(3, abs=0.01)
        assert float(line.bias.detach()) == pytest.approx(1, abs=0.01)
        assert losses[-1] < 0.001 * losses[0]

    @pytest.mark.parametrize(
        ("n_rows", "drop_last", "sizes"),
        [
            (10, False, [4, 4, 2]),
            (10, True, [4, 4]),
            (9, False, [4, 4]),
            (3, True, [3]),
            (3, False, [3]),
            (8, True, [4, 4]),
        ],
    )
    def test_batches_hold_each_row_once(self, n_rows, drop_last, sizes):
        weight = nn.Parameter(torch.zeros(1))
        trainer = Trainer([weight], learning_rate=0.1, batch_size=4, drop_last=drop_last)
        seen = []

        def loss(batch):
            seen.append(batch[:, 0].tolist())
            return weight.sum()

        trainer.epoch(torch.arange(n_rows)[:, None], loss)

        assert [len(batch) for batch in seen] == sizes
        flat = [row for batch in seen for row in batch]
        assert len(set(flat)) == len(flat)

    def test_a_long_gradient_is_shortened(self):
        weight = nn.Parameter(torch.zeros(1))
        trainer = Trainer([weight], learning_rate=0.1, batch_size=4, max_norm=5.0)

        trainer.epoch(torch.ones(4, 1), lambda batch: 1000 * weight.sum())

        assert float(weight.grad) == pytest.approx(5.0)

    def test_a_loss_that_is_no_number_ends_it(self):
        weight = nn.Parameter(torch.zeros(1))
        trainer = Trainer([weight], learning_rate=0.1, batch_size=4)

        with pytest.raises(TrainingError, match=r"mean loss is nan in epoch 1\. Lower"):
            trainer.epoch(torch.ones(4, 1), lambda batch: weight.sum() * float("nan"))
