"""Trainings that are watched: what is seen is what the detector does, and lines are whole."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

from altbi import ALTBI, Schedule
from altbi.encoding import TableEncoder
from altbi.errors import ParameterError, TableError
from altbi.table import as_table
from altbi_bench.catalogue.datasets import load_table
from altbi_bench.catalogue.protocols import sample_table
from altbi_bench.runs.runner import Limits
from altbi_bench.traces import records
from altbi_bench.traces.records import current_traces, read_traces, run_traces
from altbi_bench.traces.settings import SETTINGS, LabelledModel, Setting, observe_training
from altbi_bench.traces.trace import (
    Trace,
    TraceJob,
    compute_auc,
    drop_outliers,
    mean_losses,
    run_trace,
)

WINE = TraceJob(file="Classical/45_wine.npz", setting="VAE", seed=0, rows=5000)


@pytest.fixture(scope="module")
def table():
    """Two columns that go together, and rows in which they do not."""
    generator = np.random.default_rng(0)
    inliers = generator.normal(size=(400, 1)) * [1.0, 1.0] + 0.05 * generator.normal(size=(400, 2))
    outliers = generator.normal(size=(40, 1)) * [1.0, -1.0]
    return np.vstack([inliers, outliers]), np.repeat([0, 1], [400, 40])


def short(**changes):
    plan = {"n0": 32, "gamma": 1.1, "rho": 0.9, "T0": 2, "T1": 3, "T2": 8, "updates": 2}
    return Setting(2, Schedule(**{**plan, "first_truncated": 2, "max_batch": None, **changes}))


class TestWatch:
    def test_what_is_watched_is_the_training_of_the_detector(self, table):
        X, y = table
        setting = short()
        rows = TableEncoder().fit_transform(as_table(X))
        losses = np.array([look.snapshot for look in observe_training(rows, y, setting, seed=7)])
        last = losses[-5:].astype(float)
        low, width = last.min(1, keepdims=True), np.ptp(last, axis=1, keepdims=True)
        watched = ((last - low) / width).mean(0)
        detector = ALTBI(schedule=setting.schedule, random_state=7).fit(X)
        assert watched == pytest.approx(detector.outlier_score(X), abs=1e-5)

    def test_there_is_a_look_after_each_step_and_the_model_learns(self, table):
        X, y = table
        rows = TableEncoder().fit_transform(as_table(X))
        losses = [look.losses.mean() for look in observe_training(rows, y, short(T2=60), seed=0)]
        assert len(losses) == 62
        assert np.mean(losses[-5:]) < losses[0] - 0.5

    def test_a_seed_is_a_training(self, table):
        X, y = table
        rows = TableEncoder().fit_transform(as_table(X))
        one, again, other = (
            [look.losses.tolist() for look in observe_training(rows, y, short(), seed)]
            for seed in (0, 0, 1)
        )
        assert one == again != other

    def test_the_global_random_state_is_left_alone(self, table):
        X, y = table
        rows = TableEncoder().fit_transform(as_table(X))
        before = torch.get_rng_state()
        list(observe_training(rows, y, short(), seed=0))
        assert torch.equal(before, torch.get_rng_state())

    def test_no_label_reaches_the_model(self, table):
        X, y = table
        rows = TableEncoder().fit_transform(as_table(X))
        one, other = (
            [look.losses.tolist() for look in observe_training(rows, labels, short(), 0)]
            for labels in (y, 1 - y)
        )
        assert one == other

    def test_a_step_is_judged_by_the_mean_over_draws_that_all_steps_share(self, table):
        X, y = table
        rows = TableEncoder().fit_transform(as_table(X))
        looks = list(observe_training(rows, y, short(T0=30, T1=1, T2=60), seed=0))
        changes = {
            name: np.mean([np.abs(np.diff([getattr(look, name).mean() for look in looks[-20:]]))])
            for name in ("losses", "snapshot")
        }
        assert changes["losses"] < changes["snapshot"] / 2

    def test_what_counts_is_the_share_that_the_step_keeps(self, table):
        X, y = table
        rows = TableEncoder().fit_transform(as_table(X))
        # The batch is the table, and half of it is kept from the second step after the warm-up on.
        setting = short(n0=440, gamma=1.0, rho=0.5)
        kept = [look.kept_outliers for look in observe_training(rows, y, setting, seed=0)]
        assert kept[:3] == pytest.approx([40 / 440] * 3)
        numbers = np.array(kept[3:]) * 220
        assert numbers == pytest.approx(numbers.round(), abs=1e-3)
        assert len(set(numbers.round())) > 2


class TestSettings:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("reference", (2, 128, 1.03, 0.92, 10, 61, 100, 5, 2)),
            ("reference, no growth", (2, 128, 1.0, 0.92, 10, 61, 100, 5, 2)),
            ("VAE", (1, 128, 1.0, 1.0, 10, 0, 90, 1, 1)),
            ("VAE, growth", (1, 128, 1.1, 1.0, 10, 0, 90, 1, 1)),
            ("VAE, truncation", (1, 128, 1.0, 0.9, 10, 0, 90, 1, 1)),
            ("VAE, both", (1, 128, 1.1, 0.9, 10, 0, 90, 1, 1)),
        ],
    )
    def test_they_are_the_papers(self, name, expected):
        plan = SETTINGS[name].plan()
        names = ("draws", "n0", "gamma", "rho", "T0", "T1", "T2", "updates", "first_truncated")
        assert tuple(plan[each] for each in names) == expected
        assert plan["learning_rate"] == 1e-3
        assert len(SETTINGS) == 6


class TestWatched:
    def test_kept_outliers_are_counted_among_the_smallest_losses(self):
        class FirstColumn(nn.Module):
            def forward(self, rows):
                assert rows.shape[1] == 1
                return rows[:, 0]

        watched = LabelledModel(FirstColumn())
        #                     loss, label
        labelled = torch.tensor([[1.0, 0], [2.0, 1], [3.0, 0], [4.0, 0], [9.0, 1]])
        watched(labelled)
        assert watched.kept_outliers(1.0) == pytest.approx(2 / 5)
        assert watched.kept_outliers(0.8) == pytest.approx(1 / 4)
        assert watched.kept_outliers(0.25) == pytest.approx(1 / 2)


class TestMeanLosses:
    def test_losses_are_held_and_brought_to_the_unit(self):
        losses = np.zeros((2, 100), dtype=np.float32)
        losses[0] = np.arange(100)
        losses[1] = np.arange(100)
        losses[1, 99] = 1e6  # one giant must not make all others alike
        y = (np.arange(100) >= 90).astype(int)
        inliers, outliers = mean_losses(losses, y, 0)
        low, high = np.quantile(losses, [0.01, 0.99])
        assert high < 100
        expected = (np.clip(np.arange(90), low, high) - low).mean() / (high - low)
        assert inliers == pytest.approx([expected, expected])
        assert (outliers > inliers).all()
        assert (outliers <= 1).all()

    def test_equal_losses_have_no_gap(self):
        inliers, outliers = mean_losses(np.ones((1, 10), dtype=np.float32), np.arange(10) % 2, 0)
        assert inliers.tolist() == outliers.tolist() == [0]

    def test_the_warm_up_does_not_set_the_range(self):
        losses = np.tile(np.arange(100, dtype=np.float32), (3, 1))
        losses[0] *= 1000
        y = (np.arange(100) >= 90).astype(int)
        inliers, outliers = mean_losses(losses, y, 1)
        calm = mean_losses(losses[1:], y, 0)
        assert inliers[1:] == pytest.approx(calm[0])
        assert outliers[1:] == pytest.approx(calm[1])
        assert inliers[0] > 0.9


class TestShare:
    def test_all_inliers_stay_and_outliers_as_asked(self):
        X, y = np.arange(110.0)[:, None], np.repeat([0, 1], [90, 20])
        few, labels = drop_outliers(X, y, 0.1, seed=0)
        assert (labels == 0).sum() == 90
        assert labels.sum() == 10
        assert (np.diff(few[:, 0]) > 0).all()
        assert set(few[labels == 1, 0]) <= set(range(90, 110))
        other, _ = drop_outliers(X, y, 0.1, seed=1)
        assert other.tolist() != few.tolist()

    @pytest.mark.parametrize("share", [0.5, 0.001])
    def test_a_share_that_there_is_not_is_refused(self, share):
        with pytest.raises(ParameterError, match=f"share={share}.*there are 20"):
            drop_outliers(np.zeros((110, 1)), np.repeat([0, 1], [90, 20]), share, seed=0)


class TestTraced:
    def test_a_real_table(self, adbench):
        trace = run_trace(WINE)
        assert trace.error is None
        assert (trace.n_rows, trace.n_outliers) == (129, 10)
        assert len(trace.auc) == len(trace.kept_outliers) == 100
        # Batches of the warm-up hold nearly the whole of this small table.
        assert np.mean(trace.kept_outliers) == pytest.approx(10 / 129, abs=0.01)
        assert trace.windows == {}
        assert trace.versions["altbi code"]

    def test_it_is_what_watching_shows(self, adbench):
        job = TraceJob(
            file="Classical/6_cardio.npz", setting="VAE, both", seed=3, rows=500, share=0.05
        )
        trace = run_trace(job)
        X, y = drop_outliers(*sample_table(*load_table("cardio"), 500), 0.05, 3)
        rows = TableEncoder().fit_transform(as_table(X))
        looks = list(observe_training(rows, y, SETTINGS["VAE, both"], 3))
        assert (trace.n_rows, trace.n_outliers) == (len(y), int(y.sum()))
        assert trace.n_outliers / trace.n_rows == pytest.approx(0.05, abs=0.002)
        assert trace.auc == [round(compute_auc(y, look.losses), 4) for look in looks]
        assert trace.kept_outliers == [round(look.kept_outliers, 4) for look in looks]
        inliers, outliers = mean_losses(np.array([look.losses for look in looks]), y, 10)
        assert trace.inlier_loss == pytest.approx(inliers, abs=1e-4)
        assert trace.outlier_loss == pytest.approx(outliers, abs=1e-4)
        assert trace.plan == SETTINGS["VAE, both"].plan()

    def test_auc_is_high_where_outliers_lose_more(self):
        assert compute_auc(np.array([0, 0, 1, 1]), np.array([0.1, 0.2, 0.3, 0.4])) == 1

    def test_windows_are_those_of_the_detector(self, adbench):
        trace = run_trace(dataclasses.replace(WINE, setting="reference"))
        X, y = load_table("wine")
        detector = ALTBI(random_state=0).fit(X)
        assert trace.windows["61-80"] == pytest.approx(
            roc_auc_score(y, detector.outlier_score(X)), abs=1e-6
        )
        # Twelve of the paper, that of the code, and the last steps of all of them.
        assert len(trace.windows) == 13 + 8

    def test_what_goes_wrong_is_told(self, tmp_path, monkeypatch):
        monkeypatch.setenv("ALTBI_ADBENCH", str(tmp_path))
        trace = run_trace(WINE)
        assert "45_wine.npz" in trace.error
        assert trace.auc == []


def a_trace(job, value=0.5, **changes):
    steps = SETTINGS[job.setting].schedule.n_steps
    series = {name: [value] * steps for name in records.SERIES}
    more = {"n_rows": 100, "n_outliers": 5, "plan": SETTINGS[job.setting].plan()}
    return Trace(**dataclasses.asdict(job), **{**series, **more, **changes})


class TestLines:
    @pytest.fixture
    def done(self, monkeypatch):
        """Jobs that were done, in place of doing them."""
        seen = []

        def pretend(jobs, limits):
            for job in jobs:
                seen.append(job)
                yield a_trace(job)

        monkeypatch.setattr(records, "_run_traces", pretend)
        return seen

    def test_what_is_there_is_not_done_again(self, tmp_path, done):
        jobs = [dataclasses.replace(WINE, seed=seed) for seed in (0, 1)]
        path = tmp_path / "new" / "traces.jsonl"
        run_traces(path, jobs[:1], Limits(), lambda traces, _: traces)
        run_traces(path, [*jobs, jobs[1]], Limits(), lambda traces, _: traces)
        assert done == jobs
        assert [trace.job for trace in read_traces(path)] == jobs

    def test_a_half_written_line_is_done_again(self, tmp_path, done):
        path = tmp_path / "traces.jsonl"
        run_traces(path, [WINE], Limits(), lambda traces, _: traces)
        whole = path.read_bytes()
        path.write_bytes(whole + whole[:30])
        run_traces(path, [WINE], Limits(), lambda traces, _: traces)
        assert path.read_bytes() == whole
        assert done == [WINE]

    @pytest.mark.parametrize(("retry", "again"), [(False, 0), (True, 1)])
    def test_failed_ones_are_done_again_when_asked(self, tmp_path, done, retry, again):
        path = tmp_path / "traces.jsonl"
        failed = a_trace(WINE, error="it broke")
        path.write_text(json.dumps(dataclasses.asdict(failed)) + "\n")
        run_traces(path, [WINE], Limits(), lambda traces, _: traces, retry=retry)
        assert len(done) == again

    @pytest.mark.parametrize(
        "change",
        [
            {"setting": "nobody's"},
            {"auc": [0.5]},
            {"n_rows": 0},
            {"n_outliers": 100},
            {"file": [1]},
            {"file": "Classical/0_nothing.npz"},
            {"seed": "0"},
            {"share": "0.1"},
            {"windows": None},
            {name: [0.5] * 99 for name in records.SERIES},
            {"setting": "reference", "plan": SETTINGS["reference"].plan()}
            | {name: [0.5] * 110 for name in records.SERIES},
            {"windows": {"61-80": 7.0}},
            {"plan": None},
            {"error": 3},
            {"auc": [2.0] * 100},
            {"kept_outliers": ["0.5"] * 100},
            {"no_such": 1},
        ],
    )
    def test_a_line_that_is_no_trace_is_named(self, tmp_path, change):
        path = tmp_path / "traces.jsonl"
        good = dataclasses.asdict(a_trace(WINE))
        path.write_text(json.dumps(good) + "\n" + json.dumps({**good, **change}) + "\n")
        with pytest.raises(TableError, match=r"traces\.jsonl, line 2: not a record"):
            read_traces(path)

    def test_a_training_with_other_settings_does_not_count_and_is_done_again(self, tmp_path, done):
        path = tmp_path / "traces.jsonl"
        old = a_trace(WINE, plan={**SETTINGS["VAE"].plan(), "gamma": 1.5})
        path.write_text(json.dumps(dataclasses.asdict(old)) + "\n")
        assert current_traces(read_traces(path)) == []
        run_traces(path, [WINE], Limits(), lambda traces, _: traces)
        assert done == [WINE]
        (now,) = current_traces(read_traces(path))
        assert now.plan == SETTINGS["VAE"].plan()

    def test_a_training_over_its_limit_is_a_line(self, tmp_path, adbench):
        path = tmp_path / "traces.jsonl"
        run_traces(path, [WINE], Limits(seconds=0.001), lambda traces, _: traces)
        (trace,) = read_traces(path)
        assert trace.error
        assert trace.job == WINE
