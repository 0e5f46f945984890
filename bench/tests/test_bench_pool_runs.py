"""Tests of the runs on the pools, and of the process of another version."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

from altbi.errors import TableError
from altbi_bench.runs import pools
from altbi_bench.runs.other_version import VersionProcess
from altbi_bench.runs.pools import (
    OLD,
    OURS,
    POOL_SYSTEMS,
    PoolJob,
    get_key,
    list_jobs,
    measure_pool_job,
    run_pool_jobs,
)
from bench_pools import build_record, build_rows, build_table

OTHER_VERSION = """
import os
import numpy as np
class ALTBI:
    def __init__(self, random_state):
        self.seed = random_state
    def fit(self, X):
        if self.seed == 1:
            raise ValueError("bad seed")
        if self.seed == 2:
            os._exit(3)
        return self
    def score_samples(self, X):
        return -np.abs(X).sum(axis=1)
"""
X, Y = build_rows()
# A column whose unit hides the outliers unless columns are standardised.
WIDE = np.column_stack([X, 1e4 * np.random.default_rng(1).normal(size=len(X))])


@pytest.fixture
def job(tmp_path):
    """Return a job on a small table."""
    return write_job(tmp_path, X, Y)


@pytest.fixture
def other(tmp_path):
    """Write the sources of another version, and return their folder."""
    (tmp_path / "source" / "altbi").mkdir(parents=True)
    (tmp_path / "source" / "altbi" / "__init__.py").write_text(OTHER_VERSION, encoding="utf-8")
    return tmp_path / "source"


def write_job(folder, rows, labels, system="kNN 5"):
    np.savez(folder / "t.npz", X=rows, y=labels)
    return PoolJob("oddbench", "confirm", "t", system, 0, folder / "t.npz")


def list_names(tables, folder, systems, *, n_seeds=1, done=()):
    jobs = list_jobs(tables, folder, systems=systems, n_seeds=n_seeds, done=set(done))
    return [(job.table, job.system, job.seed) for job in jobs]


class TestListJobs:
    def test_small_tables_come_first_with_all_systems(self, tmp_path):
        tables = [build_table("large", n_rows=90), build_table("small")]

        assert list_names(tables, tmp_path, ["LOF", "PCA"]) == [
            ("small", "LOF", 0),
            ("small", "PCA", 0),
            ("large", "LOF", 0),
            ("large", "PCA", 0),
        ]

    def test_only_seeded_systems_have_further_seeds(self, tmp_path):
        tables = [build_table("a"), build_table("b", n_rows=90)]

        assert list_names(tables, tmp_path, ["LOF", "IForest"], n_seeds=2) == [
            ("a", "LOF", 0),
            ("a", "IForest", 0),
            ("b", "LOF", 0),
            ("b", "IForest", 0),
            ("a", "IForest", 1),
            ("b", "IForest", 1),
        ]

    def test_version_01_has_all_seeds(self, tmp_path):
        assert len(list_names([build_table("a")], tmp_path, [OLD], n_seeds=3)) == 3

    def test_slow_systems_follow_on_some_tables(self, tmp_path, monkeypatch):
        monkeypatch.setattr(pools, "N_SLOW_TABLES", 1)
        tables = [build_table("a"), build_table("b"), build_table("c")]

        names = list_names(tables, tmp_path, ["ODIM", "IForest"], n_seeds=2)

        found = [(system, seed) for _, system, seed in names]
        by_seed = [3 * [("IForest", seed)] + [("ODIM", seed)] for seed in (0, 1)]
        assert found == by_seed[0] + by_seed[1]

    def test_wide_tables_are_last_for_slow_systems(self, tmp_path):
        tables = [build_table("wide", n_features=100), build_table("long", n_rows=4000)]

        for system in ("MCD", "GLOW"):
            names = list_names(tables, tmp_path, [system], n_seeds=2)
            assert [table for table, *_ in names] == ["long", "long", "wide", "wide"]

    def test_jobs_with_a_record_are_left_out(self, tmp_path):
        done = [get_key(build_record("LOF", "a", 0.5)), get_key(build_record("PCA", "a", None))]
        done.append(get_key(build_record("HBOS", "a", 0.5, pool="ovrbench")))

        names = list_names([build_table("a")], tmp_path, ["LOF", "PCA", "HBOS"], done=done)

        assert names == [("a", "HBOS", 0)]

    def test_tables_are_written_for_their_jobs(self, tmp_path):
        (job,) = list_jobs([build_table("a")], tmp_path, systems=["LOF"], n_seeds=1, done=set())

        with np.load(job.path) as arrays:
            np.testing.assert_array_equal(arrays["X"], X)
            np.testing.assert_array_equal(arrays["y"], Y)


class TestMeasurePoolJob:
    def test_columns_are_standardised_for_other_systems(self, tmp_path):
        found = measure_pool_job(write_job(tmp_path, WIDE, Y))

        rows = StandardScaler().fit_transform(WIDE)
        # The first neighbour of a row is the row itself.
        distances = NearestNeighbors(n_neighbors=6).fit(rows).kneighbors(rows)[0][:, 5]
        assert found["auc"] == roc_auc_score(Y, distances)
        assert found["seconds"] > 0

    @pytest.mark.parametrize("number", [5, 32])
    def test_recipes_have_their_number_of_neighbours(self, number):
        system = POOL_SYSTEMS[f"kNN {number}"]

        assert system.describe("unsupervised")[1] == {"n_neighbors": number}

    def test_our_detector_finds_far_rows(self, job):
        assert measure_pool_job(replace(job, system=OURS))["auc"] == 1

    def test_labels_of_one_class_raise_an_error(self, tmp_path):
        with pytest.raises(TableError, match="0 of the 60 rows"):
            measure_pool_job(write_job(tmp_path, X, np.zeros_like(Y)))

    def test_version_01_is_measured_with_its_sources(self, job, other):
        found = measure_pool_job(replace(job, system=OLD, old=other))

        assert found["auc"] == roc_auc_score(Y, np.abs(X).sum(axis=1))

    def test_version_01_is_started_again_after_its_end(self, job, other):
        ours = replace(job, system=OLD, old=other)
        with pytest.raises(ChildProcessError):
            measure_pool_job(replace(ours, seed=2))

        assert measure_pool_job(ours)["auc"] > 0.9


class TestRunPoolJobs:
    def test_failures_are_recorded_with_their_reason(self, tmp_path, job):
        bad = replace(job, table="bad", path=tmp_path / "missing.npz")

        found = {each["table"]: each for each in run_pool_jobs([bad, job], seconds=60)}

        assert found["bad"]["error"].startswith("FileNotFoundError: ")
        assert "auc" not in found["bad"]
        assert found["t"].keys() == {*job.record, "auc", "ap", "seconds"}

    def test_jobs_over_the_limit_are_recorded(self, job):
        (found,) = run_pool_jobs([job], seconds=0.01)

        assert found == job.record | {"error": "over the limit of 0.01 seconds"}


class TestVersionProcess:
    def test_error_of_a_detector_keeps_the_process(self, job, other):
        measured = {"path": str(job.path), "detector": "ALTBI"}
        with VersionProcess(other) as process:
            with pytest.raises(RuntimeError, match="ValueError: bad seed"):
                process.measure(measured | {"seed": 1})

            assert process.measure(measured | {"seed": 0})["auc"] > 0.9

    def test_ended_process_raises_an_error(self, job, other):
        measured = {"path": str(job.path), "detector": "ALTBI", "seed": 2}
        process = VersionProcess(other)

        for _ in range(2):  # while it ends, and afterwards
            with pytest.raises(ChildProcessError, match="The process of the other version ended"):
                process.measure(measured)
