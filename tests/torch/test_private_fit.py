"""Fits under a privacy budget: the released values, and errors for unsuitable parameters."""

import secrets
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import altbi
from altbi import ALTBI, IWAE, Schedule
from altbi.errors import MissingExtraError, ModelFileError, ParameterError, TableWarning
from altbi.model._file import encode_model, read_model
from altbi.model._privacy_accounting import compute_rdp_epsilon
from altbi.table import TextConventions, as_table
from altbi.torch import Glow, PrivacyBudget, _private_fit
from altbi.torch._noisy_counts import NoisyCounts
from altbi.torch._private_training import PerRowGradients, Tracked, Truncation

DELTA = 1e-5
# With gamma=1 all batches have one size, and the accountants are fast.
BRIEF = Schedule(gamma=1.0, T0=2, T1=3, T2=5)
BY_COLUMN = {"size": [0, 10], "colour": ["red", "blue"], "day": ["2026-01-01", "2026-12-31"]}


def build_table(n_rows=300, seed=0):
    return np.random.default_rng(seed).normal(size=(n_rows, 4))


def build_frame(n_rows=200, seed=0, colours=("red", "blue"), missing=0.0):
    rng = np.random.default_rng(seed)
    days = pd.to_timedelta(rng.integers(0, 300, n_rows), "D")
    return pd.DataFrame(
        {
            "size": np.where(rng.random(n_rows) < missing, np.nan, rng.uniform(0, 10, n_rows)),
            "colour": rng.choice(colours, n_rows),
            "day": pd.Timestamp("2026-01-01") + days,
            "open": rng.random(n_rows) < 0.5,
        }
    )


def build_detector(schedule=BRIEF, threshold=None, max_rows=200_000, backbone=None, **changes):
    options = {"epsilon": 3.0, "delta": DELTA, "bounds": (-6.0, 6.0)} | changes
    return ALTBI(
        schedule=schedule,
        privacy=PrivacyBudget(**options),
        threshold=threshold,
        max_rows=max_rows,
        backbone=backbone,
    )


@pytest.fixture(scope="module")
def detector():
    return build_detector().fit(build_table())


@pytest.fixture(scope="module")
def frame_detector():
    return build_detector(bounds=BY_COLUMN).fit(build_frame())


@pytest.fixture(scope="module")
def model_file(detector, tmp_path_factory):
    path = tmp_path_factory.mktemp("private") / "model.altbi"
    detector.save(path)
    return path


def change_header(path, target, change):
    tensors, header = read_model(path)
    change(header)
    header = {key: value for key, value in header.items() if not key.startswith("format")}
    target.write_bytes(encode_model(tensors, header))
    return target


@pytest.mark.slow
def test_training_learns_the_distribution():
    rows = 3 + 0.5 * np.random.default_rng(0).normal(size=(1500, 3))
    schedule = Schedule(n0=256, gamma=1.0, T0=5, T1=90, T2=100)
    typical = [
        build_detector(schedule, epsilon=10.0, backbone=IWAE(learning_rate=rate))
        .fit(rows)
        .model_.scorer.typical.neutral
        for rate in (0.01, 1e-12)
    ]

    # The median 3 is encoded as (3 + 6) / 12; an untrained network predicts values near 0.5.
    np.testing.assert_allclose(typical[0], 0.75, atol=0.05)
    np.testing.assert_allclose(typical[1], 0.5, atol=0.15)


def test_ledger_uses_the_budget(detector):
    ledger = detector.model_.ledger

    assert 2.9 < compute_rdp_epsilon(ledger.releases, DELTA) <= 3.0
    assert 2.4 < ledger.epsilon_prv <= ledger.epsilon_rdp <= 3.0
    assert ledger.guarantee
    updates = [release for release in ledger.releases if "gradients" in release.what]
    assert sum(release.times for release in updates) == BRIEF.n_steps
    assert [step.loss for step in detector.history_] == [None] * BRIEF.n_steps


def test_text_formats_are_not_released():
    table = as_table(pa.table({f"x{i}": column for i, column in enumerate(build_table().T)}))
    table.conventions = TextConventions({"x0": "numbers with a decimal comma"}, ("?",))

    fitted = build_detector().fit(table)

    assert fitted.model_.training_table.conventions == TextConventions({}, ("?",))


@pytest.mark.slow
def test_given_noise_ends_with_the_budget():
    fitted = build_detector(BRIEF._copy_with(T0=400, n0=30), noise=1.5).fit(build_table())

    assert 0 < len(fitted.history_) < 400
    assert 2.9 < compute_rdp_epsilon(fitted.model_.ledger.releases, DELTA) <= 3.0
    # The budget ended in the warm-up, so the last state is the only snapshot.
    assert len(fitted.model_.scorer.arrays["scoring_noise"]) == 1
    assert np.isfinite(fitted.outlier_score(build_table())).all()


def test_too_little_noise_raises():
    with pytest.raises(ParameterError, match="a single step would exceed epsilon"):
        build_detector(noise=0.05).fit(build_table())


def test_noise_cannot_be_reproduced(detector):
    rows, state = build_table(), torch.get_rng_state()
    np.random.seed(0)  # noqa: NPY002 - the caller's global state
    before = np.random.get_state()[1].copy()  # noqa: NPY002

    again = build_detector().fit(rows)

    assert not np.array_equal(detector.outlier_score(rows), again.outlier_score(rows))
    assert torch.equal(state, torch.get_rng_state())
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_secrets_do_not_come_from_torch_seeds(monkeypatch):
    monkeypatch.setattr(NoisyCounts, "count", lambda counts, n_rows: 300)
    randbits = secrets.randbits
    monkeypatch.setattr(
        _private_fit.secrets, "randbits", lambda bits: randbits(bits) if bits >= 128 else 7
    )

    first, second = (
        build_detector(threshold=0.0).fit(build_table()).model_.scorer.arrays for _ in range(2)
    )

    assert not np.array_equal(first["mean.weight"], second["mean.weight"])
    assert np.array_equal(first["scoring_noise"], second["scoring_noise"])


class ConstantGenerator:
    """A source of noise that does not depend on the number of rows."""

    def __init__(self):
        self.standard_normal = np.random.default_rng(7).standard_normal

    def random(self, count):
        return np.full(count, 0.5)


@pytest.fixture
def no_releases(monkeypatch):
    """Replace all releases of the ledger by constants, and all noise by a fixed one."""
    monkeypatch.setattr(_private_fit, "create_secret_generator", ConstantGenerator)
    monkeypatch.setattr(_private_fit.secrets, "randbits", lambda bits: 7)
    monkeypatch.setattr(NoisyCounts, "count", lambda counts, n_rows: 250)
    monkeypatch.setattr(NoisyCounts, "_find_frequent", lambda *_: ("red", "blue"))
    monkeypatch.setattr(
        NoisyCounts, "_count_bins", lambda counts, values, edges, noise: np.zeros(len(edges) - 1)
    )
    monkeypatch.setattr(Tracked, "observe", lambda *_: None)
    monkeypatch.setattr(
        PerRowGradients, "clipped_sum", lambda gradients, *_: torch.zeros(gradients.n_parameters)
    )
    monkeypatch.setattr(PerRowGradients, "losses", lambda _, batch: torch.zeros(len(batch)))


@pytest.mark.slow
@pytest.mark.usefixtures("no_releases")
@pytest.mark.parametrize("bounds", [BY_COLUMN, "estimate"], ids=["declared", "estimated"])
def test_file_depends_on_releases_only(tmp_path, bounds):
    tables = [
        build_frame(),
        build_frame(211, seed=5, colours=("red", "secret", "other"), missing=0.3).assign(size=1e6),
    ]
    files = []
    for number, table in enumerate(tables):
        path = tmp_path / f"{number}.altbi"
        build_detector(bounds=bounds).fit(table).save(path)
        files.append(path.read_bytes())

    assert files[0] == files[1]
    assert b"secret" not in files[0]


def test_file_holds_no_rows_and_losses(detector, model_file):
    tensors, header = read_model(model_file)

    assert header["n_reference"] == 0
    n_rows = detector.model_.training_table.n_rows
    assert header["table"]["n_rows"] == header["table"]["n_sample"] == n_rows
    assert {entry["loss"] for entry in header["history"]} == {None}
    for column in header["encoder"]["columns"]:
        assert (column["low"], column["high"]) == (-6.0, 6.0)
        assert (column["n_present"], column["n_missing"]) == (1, 0)
    assert "reference" not in tensors


def test_loaded_model_equals_fitted_one(frame_detector, tmp_path):
    table, path = build_frame(), tmp_path / "model.altbi"
    frame_detector.save(path)

    loaded, fitted = altbi.load(path), frame_detector.model_

    assert np.array_equal(loaded.score(table), fitted.score(table))
    assert loaded.ledger == fitted.ledger
    assert loaded.ledger.epsilon_prv == fitted.ledger.epsilon_prv
    assert loaded.threshold == fitted.threshold
    reasons = frame_detector.explain(table.iloc[:3]).reasons(0)
    assert {reason.column for reason in reasons} <= set(table.columns)


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header["privacy"].update(epsilon_rdp=0.1),
        lambda header: header["privacy"].update(epsilon_prv=99.0),
        lambda header: header["privacy"].update(epsilon_prv=-1.0),
        lambda header: header["privacy"].update(truncation="previous"),
        lambda header: header["privacy"].update(clip=-1.0),
        lambda header: header["privacy"].update(epsilon=2.0),
        lambda header: header["privacy"].update(releases=[]),
        lambda header: header["privacy"]["releases"][0].update(times=10**400),
        lambda header: header["privacy"]["releases"][0].update(noise=1e200),
        lambda header: header["privacy"]["releases"][0].update(noise=1e-200),
        lambda header: header.update(privacy=None),
        lambda header: header["history"][0].update(loss=1.0),
        lambda header: header["parameters"].update(privacy=None),
    ],
)
def test_file_with_changed_ledger_raises(model_file, tmp_path, change):
    with pytest.raises(ModelFileError):
        altbi.load(change_header(model_file, tmp_path / "changed.altbi", change))


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "delta"), [(30.0, 1e-3), (3.0, 0.5), (0.5, 1e-9)])
@pytest.mark.filterwarnings("ignore::altbi.errors.TableWarning")
def test_any_budget_can_be_saved_and_loaded(tmp_path, epsilon, delta):
    fitted = build_detector(epsilon=epsilon, delta=delta, threshold=0.0).fit(build_table())
    fitted.save(tmp_path / "model.altbi")

    ledger = altbi.load(tmp_path / "model.altbi").ledger

    assert ledger == fitted.model_.ledger
    assert 0 <= ledger.epsilon_prv <= ledger.epsilon_rdp + 0.02
    assert ledger.epsilon_rdp <= epsilon


class Unbounded(Truncation):
    """A rule without a bound of its sensitivity."""

    name = "unbounded"
    guaranteed = False

    def select(self, losses, share):
        return losses <= losses.median()

    def observe(self, losses, noise, expected_rows, share):
        pass


def test_rule_without_guarantee_warns():
    with pytest.warns(TableWarning, match="(?i)guarantee") as found:
        fitted = build_detector(truncation=Unbounded, threshold=0.0).fit(build_table())
    assert not fitted.model_.ledger.guarantee
    assert {warning.filename for warning in found} == {__file__}
    # Without truncation the rule is not used.
    schedule = BRIEF._copy_with(rho=1.0)
    fitted = build_detector(schedule, truncation=Unbounded, threshold=0.0).fit(build_table())
    assert fitted.model_.ledger.guarantee


def test_given_threshold_needs_no_release():
    fitted = build_detector(threshold=-3.5).fit(build_table())

    assert fitted.offset_ == 3.5
    assert not any("scores" in release.what for release in fitted.model_.ledger.releases)


def test_missing_values_score_like_the_middle(frame_detector):
    rows = build_frame(2).assign(size=[np.nan, 5.0])
    rows.loc[0, ["colour", "day", "open"]] = rows.loc[1, ["colour", "day", "open"]]

    scores = frame_detector.outlier_score(rows)

    assert scores[0] == scores[1]
    with pytest.warns(TableWarning, match="green|colour"):
        frame_detector.outlier_score(build_frame(5, colours=("green",)))


def test_values_outside_bounds_are_clipped(monkeypatch):
    seen = []
    monkeypatch.setattr(
        _private_fit, "train_privately", lambda model, rows, *_, **__: seen.append(rows) or iter(())
    )
    with pytest.raises(IndexError):  # nothing was trained
        build_detector().fit(build_table() * 100)

    assert (float(seen[0].min()), float(seen[0].max())) == (0, 1)


def test_estimated_categories_use_a_share_of_delta():
    fitted = build_detector(epsilon=9.0, bounds="estimate").fit(build_frame(2000))

    assert fitted.model_.ledger.categories_delta == pytest.approx(1e-6)


def test_scores_do_not_depend_on_other_rows(detector):
    rows = build_table(500, seed=3)
    scores = detector.outlier_score(rows)

    assert np.array_equal(detector.outlier_score(rows[::-1])[::-1], scores)
    assert np.array_equal(detector.outlier_score(rows[5:6]), scores[5:6])


@pytest.mark.parametrize(
    ("changes", "table", "message"),
    [
        ({"bounds": None}, build_table(), "bounds=None"),
        ({"bounds": (1, 0)}, build_table(), "bounds"),
        ({"bounds": (0, float("inf"))}, build_table(), "bounds"),
        ({"bounds": (0, 1, 2)}, build_table(), "bounds"),
        ({"bounds": "guess"}, build_table(), "bounds='guess'"),
        ({"bounds": np.array([0, 1])}, build_table(), "bounds"),
        ({"bounds": (0, 1)}, build_frame(), "'colour'"),
        ({"bounds": BY_COLUMN | {"weight": [0, 1]}}, build_frame(), "'weight'"),
        ({"bounds": {"size": [0, 1]}}, build_frame(), "'colour'"),
        ({"bounds": BY_COLUMN | {"colour": ["red", "red"]}}, build_frame(), "colour"),
        ({"bounds": BY_COLUMN | {"colour": []}}, build_frame(), "'colour'"),
        ({"bounds": BY_COLUMN | {"colour": "red"}}, build_frame(), "'colour'"),
        ({"bounds": BY_COLUMN | {"day": ["soon", "later"]}}, build_frame(), "day"),
        ({"bounds": BY_COLUMN | {"day": [0, 1]}}, build_frame(), "'day'"),
        ({"bounds": BY_COLUMN | {"size": 3}}, build_frame(), "size"),
        ({"bounds": BY_COLUMN | {"size": [False, True]}}, build_frame(), "'size'"),
        ({"bounds": BY_COLUMN | {"open": ["yes", "no"]}}, build_frame(), "'open'"),
        ({"max_rows": 100}, build_table(), "Raise max_rows"),
        ({"backbone": Glow()}, build_table(), "backbone=Glow"),
        ({"backbone": IWAE(network="paper")}, build_table(), "network='reference'"),
        ({"epsilon": 0.0}, build_table(), "epsilon=0.0"),
        ({"epsilon": "much"}, build_table(), "epsilon='much'"),
        ({"delta": 0.0}, build_table(), "delta=0.0"),
        ({"delta": 1.0}, build_table(), "delta=1.0"),
        ({"noise": 0.0}, build_table(), "noise=0.0"),
        ({"clip": -1.0}, build_table(), "clip=-1.0"),
        ({"truncation": "none"}, build_table(), "truncation='none'"),
        ({"threshold": float("nan")}, build_table(), "threshold=nan"),
    ],
)
def test_unsuitable_parameters_raise(changes, table, message):
    with pytest.raises(ParameterError, match=message):
        build_detector(**changes).fit(table)


def test_labels_raise():
    with pytest.raises(ParameterError, match="privacy budget"):
        build_detector().fit(build_table(), known_outlier=np.arange(300) < 3)


def test_large_delta_warns():
    with pytest.warns(TableWarning, match=r"delta=0\.01"):
        build_detector(delta=0.01, threshold=0.0).fit(build_table())


def test_missing_opacus_raises(monkeypatch):
    monkeypatch.setitem(sys.modules, "opacus", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'altbi\[privacy\]'"):
        build_detector().fit(build_table())
