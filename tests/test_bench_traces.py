"""Trainings that are watched: what is seen is what the detector does, and lines are whole."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

from altbi import ALTBI
from altbi.bench import traces as module
from altbi.bench.run import Limits
from altbi.bench.traces import (
    SETTINGS,
    Setting,
    Trace,
    TraceJob,
    Watched,
    mean_losses,
    read_traces,
    run_traces,
    traced,
    watch,
    with_share,
)
from altbi.encode import TableEncoder
from altbi.errors import ParameterError, TableError
from altbi.schedule import Schedule
from altbi.table import as_table

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
        losses = np.array([each for _, each in watch(rows, y, setting, seed=7)])
        last = losses[-5:].astype(float)
        low, width = last.min(1, keepdims=True), np.ptp(last, axis=1, keepdims=True)
        watched = ((last - low) / width).mean(0)
        plan = dataclasses.asdict(setting.schedule)
        detector = ALTBI.reference(**plan, random_state=7).fit(X)
        assert watched == pytest.approx(detector.anomaly_score(X), abs=1e-5)

    def test_there_is_a_look_after_each_step_and_the_model_learns(self, table):
        X, y = table
        rows = TableEncoder().fit_transform(as_table(X))
        losses = [each.mean() for _, each in watch(rows, y, short(T2=60), seed=0)]
        assert len(losses) == 62
        assert np.mean(losses[-5:]) < losses[0] - 0.5

    def test_a_seed_is_a_training(self, table):
        X, y = table
        rows = TableEncoder().fit_transform(as_table(X))
        one, again, other = (
            [each.tolist() for _, each in watch(rows, y, short(), seed)] for seed in (0, 0, 1)
        )
        assert one == again != other

    def test_the_global_random_state_is_left_alone(self, table):
        X, y = table
        rows = TableEncoder().fit_transform(as_table(X))
        before = torch.get_rng_state()
        list(watch(rows, y, short(), seed=0))
        assert torch.equal(before, torch.get_rng_state())

    def test_no_label_reaches_the_model(self, table):
        X, y = table
        rows = TableEncoder().fit_transform(as_table(X))
        one, other = (
            [each.tolist() for _, each in watch(rows, labels, short(), 0)] for labels in (y, 1 - y)
        )
        assert one == other


class TestWatched:
    def test_kept_outliers_are_counted_among_the_smallest_losses(self):
        class FirstColumn(nn.Module):
            def forward(self, rows):
                assert rows.shape[1] == 1
                return rows[:, 0]

        watched = Watched(FirstColumn())
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
        inliers, outliers = mean_losses(losses, y)
        low, high = np.quantile(losses, [0.01, 0.99])
        assert high < 100
        expected = (np.clip(np.arange(90), low, high) - low).mean() / (high - low)
        assert inliers == pytest.approx([expected, expected])
        assert (outliers > inliers).all()
        assert (outliers <= 1).all()

    def test_equal_losses_have_no_gap(self):
        inliers, outliers = mean_losses(np.ones((1, 10), dtype=np.float32), np.arange(10) % 2)
        assert inliers.tolist() == outliers.tolist() == [0]


class TestShare:
    def test_all_inliers_stay_and_outliers_as_asked(self):
        X, y = np.arange(110.0)[:, None], np.repeat([0, 1], [90, 20])
        few, labels = with_share(X, y, 0.1, seed=0)
        assert (labels == 0).sum() == 90
        assert labels.sum() == 10
        assert (np.diff(few[:, 0]) > 0).all()
        assert set(few[labels == 1, 0]) <= set(range(90, 110))
        other, _ = with_share(X, y, 0.1, seed=1)
        assert other.tolist() != few.tolist()

    @pytest.mark.parametrize("share", [0.5, 0.001])
    def test_a_share_that_there_is_not_is_refused(self, share):
        with pytest.raises(ParameterError, match=f"share={share}.*there are 20"):
            with_share(np.zeros((110, 1)), np.repeat([0, 1], [90, 20]), share, seed=0)


class TestTraced:
    def test_a_real_table(self, adbench):
        trace = traced(WINE)
        assert trace.error is None
        assert (trace.n_rows, trace.n_outliers) == (129, 10)
        assert len(trace.auc) == len(trace.kept_outliers) == 100
        # Batches of the warm-up hold nearly the whole of this small table.
        assert np.mean(trace.kept_outliers) == pytest.approx(10 / 129, abs=0.01)
        assert trace.windows == {}
        assert trace.versions["altbi code"]

    def test_windows_are_those_of_the_detector(self, adbench, table):
        trace = traced(dataclasses.replace(WINE, setting="reference"))
        from altbi.bench.datasets import load_table

        X, y = load_table("wine")
        detector = ALTBI.reference(random_state=0).fit(X)
        assert trace.windows["61-80"] == pytest.approx(
            roc_auc_score(y, detector.anomaly_score(X)), abs=1e-6
        )
        assert len(trace.windows) == 13

    def test_what_goes_wrong_is_told(self, tmp_path, monkeypatch):
        monkeypatch.setenv("ALTBI_ADBENCH", str(tmp_path))
        trace = traced(WINE)
        assert "45_wine.npz" in trace.error
        assert trace.auc == []


def a_trace(job, value=0.5, **changes):
    steps = SETTINGS[job.setting].schedule.steps
    series = {name: [value] * steps for name in module.SERIES}
    return Trace(**dataclasses.asdict(job), **{**series, **changes})


class TestLines:
    @pytest.fixture
    def done(self, monkeypatch):
        """Jobs that were done, in place of doing them."""
        seen = []

        def pretend(jobs, limits):
            for job in jobs:
                seen.append(job)
                yield a_trace(job)

        monkeypatch.setattr(module, "_traces", pretend)
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
        failed = Trace(**dataclasses.asdict(WINE), error="it broke")
        path.write_text(json.dumps(dataclasses.asdict(failed)) + "\n")
        run_traces(path, [WINE], Limits(), lambda traces, _: traces, retry=retry)
        assert len(done) == again

    @pytest.mark.parametrize(
        "change",
        [
            {"setting": "nobody's"},
            {"auc": [0.5]},
            {"auc": [2.0] * 100},
            {"kept_outliers": ["0.5"] * 100},
            {"no_such": 1},
        ],
    )
    def test_a_line_that_is_no_trace_is_named(self, tmp_path, change):
        path = tmp_path / "traces.jsonl"
        good = dataclasses.asdict(a_trace(WINE))
        path.write_text(json.dumps(good) + "\n" + json.dumps({**good, **change}) + "\n")
        with pytest.raises(TableError, match=r"traces\.jsonl, line 2: not a run"):
            read_traces(path)

    def test_a_training_over_its_limit_is_a_line(self, tmp_path, adbench):
        path = tmp_path / "traces.jsonl"
        run_traces(path, [WINE], Limits(seconds=0.001), lambda traces, _: traces)
        (trace,) = read_traces(path)
        assert trace.error
        assert trace.job == WINE
