"""Tests of the contract that all baselines satisfy, and of their trainer."""

import copy
import inspect
import pickle
import re

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

from altbi.errors import ParameterError, TrainingError
from altbi.torch._modes import single_thread
from altbi_bench import baselines
from altbi_bench.baselines import Baseline, ddpm, dte
from altbi_bench.baselines.base import Linear, Trainer

pytestmark = pytest.mark.slow

# Two epochs are a few updates. The tests of each baseline train longer.
BRIEF = {
    name: getattr(baselines, name)(epochs=2) for name in baselines.__all__ if name != "Baseline"
}
DEFAULT = re.compile(r"^(\w+) : .*default=(.+)$", re.MULTILINE)


def sample_rows(n_rows=150, n_columns=5):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n_rows, 2)) @ rng.normal(size=(2, n_columns))
    return rows + 0.1 * rng.normal(size=rows.shape)


X = sample_rows()


@pytest.fixture(scope="module", params=BRIEF)
def fitted(request):
    return clone(BRIEF[request.param]).fit(X)


class TestContract:
    def test_scores_do_not_depend_on_other_rows(self, fitted):
        scores = fitted.outlier_score(X)
        order = np.random.default_rng(1).permutation(len(X))

        assert np.array_equal(fitted.outlier_score(X[order]), scores[order])
        assert np.array_equal(fitted.outlier_score(X[37:38]), scores[37:38])
        assert np.array_equal(fitted.outlier_score(X[50:]), scores[50:])
        assert np.array_equal(fitted.outlier_score(np.vstack([X, X])), np.tile(scores, 2))

    @pytest.mark.parametrize("name", BRIEF)
    def test_scores_do_not_depend_on_position(self, name):
        """Matrix products of some shapes round differently at another position."""
        rows = np.random.default_rng(0).normal(size=(150, 21))
        detector = clone(BRIEF[name]).fit(rows)
        scores = detector.outlier_score(rows)

        order = np.random.default_rng(1).permutation(150)
        assert np.array_equal(detector.outlier_score(rows[order]), scores[order])
        assert np.array_equal(detector.outlier_score(np.vstack([rows, rows])), np.tile(scores, 2))
        assert np.array_equal(detector.outlier_score(rows[37:38]), scores[37:38])

    def test_scores_do_not_depend_on_threads(self, fitted):
        before = fitted.outlier_score(X)
        threads = torch.get_num_threads()

        torch.set_num_threads(3)
        try:
            assert np.array_equal(fitted.outlier_score(X), before)
        finally:
            torch.set_num_threads(threads)

    def test_fit_repeats_and_keeps_global_random_state(self, fitted):
        torch_before = torch.get_rng_state()
        numpy_before = np.random.get_state()[1].copy()  # noqa: NPY002 - the caller's
        again = clone(fitted).fit(X)

        assert np.array_equal(again.outlier_score(X), fitted.outlier_score(X))
        assert torch.equal(torch.get_rng_state(), torch_before)
        assert np.array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002

    def test_only_random_state_changes_the_scores(self, fitted):
        with torch.random.fork_rng():
            torch.manual_seed(99)
            again = clone(fitted).fit(X)
        other = clone(fitted).set_params(random_state=7).fit(X)

        assert np.array_equal(again.outlier_score(X), fitted.outlier_score(X))
        assert not np.array_equal(other.outlier_score(X), fitted.outlier_score(X))

    def test_scores_do_not_depend_on_column_scales(self, fitted):
        moved = X * np.array([1, 10, 100, 0.5, 3]) + np.array([0, 5, -3, 2, 9])
        scores = clone(fitted).fit(moved).outlier_score(moved)

        assert np.corrcoef(scores, fitted.outlier_score(X))[0, 1] > 0.99

    def test_copies_and_small_pickles_keep_the_scores(self, fitted):
        pickled = pickle.dumps(fitted)
        learned = sum(t.nbytes for t in fitted.network_.state_dict().values())

        for again in (copy.deepcopy(fitted), pickle.loads(pickled)):
            assert np.array_equal(again.outlier_score(X), fitted.outlier_score(X))
        assert len(pickled) < 1.5 * learned + 100_000

    def test_scores_do_not_depend_on_default_dtype(self, fitted):
        torch.set_default_dtype(torch.float64)
        try:
            scores = clone(fitted).fit(X).outlier_score(X)
            assert torch.get_default_dtype() == torch.float64
        finally:
            torch.set_default_dtype(torch.float32)

        assert np.array_equal(scores, fitted.outlier_score(X))

    def test_diverged_training_raises_or_scores_are_finite(self, fitted):
        wild = clone(fitted).set_params(learning_rate=1000.0, batch_size=len(X), epochs=1)
        try:
            scores = wild.fit(X).outlier_score(X)
        except TrainingError as error:
            assert "Lower learning_rate" in str(error)  # noqa: PT017 - some do not diverge
        else:
            assert np.isfinite(scores).all()

    def test_numpy_integers_equal_python_integers(self, fitted):
        by_numpy, by_python = (
            clone(fitted).set_params(epochs=kind(2), batch_size=kind(10**6)).fit(X)
            for kind in (np.int64, int)
        )

        assert np.array_equal(by_numpy.outlier_score(X), by_python.outlier_score(X))

    @pytest.mark.parametrize("n_rows", [2, 65])
    def test_few_rows_get_finite_scores(self, fitted, n_rows):
        scores = clone(fitted).fit(X[:n_rows]).outlier_score(X[:n_rows])

        assert np.isfinite(scores).all()

    def test_constants_and_missing_values_get_finite_scores(self, fitted):
        incomplete = X.copy()
        incomplete[:, 1] = 3.0
        incomplete[5, 2] = np.nan

        assert np.isfinite(clone(fitted).fit(incomplete).outlier_score(incomplete)).all()

    def test_rows_beyond_max_rows_are_sampled(self, fitted):
        few = clone(fitted).set_params(max_rows=50).fit(X)

        assert len(few.outlier_score(X)) == len(X)
        assert not np.array_equal(few.outlier_score(X), fitted.outlier_score(X))

    def test_training_changes_the_weights(self, fitted):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            fresh = fitted._build_network(X.shape[1])
        before = nn.utils.parameters_to_vector(fresh.parameters())
        after = nn.utils.parameters_to_vector(fitted.network_.parameters())

        assert before.shape == after.shape
        # Seed 0 gives the same initial weights, so differences come from training.
        assert not torch.equal(before, after)

    def test_contamination_is_the_share_of_predicted_outliers(self, fitted):
        labels = clone(fitted).set_params(contamination=0.1).fit(X).predict(X)

        assert 0.05 <= (labels == -1).mean() <= 0.15

    @pytest.mark.parametrize(
        "wrong",
        [
            {"epochs": 0},
            {"batch_size": 1},
            {"learning_rate": 0},
            {"learning_rate": 1e38},
            {"contamination": 0.7},
            {"max_rows": 1},
            {"random_state": "x"},
            {"random_state": 2**70},
        ],
    )
    def test_invalid_parameters_raise_with_their_name(self, fitted, wrong):
        (name,) = wrong
        with pytest.raises(ParameterError, match=f"{type(fitted).__name__}: {name}="):
            clone(fitted).set_params(**wrong).fit(X)

    def test_documented_defaults_equal_the_signature(self, fitted):
        documented = dict(DEFAULT.findall(inspect.getdoc(type(fitted))))
        real = inspect.signature(type(fitted)).parameters.values()

        assert documented == {parameter.name: repr(parameter.default) for parameter in real}


def test_every_baseline_is_final():
    for detector in BRIEF.values():
        assert isinstance(detector, Baseline)
        assert type(detector).__final__


# Published sizes of all layers for seven columns, dropout rates and settings of Adam.
PUBLISHED = {
    "DAGMM": ([60, 30, 10, 1, 10, 30, 60, 7, 10, 4], [0.5], (256, 1e-4, 0, True, 200)),
    "DDPM": (
        [128, 256, 256, 128, *[256, 128] * 3, 7],
        [0.4, 0.1] * 3,
        (64, 1e-4, 5e-4, True, 400),
    ),
    "DROCC": ([128, 1], [], (256, 1e-4, 0, True, 200)),
    "DTEC": ([256, 512, 256, 7], [0.5, 0.5], (64, 1e-4, 5e-4, False, 400)),
    "DTEIG": ([256, 512, 256, 1], [0.5, 0.5], (64, 1e-4, 5e-4, False, 400)),
    "DeepSVDD": ([64, 32], [], (32, 1e-3, 0, False, 100)),
    "GOAD": ([8, 256], [], (64, 1e-3, 0, False, 1)),
    "ICL": ([200, 400, 200, 50, 100, 200], [], (3000, 1e-3, 0, False, 2000)),
    "PlanarFlow": ([], [], (64, 2e-3, 1e-4, False, 200)),
}


class TestPublished:
    @pytest.mark.parametrize("name", PUBLISHED)
    def test_layers_dropout_and_optimiser_are_as_published(self, name, monkeypatch):
        widths, dropout, (batch_size, rate, decay, drop_last, epochs) = PUBLISHED[name]
        asked = []

        def record_settings(parameters, **settings):
            asked.append(settings)
            return Trainer(parameters, **settings)

        monkeypatch.setattr(inspect.getmodule(getattr(baselines, name)), "Trainer", record_settings)
        detector = getattr(baselines, name)()
        network = detector._build_network(7)
        next(iter(detector._train_network(network, torch.randn(40, 7))))

        layers = list(network.modules())
        assert [m.out_features for m in layers if isinstance(m, nn.Linear)] == widths
        shares = [getattr(m, "share", getattr(m, "p", None)) for m in layers]
        assert [share for share in shares if share is not None] == dropout
        assert detector.epochs == epochs
        settings_used = {"weight_decay": 0.0, "drop_last": False, **asked[0]}
        assert (settings_used["batch_size"], settings_used["learning_rate"]) == (batch_size, rate)
        assert (settings_used["weight_decay"], settings_used["drop_last"]) == (decay, drop_last)
        assert settings_used.get("betas", (0.9, 0.999)) == (
            (0.5, 0.999) if name == "GOAD" else (0.9, 0.999)
        )

    def test_diffusion_constants_are_as_published(self):
        assert (ddpm.TIMES, ddpm.START, ddpm.BLOCKS) == (1000, 250, 3)
        assert (dte.TIMES, dte.BINS) == (400, 7)


class TestTrainer:
    def test_weight_decay_shrinks_weights(self):
        weight = nn.Parameter(torch.ones(1))
        trainer = Trainer([weight], learning_rate=0.1, batch_size=4, weight_decay=1.0)

        trainer.epoch(torch.ones(4, 1), lambda batch: 0 * weight.sum())

        assert float(weight.detach()) == pytest.approx(0.9)

    def test_each_epoch_shuffles_the_rows(self):
        weight = nn.Parameter(torch.zeros(1))
        trainer = Trainer([weight], learning_rate=0.1, batch_size=50)
        seen = []

        def loss(batch):
            seen.append(batch[:, 0].tolist())
            return weight.sum()

        for _ in range(2):
            trainer.epoch(torch.arange(50)[:, None], loss)

        assert sorted(seen[0]) == sorted(seen[1]) == list(range(50))
        assert seen[0] != seen[1] != list(range(50))
        assert seen[0] != list(range(50))

    def test_training_finds_the_least_squares_line(self):
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
    def test_batches_contain_each_row_once(self, n_rows, drop_last, sizes):
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

    def test_gradient_norm_is_clipped(self):
        weight = nn.Parameter(torch.zeros(1))
        trainer = Trainer([weight], learning_rate=0.1, batch_size=4, max_norm=5.0)

        trainer.epoch(torch.ones(4, 1), lambda batch: 1000 * weight.sum())

        assert float(weight.grad) == pytest.approx(5.0)

    def test_non_finite_loss_raises(self):
        weight = nn.Parameter(torch.zeros(1))
        trainer = Trainer([weight], learning_rate=0.1, batch_size=4)

        with pytest.raises(TrainingError, match=r"mean loss is nan in epoch 1\. Lower"):
            trainer.epoch(torch.ones(4, 1), lambda batch: weight.sum() * float("nan"))


@pytest.mark.parametrize("n_outputs", [1, 2, 3, 5, 8, 20])
@pytest.mark.parametrize("n_inputs", [3, 16, 21, 33])
def test_linear_layer_does_not_depend_on_position(n_inputs, n_outputs):
    """On some CPUs torch's layer does, with 21 or 33 inputs and few outputs."""
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        layer = Linear(n_inputs, n_outputs).eval()
    rows = torch.randn(512, n_inputs, generator=generator)
    order = torch.randperm(512, generator=generator)
    with torch.no_grad(), single_thread():
        found, elsewhere = layer(rows), layer(rows[order])

    assert torch.equal(found[order], elsewhere)
    assert torch.allclose(found, nn.functional.linear(rows, layer.weight, layer.bias), atol=1e-6)
