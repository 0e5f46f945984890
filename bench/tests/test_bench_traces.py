"""Tests of observed trainings and their records."""

import dataclasses
import json

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from altbi import ALTBI, IWAE, Schedule
from altbi.encoding import TableEncoder
from altbi.errors import ParameterError, TableError
from altbi.table import as_table
from altbi_bench.catalogue.datasets import load_table
from altbi_bench.catalogue.protocols import sample_table
from altbi_bench.runs.runner import Limits
from altbi_bench.traces import records
from altbi_bench.traces.records import current_traces, read_traces, run_traces
from altbi_bench.traces.settings import SETTINGS, LabelledTraining, Setting, observe_training
from altbi_bench.traces.trace import (
    Trace,
    TraceJob,
    compute_auc,
    drop_outliers,
    mean_losses,
    run_trace,
)

pytestmark = pytest.mark.slow

WINE = TraceJob(file="Classical/45_wine.npz", setting="VAE", seed=0, rows=5000)


@pytest.fixture(scope="module")
def table():
    """Return two correlated columns with outliers of the opposite correlation."""
    generator = np.random.default_rng(0)
    inliers = generator.normal(size=(400, 1)) * [1.0, 1.0] + 0.05 * generator.normal(size=(400, 2))
    outliers = generator.normal(size=(40, 1)) * [1.0, -1.0]
    return np.vstack([inliers, outliers]), np.repeat([0, 1], [400, 40])


def build_setting(**changes):
    plan = {"n0": 32, "gamma": 1.1, "rho": 0.9, "T0": 2, "T1": 3, "T2": 8, "updates": 2}
    return Setting(2, Schedule(**{**plan, "first_truncated": 2, "max_batch": None, **changes}))


class TestObserveTraining:
    def test_observed_training_is_that_of_the_detector(self, table):
        X, y = table
        setting = build_setting()
        rows = TableEncoder().fit_transform(as_table(X))
        losses = np.array([step.snapshot for step in observe_training(rows, y, setting, seed=7)])
        last = losses[-5:].astype(float)
        low, width = last.min(1, keepdims=True), np.ptp(last, axis=1, keepdims=True)
        averaged = ((last - low) / width).mean(0)
        detector = ALTBI(schedule=setting.schedule, random_state=7).fit(X)
        assert averaged == pytest.approx(detector.outlier_score(X), abs=1e-5)

    def test_every_step_is_observed_and_losses_decrease(self, table):
        X, y = table
        rows = TableEncoder().fit_transform(as_table(X))
        losses = [
            step.losses.mean() for step in observe_training(rows, y, build_setting(T2=60), seed=0)
        ]
        assert len(losses) == 62
        assert np.mean(losses[-5:]) < losses[0] - 0.5

    def test_training_is_determined_by_its_seed(self, table):
        X, y = table
        rows = TableEncoder().fit_transform(as_table(X))
        one, again, other = (
            [step.losses.tolist() for step in observe_training(rows, y, build_setting(), seed)]
            for seed in (0, 0, 1)
        )
        assert one == again != other

    def test_global_random_state_is_unchanged(self, table):
        X, y = table
        rows = TableEncoder().fit_transform(as_table(X))
        before = np.random.get_state()[1].copy()  # noqa: NPY002
        list(observe_training(rows, y, build_setting(), seed=0))
        assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002

    def test_labels_do_not_change_the_training(self, table):
        X, y = table
        rows = TableEncoder().fit_transform(as_table(X))
        one, other = (
            [step.losses.tolist() for step in observe_training(rows, labels, build_setting(), 0)]
            for labels in (y, 1 - y)
        )
        assert one == other

    def test_losses_vary_less_than_snapshots(self, table):
        X, y = table
        rows = TableEncoder().fit_transform(as_table(X))
        steps = list(observe_training(rows, y, build_setting(T0=30, T1=1, T2=60), seed=0))
        changes = {
            name: np.mean([np.abs(np.diff([getattr(step, name).mean() for step in steps[-20:]]))])
            for name in ("losses", "snapshot")
        }
        assert changes["losses"] < changes["snapshot"] / 2

    def test_kept_outliers_follow_the_truncation(self, table):
        X, y = table
        rows = TableEncoder().fit_transform(as_table(X))
        # Each batch is the table. Half of it is kept from the second step after the warm-up.
        setting = build_setting(n0=440, gamma=1.0, rho=0.5)
        kept = [step.kept_outliers for step in observe_training(rows, y, setting, seed=0)]
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
    def test_settings_are_those_of_the_paper(self, name, expected):
        plan = SETTINGS[name].plan()
        names = ("draws", "n0", "gamma", "rho", "T0", "T1", "T2", "updates", "first_truncated")
        assert tuple(plan[each] for each in names) == expected
        assert plan["learning_rate"] == 1e-3
        assert len(SETTINGS) == 6


class TestLabelledTraining:
    def test_kept_outliers_are_among_the_smallest_losses(self):
        class FirstColumn:
            def update(self, rows, objective):
                assert rows.shape[1] == 1
                return objective(rows[:, 0])[0]

        model = LabelledTraining(IWAE().choose_sizes(1).build())
        model.training = FirstColumn()
        #                     loss, label
        labelled = np.array([[1.0, 0], [2.0, 1], [3.0, 0], [4.0, 0], [9.0, 1]])
        assert model.update(labelled, lambda losses: (losses.sum(), losses)) == 19
        assert model.kept_outliers(1.0) == pytest.approx(2 / 5)
        assert model.kept_outliers(0.8) == pytest.approx(1 / 4)
        assert model.kept_outliers(0.25) == pytest.approx(1 / 2)


class TestMeanLosses:
    def test_losses_are_clipped_and_scaled(self):
        losses = np.zeros((2, 100), dtype=np.float32)
        losses[0] = np.arange(100)
        losses[1] = np.arange(100)
        losses[1, 99] = 1e6  # one extreme loss must not set the range
        y = (np.arange(100) >= 90).astype(int)
        inliers, outliers = mean_losses(losses, y, 0)
        low, high = np.quantile(losses, [0.01, 0.99])
        assert high < 100
        expected = (np.clip(np.arange(90), low, high) - low).mean() / (high - low)
        assert inliers == pytest.approx([expected, expected])
        assert (outliers > inliers).all()
        assert (outliers <= 1).all()

    def test_equal_losses_have_equal_means(self):
        inliers, outliers = mean_losses(np.ones((1, 10), dtype=np.float32), np.arange(10) % 2, 0)
        assert inliers.tolist() == outliers.tolist() == [0]

    def test_warm_up_does_not_change_the_range(self):
        losses = np.tile(np.arange(100, dtype=np.float32), (3, 1))
        losses[0] *= 1000
        y = (np.arange(100) >= 90).astype(int)
        inliers, outliers = mean_losses(losses, y, 1)
        calm = mean_losses(losses[1:], y, 0)
        assert inliers[1:] == pytest.approx(calm[0])
        assert outliers[1:] == pytest.approx(calm[1])
        assert inliers[0] > 0.9


class TestDropOutliers:
    def test_inliers_stay_and_outliers_are_sampled(self):
        X, y = np.arange(110.0)[:, None], np.repeat([0, 1], [90, 20])
        few, labels = drop_outliers(X, y, 0.1, seed=0)
        assert (labels == 0).sum() == 90
        assert labels.sum() == 10
        assert (np.diff(few[:, 0]) > 0).all()
        assert set(few[labels == 1, 0]) <= set(range(90, 110))
        other, _ = drop_outliers(X, y, 0.1, seed=1)
        assert other.tolist() != few.tolist()

    @pytest.mark.parametrize("share", [0.5, 0.001])
    def test_unavailable_share_raises(self, share):
        with pytest.raises(ParameterError, match=f"share={share}.*there are 20"):
            drop_outliers(np.zeros((110, 1)), np.repeat([0, 1], [90, 20]), share, seed=0)


class TestRunTrace:
    def test_trace_of_a_real_table_is_complete(self, adbench):
        trace = run_trace(WINE)
        assert trace.error is None
        assert (trace.n_rows, trace.n_outliers) == (129, 10)
        assert len(trace.auc) == len(trace.kept_outliers) == 100
        # Batches have nearly all rows of this small table.
        assert np.mean(trace.kept_outliers) == pytest.approx(10 / 129, abs=0.01)
        assert trace.windows == {}
        assert trace.versions["altbi code"]

    def test_trace_equals_the_observed_training(self, adbench):
        job = TraceJob(
            file="Classical/6_cardio.npz", setting="VAE, both", seed=3, rows=500, share=0.05
        )
        trace = run_trace(job)
        X, y = drop_outliers(*sample_table(*load_table("cardio"), 500), 0.05, 3)
        rows = TableEncoder().fit_transform(as_table(X))
        steps = list(observe_training(rows, y, SETTINGS["VAE, both"], 3))
        assert (trace.n_rows, trace.n_outliers) == (len(y), int(y.sum()))
        assert trace.n_outliers / trace.n_rows == pytest.approx(0.05, abs=0.002)
        assert trace.auc == [round(compute_auc(y, step.losses), 4) for step in steps]
        assert trace.kept_outliers == [round(step.kept_outliers, 4) for step in steps]
        inliers, outliers = mean_losses(np.array([step.losses for step in steps]), y, 10)
        assert trace.inlier_loss == pytest.approx(inliers, abs=1e-4)
        assert trace.outlier_loss == pytest.approx(outliers, abs=1e-4)
        assert trace.plan == SETTINGS["VAE, both"].plan()

    def test_auc_grows_with_losses_of_outliers(self):
        assert compute_auc(np.array([0, 0, 1, 1]), np.array([0.1, 0.2, 0.3, 0.4])) == 1

    def test_window_auc_is_that_of_the_detector(self, adbench):
        trace = run_trace(dataclasses.replace(WINE, setting="reference"))
        X, y = load_table("wine")
        detector = ALTBI(random_state=0).fit(X)
        assert trace.windows["61-80"] == pytest.approx(
            roc_auc_score(y, detector.outlier_score(X)), abs=1e-6
        )
        # Twelve windows of the paper, the code's, and their last steps.
        assert len(trace.windows) == 13 + 8

    def test_failure_is_recorded(self, tmp_path, monkeypatch):
        monkeypatch.setenv("ALTBI_ADBENCH", str(tmp_path))
        trace = run_trace(WINE)
        assert "45_wine.npz" in trace.error
        assert trace.auc == []


def build_trace(job, value=0.5, **changes):
    steps = SETTINGS[job.setting].schedule.n_steps
    series = {name: [value] * steps for name in records.SERIES}
    more = {"n_rows": 100, "n_outliers": 5, "plan": SETTINGS[job.setting].plan()}
    return Trace(**dataclasses.asdict(job), **{**series, **more, **changes})


class TestRecords:
    @pytest.fixture
    def done(self, monkeypatch):
        """Return the jobs that would have run."""
        seen = []

        def return_traces(jobs, limits):
            for job in jobs:
                seen.append(job)
                yield build_trace(job)

        monkeypatch.setattr(records, "_run_traces", return_traces)
        return seen

    def test_recorded_jobs_are_not_repeated(self, tmp_path, done):
        jobs = [dataclasses.replace(WINE, seed=seed) for seed in (0, 1)]
        path = tmp_path / "new" / "traces.jsonl"
        run_traces(path, jobs[:1], Limits(), lambda traces, _: traces)
        run_traces(path, [*jobs, jobs[1]], Limits(), lambda traces, _: traces)
        assert done == jobs
        assert [trace.job for trace in read_traces(path)] == jobs

    def test_incomplete_record_is_removed(self, tmp_path, done):
        path = tmp_path / "traces.jsonl"
        run_traces(path, [WINE], Limits(), lambda traces, _: traces)
        complete = path.read_bytes()
        path.write_bytes(complete + complete[:30])
        run_traces(path, [WINE], Limits(), lambda traces, _: traces)
        assert path.read_bytes() == complete
        assert done == [WINE]

    @pytest.mark.parametrize(("retry", "again"), [(False, 0), (True, 1)])
    def test_failed_jobs_run_again_with_retry(self, tmp_path, done, retry, again):
        path = tmp_path / "traces.jsonl"
        failed = build_trace(WINE, error="it broke")
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
    def test_invalid_record_raises_with_its_line(self, tmp_path, change):
        path = tmp_path / "traces.jsonl"
        good = dataclasses.asdict(build_trace(WINE))
        path.write_text(json.dumps(good) + "\n" + json.dumps({**good, **change}) + "\n")
        with pytest.raises(TableError, match=r"traces\.jsonl, line 2: not a record"):
            read_traces(path)

    def test_outdated_settings_run_again(self, tmp_path, done):
        path = tmp_path / "traces.jsonl"
        old = build_trace(WINE, plan={**SETTINGS["VAE"].plan(), "gamma": 1.5})
        path.write_text(json.dumps(dataclasses.asdict(old)) + "\n")
        assert current_traces(read_traces(path)) == []
        run_traces(path, [WINE], Limits(), lambda traces, _: traces)
        assert done == [WINE]
        (now,) = current_traces(read_traces(path))
        assert now.plan == SETTINGS["VAE"].plan()

    def test_training_over_its_limit_is_recorded(self, tmp_path, adbench):
        path = tmp_path / "traces.jsonl"
        run_traces(path, [WINE], Limits(seconds=0.001), lambda traces, _: traces)
        (trace,) = read_traces(path)
        assert trace.error == "over the limit of 0.001 seconds"
        assert trace.job == WINE
