import warnings

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture

from altbi import IWAE, ODIM
from altbi.errors import ParameterError, TrainingError
from altbi.networks._odim_training import (
    _iter_epoch,
    compute_bimodality,
    fit_two_gaussians,
    train_until_peak,
)
from altbi.networks._training import iter_batches
from altbi.table import as_table

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4)) * 0.1
X[:12] = RNG.uniform(-3, 3, size=(12, 4))
SMALL = {"backbone": IWAE(n_samples=3), "n_models": 1, "patience": 10}


def sample_two_groups(distance):
    rng = np.random.default_rng(0)
    return np.r_[rng.normal(0, 0.1, 500), rng.normal(distance, 0.1, 500)]


def test_bimodality_is_distance_of_two_gaussians():
    rng = np.random.default_rng(0)
    groups = rng.normal(0, 0.02, 4000), rng.normal(5, 0.4, 4000)
    low, high = np.r_[groups].min(), np.r_[groups].max()
    scaled = [(group - low) / (high - low) for group in groups]
    means = [group.mean() for group in scaled]
    stds = [group.std() for group in scaled]

    def expected(power):
        return (means[0] - means[1]) ** 2 + (stds[0] ** power - stds[1] ** power) ** 2

    losses = np.r_[groups]
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
    assert compute_bimodality(np.array(losses), "deviation") == 0


@pytest.mark.parametrize("n_values", [2, 3, 20, 64, 1000])
@pytest.mark.parametrize("shape", ["one group", "two groups", "heavy tail"])
def test_mixture_equals_that_of_sklearn(shape, n_values):
    rng = np.random.default_rng(n_values)
    values = rng.normal(0.3, 0.05, n_values)
    if shape == "two groups":
        values[: n_values // 5] += 0.5
    if shape == "heavy tail":
        values = rng.exponential(0.1, n_values) ** 1.5
    # With k-means, scikit-learn would start near this split, and could end at another optimum.
    low, high = split_into_two(np.sort(values))
    mixture = GaussianMixture(
        2,
        random_state=0,
        weights_init=[len(low) / n_values, len(high) / n_values],
        means_init=[[low.mean()], [high.mean()]],
        precisions_init=[[[1 / (low.var() + 1e-6)]], [[1 / (high.var() + 1e-6)]]],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it need not converge
        mixture.fit(values[:, None])

    means, variances = fit_two_gaussians(values)

    assert means == pytest.approx(mixture.means_[:, 0], rel=1e-8)
    assert variances == pytest.approx(mixture.covariances_[:, 0, 0], rel=1e-8)


def split_into_two(ordered):
    """Return the two clusters of sorted values with the smallest sum of squares."""
    splits = [(ordered[:n], ordered[n:]) for n in range(1, len(ordered))]
    return min(splits, key=lambda pair: sum(((part - part.mean()) ** 2).sum() for part in pair))


class Scripted:
    """A model whose two groups of losses have a scripted distance after each update."""

    def __init__(self, distances):
        self.distances = distances
        self.n_updates = 0
        self.n_resampled = 0

    def resample_noise(self):
        self.n_resampled += 1

    def update(self, rows, objective):
        self.n_updates += 1
        value, self.gradient = objective(rows.sum(axis=1))
        return value

    def evaluate_losses(self, rows):
        distance = self.distances[min(self.n_updates, len(self.distances)) - 1]
        indices = np.arange(len(rows))
        return np.where(indices < 8, distance, 0.0) + 0.3 * np.sin(indices * 2.4)


def search(distances, n_rows=640, **changes):
    options = {
        "batch_size": 64,
        "check_every": 2,
        "patience": 6,
        "max_updates": 1000,
        "spread": "deviation",
        "generator": np.random.default_rng(0),
    }
    model, rows = Scripted(distances), np.random.default_rng(0).random((n_rows, 3))
    return model, list(train_until_peak(model, rows, **options | changes))


def test_patience_ends_the_search():
    model, checks = search([1, 2, 3, 5, 8, 13, 8, 5, 4, 3, 2, 1, 1, 1, 1, 1, 1, 1])

    assert [check.update for check in checks] == [2, 4, 6, 8, 10, 12]
    assert [check.update for check in checks if check.is_best] == [2, 4, 6]
    assert model.gradient == pytest.approx(1 / 64)  # no loss is truncated
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
    batches = list(iter_batches(130, 64, 3, np.random.default_rng(0)))

    assert [len(batch) for batch in batches] == [64, 64, 2]
    assert len(np.unique(np.concatenate(batches))) == 130


@pytest.mark.parametrize(
    ("n_rows", "sizes"), [(130, [64, 64, 2]), (129, [64, 64]), (64, [64]), (2, [2])]
)
def test_epoch_uses_every_row_at_most_once(n_rows, sizes):
    batches = list(_iter_epoch(n_rows, 64, np.random.default_rng(0)))

    assert [len(batch) for batch in batches] == sizes
    assert len(np.unique(np.concatenate(batches))) == sum(sizes)


def test_loss_that_is_not_finite_ends_the_search():
    model = Scripted([1] * 9)
    rows = np.full((640, 3), np.inf)
    options = {"batch_size": 64, "check_every": 2, "patience": 6, "max_updates": 9}

    with pytest.raises(TrainingError, match="the loss is inf in step 2"):
        next(train_until_peak(model, rows, spread="deviation", generator=RNG, **options))


def test_checks_of_all_networks_are_numbered():
    history = ODIM(**SMALL | {"n_models": 2, "patience": 4}).fit(X).model_.history

    assert [step.step for step in history] == list(range(len(history)))


@pytest.fixture(scope="module")
def odim():
    return ODIM(backbone=IWAE(n_samples=5), n_models=2, patience=40).fit(X)


def encode(detector):
    return detector.encoder_.transform(as_table(X))


def search_with_parameters(detector, model, generator):
    parameters = ("batch_size", "check_every", "patience", "max_updates", "spread")
    return train_until_peak(
        model,
        encode(detector),
        **{name: getattr(detector, name) for name in parameters},
        generator=generator,
    )


@pytest.mark.slow
def test_snapshot_is_network_of_best_check(odim):
    def train(last_update):
        generator = np.random.default_rng(0)
        model = odim.backbone.start_training(4, generator)
        checks = []
        for check in search_with_parameters(odim, model, generator):
            checks.append(check)
            if check.update == last_update:
                break
        return model, checks

    _, checks = train(last_update=None)
    best = max(checks, key=lambda check: check.distance)
    model, _ = train(last_update=best.update)

    assert checks[-1].update - best.update >= odim.patience
    assert [check.loss for check in checks] == [s.loss for s in odim.history_[: len(checks)]]
    for name, array in model.copy_state().items():
        assert np.array_equal(array, odim.model_.scorer.arrays[name][0]), name


def test_score_is_mean_loss_of_networks(odim):
    arrays, rows, total = odim.model_.scorer.arrays, encode(odim), np.zeros(len(X))
    for index in range(2):
        network = odim.backbone.choose_sizes(4).build()
        network.load_state({name: array[index] for name, array in arrays.items()})
        total += network.evaluate_losses(rows) / 2

    np.testing.assert_allclose(odim.outlier_score(X), total, rtol=1e-4, atol=1e-4)
    assert set(np.argsort(total)[-10:]) <= set(range(12))


def test_explanation_adds_up_and_finds_column(odim):
    row = X[100:101].copy()
    row[0, 2] = 3.0

    explanation = odim.explain(row)

    assert explanation.reasons(0)[0].column == "x2"
    total = explanation.contributions.sum(1) + explanation.remainder
    np.testing.assert_allclose(total, explanation.score, atol=1e-4)


@pytest.mark.parametrize("n_rows", [2, 63, 65, 129])
def test_small_tables_can_be_fitted(n_rows):
    detector = ODIM(**SMALL | {"patience": 4}).fit(X[:n_rows])

    assert np.isfinite(detector.outlier_score(X[:n_rows])).all()
    assert (detector.predict(X[:n_rows]) == -1).any()


@pytest.mark.slow
def test_every_parameter_reaches_the_search():
    def fit(backbone=SMALL["backbone"], **changes):
        detector = ODIM(**SMALL | {"backbone": backbone} | changes).fit(X)
        return detector.model_.scorer.arrays["mean.weight"], detector.history_

    weights, history = fit()
    assert not np.array_equal(fit(IWAE(n_samples=3, weight_decay=10.0))[0], weights)
    assert not np.array_equal(fit(IWAE(n_samples=3, learning_rate=0.01))[0], weights)
    assert len(fit(max_updates=2)[1]) < len(history)
    assert fit(batch_size=32)[1][0].batch_size == 32
    assert len(fit(check_every=2)[1]) > len(history)


@pytest.mark.parametrize(
    "invalid",
    [
        {"n_models": 0},
        {"batch_size": 1},
        {"check_every": 0},
        {"patience": 0},
        {"max_updates": 2.5},
        {"spread": "mean"},
    ],
)
def test_invalid_odim_parameter_raises(invalid):
    (name,) = invalid
    with pytest.raises(ParameterError, match=f"ODIM: {name}="):
        ODIM(**invalid).fit(X)


@pytest.mark.parametrize("invalid", [{"n_samples": 0}, {"hidden": ()}, {"latent": 2.5}])
def test_invalid_iwae_parameter_raises(invalid):
    (name,) = invalid
    with pytest.raises(ParameterError, match=f"IWAE: {name}="):
        ODIM(backbone=IWAE(**invalid)).fit(X)


def test_global_random_state_is_not_used():
    scores = []
    for seed in (1, 2):
        np.random.seed(seed)  # noqa: NPY002 - the caller's global state
        before = np.random.get_state()[1].copy()  # noqa: NPY002
        scores.append(ODIM(**SMALL).fit(X).outlier_score(X))
        assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002

    assert np.array_equal(*scores)
