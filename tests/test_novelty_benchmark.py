import importlib.util
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import IsolationForest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "novelty.py"
LABELS = np.random.default_rng(5).permutation([0] * 100 + [1] * 20)


@pytest.fixture(scope="module")
def novelty():
    spec = importlib.util.spec_from_file_location("novelty", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def shuffled(novelty, monkeypatch):
    """In place of any file: normal rows around 0, outliers around 9."""
    rows = np.random.default_rng(0).normal(size=(120, 2)) + 9 * LABELS[:, None]
    monkeypatch.setattr(novelty, "load", lambda dataset: (rows, LABELS))
    monkeypatch.setattr(novelty, "locate", lambda dataset: None)


class TestSplit:
    @pytest.mark.parametrize(
        ("protocol", "train_inliers", "test_inliers", "test_outliers"),
        [("70/30", 70, 30, 20), ("60/40", 60, 40, 8)],
    )
    def test_train_holds_inliers_only_and_no_row_is_in_both(
        self, novelty, protocol, train_inliers, test_inliers, test_outliers
    ):
        train, test = novelty.split(LABELS, protocol, seed=0)

        assert np.bincount(LABELS[train], minlength=2).tolist() == [train_inliers, 0]
        assert np.bincount(LABELS[test]).tolist() == [test_inliers, test_outliers]
        rows = np.concatenate([train, test])
        assert len(set(rows.tolist())) == len(rows)

    def test_60_40_keeps_the_share_of_outliers_of_every_table(self, novelty):
        for n_outliers in range(5, 60):
            labels = np.repeat([0, 1], [200, n_outliers])

            _, test = novelty.split(labels, "60/40", seed=1)

            assert abs(labels[test].sum() - 0.4 * n_outliers) <= 0.5

    @pytest.mark.parametrize("protocol", ["70/30", "60/40"])
    def test_the_seed_decides_and_repeats(self, novelty, protocol):
        first, again, other = (novelty.split(LABELS, protocol, seed) for seed in (0, 0, 1))

        for part in (0, 1):
            np.testing.assert_array_equal(first[part], again[part])
        assert set(first[0]) != set(other[0])
        assert set(first[1]) != set(other[1])

    def test_which_outliers_are_put_aside_is_drawn_too(self, novelty):
        outliers = [
            {row for row in novelty.split(LABELS, "60/40", seed)[1] if LABELS[row]}
            for seed in (0, 1)
        ]

        assert outliers[0] != outliers[1]


class TestSystems:
    def test_the_fifth_neighbour_is_measured_in_columns_scaled_on_the_training_rows(self, novelty):
        train = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [50.0]])

        scores = novelty.SYSTEMS["kNN-5"](0).fit(train).score_samples(np.array([[0.0], [10.0]]))

        np.testing.assert_allclose(scores, -np.array([4.0, 10.0]) / train.std())

    def test_altbi_is_the_preset_with_the_seed_of_the_job(self, novelty):
        plain, whole = (novelty.SYSTEMS[f"ALTBI novelty{end}"](7) for end in ("", ", rho=1"))

        assert (plain.T2, plain.rho, plain.random_state) == (90, 0.92, 7)
        assert (whole.T2, whole.rho, whole.random_state) == (90, 1, 7)


class TestRuns:
    def test_a_system_is_fitted_on_the_training_inliers_and_scored_on_the_test(
        self, novelty, shuffled, monkeypatch
    ):
        seen = {}

        class Spy:
            def fit(self, rows):
                seen["train"] = rows
                return self

            def score_samples(self, rows):
                seen["test"] = rows
                return -rows[:, 0]

        monkeypatch.setitem(novelty.SYSTEMS, "IForest", lambda seed: Spy())

        run = novelty.run_job(novelty.Job("wine", "IForest", 0), "60/40")

        assert (len(seen["train"]), len(seen["test"])) == (60, 48)
        assert seen["train"].max() < 5 < seen["test"].max()
        assert (run.n_rows, run.n_outliers, run.protocol, run.auc) == (48, 8, "60/40", 1.0)

    def test_lines_are_not_run_again_and_a_failure_is_a_line_that_is(
        self, novelty, shuffled, monkeypatch, tmp_path
    ):
        built = []

        def moody(seed):
            built.append(seed)
            if len(built) == 2:
                raise RuntimeError("bad day")
            return IsolationForest(n_estimators=5, random_state=seed)

        monkeypatch.setitem(novelty.SYSTEMS, "IForest", moody)
        wanted = (["wine"], ["IForest"], 2)
        lines, jobs = tmp_path / "lines", novelty.plan(*wanted)

        novelty.run_all(lines, jobs, novelty.PROTOCOLS, novelty.run_job)
        errors = [run.error for p in novelty.PROTOCOLS for run in novelty.read(lines, p)]
        assert errors == [None, "RuntimeError: bad day", None, None]
        assert "- missing in 70/30: wine, IForest, seed 1: RuntimeError" in novelty.report(
            lines, *wanted
        )

        novelty.run_all(lines, jobs, novelty.PROTOCOLS, novelty.run_job)
        assert built == [0, 1, 0, 1, 1]
        assert "missing" not in novelty.report(lines, *wanted)

    def test_each_protocol_shows_its_own_numbers(self, novelty, tmp_path):
        for protocol, auc in (("70/30", 0.25), ("60/40", 0.75)):
            run = novelty.ProtocolRun(
                protocol=protocol, dataset="wine", system="IForest", seed=0, auc=auc,
                average_precision=0.5, n_rows=6, n_features=2, n_outliers=2,
            )  # fmt: skip
            novelty.append(tmp_path / "lines", run)

        text = novelty.report(tmp_path / "lines", ["wine"], ["IForest"], 1)

        first, second = (text.split(f"### {protocol}: AUC")[1] for protocol in novelty.PROTOCOLS)
        assert "| wine | 0.250 | 0.724 |" in first.split("###")[0]
        assert "| wine | 0.750 | 0.724 |" in second.split("###")[0]
        assert "mean of all 1 | 0.750" in second
