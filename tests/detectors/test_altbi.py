"""ALTBI: the paper's method, its presets and parameter objects."""

import inspect
from itertools import pairwise

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from altbi import ALTBI, IWAE, ODIM, OutlierDetector, Schedule
from altbi._threads import map_blocks
from altbi.errors import ParameterError
from altbi.model import _settings
from altbi.table import as_table
from altbi.torch import Glow, PrivacyBudget

SHORT = Schedule(T0=2, T1=2, T2=4)


@pytest.fixture(scope="module", name="X")
def make_rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(600, 1)) * [0.25, 0.5, 0.75, 1] + 0.05 * rng.normal(size=(600, 4))


@pytest.fixture(scope="module")
def fitted(X):
    return ALTBI(schedule=Schedule(T0=4, T1=10, T2=14)).fit(X)


def test_plain_constructor_follows_the_authors_code():
    settings = ALTBI().settings()

    assert settings.training.schedule == Schedule(
        n0=128, gamma=1.03, rho=0.92, T0=10, T1=61, T2=80, updates=5, first_truncated=2
    )
    assert settings.training.backbone == IWAE(n_samples=2, network="reference", weight_decay=5e-7)
    assert settings.training.backbone.resolve_learning_rate() == 1e-3
    assert settings.scale_losses
    assert settings.reference is None


def test_paper_preset_follows_the_printed_algorithm():
    settings = ALTBI.paper(random_state=4).settings()

    assert settings.training.schedule == Schedule(T1=60, updates=1, first_truncated=1)
    assert settings.training.backbone == IWAE(
        hidden=(100, 50), latent=10, network="paper", weight_decay=0.0
    )
    assert not settings.scale_losses
    assert settings.random_state == 4


@pytest.mark.parametrize(
    ("estimator", "build"),
    [
        (OutlierDetector, _settings.outlier_detector_settings),
        (ALTBI, _settings.altbi_settings),
        (ODIM, _settings.odim_settings),
    ],
)
def test_estimators_and_settings_have_equal_defaults(estimator, build):
    in_estimator = list(inspect.signature(estimator).parameters.values())
    in_settings = list(inspect.signature(build).parameters.values())

    assert [(p.name, p.default) for p in in_estimator] == [(p.name, p.default) for p in in_settings]
    assert len(in_estimator) <= 15


@pytest.mark.parametrize("kind", [Schedule, IWAE, Glow, PrivacyBudget])
def test_parameter_objects_have_at_most_ten_parameters(kind):
    parameters = inspect.signature(kind).parameters.values()

    assert len(parameters) <= 10
    assert all(p.kind is not inspect.Parameter.VAR_KEYWORD for p in parameters)


def test_nested_parameters_can_be_set_and_cloned():
    detector = ALTBI(schedule=Schedule(), backbone=IWAE())
    detector.set_params(schedule__n0=64, backbone__n_samples=7)

    copy = clone(detector)

    assert (copy.schedule.n0, copy.backbone.n_samples) == (64, 7)
    assert copy.schedule is not detector.schedule
    assert copy.get_params()["schedule__n0"] == 64


def test_unknown_nested_parameter_is_refused():
    with pytest.raises(ParameterError, match="Schedule has no parameter 'n1'"):
        ALTBI(schedule=Schedule()).set_params(schedule__n1=3)


def test_grid_search_over_the_schedule(X):
    pipeline = make_pipeline(StandardScaler(), ALTBI(schedule=Schedule(T0=2, T1=2, T2=4)))
    search = GridSearchCV(
        pipeline,
        {"altbi__schedule__rho": [0.8, 1.0]},
        cv=2,
        scoring=lambda model, rows, y=None: (model.predict(rows) == 1).mean(),
    )

    search.fit(X)

    assert set(search.predict(X)) == {-1, 1}
    assert [p["altbi__schedule__rho"] for p in search.cv_results_["params"]] == [0.8, 1.0]


def test_snapshots_are_as_many_as_planned(fitted):
    weights = fitted.model_.scorer.arrays["mean.weight"]
    noise = fitted.model_.scorer.arrays["scoring_noise"]

    assert len(weights) == 4
    assert all((a != b).any() for a, b in pairwise(weights))
    assert len({sample.tobytes() for sample in noise}) == len(noise)


def test_losses_are_scaled_to_their_training_range(fitted, X):
    scorer = fitted.model_.scorer
    rows = fitted.encoder_.transform(as_table(X))

    losses = map_blocks(scorer.stacked.losses, rows, scorer.stacked.block_rows)

    scaled = (losses - scorer.low[:, None]) / scorer.width[:, None]
    assert np.allclose(scaled.min(axis=1), 0)
    assert np.allclose(scaled.max(axis=1), 1)
    assert np.allclose(scaled.mean(axis=0), fitted.outlier_score(X))


@pytest.mark.slow
@pytest.mark.parametrize("network", ["reference", "paper"])
def test_trained_losses_differ_from_untrained_ones(network, X):
    # An untrained network separates outliers quite well, so separation would prove nothing. But
    # the loss is a negative log-likelihood, and training has to lower it.
    def scores(learning_rate):
        backbone = IWAE(network=network, learning_rate=learning_rate)
        return ALTBI(backbone=backbone, average="plain").fit(X).outlier_score(X)

    trained, untrained = scores(1e-3), scores(1e-30)

    assert len(np.unique(trained)) == len(X)
    assert np.median(trained) < np.median(untrained) - 2
    assert (trained < untrained).mean() > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [2, 3, 127, 128, 129])
@pytest.mark.parametrize("network", ["reference", "paper"])
def test_small_tables_work(network, n_rows, X):
    # With an even number of snapshots, the scores of two rows may tie.
    detector = ALTBI(schedule=Schedule(T0=1, T1=4, T2=7), backbone=IWAE(network=network))
    detector.fit(X[:n_rows])

    assert np.isfinite(detector.outlier_score(X[:n_rows])).all()
    assert (detector.predict(X[:n_rows]) == -1).any()


@pytest.mark.slow
def test_seed_decides(X):
    def scores(random_state):
        return ALTBI(schedule=SHORT, random_state=random_state).fit(X).outlier_score(X)

    assert np.array_equal(scores(1), scores(1))
    assert not np.array_equal(scores(1), scores(2))
    assert not np.array_equal(scores(None), scores(None))
    assert np.array_equal(scores(np.random.RandomState(3)), scores(np.random.RandomState(3)))
    state = np.random.RandomState(3)
    assert not np.array_equal(scores(state), scores(state))


def test_large_tables_are_sampled_without_order(X):
    def columns(seed):
        detector = ALTBI(schedule=SHORT, max_rows=300, random_state=seed).fit(X)
        table = detector.model_.training_table
        assert (table.n_rows, table.n_sample) == (600, 300)
        return detector.encoder_.columns

    assert columns(0) == columns(0)
    assert columns(0) != columns(1)
    first_rows = ALTBI(schedule=SHORT).fit(X[:300]).encoder_.columns
    assert columns(0) != first_rows


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5])
def test_contamination_sets_the_share_of_outliers(share, X):
    detector = ALTBI(schedule=SHORT, contamination=share).fit(X)

    assert (detector.predict(X) == -1).mean() == pytest.approx(share, abs=1 / len(X))


def test_interrupted_fit_leaves_no_fitted_detector(X):
    detector = ALTBI(schedule=SHORT).fit(X)
    steps = detector.iter_fit(X)
    next(steps)

    assert not hasattr(detector, "model_")


@pytest.mark.parametrize(
    "wrong",
    [
        {"contamination": 0},
        {"contamination": 0.6},
        {"contamination": "often"},
        {"contamination": None},
        {"average": "median"},
        {"max_rows": 1},
        {"threshold": np.inf},
        {"random_state": -1},
        {"random_state": 2**64},
        {"random_state": "seed"},
        {"privacy": 3.0},
    ],
)
def test_wrong_parameter_is_named_at_fit(wrong, X):
    name = next(iter(wrong))

    with pytest.raises(ParameterError, match=f"{name}=.*but expected"):
        ALTBI(**wrong).fit(X)


@pytest.mark.parametrize(
    "wrong",
    [
        Schedule(rho=2),
        Schedule(n0="128"),
        Schedule(max_batch=100),
        Schedule(T1=80),
        Schedule(updates=0),
        IWAE(n_samples=0),
        IWAE(hidden=()),
        IWAE(hidden="wide"),
        IWAE(hidden=(3, "4")),
        IWAE(latent=0),
        IWAE(network="large"),
        IWAE(learning_rate=0),
        IWAE(learning_rate="fast"),
        IWAE(weight_decay=-1),
        Glow(hidden=(8, 8, 8)),
        Glow(flow_steps=0),
        Glow(flow_steps="auto"),
        Glow(device=1),
    ],
    ids=repr,
)
def test_wrong_nested_parameter_is_named_at_fit(wrong, X):
    name = "schedule" if isinstance(wrong, Schedule) else "backbone"
    with pytest.raises(ParameterError, match=rf"{type(wrong).__name__}: \w+=.*but expected"):
        ALTBI(**{name: wrong}).fit(X)


def test_privacy_needs_the_reference_network(X):
    budget = PrivacyBudget(1.0, bounds=(-5, 5))
    for backbone in (Glow(), IWAE(network="paper")):
        with pytest.raises(ParameterError, match="a privacy budget needs an IWAE"):
            ALTBI(privacy=budget, backbone=backbone).fit(X)
