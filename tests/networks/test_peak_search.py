"""ODIM: training ends where the losses of inliers and outliers are furthest apart."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from altbi import ALTBI, ODIM
from altbi.networks._torch_modes import single_thread
from altbi.errors import ModelFileError, ParameterError
from altbi.networks import IWAE
from altbi.networks._peak_search import bimodality, search_peak
from altbi.networks._training import batches

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4)) * 0.1
X[:12] = RNG.uniform(-3, 3, size=(12, 4))


def losses_of_two_groups(apart, spread=0.1, n=500):
    rng = np.random.default_rng(0)
    both = np.r_[rng.normal(0, spread, n), rng.normal(apart, spread, n)]
    return torch.tensor(both)


def test_the_distance_is_that_of_two_gaussians():
    rng = np.random.default_rng(0)
    groups = rng.normal(0, 0.02, 4000), rng.normal(5, 0.4, 4000)
    low, high = np.r_[groups].min(), np.r_[groups].max()
    scaled = [(group - low) / (high - low) for group in groups]
    means = [group.mean() for group in scaled]
    deviations = [group.std() for group in scaled]

    def expected(power):
        between = (means[0] - means[1]) ** 2
        return between + (deviations[0] ** power - deviations[1] ** power) ** 2

    losses = torch.tensor(np.r_[groups])
    assert bimodality(losses, "deviation") == pytest.approx(expected(1), rel=0.01)
    assert bimodality(losses, "variance") == pytest.approx(expected(2), rel=0.01)
    assert expected(1) > 1.005 * expected(2)


def test_the_distance_grows_with_the_gap_and_knows_no_scale():
    apart = [bimodality(losses_of_two_groups(gap), "deviation") for gap in (0.2, 0.5, 2)]

    assert apart == sorted(apart)
    again = bimodality(losses_of_two_groups(0.5) * 40 - 7, "deviation")
    assert again == pytest.approx(apart[1], rel=1e-6)


@pytest.mark.parametrize("losses", [[3.0, 3.0, 3.0], [1.0]])
def test_losses_that_are_all_alike_are_not_apart(losses):
    assert bimodality(torch.tensor(losses), "deviation") == 0


class Scripted(nn.Module):
    """Gives losses whose gap follows a script, one entry an update."""

    def __init__(self, gaps):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.gaps = gaps
        self.updates = 0
        self.redrawn = 0

    def redraw(self):
        self.redrawn += 1

    def forward(self, rows):
        if self.training:
            self.updates += 1
            return rows.sum(1) * self.weight
        gap = self.gaps[min(self.updates, len(self.gaps)) - 1]
        return torch.where(torch.arange(len(rows)) < 8, gap, 0.0) + 0.3 * torch.sin(
            torch.arange(len(rows)) * 2.4
        )


def searched(gaps, n_rows=640, **changes):
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
    model = Scripted(gaps)
    return model, list(search_peak(model, torch.rand(n_rows, 3), **options | changes))


def test_the_best_check_is_the_peak_and_patience_ends_the_search():
    gaps = [1, 2, 3, 5, 8, 13, 8, 5, 4, 3, 2, 1, 1, 1, 1, 1, 1, 1]

    model, checks = searched(gaps)

    assert [check.update for check in checks] == [2, 4, 6, 8, 10, 12]
    assert [check.update for check in checks if check.is_best] == [2, 4, 6]
    assert model.updates == 12
    assert model.redrawn == len(checks)


def test_a_limit_of_updates_ends_the_search_too():
    model, checks = searched(list(range(1, 100)), max_updates=7)

    assert model.updates == 8  # the first check at or after the limit
    assert checks[-1].update == 8


def test_few_rows_are_checked_once_a_pass():
    # 150 rows are two whole batches and a short one: looks come after the second.
    _, checks = searched([1] * 50, n_rows=150, check_every=10, patience=6)
    assert [check.update for check in checks] == [2, 5, 8, 11]

    _, checks = searched([1] * 50, n_rows=5, check_every=10, patience=3)
    assert [check.update for check in checks] == [1, 2, 3, 4]
    assert checks[0].batch_size == 5


def test_the_models_are_those_of_their_best_check():
    detector = ODIM(n_models=3, draws=5, patience=40).fit(X)

    assert len(detector.checks_) == 3
    for checks in detector.checks_:
        best = max(check.distance for check in checks)
        assert [c.distance for c in checks if c.is_best][-1] == best
        assert all(a.update < b.update for a, b in pairwise(checks))
        last_best = max(check.update for check in checks if check.is_best)
        assert checks[-1].update - last_best >= 40
    # Training the same models again up to that check must give the very snapshot.
    generator = torch.Generator().manual_seed(0)
    model = IWAE(4, (32, 16), 2, 5, bounded=True)
    model.start(generator)
    rows = torch.from_numpy(detector.encoder_.transform(detector._checked(X)))
    last_best = max(check.update for check in detector.checks_[0] if check.is_best)
    with single_thread():
        for check in detector._search(model, rows, generator):
            if check.update == last_best:
                break
    for name, state in model.state_dict().items():
        assert np.array_equal(state.numpy(), detector.snapshots_[name][0]), name


def test_the_score_is_the_mean_loss_of_the_models():
    detector = ODIM(n_models=3, draws=5).fit(X)
    rows = torch.from_numpy(detector.encoder_.transform(detector._checked(X)))
    total = np.zeros(len(X))
    for index in range(3):
        model = IWAE(4, (32, 16), 2, 5, bounded=True)
        model.load_state_dict(
            {name: torch.from_numpy(state)[index] for name, state in detector.snapshots_.items()}
        )
        with torch.no_grad():
            total += model.eval()(rows).numpy() / 3

    np.testing.assert_allclose(detector.outlier_score(X), total, rtol=1e-4, atol=1e-4)
    assert set(np.argsort(total)[-10:]) <= set(range(12))


def test_the_authors_rule_is_an_option():
    assert ODIM().spread == "deviation"
    assert ODIM.reference().get_params() == ODIM(spread="variance").get_params()
    assert ODIM.reference(n_models=2).n_models == 2
    assert (ODIM().draws, ODIM().n_models, ODIM().batch_size) == (50, 10, 64)


@pytest.mark.parametrize("n_rows", [2, 3, 63, 64, 65, 129])
def test_small_tables_work(n_rows):
    detector = ODIM(n_models=2, draws=3, patience=4).fit(X[:n_rows])

    assert np.isfinite(detector.outlier_score(X[:n_rows])).all()
    assert (detector.predict(X[:n_rows]) == -1).any()


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_models": 0},
        {"batch_size": 1},
        {"check_every": 0},
        {"patience": 0},
        {"max_updates": 2.5},
        {"spread": "mean"},
        {"draws": 0},
        {"hidden": ()},
    ],
)
def test_a_wrong_parameter_is_named(wrong):
    (name,) = wrong
    with pytest.raises(ParameterError, match=f"ODIM: {name}="):
        ODIM(**wrong).fit(X)


def test_files_know_their_detector(tmp_path):
    path = tmp_path / "model.altbi"
    saved = ODIM(n_models=2, draws=3, patience=4).fit(X)
    saved.save(path)

    loaded = ODIM.load(path)

    assert np.array_equal(loaded.outlier_score(X), saved.outlier_score(X))
    assert loaded.get_params() == saved.get_params()
    with pytest.raises(ModelFileError, match="holds the detector 'ODIM', but expected 'ALTBI'"):
        ALTBI.load(path)


def test_an_explanation_adds_up_and_finds_the_cell():
    detector = ODIM(n_models=3, draws=10).fit(X)
    odd = X[100:101].copy()
    odd[0, 2] = 3.0

    explanation = detector.explain(odd)

    assert explanation.reasons(0)[0].column == "x2"
    total = explanation.parts.sum(1) + explanation.remainder
    np.testing.assert_allclose(total, explanation.score, atol=1e-4)


def test_a_pass_leaves_out_only_a_single_row():
    seen = list(batches(130, 64, 3, torch.Generator().manual_seed(0)))

    assert [len(batch) for batch in seen] == [64, 64, 2]
    assert math.isclose(sum(map(len, seen)), 130)


def test_a_short_batch_never_decides():
    # 80 rows: a batch of 64 and one of 16, which would always look furthest apart.
    _, checks = searched([1] * 60, n_rows=80, check_every=10, patience=4)
    assert {check.batch_size for check in checks} == {64}
    assert [check.update for check in checks] == [1, 3, 5, 7, 9]

    detector = ODIM(n_models=2, draws=3, patience=20).fit(X[:80])
    assert {check.batch_size for checks in detector.checks_ for check in checks} == {64}


def test_every_parameter_of_the_search_reaches_it():
    def weights(**changes):
        detector = ODIM(n_models=1, draws=3, patience=10, **changes).fit(X)
        return detector.snapshots_["mean.weight"], detector.checks_[0]

    plain, checks = weights()
    assert not np.array_equal(weights(weight_decay=10.0)[0], plain)
    assert not np.array_equal(weights(learning_rate=0.01)[0], plain)
    limited = weights(max_updates=2)[1]
    assert limited[-1].update <= 4 < checks[-1].update
    assert weights(batch_size=32)[1][0].batch_size == 32
    assert weights(check_every=2)[1][0].update == 2


def test_the_global_random_state_is_neither_used_nor_changed():
    found = []
    for seed in (1, 2):
        np.random.seed(seed)  # noqa: NPY002 - the caller's own, old habit
        torch.manual_seed(seed)
        before = np.random.get_state()[1].copy(), torch.random.get_rng_state()  # noqa: NPY002
        found.append(ODIM(n_models=2, draws=3, patience=20).fit(X).outlier_score(X))
        assert np.array_equal(np.random.get_state()[1], before[0])  # noqa: NPY002
        assert torch.equal(torch.random.get_rng_state(), before[1])

    assert np.array_equal(*found)
