"""A fit under a privacy budget: what leaves it, and what does not."""

import json
import secrets

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from altbi import ALTBI
from altbi.detectors import load, private
from altbi.errors import MissingExtraError, ModelFileError, ParameterError, TableWarning
from altbi.model._inspection import read_description, render
from altbi.model._privacy_accounting import epsilon_of
from altbi.torch._noisy_counts import NoisyCounts
from altbi.torch._private_training import PerRowGradients
from altbi.torch._truncation import Tracked
from altbi.model._container import read_header, read_model, write_model
from altbi.table import TextConventions, as_table

# One batch size: the accountants are quick.
QUICK = {"gamma": 1.0, "T1": 10, "T2": 15, "delta": 1e-5}
PRIVATE = QUICK | {"epsilon": 3.0, "bounds": (-6.0, 6.0)}
BY_COLUMN = {"size": [0, 10], "colour": ["red", "blue"], "day": ["2026-01-01", "2026-12-31"]}


def numbers(n_rows=1500, seed=0):
    rows = np.random.default_rng(seed).normal(size=(n_rows, 4))
    rows[:30] += 4
    return rows


def frame(n_rows=300, seed=0, colours=("red", "blue"), gaps=0.0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "size": np.where(rng.random(n_rows) < gaps, np.nan, rng.uniform(0, 10, n_rows)),
            "colour": rng.choice(colours, n_rows),
            "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 300, n_rows), "D"),
            "open": rng.random(n_rows) < 0.5,
        }
    )


def test_odd_rows_are_found_under_a_budget():
    """The odd rows lie in the middle of the bounds: a model that learned nothing expects them."""
    rows = 3 + 0.5 * np.random.default_rng(0).normal(size=(4000, 4))
    rows[:30] -= 3
    labels = np.arange(len(rows)) < 30
    plan = {"epsilon": 3.0, "delta": 1e-5, "bounds": (-6, 6)}
    detector = ALTBI(**plan, contamination=0.05).fit(rows)
    assert roc_auc_score(labels, detector.outlier_score(rows)) > 0.97
    assert 0.02 < (detector.predict(rows) == -1).mean() < 0.08
    untrained = ALTBI(**plan, learning_rate=1e-12).fit(rows)
    assert roc_auc_score(labels, untrained.outlier_score(rows)) < 0.5


def test_the_ledger_keeps_to_the_budget_and_uses_it():
    detector = ALTBI(**PRIVATE).fit(numbers())
    ledger = detector.ledger_
    assert 2.9 < epsilon_of(ledger.releases, 1e-5) <= 3.0
    assert 2.4 < ledger.epsilon_prv <= ledger.epsilon_rdp <= 3.0
    assert ledger.guarantee
    steps = [release for release in ledger.releases if "gradients" in release.what]
    assert detector.planned_steps == 25
    assert sum(release.times for release in steps) == 25
    assert [step.loss for step in detector.history_] == [None] * 25


def test_how_the_cells_stood_in_their_file_is_not_released():
    table = as_table(pa.table({f"x{place}": column for place, column in enumerate(numbers().T)}))
    table.conventions = TextConventions({"x0": "numbers with a decimal comma"}, ("?",))

    assert ALTBI(**PRIVATE).fit(table).conventions_ == TextConventions({}, ("?",))


def test_a_given_noise_ends_when_the_budget_does():
    detector = ALTBI(**PRIVATE, noise=2.0, T0=200).fit(numbers())
    spent = epsilon_of(detector.ledger_.releases, 1e-5)
    done = len(detector.history_)
    assert 0 < done < 200
    assert 2.9 < spent <= 3.0
    # The budget ended in the warm-up: what was reached there is the model.
    assert len(next(iter(detector.snapshots_.values()))) == 1
    assert np.isfinite(detector.outlier_score(numbers())).all()


def test_too_little_noise_for_a_single_step_is_refused():
    with pytest.raises(ParameterError, match="a single step would cost more"):
        ALTBI(**PRIVATE, noise=0.05).fit(numbers())


def test_noise_cannot_be_drawn_again():
    rows, state = numbers(), torch.get_rng_state()
    np.random.seed(0)  # noqa: NPY002 - the caller's own
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first, second = (ALTBI(**PRIVATE, random_state=0).fit(rows) for _ in range(2))
    assert not np.array_equal(first.outlier_score(rows), second.outlier_score(rows))
    assert first.n_rows_in_ != second.n_rows_in_ or first.offset_ != second.offset_
    assert torch.equal(state, torch.get_rng_state())
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


class Steady:
    """A source of noise that is the same whatever the number of rows."""

    def __init__(self):
        self.standard_normal = np.random.default_rng(7).standard_normal

    def random(self, count):
        return np.full(count, 0.5)


class Silence:
    """Cut every channel that the ledger lists, and fix all that is drawn."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(private, "secret_generator", Steady)
        monkeypatch.setattr(private.secrets, "randbits", lambda bits: 7)
        monkeypatch.setattr(NoisyCounts, "count", lambda noisy_counts, n_rows: 250)
        monkeypatch.setattr(
            NoisyCounts, "_counts", lambda noisy_counts, values, edges, noise: np.zeros(len(edges) - 1)
        )
        monkeypatch.setattr(Tracked, "observe", lambda *ignored: None)
        monkeypatch.setattr(
            PerRowGradients,
            "clipped_sum",
            lambda rows, *ignored: torch.zeros(sum(p.numel() for p in rows.parameters)),
        )
        monkeypatch.setattr(PerRowGradients, "losses", lambda rows, batch: torch.zeros(len(batch)))


@pytest.mark.parametrize("bounds", [BY_COLUMN, "estimate"], ids=["declared", "estimated"])
def test_nothing_but_the_releases_reaches_the_file(tmp_path, monkeypatch, bounds):
    """With all releases cut off, two tables that have nothing in common give the same bytes."""
    Silence(monkeypatch)
    monkeypatch.setattr(NoisyCounts, "_frequent", lambda *ignored: ("red", "blue"))
    tables = [
        frame(300),
        frame(211, seed=5, colours=("red", "secret", "other"), gaps=0.3).assign(size=1e6),
    ]
    files = []
    for number, table in enumerate(tables):
        path = tmp_path / f"{number}.altbi"
        ALTBI(**QUICK, epsilon=3.0, bounds=bounds).fit(table).save(path)
        files.append(path.read_bytes())
    assert files[0] == files[1]
    assert b"secret" not in files[0]


def test_a_file_tells_no_row_count_no_losses_and_no_rows(tmp_path):
    rows = numbers(1777)
    path = tmp_path / "model.altbi"
    detector = ALTBI(**PRIVATE, score_by="distance").fit(rows)
    detector.save(path)
    header = read_header(path)
    assert header["table"]["remembered"] == 0
    assert header["table"]["rows"] == header["table"]["sample"] == detector.n_rows_in_
    assert {entry["loss"] for entry in header["history"]} == {None}
    for column in header["encoder"]["columns"]:
        assert (column["low"], column["high"], column["fill"]) == (-6.0, 6.0, 0.5)
        assert (column["present"], column["missing"]) == (1, 0)
    assert "memory" not in read_model(path)[0]


def test_counts_of_rows_are_noisy_but_near():
    draw = np.random.default_rng(0)
    told = np.array([NoisyCounts(3.0, 1e-5, draw).count(1000) for _ in range(300)])
    noise = NoisyCounts(3.0, 1e-5, draw)
    noise.count(1000)
    assert told.std() == pytest.approx(noise.releases[0].noise, rel=0.15)
    assert told.mean() == pytest.approx(1000, abs=5)
    assert NoisyCounts(0.01, 1e-5, draw).count(2) >= 2


def test_a_saved_model_scores_as_before(tmp_path):
    table = frame()
    path = tmp_path / "model.altbi"
    detector = ALTBI(**QUICK, epsilon=3.0, bounds=BY_COLUMN).fit(table)
    detector.save(path)
    again = load(path)
    assert np.array_equal(again.outlier_score(table), detector.outlier_score(table))
    assert again.ledger_ == detector.ledger_
    assert again.ledger_.epsilon_prv == detector.ledger_.epsilon_prv
    assert again.offset_ == detector.offset_
    reasons = again.explain(table.iloc[:3]).reasons(0)
    assert {reason.column for reason in reasons} <= set(table.columns)


def test_inspect_tells_the_ledger(tmp_path):
    path = tmp_path / "model.altbi"
    detector = ALTBI(**PRIVATE).fit(numbers())
    detector.save(path)
    facts = read_description(path)
    assert facts.epsilon_rdp == detector.ledger_.epsilon_rdp
    assert facts.epsilon_prv == detector.ledger_.epsilon_prv
    assert facts.delta == 1e-5
    assert facts.last_loss is None
    told = render(facts)
    assert "of 3 at delta 1e-05" in told
    assert "not covered: scores of the training rows themselves" in told
    assert "no guarantee" not in told


def test_the_papers_rule_says_that_it_is_no_guarantee(tmp_path):
    path = tmp_path / "model.altbi"
    ALTBI(**PRIVATE, truncation="previous").fit(numbers()).save(path)
    assert read_description(path).privacy["guarantee"] is False
    assert "no guarantee; epsilon" in render(read_description(path))
    # Without truncation there is no threshold, and nothing to give away.
    assert ALTBI(**PRIVATE, truncation="previous", rho=1.0).fit(numbers()).ledger_.guarantee


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header["privacy"].update(epsilon_rdp=0.1),
        lambda header: header.update(privacy=None),
        lambda header: header["history"][0].update(loss=1.0),
        lambda header: header["parameters"].update(epsilon=None),
    ],
    ids=["cheaper", "no ledger", "a loss", "no budget"],
)
def test_a_file_with_a_false_ledger_is_refused(tmp_path, change):
    path = tmp_path / "model.altbi"
    ALTBI(**PRIVATE).fit(numbers()).save(path)
    tensors, header = read_model(path)
    change(header)
    write_model(path, tensors, {k: v for k, v in header.items() if not k.startswith("format")})
    with pytest.raises(ModelFileError):
        load(path)


def test_bounds_are_estimated_near_the_values():
    rng = np.random.default_rng(0)
    rows = np.column_stack(
        [rng.normal(size=5000), rng.uniform(1000, 1001, 5000), rng.exponential(1e-3, 5000)]
    )
    low, high = NoisyCounts(3.0, 1e-5, rng).bounds(rows)
    inside = ((rows >= low) & (rows <= high)).mean(axis=0)
    assert (inside > 0.95).all()
    assert high[1] - low[1] < 20
    assert (high - low)[0] < 30
    assert 1e-3 < (high - low)[2] < 0.1


def test_rows_without_values_have_some_bounds():
    low, high = NoisyCounts(3.0, 1e-5, np.random.default_rng(0)).bounds(np.full((500, 1), np.nan))
    assert low < high


def test_a_level_that_one_row_has_is_not_told():
    import pyarrow as pa

    texts = pa.array(["common"] * 500 + ["unique"])
    draw = np.random.default_rng(0)
    for _ in range(200):
        assert NoisyCounts(3.0, 1e-5, draw).levels([texts], 32) == [("common",)]


def test_levels_are_told_with_noise_for_each_column():
    import pyarrow as pa

    texts = pa.array(["a"] * 100 + ["b"] * 60)
    tellers = [NoisyCounts(3.0, 1e-5, np.random.default_rng(0)) for _ in range(2)]
    tellers[0].levels([texts], 32)
    tellers[1].levels([texts] * 9, 32)
    assert tellers[0].releases == tellers[1].releases
    assert tellers[1].levels([texts], 1) in ([("a",)], [()])


def test_a_threshold_is_exceeded_by_about_the_share():
    rng = np.random.default_rng(0)
    scores = rng.gumbel(size=5000) * 3 - 40
    for share in (0.02, 0.1, 0.4):
        threshold = NoisyCounts(3.0, 1e-5, rng).threshold(scores, -100.0, 3000.0, share, 5000)
        assert (scores > threshold).mean() == pytest.approx(share, abs=0.03)


def test_a_given_threshold_costs_nothing():
    detector = ALTBI(**PRIVATE, threshold=-3.5).fit(numbers())
    assert detector.offset_ == 3.5
    assert not [
        release for release in detector.ledger_.releases if "threshold" in release.what[:30]
    ]
    assert not any("scores" in release.what for release in detector.ledger_.releases)
    assert ALTBI(threshold=2.5, T1=5, T2=8).fit(numbers(200)).offset_ == -2.5


def test_gaps_read_as_the_middle_and_other_levels_as_other():
    detector = ALTBI(**QUICK, epsilon=3.0, bounds=BY_COLUMN).fit(frame())
    gap = frame(2).assign(size=[np.nan, 5.0])
    gap.loc[0, ["colour", "day", "open"]] = gap.loc[1, ["colour", "day", "open"]]
    scores = detector.outlier_score(gap)
    assert scores[0] == scores[1]
    with pytest.warns(TableWarning, match="Levels that"):
        detector.outlier_score(frame(5, colours=("green",)))


@pytest.mark.parametrize(
    ("changes", "table", "message"),
    [
        ({"bounds": None}, numbers(), "there are no bounds"),
        ({"bounds": (1, 0)}, numbers(), "the smaller one first"),
        ({"bounds": (0, float("inf"))}, numbers(), "two finite numbers"),
        ({"bounds": (0, 1, 2)}, numbers(), "two finite numbers"),
        ({"bounds": "guess"}, numbers(), "bounds='guess'"),
        ({"bounds": (0, 1)}, frame(), "'colour' holds a category"),
        ({"bounds": BY_COLUMN | {"weight": [0, 1]}}, frame(), "'weight'"),
        ({"bounds": {"size": [0, 1]}}, frame(), "'colour' has no bounds"),
        ({"bounds": BY_COLUMN | {"colour": ["red", "red"]}}, frame(), "texts that all differ"),
        ({"bounds": BY_COLUMN | {"day": ["soon", "later"]}}, frame(), "two dates"),
        ({"bounds": BY_COLUMN | {"size": 3}}, frame(), "two finite numbers"),
        ({"max_rows": 100}, numbers(), "Raise max_rows"),
        ({"backbone": "glow"}, numbers(), "backbone='glow'"),
        ({"network": "paper"}, numbers(), "network='paper'"),
        ({"epsilon": 0.0}, numbers(), "epsilon=0.0"),
        ({"epsilon": "much"}, numbers(), "epsilon='much'"),
        ({"delta": 0.0}, numbers(), "delta=0.0"),
        ({"delta": 1.0}, numbers(), "delta=1.0"),
        ({"noise": 0.0}, numbers(), "noise=0.0"),
        ({"clip": -1.0}, numbers(), "clip=-1.0"),
        ({"truncation": "none"}, numbers(), "truncation='none'"),
        ({"threshold": float("nan")}, numbers(), "threshold=nan"),
    ],
)
def test_what_would_break_the_promise_is_refused(changes, table, message):
    with pytest.raises(ParameterError, match=message):
        ALTBI(**PRIVATE | changes).fit(table)


def test_labels_are_not_covered():
    with pytest.raises(ParameterError, match="not covered by a privacy budget"):
        ALTBI(**PRIVATE).fit(numbers(), known_outlier=np.arange(1500) < 3)


def test_a_delta_that_allows_a_row_is_warned_of():
    with pytest.warns(TableWarning, match="would allow to publish one of them"):
        ALTBI(**PRIVATE | {"delta": 0.01}).fit(numbers(300))


def test_without_opacus_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "opacus", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'altbi\[privacy\]'"):
        ALTBI(**PRIVATE).fit(numbers(300))


def test_a_row_keeps_its_score_in_any_company():
    rows = numbers(900)
    detector = ALTBI(**PRIVATE).fit(rows)
    scores = detector.outlier_score(rows)
    assert np.array_equal(detector.outlier_score(rows[::-1])[::-1], scores)
    assert np.array_equal(detector.outlier_score(rows[5:6]), scores[5:6])


def test_the_page_shows_the_ledger(tmp_path):
    from altbi.cli import main

    table = tmp_path / "t.csv"
    frame().to_csv(table, index=False)
    bounds = tmp_path / "bounds.json"
    bounds.write_text(json.dumps(BY_COLUMN))
    found = tmp_path / "found"
    words = ["detect", str(table), "--epsilon", "3", "--delta", "1e-5", "--bounds", str(bounds)]
    with pytest.raises(SystemExit) as refused:
        main([*words, "-o", str(found)])
    assert refused.value.code == 2
    assert not found.exists()
    main([*words, "-o", str(found), "--release-scores", "--quiet"])
    page = (found / "report.html").read_text()
    assert "number of rows" in page
    assert "Not covered" in page
    assert 'id="loss"' not in page
    assert len(pd.read_csv(found / "scores.csv")) == 300
    assert read_description(found / "model.altbi").epsilon_prv <= 3


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(10.0, 1e-3), (30.0, 1e-3), (3.0, 0.5), (0.5, 1e-9)]
)
def test_what_was_fitted_can_be_loaded_whatever_the_budget(tmp_path, epsilon, delta):
    budget = {"epsilon": epsilon, "delta": delta}
    detector = ALTBI(**PRIVATE | budget, threshold=0.0).fit(numbers(300))
    detector.save(tmp_path / "model.altbi")
    loaded = ALTBI.load(tmp_path / "model.altbi")
    assert loaded.ledger_ == detector.ledger_
    assert 0 <= loaded.ledger_.epsilon_prv <= loaded.ledger_.epsilon_rdp + 0.02
    assert loaded.ledger_.epsilon_rdp <= epsilon


def test_the_papers_rule_is_warned_of_at_once():
    with pytest.warns(TableWarning, match="Epsilon is no guarantee here"):
        ALTBI(**PRIVATE, truncation="previous").fit(numbers(300))


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"day": [0, 1]}, "'day'.*holds dates. Expected two dates"),
        ({"size": [False, True]}, "'size'.*holds numbers. Expected two finite"),
        ({"colour": []}, "'colour'.*holds texts. Expected a list of its levels"),
        ({"colour": "red"}, "'colour'.*holds texts"),
        ({"open": ["yes", "no"]}, "'open'.*true and false. Leave it out"),
    ],
)
def test_bounds_of_another_kind_are_refused(bounds, message):
    with pytest.raises(ParameterError, match=message):
        ALTBI(**PRIVATE | {"bounds": BY_COLUMN | bounds}).fit(frame())


@pytest.mark.parametrize("bounds", [(0, 1), "estimate"])
def test_who_gives_bounds_does_not_go_without_privacy_unawares(bounds):
    with pytest.raises(ParameterError, match=r"bounds=.*None without epsilon"):
        ALTBI(bounds=bounds).fit(numbers(50))


def test_bounds_as_an_array_are_refused_in_a_sentence():
    with pytest.raises(ParameterError, match="bounds"):
        ALTBI(epsilon=1.0, bounds=np.array([0, 1])).fit(numbers(50))


def test_batches_and_noise_are_secret_and_the_draws_for_scoring_are_not(monkeypatch):
    """Also where the number of rows tells nothing, and whatever torch's seeds are worth."""
    monkeypatch.setattr(NoisyCounts, "count", lambda noisy_counts, n_rows: 300)
    monkeypatch.setattr(private.secrets, "randbits", lambda bits, real=secrets.randbits: (
        real(bits) if bits >= 128 else 7
    ))  # fmt: skip
    first, second = (ALTBI(**PRIVATE, threshold=0.0).fit(numbers(300)).snapshots_ for _ in "12")
    assert not np.array_equal(first["mean.weight"], second["mean.weight"])
    assert np.array_equal(first["scoring_noise"], second["scoring_noise"])


def test_rows_outside_the_bounds_are_learned_from_as_at_the_border(monkeypatch):
    seen = []
    monkeypatch.setattr(
        private, "private_train", lambda model, rows, *rest, **more: seen.append(rows) or iter(())
    )
    with pytest.raises(IndexError):  # nothing was trained
        ALTBI(**PRIVATE).fit(numbers(300) * 100)
    assert float(seen[0].min()) == 0
    assert float(seen[0].max()) == 1


def test_estimated_levels_have_a_part_of_delta():
    detector = ALTBI(**QUICK | {"epsilon": 9.0}, bounds="estimate").fit(frame(2000))
    assert detector.ledger_.categories_delta == pytest.approx(1e-6)


class TestTeller:
    """What is told has the noise that is charged for."""

    def noisy_counts(self):
        return NoisyCounts(1.0, 1e-5, np.random.default_rng(0))

    def test_counts(self):
        found = self.noisy_counts()._counts(np.zeros(0), np.arange(5001.0), 3.0)
        assert found.std() == pytest.approx(3.0, rel=0.05)

    @pytest.mark.parametrize("n_columns", [1, 9])
    def test_bounds(self, monkeypatch, n_columns):
        noisy_counts, noises = self.noisy_counts(), []
        counts = NoisyCounts._counts
        monkeypatch.setattr(
            NoisyCounts, "_counts", lambda *given: noises.append(given[-1]) or counts(*given)
        )
        noisy_counts.bounds(np.random.default_rng(1).normal(size=(50_000, n_columns)))
        (release,) = noisy_counts.releases
        assert set(noises) == {release.noise * np.sqrt(n_columns)}
        assert n_columns < len(noises) <= n_columns * release.times

    @pytest.mark.parametrize("n_columns", [1, 4])
    def test_levels(self, monkeypatch, n_columns):
        noisy_counts, given = self.noisy_counts(), []
        monkeypatch.setattr(NoisyCounts, "_frequent", lambda _, *rest: given.append(rest[1:]) or ())
        noisy_counts.levels([pa.array(["a"])] * n_columns, 5)
        (release,) = noisy_counts.releases
        noise = release.noise * np.sqrt(n_columns)
        beyond = 1 + noise * norm.isf(0.1 * 1e-5 / n_columns)
        assert given == [(noise, pytest.approx(beyond))] * n_columns

    def test_frequent_levels(self):
        texts = pa.array([str(number) for number in range(2000)] * 3)
        told = self.noisy_counts()._frequent(texts, 2.0, 3.0)
        assert 900 < len(told) < 1100

    def test_the_threshold_is_charged_for_every_count(self, monkeypatch):
        noisy_counts, noises = self.noisy_counts(), []
        counts = NoisyCounts._counts
        monkeypatch.setattr(
            NoisyCounts, "_counts", lambda *given: noises.append(given[-1]) or counts(*given)
        )
        noisy_counts.threshold(np.arange(1000.0), 0.0, 1000.0, 0.1, 1000)
        (release,) = noisy_counts.releases
        assert noises == [release.noise] * release.times


@pytest.mark.parametrize(("noise", "direction"), [(60.0, -1), (-60.0, 1), (1e9, -1), (-1e9, 1)])
def test_a_noisy_count_moves_the_threshold_and_never_out_of_reach(noise, direction):
    quiet, noisy = Tracked(4), Tracked(4)
    losses = torch.linspace(-4, 4, 100)
    for _ in range(200):
        quiet.observe(losses, 0.0, 100.0, 0.9)
        noisy.observe(losses, noise, 100.0, 0.9)
    assert np.sign(noisy.per_unit - quiet.per_unit) == direction
    assert -7 < noisy.per_unit < 210


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon_prv": 99.0},
        {"epsilon_prv": -1.0},
        {"truncation": "previous"},
        {"clip": -1.0},
        {"epsilon": 2.0},
        {"releases": []},
    ],
)
def test_a_file_with_a_ledger_of_another_fit_is_refused(tmp_path, change):
    path = tmp_path / "model.altbi"
    ALTBI(**PRIVATE, threshold=0.0).fit(numbers(300)).save(path)
    tensors, header = read_model(path)
    write_model(path, tensors, header | {"privacy": header["privacy"] | change})
    with pytest.raises(ModelFileError):
        ALTBI.load(path)


@pytest.mark.parametrize("change", [{"times": 10**400}, {"noise": 1e200}, {"noise": 1e-200}])
def test_releases_beyond_all_measure_are_refused(tmp_path, change):
    path = tmp_path / "model.altbi"
    ALTBI(**PRIVATE, threshold=0.0).fit(numbers(300)).save(path)
    tensors, header = read_model(path)
    header["privacy"]["releases"][0] |= change
    write_model(path, tensors, header)
    with pytest.raises(ModelFileError):
        read_description(path)
